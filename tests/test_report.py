"""The verb ``report`` on models of both engines: numbers of the model, the same bytes again, errors in one line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from streaming_jsmf import InferSettings, ScanSettings, StodSettings, infer, report
from streaming_jsmf.evaluation.metrics import SHOWN
from streaming_jsmf.evaluation.topic_shape import dominancy
from streaming_jsmf.jobs.events import what
from streaming_jsmf.reporting.contents import read_contents
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.topics.store import Model, read_model, write_model
from tests.corpora import planted, write_corpus
from tests.damage import rewritten
from tests.html_pages import Element, page_at, values_of
from tests.outcomes import Command, Outcome, printed, refused
from tests.stores import scanned
from tests.test_report_page import HOSTILE

K = 5
ENGINES = ("lr-jsmf", "stod")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with words like markup, its moments, and a model of each engine."""
    root = tmp_path_factory.mktemp("report")
    write_corpus(root / "corpus", planted(400, 60, K, seed=3).counts)
    # A no-break space at the end of a word would be taken off with the line's end.
    names = [f"{HOSTILE[number % len(HOSTILE)]}{number}" for number in range(60)]
    (root / "corpus" / "vocab.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    settings = ScanSettings(max_topics=K, partition_nonzeros=5000, third_moment=True)
    moments = scanned(root / "corpus", root / "moments", settings)
    infer(moments, root / "lr-jsmf", InferSettings(K, max_iterations=20), workers=1)
    infer(moments, root / "stod", StodSettings(K), workers=1)
    return root


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "page.html"


def test_each_engine_shows_its_own_arrays_and_how_its_model_was_made(stores: Path, out: Path) -> None:
    for engine in ENGINES:
        report(stores / engine, out, overwrite=True)
        page, model = page_at(out), read_model(stores / engine)
        rows, shown, arrays = table_rows(page), facts(page), model.arrays
        anchored = engine == "lr-jsmf"
        anchors = [str(arrays["word"][anchor]) for anchor in arrays["anchors"]] if anchored else []
        assert [row.one("td", "anchor").text for row in rows if anchored] == anchors
        shares = [cell.value() for cell in page.all("td", "share")]
        assert shares == sorted(shares, reverse=True)
        strengths = [row.one("td", "lambda").value() for row in rows if not anchored]
        np.testing.assert_allclose(strengths, [] if anchored else arrays["lambda"], rtol=1e-5)
        assert ("no correlations between topics" in page.text) != anchored
        assert (values_of(page)["together"] is not None) == anchored
        assert len(rows) == K
        assert shown["corpus 0"] == model.provenance["corpus_fingerprints"][0]
        assert shown["fingerprint"] == model.provenance["fingerprint"]
        assert (shown["numpy"], shown["n_topics"], shown["document_weights"]) == (
            np.__version__,
            str(K),
            "capped",
        )
        date = model.provenance["committed"][:10]
        assert [entry.text for entry in page.one("dl").all("dd")][1:] == ["60", "400", date]
        assert page.one("h1").text == f"{K} topics of moments"
        stages = {row.one("th").text: row for row in page.all("tr") if row.one_or_none("th") is not None}
        for name, took in model.provenance["stages"].items():
            seconds, memory = (cell.text for cell in stages[what(name)].all("td"))
            assert seconds == f"{took['seconds']:.1f}"
            assert memory == f"{took['peak_memory'] / 2**20:,.0f} MiB"
        if not anchored:
            assert shown["alpha0"] == f"{model.metrics['alpha0']:.4g}"


@pytest.fixture(params=ENGINES)
def model_path(request: pytest.FixtureRequest, stores: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stores / request.param, tmp_path / "model"))


@pytest.fixture
def anchored(stores: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stores / "lr-jsmf", tmp_path / "model"))


def table_rows(page: Element) -> list[Element]:
    """The rows of the topics in the order of their numbers; the page has them in the order of their shares."""
    rows = page.one("table", "topics").one("tbody").all("tr")
    return sorted(rows, key=lambda row: int(row.attributes["data-topic"] or -1))


def facts(page: Element) -> dict[str, str]:
    """The tables of names and values under the last heading."""
    rows = [row for table in page.one("div", "facts").all("table") for row in table.all("tr")]
    return {row.one("th").text: row.one("td").text for row in rows if len(row.all("td")) == 1}


