"""`evaluate`: what it prints, its exact counts, and what it is computed from."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf import infer
from streaming_jsmf.config import InferSettings, ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.evaluation.coherence import npmi
from streaming_jsmf.evaluation.counts import (
    counts_of,
    counts_path,
    read_counts,
    read_training_counts,
    stored_corpora,
)
from streaming_jsmf.evaluation.evaluate import topic_arrays, truth_of
from streaming_jsmf.evaluation.inputs import SelectedCounts
from streaming_jsmf.evaluation.metrics import SHOWN, title_of
from streaming_jsmf.jobs.events import Event, StageStarted
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.simulation import simulate_lda
from streaming_jsmf.simulation.truth import read_truth
from streaming_jsmf.topics.infer import infer_each
from streaming_jsmf.topics.store import Model, open_model, read_model, write_model
from tests import reference, reference_metrics
from tests.cases import first_cases
from tests.corpora import Planted, words, write_corpus, write_lists
from tests.damage import rewritten
from tests.outcomes import Command, Outcome, described, refused
from tests.stores import SYNCHRONOUS, rename_words, scanned

SCHEMA = json.loads(
    (Path(__file__).parents[1] / "docs" / "schemas" / "evaluate.schema.json").read_text(encoding="utf-8")
)
QUICK = InferSettings(5, max_iterations=3)


@dataclass(frozen=True)
class Evaluated(Outcome):
    def document(self) -> dict[str, Any]:
        """What ``--json`` printed, checked against the schema."""
        assert self.code == 0, self.err
        shown: dict[str, Any] = json.loads(self.out)
        jsonschema.Draft202012Validator(SCHEMA).validate(shown)
        return shown


Evaluate = Callable[..., Evaluated]


@pytest.fixture
def evaluate(invoke: Command) -> Evaluate:
    """Run the verb in this process."""

    def call(model: Path, *options: object) -> Evaluated:
        outcome = invoke("evaluate", model, *options, "--scheduler", "synchronous")
        return Evaluated(outcome.code, outcome.out, outcome.err)

    return call


@pytest.fixture(scope="module")
def fitted(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("evaluate")
    settings = ScanSettings(max_topics=5, partition_nonzeros=5000)
    infer(scanned(corpus_path, root / "moments", settings), root / "model", QUICK)
    return root


@pytest.fixture
def model_path(fitted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fitted / "model", tmp_path / "model"))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated corpus with its truth, moments that keep their partitions, and a model."""
    root = tmp_path_factory.mktemp("simulated")
    sizes = {"n_documents": 500, "n_words": 60, "n_topics": 4, "mean_length": 40}
    simulate_lda(root / "corpus", **sizes, separable=True, documents_per_shard=50)
    moments = scanned(root / "corpus", root / "moments", ScanSettings(max_topics=4, partition_nonzeros=2000))
    infer(moments, root / "model", InferSettings(4, max_iterations=20))
    return root


def numbers_of(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers_of(part)]
    if isinstance(value, list):
        return [number for part in value for number in numbers_of(part)]
    return [] if value is None else [float(value)]


def test_a_model_alone_gives_what_its_moments_allow(
    evaluate: Evaluate, model_path: Path, fitted: Path
) -> None:
    shown = evaluate(model_path, "--json").document()
    assert shown["moments"] == str(fitted / "moments")
    assert shown["corpus"] is None
    metrics = shown["metrics"]
    nulls = {name for name, value in metrics.items() if value is None}
    assert nulls == {"coherence", "u_mass", "npmi", "perplexity", "recovery_error"}
    assert {*shown["missing"]} == nulls | {"mst_incoherence.documents"}
    assert "--corpus" in shown["missing"]["npmi"]
    assert np.isfinite(numbers_of(metrics)).all()
    assert shown["certificates"] == json.loads(json.dumps(read_model(model_path, ()).metrics))


