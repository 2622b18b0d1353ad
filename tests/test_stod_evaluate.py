"""The verb ``evaluate`` on models of the tensor engine, which have no anchors and no correlations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from streaming_jsmf.config import InferSettings, ScanSettings, StodSettings
from streaming_jsmf.evaluation.evaluate import evaluate
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.simulation import simulate_lda
from streaming_jsmf.simulation.truth import read_truth
from streaming_jsmf.topics.infer import infer
from streaming_jsmf.topics.store import read_model
from tests.outcomes import printed
from tests.stores import scanned

SCHEMA = json.loads(
    (Path(__file__).parent.parent / "docs" / "schemas" / "evaluate.schema.json").read_text(encoding="utf-8")
)
K = 4
SETTINGS = ScanSettings(max_topics=K, partition_nonzeros=4000)
UNCORRELATED = {
    "approximation",
    "relative_approximation",
    "dominancy",
    "relative_dominancy",
    "legality",
    "validity",
}
WITHOUT_ANCHORS = {"basis_rank", "basis_quality"}
LACKING = UNCORRELATED | WITHOUT_ANCHORS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated corpus with its truth, and what the verb ``fit`` makes of it."""
    root = tmp_path_factory.mktemp("stod_evaluate")
    simulate_lda(root / "corpus", n_documents=2000, n_words=80, n_topics=K, mean_length=50)
    # Topics of 80 words have no anchors, and K is the truth.
    options = ("--engine", "stod", "--stod-alpha0", "shares", "--partition-nonzeros", 4000)
    printed("fit", root / "corpus", root / "model", "--topics", K, *options, "--scheduler", "synchronous")
    return root


def shown_by(verb: str, *arguments: object) -> Any:
    shown = json.loads(printed(verb, *arguments, "--json"))
    if verb == "evaluate":
        jsonschema.Draft202012Validator(SCHEMA).validate(shown)
    return shown


def test_a_model_alone_gives_what_its_moments_allow(folder: Path) -> None:
    shown = shown_by("evaluate", folder / "model")
    assert (shown["engine"], shown["n_topics"]) == ("stod", K)
    nulls = {name for name, value in shown["metrics"].items() if value is None}
    assert nulls == LACKING | {"coherence", "u_mass", "npmi", "perplexity", "recovery_error", "stability"}
    assert {shown["missing"][name] for name in UNCORRELATED} == {"the model has no topic_topic"}
    assert {shown["missing"][name] for name in WITHOUT_ANCHORS} == {"the model has no anchors"}
    assert "engine lr-jsmf" in shown["missing"]["stability"]
    assert shown["certificates"]["topics_found"] == K
    assert shown["warnings"] == []


def test_corpus_and_truth_add_their_metrics(folder: Path) -> None:
    corpus, model = folder / "corpus", folder / "model"
    before = shown_by("topics", model)
    shown = shown_by("evaluate", model, "--corpus", corpus, "--truth", corpus)
    assert shown["corpus"]["training"] is True
    assert {name for name, value in shown["metrics"].items() if value is None} == LACKING | {"stability"}
    expected = match_topics(read_model(model).arrays["word_topic"], read_truth(corpus).word_topic).mean_l1
    assert shown["metrics"]["recovery_error"] == pytest.approx(expected)
    assert expected < 0.25
    assert all("anchor" not in topic for topic in shown["topics"])
    # From now on characteristic words are those of exact rows; at full rank these are the factor's rows too.
    after = shown_by("topics", model)
    assert [row["prominent"] for row in after] == [row["prominent"] for row in before]
    assert [row["characteristic"] for row in after] == [topic["characteristic"] for topic in shown["topics"]]


def test_a_third_moment_added_later_does_not_change_models(folder: Path, tmp_path: Path) -> None:
    moments = scanned(folder / "corpus", tmp_path / "moments", SETTINGS)
    infer(moments, tmp_path / "before", InferSettings(K, max_iterations=3))
    moments = scanned(folder / "corpus", tmp_path / "moments", replace(SETTINGS, third_moment=True))
    infer(moments, tmp_path / "after", InferSettings(K, max_iterations=3))
    infer(moments, tmp_path / "stod", StodSettings(K))
    shown = {name: evaluate(tmp_path / name) for name in ("before", "after", "stod")}
    assert {document["moments"] for document in shown.values()} == {str(tmp_path / "moments")}
    assert shown["before"]["metrics"] == shown["after"]["metrics"]
    before, after = (read_model(tmp_path / name, ()).provenance for name in ("before", "after"))
    assert before["fingerprint"] == after["fingerprint"]


def test_labels_belong_to_one_topic_only(folder: Path) -> None:
    rows = shown_by("topics", folder / "model")
    labels = [word for row in rows for word in row["label"]]
    assert len(labels) == len(set(labels)) == 3 * K
    for row in rows:
        assert "anchor" not in row
        assert row["label"][0] in row["prominent"] + row["characteristic"]
    table = read_model(folder / "model").arrays["label_words"]
    assert np.unique(table).size == table.size