def test_the_table_has_the_numbers_and_words_of_the_model(
    invoke: Command, model_path: Path, out: Path
) -> None:
    assert invoke("report", model_path, out) == Outcome(0, f"report: {out}\n", "")
    page, arrays = page_at(out), read_model(model_path).arrays
    for topic, (row, told) in enumerate(
        zip(table_rows(page), json.loads(printed("topics", model_path, "--json")), strict=True)
    ):
        assert row.one("td", "share").value() == pytest.approx(arrays["topic_probability"][topic], rel=1e-5)
        assert row.one("td", "share").text == f"{told['probability']:.1%}"
        items = row.all("li")
        assert [item.one("span").text for item in items] == told["prominent"]
        expected = arrays["word_topic"][arrays["prominent_words"][topic, :10], topic]
        np.testing.assert_allclose([item.one("data").value("value") for item in items], expected, rtol=1e-5)
        parts = [float((item.attributes["style"] or "")[len("--part: ") : -1]) for item in items]
        np.testing.assert_allclose(parts, 100 * expected / expected[0], atol=0.051)
        for kind in ("characteristic", "label"):
            assert [word.text for word in row.one("td", kind).all("span")] == told[kind]
    assert not page.all("td", "npmi")
    for words in (1, 20):
        assert invoke("report", model_path, out, "--words", words, "--overwrite").code == 0
        assert {len(row.all("li")) for row in table_rows(page_at(out))} == {words}


