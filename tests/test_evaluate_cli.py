"""The verb ``evaluate`` as a user meets it: what it prints, against its schema, its warnings and its exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from streaming_jsmf.cli.main import run
from streaming_jsmf.config import InferSettings, ScanSettings
from streaming_jsmf.evaluation.coherence import npmi
from streaming_jsmf.evaluation.metrics import LINES
from streaming_jsmf.ingestion.simulation import simulate_lda
from streaming_jsmf.ingestion.simulation.truth import read_truth
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.scan_verb import scan
from streaming_jsmf.topics.infer import infer, infer_each
from streaming_jsmf.topics.store import Model, read_model, write_model
from tests.corpora import Planted
from tests.damage import rewritten
from tests.outcomes import Command, Outcome, refused

ROOT = Path(__file__).parent.parent
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "evaluate.schema.json").read_text(encoding="utf-8"))
SYNCHRONOUS = ("--scheduler", "synchronous")
QUICK = InferSettings(5, max_iterations=3)


@dataclass(frozen=True)
class Evaluated(Outcome):
    def document(self) -> dict[str, Any]:
        """What ``--json`` printed, checked against the schema."""
        assert self.code == 0, self.err
        shown: dict[str, Any] = json.loads(self.out)
        jsonschema.Draft202012Validator(SCHEMA).validate(shown)
        return shown


@pytest.fixture
def evaluate(invoke: Command) -> Callable[..., Evaluated]:
    """Run the verb in this process."""

    def call(model: Path, *options: object) -> Evaluated:
        outcome = invoke("evaluate", model, *options, *SYNCHRONOUS)
        return Evaluated(outcome.code, outcome.out, outcome.err)

    return call


@pytest.fixture(scope="module")
def fitted(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("evaluate")
    settings = ScanSettings(max_topics=5, partition_nonzeros=5000)
    infer(scan(corpus_path, root / "moments", settings, Execution("synchronous")), root / "model", QUICK)
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
    settings = ScanSettings(max_topics=4, partition_nonzeros=2000)
    moments = scan(
        root / "corpus", root / "moments", settings, Execution("synchronous"), keep_partitions=True
    )
    infer(moments, root / "model", InferSettings(4, max_iterations=20))
    return root


@pytest.fixture
def tensor_like(model_path: Path, tmp_path: Path) -> Path:
    """A model by hand, with the arrays that an engine without anchors and correlations has."""
    model = read_model(model_path)
    kept = ("word", "topic", "rank", "word_topic", "prominent_words", "topic_probability", "term_count")
    provenance = {"engine": "by-hand", "corpus_fingerprints": model.provenance["corpus_fingerprints"]}
    metrics = {"n_documents": model.metrics["n_documents"]}
    arrays = {name: model.arrays[name] for name in kept}
    write_model(tmp_path / "tensor", Model(arrays, {"n_topics": 5}, metrics, provenance))
    return tmp_path / "tensor"


def numbers_of(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers_of(part)]
    if isinstance(value, list):
        return [number for part in value for number in numbers_of(part)]
    return [] if value is None else [float(value)]


def test_a_model_alone_gives_what_its_moments_allow(
    evaluate: Callable[..., Evaluated], model_path: Path, fitted: Path
) -> None:
    shown = evaluate(model_path, "--json").document()
    assert shown["moments"] == str(fitted / "moments")
    assert shown["corpus"] is None
    metrics = shown["metrics"]
    nulls = {name for name, value in metrics.items() if value is None}
    assert nulls == {"coherence", "u_mass", "npmi", "perplexity", "recovery_error", "stability"}
    assert {*shown["missing"]} == nulls | {"mst_incoherence.documents"}
    assert "give it once with --corpus" in shown["missing"]["npmi"]
    assert "keeps no partitions" in shown["missing"]["stability"]
    assert np.isfinite(numbers_of(metrics)).all()
    assert shown["certificates"] == json.loads(json.dumps(read_model(model_path, ()).metrics))


def test_a_corpus_adds_the_metrics_of_documents(
    evaluate: Callable[..., Evaluated], model_path: Path, corpus_path: Path, documents: Planted
) -> None:
    shown = evaluate(model_path, "--corpus", corpus_path, "--json").document()
    assert shown["corpus"]["training"] is True
    top = read_model(model_path).arrays["prominent_words"][:, :10]
    present = (documents.counts > 0).astype(np.int64)
    expected = npmi(present.sum(axis=0), present.T @ present, 600, top)
    np.testing.assert_allclose(shown["metrics"]["npmi"]["per_topic"], expected, rtol=1e-12)
    assert [topic["npmi"] for topic in shown["topics"]] == shown["metrics"]["npmi"]["per_topic"]
    # Kept: without the corpus the same again.
    again = evaluate(model_path, "--json").document()
    assert again["metrics"] == shown["metrics"]
    assert again["corpus"] == shown["corpus"]


def test_another_corpus_is_told_from_the_training_corpus(
    evaluate: Callable[..., Evaluated], model_path: Path, corpus_path: Path, tmp_path: Path
) -> None:
    held_out = Path(shutil.copytree(corpus_path, tmp_path / "held-out"))
    (held_out / "part-00000.parquet").unlink()
    trained = evaluate(model_path, "--corpus", corpus_path, "--json").document()
    shown = evaluate(model_path, "--corpus", held_out, "--json").document()
    assert (shown["corpus"]["training"], shown["corpus"]["n_documents"]) == (False, 400)
    assert shown["metrics"]["npmi"] != trained["metrics"]["npmi"]
    assert shown["topics"][0]["characteristic"] == read_characteristic(model_path)
    # Without a corpus the training counts are meant, whatever was counted last.
    assert evaluate(model_path, "--json").document()["metrics"]["npmi"] == trained["metrics"]["npmi"]


def read_characteristic(model_path: Path) -> list[str]:
    """The first topic's list of the model itself."""
    arrays = read_model(model_path).arrays
    return [str(arrays["word"][word]) for word in arrays["characteristic_words"][0, :10]]


