"""The verb ``evaluate`` as a user meets it: what it prints, against its schema, its warnings and its exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from streaming_jsmf.config import InferSettings, ScanSettings
from streaming_jsmf.evaluation.coherence import npmi
from streaming_jsmf.evaluation.metrics import SHOWN
from streaming_jsmf.simulation import simulate_lda
from streaming_jsmf.simulation.truth import read_truth
from streaming_jsmf.topics.infer import infer, infer_each
from streaming_jsmf.topics.store import read_model, write_model
from tests import reference, reference_metrics
from tests.corpora import Planted
from tests.damage import rewritten
from tests.outcomes import Command, Outcome, refused
from tests.stores import scanned

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


def test_of_a_store_with_all_pairs_the_errors_are_exact(
    evaluate: Evaluate, corpus_path: Path, documents: Planted, tmp_path: Path
) -> None:
    exact = scanned(corpus_path, tmp_path / "exact", ScanSettings(max_topics=5, exact=True))
    arrays = infer(exact, tmp_path / "model", QUICK).arrays
    C = reference.cooccurrence(
        documents.counts, reference.document_weights(documents.counts.sum(axis=1), "capped")
    )
    shares = reference_metrics.topic_given_word(arrays["word_topic"], arrays["topic_probability"])
    recovery = reference_metrics.recovery(C, C.sum(axis=1), shares, arrays["anchors"])
    approximation = reference_metrics.approximation(C, arrays["word_topic"], arrays["topic_topic"])
    for options in ((), ("--corpus", corpus_path)):
        found = evaluate(tmp_path / "model", *options, "--json").document()["metrics"]
        assert found["recovery"] == pytest.approx(recovery, rel=1e-5)
        assert found["approximation"] == pytest.approx(approximation, rel=1e-5)
    half = Path(shutil.copytree(corpus_path, tmp_path / "half"))
    (half / "part-00000.parquet").unlink()
    other = evaluate(tmp_path / "model", "--corpus", half, "--json").document()["metrics"]
    assert other["recovery"]["value"] != pytest.approx(recovery, rel=1e-3)


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
    assert trained["metrics"]["recovery"]["standard_error"] > 0, "estimated for the documents"
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
    assert "recovery, relative_recovery, approximation, relative_approximation" in sentence
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
    named = [line.split()[0] for line in lines]
    assert {line.path: named.count(line.path) for line in SHOWN} == {line.path: 1 for line in SHOWN}
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
    assert {line.path for line in SHOWN} == expected | (known.keys() - parts.keys())


def test_both_verbs_report_doubtful_topics(evaluate: Evaluate, invoke: Command, model_path: Path) -> None:
    rewritten(model_path, lambda about: about["metrics"].update(topic_topic_sum=1.35))
    for outcome in (evaluate(model_path), invoke("topics", model_path)):
        assert outcome.code == 0
        assert "warning: the estimated shares of all pairs of topics add up to 1.35" in outcome.err


def test_models_of_several_k_are_in_one_table(evaluate: Evaluate, fitted: Path, tmp_path: Path) -> None:
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
    evaluate: Evaluate, model_path: Path, corpus_path: Path, simulated: Path, tmp_path: Path
) -> None:
    none = tmp_path / "none"
    refused(evaluate(none), 2, str(none))
    for option, value, part in (
        ("--corpus", none, str(none)),
        ("--corpus", simulated / "corpus", "120 words"),
        ("--truth", corpus_path, "truth.zarr"),
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
