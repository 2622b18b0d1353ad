"""The verb ``report`` on models of both engines: numbers of the model, the same bytes again, errors in one line."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from streaming_jsmf import InferSettings, ScanSettings, StodSettings, infer, report
from streaming_jsmf.cli.results import topic_rows
from streaming_jsmf.evaluation.metrics import LINES
from streaming_jsmf.evaluation.topic_shape import dominancy
from streaming_jsmf.reporting.page import FIRST_LINES
from streaming_jsmf.reporting.read_contents import read_contents
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.topics.store import Model, read_model, write_model
from tests.corpora import planted, write_corpus
from tests.html_pages import Element, parse, values_of
from tests.outcomes import Command, Outcome, refused
from tests.processes import command, ended, finished
from tests.stores import scanned
from tests.test_report_page import HOSTILE

K = 5
ENGINES = ("lr-jsmf", "stod")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus whose words look like markup, and a model of it by each engine: ``corpus``, ``lr-jsmf``, ``stod``."""
    root = tmp_path_factory.mktemp("report")
    counts = planted(400, 60, K, seed=3).counts
    write_corpus(root / "corpus", counts)
    (root / "corpus" / "vocab.txt").write_text("\n".join(hostile_words(60)) + "\n", encoding="utf-8")
    settings = ScanSettings(max_topics=K, partition_nonzeros=5000, third_moment=True)
    moments = scanned(root / "corpus", root / "moments", settings, keep=False)
    infer(moments, root / "lr-jsmf", InferSettings(K, max_iterations=20), threads=1)
    infer(moments, root / "stod", StodSettings(K), threads=1)
    return root


def hostile_words(count: int) -> list[str]:
    # A no-break space at the end of a word would be taken off with the line's end.
    return [f"{HOSTILE[number % len(HOSTILE)]}{number}" for number in range(count)]


@pytest.fixture(params=ENGINES)
def model_path(request: pytest.FixtureRequest, stores: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stores / request.param, tmp_path / "model"))


@pytest.fixture
def anchored(stores: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stores / "lr-jsmf", tmp_path / "model"))


def page_at(path: Path) -> Element:
    return parse(path.read_text(encoding="utf-8"))


def table_rows(page: Element) -> list[Element]:
    return page.one("table", "topics").one("tbody").all("tr")


def facts(page: Element) -> dict[str, str]:
    """The tables of names and values under the last heading."""
    rows = [row for table in page.one("div", "facts").all("table") for row in table.all("tr")]
    return {row.one("th").text: row.one("td").text for row in rows if len(row.all("td")) == 1}