@pytest.mark.parametrize("with_corpus", [False, True])
def test_an_engine_without_anchors_and_correlations_is_evaluated(
    with_corpus: bool, evaluate: Callable[..., Evaluated], tensor_like: Path, fitted: Path, corpus_path: Path
) -> None:
    options = ["--corpus", corpus_path] if with_corpus else []
    shown = evaluate(tensor_like, *options, "--moments", fitted / "moments", "--json").document()
    assert shown["engine"] == "by-hand"
    metrics, missing = shown["metrics"], shown["missing"]
    for name in ("approximation", "dominancy", "relative_dominancy"):
        assert metrics[name] is None
        assert missing[name] == "the model has no topic_topic"
    # Of the factor alone a number, of the documents an estimate.
    assert isinstance(metrics["recovery"], dict if with_corpus else float)
    assert "engine" in missing["stability"]
    assert (metrics["npmi"] is not None) == with_corpus
    assert ("npmi" in missing) == (not with_corpus)
    assert "anchor" not in shown["topics"][0]
    assert shown["warnings"] == []


def test_without_its_moments_a_warning_says_what_is_missing(
    evaluate: Callable[..., Evaluated], model_path: Path, tensor_like: Path
) -> None:
    rewritten(model_path, lambda about: about["provenance"].update(moments="/nowhere/m.zarr"))
    outcome = evaluate(model_path, "--json")
    [sentence] = [line for line in outcome.document()["warnings"] if "/nowhere" in line]
    assert sentence.startswith("recovery, relative_recovery, approximation, relative_approximation,")
    assert outcome.err.splitlines() == [f"warning: {sentence}"]
    assert "give it with --moments" in evaluate(tensor_like, "--json").document()["missing"]["recovery"]


def test_moments_that_have_changed_are_not_compared_with(
    evaluate: Callable[..., Evaluated], corpus_path: Path, tmp_path: Path
) -> None:
    corpus = Path(shutil.copytree(corpus_path, tmp_path / "corpus"))
    execution = Execution("synchronous")
    moments = scan(corpus, tmp_path / "moments", ScanSettings(max_topics=5), execution)
    infer(moments, tmp_path / "model", QUICK)
    shutil.rmtree(tmp_path / "moments")
    (corpus / "part-00002.parquet").unlink()
    scan(corpus, tmp_path / "moments", ScanSettings(max_topics=5), execution)
    shown = evaluate(tmp_path / "model", "--json").document()
    assert "has changed since the model was made" in shown["missing"]["recovery"]


def test_a_truth_and_kept_partitions_give_error_and_stability(
    evaluate: Callable[..., Evaluated], simulated: Path
) -> None:
    options = ("--truth", simulated / "corpus", "--json")
    shown = evaluate(simulated / "model", *options, "--replicas", 2).document()
    truth, found = read_truth(simulated / "corpus").word_topic, read_model(simulated / "model").arrays
    distance = np.abs(found["word_topic"][:, :, None] - truth[:, None, :]).sum(axis=0)
    # As good as it can be: the truth's topics are far apart, so each topic goes with the nearest.
    assert shown["metrics"]["recovery_error"] == pytest.approx(distance.min(axis=1).mean())
    assert shown["metrics"]["recovery_error"] < 0.5
    stability = shown["metrics"]["stability"]
    assert 0.7 < stability["value"] <= 1
    assert stability["standard_error"] >= 0
    again = evaluate(simulated / "model", *options, "--replicas", 2).document()
    assert again["metrics"] == shown["metrics"]
    other = evaluate(simulated / "model", *options, "--replicas", 2, "--seed", 7).document()
    assert other["metrics"]["stability"] != stability
    none = evaluate(simulated / "model", "--json", "--replicas", 0).document()
    assert none["missing"]["stability"] == "no replicas were asked for (--replicas)"