def dense_errors(arrays: dict[str, NDArray[Any]], counts: NDArray[np.int64]) -> dict[str, float]:
    """Recovery and relative Approximation with the dense C of the counts."""
    C = reference.cooccurrence(counts, reference.document_weights(counts.sum(axis=1), "capped"))
    B, A = arrays["word_topic"], arrays["topic_topic"]
    shares = reference_metrics.topic_given_word(B, arrays["topic_probability"])
    return {
        "recovery": reference_metrics.recovery(C, C.sum(axis=1), shares, arrays["anchors"]),
        "relative_approximation": reference_metrics.relative_approximation(C, B, A),
    }


def errors_of(evaluated: Evaluated) -> dict[str, Any]:
    metrics = evaluated.document()["metrics"]
    return {name: metrics[name] for name in ("recovery", "relative_approximation")}


@pytest.mark.parametrize("exact", first_cases([False, True]))
def test_errors_are_those_of_all_documents(
    exact: bool, evaluate: Evaluate, corpus_path: Path, documents: Planted, tmp_path: Path
) -> None:
    """Also without C in the store, whose basis has 15 of 120 columns, and without a pass over the corpus."""
    settings = ScanSettings(max_topics=5, partition_nonzeros=5000, exact=exact)
    moments = scanned(corpus_path, tmp_path / "moments", settings)
    arrays = infer(moments, tmp_path / "model", QUICK).arrays
    expected = dense_errors(arrays, documents.counts)
    for options in ((), ("--corpus", corpus_path)):
        found = errors_of(evaluate(tmp_path / "model", *options, "--json"))
        assert found == pytest.approx(expected, rel=1e-6)
    half = Path(shutil.copytree(corpus_path, tmp_path / "half"))
    (half / "part-00000.parquet").unlink()
    other = errors_of(evaluate(tmp_path / "model", "--corpus", half, "--json"))
    assert other == pytest.approx(dense_errors(arrays, documents.counts[200:]), rel=1e-6)


@pytest.mark.parametrize(
    "settings", [{"sample_share": 0.5}, {"range_finder": "halko"}], ids=["sample", "halko"]
)
def test_of_a_part_of_the_documents_errors_are_counted(
    settings: dict[str, Any],
    evaluate: Evaluate,
    corpus_path: Path,
    documents: Planted,
    tmp_path: Path,
) -> None:
    moments = scanned(corpus_path, tmp_path / "moments", ScanSettings(max_topics=5, **settings))
    model = tmp_path / "model"
    arrays = infer(moments, model, QUICK).arrays
    expected = dense_errors(arrays, documents.counts)
    without = evaluate(model, "--json").document()
    assert "does not hold all documents" in without["missing"]["recovery"]
    assert "--corpus CORPUS" in without["missing"]["recovery"]
    assert without["metrics"]["mst_incoherence"]["cooccurrence"] is not None
    assert errors_of(evaluate(model, "--corpus", corpus_path, "--json")) == pytest.approx(expected, rel=1e-6)
    again = evaluate(model, "--json")
    assert errors_of(again) == pytest.approx(expected, rel=1e-6), "stored with the model"
    rows = dense_rows(documents.counts, arrays["anchors"])
    names = arrays["word"][np.argsort(-rows, axis=1, kind="stable")[:, :10]]
    assert [topic["characteristic"] for topic in again.document()["topics"]] == names.tolist()