def test_panels_give_the_affinity_of_the_whole_matrix(
    model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_contents(model_path)
    # Seven words a chunk.
    monkeypatch.setattr("streaming_jsmf.storage.arrays.CHUNK_BYTES", 7 * 8 * K)
    write_model(tmp_path / "panels", read_model(model_path))
    assert zarr.open_array(tmp_path / "panels" / "word_topic", mode="r").chunks == (7, K)
    panels = read_contents(tmp_path / "panels")
    assert panels.topics == whole.topics
    root = np.sqrt(read_model(model_path).arrays["word_topic"])
    for contents in (whole, panels):
        np.testing.assert_allclose(contents.affinity, root.T @ root, rtol=1e-12)


def test_warnings_are_those_of_topics(invoke: Command, anchored: Path, out: Path) -> None:
    rewritten(anchored, lambda about: about["metrics"].update(topic_topic_sum=1.35))
    assert invoke("report", anchored, out).code == 0
    shown = [item.text for item in page_at(out).one("ul", "warnings").all("li")]
    assert [f"warning: {sentence}" for sentence in shown] == invoke("topics", anchored).err.splitlines()
    assert "1.35" in shown[0]


def test_counts_of_evaluate_add_the_metrics_of_documents(
    invoke: Command, model_path: Path, stores: Path, out: Path
) -> None:
    assert invoke("report", model_path, out).code == 0
    assert "streaming-jsmf evaluate MODEL --corpus CORPUS" in page_at(out).one("p", "note").text
    options = ("--corpus", stores / "corpus", "--json", "--scheduler", "synchronous")
    document = json.loads(invoke("evaluate", model_path, *options).out)
    assert invoke("report", model_path, out, "--overwrite").code == 0
    after = page_at(out)
    npmi = [row.one("td", "npmi").value() for row in table_rows(after)]
    np.testing.assert_allclose(npmi, document["metrics"]["npmi"]["per_topic"], rtol=1e-5)
    assert "400 documents" in after.one("p", "note").text
    for row, told in zip(
        table_rows(after), json.loads(invoke("topics", model_path, "--json").out), strict=True
    ):
        shown = [word.text for word in row.one("td", "characteristic").all("span")]
        assert shown == told["characteristic"]
    # A metric has the value that the table of evaluate prints.
    told = {tuple(re.split(" {2,}", line)[:2]) for line in invoke("evaluate", model_path).out.splitlines()}
    metrics = {
        row.one("th").text: row.all("td")[0].text
        for row in after.one("table", "metrics").one("tbody").all("tr")
    }
    assert set(metrics.items()) <= told
    needed = {
        "NPMI",
        "semantic coherence",
        "exclusivity (FREX)",
        "distinct words",
        "effective number of topics",
    }
    assert needed <= metrics.keys() <= {line.title for line in SHOWN}
    assert "dominancy" not in after.text, "a word of the papers"
    correlations = read_model(model_path).arrays.get("topic_topic")
    expected = None if correlations is None else f"{dominancy(correlations):.4g}"
    assert metrics.get("separateness") == expected
    [chunk] = (model_path / "evaluation").glob("*/document_pairs/c/0/0")
    chunk.write_bytes(chunk.read_bytes()[:-3])
    refused(invoke("report", model_path, out, "--overwrite"), 3, "document_pairs", "evaluate")


def test_a_model_with_no_more_than_it_must_have_has_a_page(anchored: Path, tmp_path: Path, out: Path) -> None:
    kept = ("word", "topic", "rank", "word_topic", "prominent_words", "topic_probability")
    arrays = read_model(anchored, kept).arrays
    write_model(tmp_path / "bare", Model(arrays, {}, {}, {"engine": "by-hand"}))
    report(tmp_path / "bare", out)
    assert page_at(out).one("dl").all("dd")[0].text == "by-hand"
    assert len(table_rows(page_at(out))) == K


@pytest.mark.parametrize("n_topics", [1, 2])
def test_few_topics_have_a_page(n_topics: int, stores: Path, tmp_path: Path, out: Path) -> None:
    for settings in (InferSettings(n_topics, max_iterations=5), StodSettings(n_topics)):
        model = tmp_path / settings.engine
        infer(stores / "moments", model, settings, workers=1)
        report(model, out, overwrite=True)
        page, values = page_at(out), values_of(page_at(out))
        found = read_model(model, ("topic_probability",)).arrays["topic_probability"].size
        assert len(table_rows(page)) == len(values["map"]["x"]) == found <= n_topics
        assert sorted(values["tree"]["order"]) == list(range(found))
        for element in (*page.all("table"), *page.all("aside"), *page.all("header")):
            assert not re.search(r"\b(nan|inf)\b", element.text, re.IGNORECASE)


def test_wrong_input_ends_in_one_line(
    invoke: Command, anchored: Path, stores: Path, tmp_path: Path, out: Path
) -> None:
    several = tmp_path / "several"
    shutil.copytree(anchored, several / "k=5")
    for model, page, options, parts in (
        (tmp_path / "none", out, (), [str(tmp_path / "none")]),
        (stores / "moments", out, (), [str(stores / "moments"), "model"]),
        (several, out, ("--topics", 6), ["k=6", "k=5"]),
        (anchored, out, ("--topics", 5), ["--topics"]),
        (anchored, out, ("--by", "year"), ["--by", "--shares"]),
        (anchored, out, ("--shares", tmp_path / "no"), [str(tmp_path / "no")]),
        (anchored, out, ("--words", 0), ["words is 0"]),
        (anchored, tmp_path, (), [str(tmp_path / "topics.html")]),
        (anchored, tmp_path / "no" / "page.html", (), [str(tmp_path / "no")]),
        (anchored, anchored / "page.html", (), [str(anchored), "model"]),
        (anchored, tmp_path / "page.pdf", (), ["as .pdf", ".html"]),
        (anchored, "nowhere://bucket/page.html", (), ["nowhere:"]),
        (anchored, "file:page.html", (), ["file:page.html"]),
    ):
        refused(invoke("report", model, page, *options), 2, *parts)
    refused(invoke("report", anchored), 2, "OUT.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "several"]


def test_only_a_report_is_replaced_and_only_if_asked_for(
    invoke: Command, anchored: Path, stores: Path, tmp_path: Path, out: Path
) -> None:
    assert invoke("report", anchored, out).code == 0
    first = out.read_bytes()
    refused(invoke("report", stores / "stod", out), 2, str(out), "--overwrite")
    assert out.read_bytes() == first
    assert invoke("report", stores / "stod", out, "--overwrite").code == 0
    assert out.read_bytes() != first
    out.write_bytes(b"\xff mine")
    refused(invoke("report", anchored, out, "--overwrite"), 2, str(out))
    assert out.read_bytes() == b"\xff mine"
    # Behind a URL the same.
    place = store_path(f"memory://{tmp_path.name}/page.html")
    for more in ((), ("--overwrite",)):
        assert invoke("report", anchored, place, *more).code == 0
        assert place.read_bytes() == first
    refused(invoke("report", stores / "stod", place), 2, str(place))
    refused(invoke("report", anchored, f"memory://{tmp_path.name}", "--overwrite"), 2, "memory://")


def test_damage_ends_in_one_line(invoke: Command, model_path: Path, out: Path) -> None:
    chunk = model_path / "word_topic" / "c" / "0" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-5])
    refused(invoke("report", model_path, out), 3, "word_topic/c/0")
    chunk.unlink()
    refused(invoke("report", model_path, out), 3, "word_topic/c/0/0: chunk is missing")
    chunk.write_bytes(whole)
    zarr.open_array(model_path / "word_topic", mode="r+")[3, 1] = 0.25
    refused(invoke("report", model_path, out), 3, "word_topic", "digest")
    shutil.rmtree(model_path / "topic_probability")
    refused(invoke("report", model_path, out), 3, "topic_probability")
    (model_path / "zarr.json").write_text("{")
    refused(invoke("report", model_path, out), 3, str(model_path))
    assert not out.exists()