def test_the_table_has_the_numbers_and_words_of_the_model(
    invoke: Command, model_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    assert invoke("report", model_path, out) == Outcome(0, f"report: {out}\n", "")
    page, arrays = page_at(out), read_model(model_path).arrays
    for topic, (row, told) in enumerate(zip(table_rows(page), topic_rows(str(model_path)), strict=True)):
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


def test_each_engine_has_its_own_columns(stores: Path, tmp_path: Path) -> None:
    pages = {
        engine: page_at(Path(str(report(stores / engine, tmp_path / f"{engine}.html")))) for engine in ENGINES
    }
    anchored, tensor = (read_model(stores / engine).arrays for engine in ENGINES)
    shown = [row.one("td", "anchor").text for row in table_rows(pages["lr-jsmf"])]
    assert shown == [str(anchored["word"][anchor]) for anchor in anchored["anchors"]]
    for name in ("alpha", "lambda"):
        assert not pages["lr-jsmf"].all("td", name)
        values = [row.one("td", name).value() for row in table_rows(pages["stod"])]
        np.testing.assert_allclose(values, tensor[name], rtol=1e-5)
    assert not pages["stod"].all("td", "anchor")
    assert "no correlations between topics" in pages["stod"].text
    assert values_of(pages["lr-jsmf"])["together"] is not None
    assert values_of(pages["stod"])["together"] is None


def test_a_topic_that_repeats_another_leads_to_it(stores: Path, tmp_path: Path) -> None:
    model = read_model(stores / "stod")
    repeats = np.full(K, -1)
    repeats[3] = 1
    metrics = {**model.metrics, "duplicates": 1}
    arrays = {**model.arrays, "duplicate_of": repeats}
    write_model(tmp_path / "model", Model(arrays, model.settings, metrics, model.provenance))
    page = page_at(Path(str(report(tmp_path / "model", tmp_path / "page.html"))))
    assert [cell.text for cell in page.all("td", "repeats")] == ["", "", "", "topic 1", ""]
    [warning] = page.one("ul", "warnings").all("li")
    assert warning.text == "1 topics repeat others; use fewer topics"


def test_the_affinity_is_that_of_the_whole_matrix(model_path: Path) -> None:
    root = np.sqrt(read_model(model_path).arrays["word_topic"])
    np.testing.assert_allclose(read_contents(model_path).affinity, root.T @ root, rtol=1e-12)


def test_panels_give_what_the_whole_matrix_gives(
    anchored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_contents(anchored)
    # Seven words a chunk.
    monkeypatch.setattr("streaming_jsmf.storage.arrays.CHUNK_BYTES", 7 * 8 * K)
    write_model(tmp_path / "panels", read_model(anchored))
    assert zarr.open_array(tmp_path / "panels" / "word_topic", mode="r").chunks == (7, K)
    panels = read_contents(tmp_path / "panels")
    assert panels.topics == whole.topics
    np.testing.assert_allclose(panels.affinity, whole.affinity, rtol=1e-13)


def test_how_the_model_was_made_is_told(stores: Path, tmp_path: Path) -> None:
    for engine in ENGINES:
        page = page_at(Path(str(report(stores / engine, tmp_path / f"{engine}.html"))))
        shown, model = facts(page), read_model(stores / engine, ())
        assert shown["corpus 0"] == model.provenance["corpus_fingerprints"][0]
        assert shown["fingerprint"] == model.provenance["fingerprint"]
        assert shown["numpy"] == np.__version__
        assert shown["n_topics"] == str(K)
        assert shown["document_weights"] == "capped"
        date = model.provenance["committed"][:10]
        assert [entry.text for entry in page.one("dl").all("dd")][1:] == ["60", "400", date]
        assert page.one("h1").text == f"{K} topics of moments"
        stages = {row.one("th").text: row for row in page.all("tr") if row.one_or_none("th") is not None}
        for name, took in model.provenance["stages"].items():
            seconds, memory = (cell.text for cell in stages[name].all("td"))
            assert seconds == f"{took['seconds']:.1f}"
            assert memory == f"{took['peak_memory'] / 2**20:,.0f} MiB"
    assert shown["alpha0"] == f"{model.metrics['alpha0']:.4g}"


def test_warnings_are_those_of_topics(invoke: Command, anchored: Path, tmp_path: Path) -> None:
    model = read_model(anchored)
    metrics = {**model.metrics, "topic_topic_sum": 1.35}
    write_model(anchored, Model(model.arrays, model.settings, metrics, model.provenance), overwrite=True)
    assert invoke("report", anchored, tmp_path / "page.html").code == 0
    shown = [item.text for item in page_at(tmp_path / "page.html").one("ul", "warnings").all("li")]
    assert [f"warning: {sentence}" for sentence in shown] == invoke("topics", anchored).err.splitlines()
    assert shown[0].startswith("sum of topic correlations 1.35")


def test_counts_of_evaluate_add_the_metrics_of_documents(
    invoke: Command, model_path: Path, stores: Path, tmp_path: Path
) -> None:
    assert invoke("report", model_path, tmp_path / "before.html").code == 0
    before = page_at(tmp_path / "before.html")
    assert "streaming-jsmf evaluate MODEL --corpus CORPUS" in before.one("p", "note").text
    options = ("--corpus", stores / "corpus", "--json", "--scheduler", "synchronous")
    document = json.loads(invoke("evaluate", model_path, *options).out)
    assert invoke("report", model_path, tmp_path / "after.html").code == 0
    after = page_at(tmp_path / "after.html")
    npmi = [row.one("td", "npmi").value() for row in table_rows(after)]
    np.testing.assert_allclose(npmi, document["metrics"]["npmi"]["per_topic"], rtol=1e-5)
    assert "400 documents" in after.one("p", "note").text
    for row, told in zip(table_rows(after), document["topics"], strict=True):
        shown = [word.text for word in row.one("td", "characteristic").all("span")]
        assert shown == told["characteristic"]
    # Every metric that both know has one value, as the table of evaluate prints it.
    printed = invoke("evaluate", model_path).out
    rows = after.one("table", "metrics").one("tbody").all("tr")
    for row in rows:
        assert f"{row.one('th').text:<29} {row.all('td')[0].text:>18}" in printed
    names = {row.one("th").text for row in rows}
    assert {"npmi", "u_mass", "coherence.jsmf_2015", "distinct_share", "effective_topics"} <= names
    assert names <= {line.path for line in LINES}
    correlations = read_model(model_path).arrays.get("topic_topic")
    assert ("dominancy" in names) == (correlations is not None)
    if correlations is not None:
        [cell] = [row.all("td")[0].text for row in rows if row.one("th").text == "dominancy"]
        assert cell == f"{dominancy(correlations):.4g}"


def test_a_model_of_several_corpora_is_not_sent_for_counts(anchored: Path, tmp_path: Path) -> None:
    model = read_model(anchored)
    provenance = {**model.provenance, "corpus_fingerprints": ["a", "b"], "partitions": "1990..1999"}
    write_model(tmp_path / "two", Model(model.arrays, model.settings, model.metrics, provenance))
    page = page_at(Path(str(report(tmp_path / "two", tmp_path / "page.html"))))
    assert "models of one whole corpus only" in page.one("p", "note").text
    assert facts(page)["corpus 1"] == "b"
    assert facts(page)["partitions"] == "1990..1999"


def test_a_model_with_no_more_than_it_must_have_has_a_page(anchored: Path, tmp_path: Path) -> None:
    model = read_model(anchored)
    kept = ("word", "topic", "rank", "word_topic", "prominent_words", "topic_probability")
    arrays = {name: model.arrays[name] for name in kept}
    write_model(tmp_path / "bare", Model(arrays, {}, {}, {"engine": "by-hand"}))
    page = page_at(Path(str(report(tmp_path / "bare", tmp_path / "page.html"))))
    assert page.one("dl").all("dd")[0].text == "by-hand"
    assert len(table_rows(page)) == K


@pytest.mark.parametrize("n_topics", [1, 2])
def test_few_topics_have_a_page(n_topics: int, stores: Path, tmp_path: Path) -> None:
    for settings in (InferSettings(n_topics, max_iterations=5), StodSettings(n_topics)):
        model, out = tmp_path / settings.engine, tmp_path / f"{settings.engine}.html"
        infer(stores / "moments", model, settings, threads=1)
        report(model, out)
        page = page_at(out)
        found = read_model(model, ("topic_probability",)).arrays["topic_probability"].size
        values = values_of(page)
        assert len(table_rows(page)) == len(values["map"]["x"]) == found <= n_topics
        assert sorted(values["tree"]["order"]) == list(range(found))
        for part in ("table", "aside", "header"):
            for element in page.all(part):
                assert not re.search(r"\b(nan|inf)\b", element.text, re.IGNORECASE)


@pytest.mark.slow
def test_the_same_model_gives_the_same_bytes_anywhere(
    invoke: Command, model_path: Path, tmp_path: Path
) -> None:
    assert invoke("report", model_path, tmp_path / "first.html").code == 0
    moved = model_path.rename(tmp_path / "elsewhere")
    # Another process, with other hashes of strings and other threads.
    environment = {"PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "2"}
    finished(command("report", moved, tmp_path / "second.html"), **environment)
    assert (tmp_path / "first.html").read_bytes() == (tmp_path / "second.html").read_bytes()


def test_more_or_fewer_words_can_be_asked_for(invoke: Command, anchored: Path, tmp_path: Path) -> None:
    for words in (1, 20):
        out = tmp_path / f"{words}.html"
        assert invoke("report", anchored, out, "--words", words).code == 0
        assert {len(row.all("li")) for row in table_rows(page_at(out))} == {words}


def test_wrong_input_ends_in_one_line(invoke: Command, anchored: Path, stores: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    refused(invoke("report", tmp_path / "none", out), 2, "no model is here")
    refused(invoke("report", stores / "moments", out), 2, "this is not a model")
    (tmp_path / "several").mkdir()
    shutil.copytree(anchored, tmp_path / "several" / "k=5")
    refused(invoke("report", tmp_path / "several", out, "--topics", 6), 2, "no model k=6", "it holds k=5")
    refused(invoke("report", anchored, out, "--topics", 5), 2, "--topics chooses among the models")
    refused(invoke("report", anchored, out, "--by", "year"), 2, "--by takes a column of --shares")
    refused(invoke("report", anchored, out, "--shares", tmp_path / "no"), 2, "no topic shares")
    refused(invoke("report", anchored, out, "--words", 0), 2, "--words is 0")
    refused(invoke("report", anchored, tmp_path), 2, "is a directory", str(tmp_path / "topics.html"))
    refused(invoke("report", anchored, tmp_path / "no" / "page.html"), 2, "no such directory", "create it")
    refused(invoke("report", anchored, anchored / "page.html"), 2, "lies inside the model")
    refused(invoke("report", anchored, "nowhere://bucket/page.html"), 2, "cannot be opened")
    refused(invoke("report", anchored, "file:page.html"), 2, "a report must be a path or a URL")
    refused(invoke("report", anchored), 2, "OUT.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "several"]


def test_a_report_is_replaced_only_if_asked_for_and_nothing_else_ever(
    invoke: Command, anchored: Path, stores: Path, tmp_path: Path
) -> None:
    out, notes = tmp_path / "page.html", tmp_path / "notes.html"
    assert invoke("report", anchored, out).code == 0
    first = out.read_bytes()
    refused(invoke("report", stores / "stod", out), 2, "exists already", "--overwrite")
    assert out.read_bytes() == first
    assert invoke("report", stores / "stod", out, "--overwrite").code == 0
    assert out.read_bytes() != first
    notes.write_bytes(b"\xff mine")
    refused(invoke("report", anchored, notes, "--overwrite"), 2, "notes.html", "is not a report")
    assert notes.read_bytes() == b"\xff mine"


def test_damage_ends_in_one_line(invoke: Command, model_path: Path, tmp_path: Path) -> None:
    out, chunk = tmp_path / "page.html", model_path / "word_topic" / "c" / "0" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-5])
    refused(invoke("report", model_path, out), 3, "word_topic/c/0", "truncated or damaged")
    chunk.unlink()
    refused(invoke("report", model_path, out), 3, "word_topic", "differ from the committed digest")
    chunk.write_bytes(whole)
    zarr.open_array(model_path / "word_topic", mode="r+")[3, 1] = 0.25
    refused(invoke("report", model_path, out), 3, "word_topic", "differ from the committed digest")
    shutil.rmtree(model_path / "topic_probability")
    refused(invoke("report", model_path, out), 3, "topic_probability", "missing")
    (model_path / "zarr.json").write_text("{")
    refused(invoke("report", model_path, out), 3, "metadata are damaged")
    assert not out.exists()


def test_damaged_counts_end_in_one_line(
    invoke: Command, anchored: Path, stores: Path, tmp_path: Path
) -> None:
    assert invoke("evaluate", anchored, "--corpus", stores / "corpus", "--scheduler", "synchronous").code == 0
    [chunk] = (anchored / "evaluation").glob("*/document_pairs/c/0/0")
    chunk.write_bytes(chunk.read_bytes()[:-3])
    refused(invoke("report", anchored, tmp_path / "page.html"), 3, "document_pairs", "run evaluate")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="limits the size of files")
def test_a_write_that_fails_leaves_the_old_page_and_nothing_beside(anchored: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    old = FIRST_LINES.encode() + b"old"
    (folder / "page.html").write_bytes(old)
    line = command("report", anchored, folder / "page.html", "--overwrite")
    # Files of this shell may have 4 blocks, less than a page needs.
    limited = f"ulimit -f 4; exec {shlex.join(line)}"
    outcome = ended(["/bin/sh", "-c", limited])
    assert outcome.code == 2, outcome.err
    [said] = outcome.err.splitlines()
    assert said.startswith("error: ")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"page.html": old}


def test_a_page_behind_a_url(invoke: Command, anchored: Path, tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/page.html"
    place = store_path(url)
    assert invoke("report", anchored, tmp_path / "page.html").code == 0
    assert invoke("report", anchored, url).code == 0
    assert place.read_bytes() == (tmp_path / "page.html").read_bytes()
    refused(invoke("report", anchored, url), 2, "exists already")
    assert invoke("report", anchored, url, "--overwrite").code == 0
    refused(invoke("report", anchored, f"memory://{tmp_path.name}", "--overwrite"), 2, "memory://")
