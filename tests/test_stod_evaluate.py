"""The verb ``evaluate`` on models of the tensor engine, which have no anchors and no correlations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.simulation import simulate_lda
from streaming_jsmf.simulation.truth import read_truth
from streaming_jsmf.topics.store import read_model
from tests.outcomes import printed

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