def test_the_table_has_a_line_for_each_metric(
    evaluate: Callable[..., Evaluated], simulated: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(simulated / "model", tmp_path / "model"))
    corpus = simulated / "corpus"
    outcome = evaluate(model, "--corpus", corpus, "--truth", corpus, "--replicas", 2, "--words", 3)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    named = [line.split()[0] for line in lines]
    for line in LINES:
        assert named.count(line.path) == 1, line.path
    [score] = [line for line in lines if line.startswith("npmi ")]
    assert score.split()[2] == "higher"
    assert "missing" not in outcome.out
    assert "training corpus, 500 documents" in outcome.out
    assert named[-5:] == ["topic", "0", "1", "2", "3"]
    assert all(len(line.split()) == 5 for line in lines[-4:])
    plain = evaluate(model).out
    assert "prominent words" not in plain
    [missing] = [line for line in plain.splitlines() if line.startswith("missing: recovery_error")]
    assert "--truth" in missing


def test_the_lines_are_the_metrics_of_the_schema() -> None:
    known = SCHEMA["properties"]["metrics"]["properties"]
    parts = {"specificity": ["2015", "2021"], "mst_incoherence": ["cooccurrence", "documents"]}
    parts["coherence"] = ["mimno_2011", "jsmf_2015", "softclique"]
    parts["perplexity"] = ["model", "unigram", "tokens_without_mass"]
    parts |= {"basis_rank": ["hard", "soft"], "basis_quality": ["hard", "soft"]}
    expected = {f"{name}.{part}" for name, names in parts.items() for part in names}
    assert {line.path for line in LINES} == expected | (known.keys() - parts.keys())


def test_doubtful_topics_are_told_of_by_both_verbs(
    evaluate: Callable[..., Evaluated], model_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(model_path, lambda about: about["metrics"].update(topic_topic_sum=1.35))
    expected = "warning: sum of topic correlations 1.35, not near 1: anchors or rectification unreliable; try"
    assert expected in evaluate(model_path).err
    assert run(["topics", str(model_path)]) == 0
    assert expected in capsys.readouterr().err


def test_models_of_several_k_are_in_one_table(
    evaluate: Callable[..., Evaluated], fitted: Path, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    infer_each(fitted / "moments", models, [3, 5], QUICK)
    shown = evaluate(models)
    assert (shown.code, shown.err) == (0, "")
    documents = [evaluate(models / name, "--json").document() for name in ("k=3", "k=5")]
    assert json.loads(evaluate(models, "--json").out) == documents
    lines = {line.split()[0]: line.split()[1:] for line in shown.out.splitlines() if line}
    assert lines["metric"] == ["k=3", "k=5", "better"]
    for name, better in (("distinct_share", max), ("entropy", None), ("recovery", min)):
        values = [document["metrics"][name] for document in documents]
        best = None if better is None else values.index(better(values))
        told = [f"{value:.4g}{'*' if place == best else ''}" for place, value in enumerate(values)]
        assert lines[name][:2] == told
    assert "missing: " in shown.out
    listed = evaluate(models, "--words", "4").out
    assert f"model: {models / 'k=5'}\n" in listed
    assert ", ".join(documents[0]["topics"][0]["prominent"][:4]) in listed


def test_wrong_input_ends_in_one_line(
    evaluate: Callable[..., Evaluated], model_path: Path, corpus_path: Path, simulated: Path, tmp_path: Path
) -> None:
    refused(evaluate(tmp_path / "none"), 2, "no model is here")
    refused(evaluate(model_path, "--corpus", tmp_path / "none"), 2, "no corpus at")
    refused(evaluate(model_path, "--truth", corpus_path), 2, "truth.zarr", "there is no truth here")
    refused(evaluate(model_path, "--truth", simulated / "corpus"), 2, "none of the words")
    refused(evaluate(model_path, "--corpus", simulated / "corpus"), 2, "none of the 120 words")
    refused(evaluate(model_path, "--moments", tmp_path / "none"), 2, "no moments store is here")
    refused(evaluate(model_path, "--moments", simulated / "moments"), 2, "other words than the model")
    refused(evaluate(model_path, "--words", 0), 2, "words is 0")
    refused(evaluate(model_path, "--replicas", -1), 2, "replicas is -1")
    refused(evaluate(model_path, "--seed", -1), 2, "seed is -1")
    assert not (model_path / "evaluation").exists()


def test_damage_ends_in_one_line(
    evaluate: Callable[..., Evaluated], model_path: Path, corpus_path: Path, simulated: Path, tmp_path: Path
) -> None:
    assert evaluate(model_path, "--corpus", corpus_path).code == 0
    [chunk] = (model_path / "evaluation").glob("*/document_pairs/c/0/0")
    chunk.write_bytes(chunk.read_bytes()[:-3])
    refused(evaluate(model_path), 3, "document_pairs", "run evaluate with --corpus again")
    refused(evaluate(model_path, "--corpus", corpus_path), 3, "document_pairs")
    shutil.rmtree(chunk.parents[3])
    assert evaluate(model_path, "--corpus", corpus_path).code == 0, "what the message says helps"
    (model_path / "word_topic" / "c" / "0" / "0").write_bytes(b"")
    refused(evaluate(model_path), 3, "word_topic")
    truth = Path(shutil.copytree(simulated / "corpus", tmp_path / "truth"))
    (truth / "truth.zarr" / "word_topic" / "zarr.json").write_text("{")
    refused(evaluate(simulated / "model", "--truth", truth), 3, "word_topic")