def test_of_many_words_errors_are_estimated_with_their_standard_errors(
    evaluate: Evaluate, simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Path(shutil.copytree(simulated / "model", tmp_path / "model"))
    expected = errors_of(evaluate(model, "--json"))
    monkeypatch.setattr("streaming_jsmf.evaluation.inputs.MOST_ROWS", 59)
    monkeypatch.setattr("streaming_jsmf.evaluation.inputs.DRAWN_ROWS", 40)
    monkeypatch.setattr("streaming_jsmf.evaluation.counts.COUNTED_DRAWS", 30)

    def is_near(found: dict[str, Any]) -> bool:
        errors = {name: found[name]["standard_error"] for name in expected}
        assert all(0 < errors[name] < 0.3 * value for name, value in expected.items())
        return all(abs(found[name]["value"] - value) < 4 * errors[name] for name, value in expected.items())

    stored = errors_of(evaluate(model, "--json"))
    assert is_near(stored)
    [line] = [line for line in evaluate(model).out.splitlines() if line.startswith("error of words ")]
    assert "+-" in line
    rewritten(model, lambda about: about["provenance"].update(moments="/nowhere/m.zarr"))
    counted = errors_of(evaluate(model, "--corpus", simulated / "corpus", "--json"))
    assert counted != stored, "of fewer words, without the store"
    assert is_near(counted)


def test_a_polished_model_is_not_compared_with_inferred_ones(
    evaluate: Evaluate, model_path: Path, tmp_path: Path
) -> None:
    polished = replace(read_model(model_path), settings={**read_model(model_path).settings, "polish": {}})
    write_model(tmp_path / "polished", polished)
    assert "polished models" in evaluate(tmp_path / "polished", "--json").document()["missing"]["stability"]


def test_the_training_corpus_adds_the_metrics_of_documents_and_is_told_from_others(
    evaluate: Evaluate, model_path: Path, corpus_path: Path, documents: Planted, tmp_path: Path
) -> None:
    trained = evaluate(model_path, "--corpus", corpus_path, "--json").document()
    assert trained["corpus"]["training"] is True
    assert trained["metrics"]["recovery"] == evaluate(model_path, "--json").document()["metrics"]["recovery"]
    arrays = read_model(model_path).arrays
    present = (documents.counts > 0).astype(np.int64)
    top = arrays["prominent_words"][:, :10]
    expected = npmi(present.sum(axis=0), present.T @ present, 600, top)
    np.testing.assert_allclose(trained["metrics"]["npmi"]["per_topic"], expected, rtol=1e-12)
    assert [topic["npmi"] for topic in trained["topics"]] == trained["metrics"]["npmi"]["per_topic"]
    held_out = Path(shutil.copytree(corpus_path, tmp_path / "held-out"))
    (held_out / "part-00000.parquet").unlink()
    shown = evaluate(model_path, "--corpus", held_out, "--json").document()
    assert (shown["corpus"]["training"], shown["corpus"]["n_documents"]) == (False, 400)
    assert shown["metrics"]["npmi"] != trained["metrics"]["npmi"]
    own = [str(arrays["word"][word]) for word in arrays["characteristic_words"][0, :10]]
    assert shown["topics"][0]["characteristic"] == own
    # Without a corpus the training counts are meant, whatever was counted last.
    again = evaluate(model_path, "--json").document()
    assert again["metrics"] == trained["metrics"]
    assert again["corpus"] == trained["corpus"]


def test_without_its_moments_a_warning_says_what_is_missing(
    evaluate: Evaluate, model_path: Path, fitted: Path
) -> None:
    known = evaluate(model_path, "--json").document()["metrics"]
    assert isinstance(known["recovery"], float)
    rewritten(model_path, lambda about: about["provenance"].update(moments="/nowhere/m.zarr"))
    outcome = evaluate(model_path, "--json")
    [sentence] = [line for line in outcome.document()["warnings"] if "/nowhere" in line]
    assert "error of words, relative error of words, unexplained co-occurrence, unexplained share" in sentence
    assert outcome.err.splitlines() == [f"warning: {sentence}"]
    given = evaluate(model_path, "--moments", fitted / "moments", "--json").document()
    assert given["metrics"] == {**known, "stability": given["metrics"]["stability"]}
    rewritten(model_path, lambda about: about["provenance"].pop("moments"))
    assert "--moments" in evaluate(model_path, "--json").document()["missing"]["recovery"]


def test_moments_that_have_changed_are_not_compared_with(
    evaluate: Evaluate, corpus_path: Path, tmp_path: Path
) -> None:
    corpus = Path(shutil.copytree(corpus_path, tmp_path / "corpus"))
    infer(scanned(corpus, tmp_path / "moments"), tmp_path / "model", QUICK)
    shutil.rmtree(tmp_path / "moments")
    (corpus / "part-00002.parquet").unlink()
    scanned(corpus, tmp_path / "moments")
    assert "changed" in evaluate(tmp_path / "model", "--json").document()["missing"]["recovery"]


def test_a_truth_and_kept_partitions_give_error_and_stability(evaluate: Evaluate, simulated: Path) -> None:
    model = simulated / "model"

    def metrics(*options: object) -> dict[str, Any]:
        shown = evaluate(model, "--truth", simulated / "corpus", "--json", *options).document()
        return dict(shown["metrics"])

    found = metrics("--replicas", 2)
    truth = read_truth(simulated / "corpus").word_topic
    distance = np.abs(read_model(model).arrays["word_topic"][:, :, None] - truth[:, None, :]).sum(axis=0)
    # As good as it can be: the truth's topics are far apart, so each topic goes with the nearest.
    assert found["recovery_error"] == pytest.approx(distance.min(axis=1).mean())
    assert found["recovery_error"] < 0.5
    assert 0.7 < found["stability"]["value"] <= 1
    assert found["stability"]["standard_error"] >= 0
    assert metrics("--replicas", 2) == found
    assert metrics("--replicas", 2, "--seed", 7)["stability"] != found["stability"]
    none = evaluate(model, "--json", "--replicas", 0).document()
    assert "--replicas" in none["missing"]["stability"]


def test_the_table_has_a_line_for_each_metric(evaluate: Evaluate, simulated: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(simulated / "model", tmp_path / "model"))
    corpus = simulated / "corpus"
    outcome = evaluate(model, "--corpus", corpus, "--truth", corpus, "--replicas", 2, "--words", 3)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    titles = [line.partition("  ")[0] for line in lines]
    assert {line.title: titles.count(line.title) for line in SHOWN} == {line.title: 1 for line in SHOWN}
    assert "dominancy" not in outcome.out, "a word of the papers"
    [score] = [line for line in lines if line.startswith("NPMI ")]
    named = [line.split()[0] for line in lines]
    assert score.split()[2] == "higher"
    assert "missing" not in outcome.out
    assert "training corpus, 500 documents" in outcome.out
    assert named[-5:] == ["topic", "0", "1", "2", "3"]
    assert all(len(line.split()) == 5 for line in lines[-4:])
    plain = evaluate(model).out
    assert "prominent words" not in plain
    [missing] = [line for line in plain.splitlines() if line.startswith("missing: distance from the truth")]
    assert "--truth" in missing


def test_the_lines_are_the_metrics_of_the_schema() -> None:
    known = SCHEMA["properties"]["metrics"]["properties"]
    parts = {"specificity": ["2015", "2021"], "mst_incoherence": ["cooccurrence", "documents"]}
    parts["coherence"] = ["mimno_2011", "jsmf_2015", "softclique"]
    parts["perplexity"] = ["model", "unigram", "tokens_without_mass"]
    expected = {f"{name}.{part}" for name, names in parts.items() for part in names}
    assert {line.path for line in SHOWN} == expected | (known.keys() - parts.keys())


def test_both_verbs_report_doubtful_topics(evaluate: Evaluate, invoke: Command, model_path: Path) -> None:
    rewritten(model_path, lambda about: about["metrics"].update(topic_topic_sum=1.35))
    for outcome in (evaluate(model_path), invoke("topics", model_path)):
        assert outcome.code == 0
        assert "add up to 1.35" in outcome.err


def test_models_of_several_k_are_in_one_table(evaluate: Evaluate, fitted: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    infer_each(fitted / "moments", models, [3, 5], QUICK)
    shown = evaluate(models)
    assert (shown.code, shown.err) == (0, "")
    documents = [evaluate(models / name, "--json").document() for name in ("k=3", "k=5")]
    assert json.loads(evaluate(models, "--json").out) == documents
    cells = [re.split(" {2,}", line) for line in shown.out.splitlines() if line]
    lines = {name: values for name, *values in cells}
    assert lines["metric"] == ["k=3", "k=5", "better"]
    for name, better in (("distinct_share", max), ("hoyer_sparsity", None), ("recovery", min)):
        values = [document["metrics"][name] for document in documents]
        best = None if better is None else values.index(better(values))
        told = [f"{value:.4g}{'*' if place == best else ''}" for place, value in enumerate(values)]
        assert lines[title_of(name)][:2] == told
    assert "missing: " in shown.out
    listed = evaluate(models, "--words", "4").out
    assert f"model: {models / 'k=5'}\n" in listed
    assert ", ".join(documents[0]["topics"][0]["prominent"][:4]) in listed


def test_wrong_input_ends_in_one_line(
    evaluate: Evaluate, model_path: Path, corpus_path: Path, simulated: Path, tmp_path: Path
) -> None:
    none = tmp_path / "none"
    refused(evaluate(none), 2, str(none))
    for option, value, part in (
        ("--corpus", none, str(none)),
        ("--corpus", simulated / "corpus", "120 words"),
        ("--truth", corpus_path, "not a simulated corpus"),
        ("--truth", simulated / "corpus", str(simulated / "corpus")),
        ("--moments", none, str(none)),
        ("--moments", simulated / "moments", str(simulated / "moments")),
        ("--words", 0, "words is 0"),
        ("--replicas", -1, "replicas is -1"),
        ("--seed", -1, "seed is -1"),
    ):
        refused(evaluate(model_path, option, value), 2, part)
    assert not (model_path / "evaluation").exists()


def test_damage_ends_in_one_line(
    evaluate: Evaluate, model_path: Path, corpus_path: Path, simulated: Path, tmp_path: Path
) -> None:
    assert evaluate(model_path, "--corpus", corpus_path).code == 0
    [chunk] = (model_path / "evaluation").glob("*/document_pairs/c/0/0")
    chunk.write_bytes(chunk.read_bytes()[:-3])
    refused(evaluate(model_path), 3, "document_pairs", "evaluate with --corpus")
    again = evaluate(model_path, "--corpus", corpus_path)
    assert again.code == 0, "what the message says helps"
    assert "document_pairs" in again.err
    (model_path / "word_topic" / "c" / "0" / "0").write_bytes(b"")
    refused(evaluate(model_path), 3, "word_topic")
    truth = Path(shutil.copytree(simulated / "corpus", tmp_path / "truth"))
    (truth / "truth.zarr" / "word_topic" / "zarr.json").write_text("{")
    refused(evaluate(simulated / "model", "--truth", truth), 3, "word_topic")


# -- The scan that counts a model's words: exact, additive, the same bits everywhere, resumed, kept with the model --


def counted(model_path: Path, corpus: Path, execution: Execution = SYNCHRONOUS) -> SelectedCounts:
    return counts_of(model_path, read_model(model_path), open_corpus(corpus), execution)


def dense_pairs(counts: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Documents of two tokens or more with both words."""
    present = counts[counts.sum(axis=1) >= 2][:, chosen] > 0
    return present.T.astype(np.int64) @ present


def dense_rows(counts: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    weights = reference.document_weights(counts.sum(axis=1), "capped")
    return reference.cooccurrence(counts, weights)[chosen]


def require_exact(found: SelectedCounts, counts: NDArray[np.int64]) -> None:
    """Pairs and rows are those of these counts, by the model's words."""
    np.testing.assert_array_equal(found.pairs, dense_pairs(counts, found.words))
    assert found.n_documents == (counts.sum(axis=1) >= 2).sum()
    whole = dense_rows(counts, np.arange(120))
    assert found.cooccurrence is not None
    np.testing.assert_allclose(found.cooccurrence.row_sum, whole.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found.cooccurrence.rows(np.arange(120)), whole, rtol=1e-12, atol=1e-15)


def test_training_counts_are_exact(model_path: Path, corpus_path: Path, documents: Planted) -> None:
    found, model = counted(model_path, corpus_path), read_model(model_path)
    arrays = model.arrays
    assert {*arrays["prominent_words"].ravel(), *arrays["anchors"]} <= {*found.words.tolist()}
    require_exact(found, documents.counts)
    np.testing.assert_array_equal(np.diag(found.pairs), arrays["document_frequency"][found.words])
    assert found.n_documents == model.metrics["n_documents"]
    assert (found.corpus["words_found"], found.corpus["n_documents"]) == (120, 600)
    # Of these documents and this model only.
    fingerprint = open_corpus(corpus_path).fingerprint
    backwards = {**arrays, "prominent_words": arrays["prominent_words"][:, ::-1]}
    fewer = replace(model, metrics={**model.metrics, "n_documents": 599})
    assert read_counts(model_path, model, fingerprint) is not None
    assert read_counts(model_path, replace(model, arrays=backwards), fingerprint) is None
    assert read_training_counts(model_path, model) is not None
    assert read_training_counts(model_path, fewer) is None


def test_a_held_out_corpus_is_matched_by_its_words(
    model_path: Path, documents: Planted, tmp_path: Path
) -> None:
    # Half of the words under other ids, some unknown ones between them; some documents become too short.
    rng = np.random.default_rng(5)
    counts = np.hstack([documents.counts[:200, ::-2], rng.integers(0, 3, size=(200, 7))])
    counts[:20, :60] = 0
    counts[10:20, 3] = 1
    names = [*words(120)[::-2], *(f"new{i}" for i in range(7))]
    other = rename_words(write_corpus(tmp_path / "other", counts, shards=2), names)
    known = np.zeros((200, 120), dtype=np.int64)
    known[:, ::-2] = counts[:, :60]
    assert (known.sum(axis=1) < 2).sum() >= 20
    found, model = counted(model_path, other), read_model(model_path)
    require_exact(found, known)
    assert (found.corpus["words_found"], found.corpus["n_documents"]) == (60, 200)
    # The word lists of the model are about its own documents.
    assert read_training_counts(model_path, model) is None


def array_digests(model_path: Path) -> list[Any]:
    [group] = [path.parent for path in (model_path / "evaluation").glob("*/zarr.json")]
    attributes = json.loads((group / "zarr.json").read_text())["attributes"]
    return [attributes[name] for name in ("digests", "n_documents", "completion")]


@pytest.mark.parametrize(
    "execution",
    [Execution("threads", 3), pytest.param(Execution("processes", 2), marks=pytest.mark.slow)],
    ids=lambda e: e.scheduler,
)
def test_the_scheduler_changes_no_bit(
    execution: Execution, model_path: Path, corpus_path: Path, fitted: Path, tmp_path: Path
) -> None:
    counted(model_path, corpus_path, execution)
    shutil.copytree(fitted / "model", tmp_path / "one")
    counted(tmp_path / "one", corpus_path)
    assert array_digests(model_path) == array_digests(tmp_path / "one")


def test_stored_counts_need_no_scan_and_no_corpus(
    model_path: Path, tmp_path: Path, corpus_path: Path
) -> None:
    corpus = shutil.copytree(corpus_path, tmp_path / "corpus")
    opened, model = open_corpus(corpus), read_model(model_path)
    events: list[Event] = []
    first = counts_of(model_path, model, opened, SYNCHRONOUS, events.append)
    started = [event for event in events if isinstance(event, StageStarted)]
    assert [event.stage for event in started] == ["counts"]
    assert min(len(event.sizes) for event in started) > 3
    shutil.rmtree(corpus)
    events.clear()
    second = counts_of(model_path, model, opened, SYNCHRONOUS, events.append)
    assert events == []
    trained = read_training_counts(model_path, model)
    assert trained is not None
    for found in (second, trained):
        np.testing.assert_array_equal(found.pairs, first.pairs)


def test_info_lists_counted_corpora(model_path: Path, corpus_path: Path) -> None:
    before = sorted(open_model(model_path).variables)
    counted(model_path, corpus_path)
    assert sorted(open_model(model_path).variables) == before
    [corpus] = described(model_path)["counted_corpora"]
    assert corpus["path"] == str(corpus_path)
    kept = {path.name for path in (model_path / "evaluation").iterdir()}
    assert kept == {"zarr.json", counts_path(model_path, corpus["fingerprint"]).name}


def test_a_corpus_that_cannot_be_counted_is_refused_and_leaves_nothing(
    model_path: Path, corpus_path: Path, tmp_path: Path
) -> None:
    ones = np.ones((40, 120), dtype=np.int64)
    single = np.eye(1, 120, 4, dtype=np.int64).repeat(6, axis=0)
    strange = rename_words(write_corpus(tmp_path / "strange", ones[:5, :3], shards=1), ["x", "y", "z"])
    with pytest.raises(InputError, match="120 words"):
        counted(model_path, strange)
    assert not (model_path / "evaluation").exists()
    broken = write_corpus(tmp_path / "broken", ones, shards=1)
    write_lists(broken / "part-00001.parquet", [[3, 2]], [[1, 1]])
    with pytest.raises(InputError, match=r"part-00001.parquet, row group 0, row 0"):
        counted(model_path, broken)
    assert [path.name for path in (model_path / "evaluation").iterdir()] == ["zarr.json"]
    with pytest.raises(InputError, match="two tokens"):
        counted(model_path, write_corpus(tmp_path / "single", single, shards=1))
    with pytest.raises(InputError, match="needs about"):
        counted(model_path, corpus_path, Execution("threads", 2, memory=10**6))
    assert stored_corpora(model_path) == []


# -- What metrics are computed from: models of any engine, moments of any scan, a truth over other words --


WORD_TOPIC = np.array([[0.6, 0.0], [0.4, 0.1], [0.0, 0.9]])
NEEDED: dict[str, Any] = {
    "word": np.array(["a", "b", "c"], dtype=object),
    "word_topic": WORD_TOPIC,
    "prominent_words": np.array([[0, 1, 2], [2, 1, 0]]),
}


def model(**arrays: Any) -> Model:
    return Model({**NEEDED, **arrays}, {}, {}, {})


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"term_count": np.array([1.0, 1.0, 2.0]), "row_sum": np.ones(3)}, [0.25, 0.25, 0.5]),
        ({"row_sum": np.array([2.0, 1.0, 1.0])}, [0.5, 0.25, 0.25]),
        ({"topic_probability": np.array([0.5, 0.5])}, [0.3, 0.25, 0.45]),
        ({}, [0.3, 0.25, 0.45]),
    ],
)
def test_the_share_of_words_comes_from_the_best_there_is(
    arrays: dict[str, Any], expected: list[float]
) -> None:
    np.testing.assert_allclose(topic_arrays(model(**arrays)).word_probability, expected)


@pytest.fixture(scope="module")
def truth_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpus = tmp_path_factory.mktemp("truth") / "corpus"
    simulate_lda(corpus, n_documents=40, n_words=30, n_topics=3, mean_length=30, separable=True)
    return corpus


def test_a_truth_is_matched_by_words_and_normalised_again(truth_alone: Path) -> None:
    truth, words = read_truth(truth_alone).word_topic, read_truth(truth_alone).words
    assert truth.shape[0] == len(words) == 30
    # Every other word, backwards, and one that the truth lacks.
    chosen = np.arange(28, -1, -2)
    named = np.array([*words[chosen], "unknown"], dtype=object)
    found = truth_of(str(truth_alone), Model({"word": named}, {}, {}, {}))
    np.testing.assert_allclose(found.sum(axis=0), 1.0)
    np.testing.assert_array_equal(found[-1], 0.0)
    kept = truth[chosen]
    np.testing.assert_allclose(found[:-1], kept / kept.sum(axis=0))


def test_a_lost_topic_of_the_truth_is_reported(truth_alone: Path) -> None:
    truth = read_truth(truth_alone)
    words = truth.words
    assert truth.anchors is not None
    # Anchors belong to one topic each: with two of three the third topic is gone.
    named = np.array(words[truth.anchors[:2]], dtype=object)
    with pytest.raises(InputError, match="none of the words of 1 of the 3 true topics"):
        truth_of(str(truth_alone), Model({"word": named}, {}, {}, {}))
