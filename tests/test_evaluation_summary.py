"""All metrics at once: keys, JSON, what is missing where an input is, and examples in docstrings."""

from __future__ import annotations

import doctest
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.evaluation import (
    choice,
    coherence,
    factorization,
    metrics,
    topic_shape,
    verdicts,
)
from streaming_jsmf.evaluation.inputs import Cooccurrence, SelectedCounts, TopicArrays, lookup
from streaming_jsmf.evaluation.metrics import evaluate_topics
from streaming_jsmf.inference.perplexity import Completion
from tests import reference_metrics
from tests.metric_models import cases, make_case, reordered


def everything(case, **changes):
    inputs = {"cooccurrence": case.cooccurrence, "counts": case.counts, "truth": case.topics.word_topic}
    inputs["completion"] = Completion(3, tokens=9, log_likelihood=-40.0, unigram_log_likelihood=-50.0)
    inputs["replicas"] = [case.topics.word_topic] * 2
    return evaluate_topics(case.topics, **(inputs | changes))[0]


def numbers(value):
    """All numbers of a result, with None where one is missing."""
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in numbers(value[key])]
    return [number for item in value for number in numbers(item)] if isinstance(value, list) else [value]


@pytest.mark.parametrize(
    "module",
    [choice, coherence, factorization, metrics, topic_shape, verdicts],
    ids=lambda module: module.__name__.rsplit(".", 1)[1],
)
def test_examples_by_hand(module):
    result = doctest.testmod(module)
    assert result.failed == 0


def test_every_metric_has_a_value_and_a_line():
    case = make_case(0)
    result, missing = evaluate_topics(
        replace(case.topics, anchors=case.topics.top_words[:, 0]),
        cooccurrence=case.cooccurrence,
        counts=case.counts,
        completion=Completion(3, tokens=9, log_likelihood=-40.0, unigram_log_likelihood=-50.0),
        truth=case.topics.word_topic,
        replicas=[case.topics.word_topic],
    )
    assert missing == {}
    assert {line.path.partition(".")[0] for line in metrics.SHOWN} == set(result)
    assert all(metrics.number_of(lookup(result, line.path)) is not None for line in metrics.SHOWN)


def test_a_metric_is_missing_for_the_reason_of_its_first_missing_input():
    case = make_case(1)
    given = {"cooccurrence": case.cooccurrence, "counts": case.counts, "replicas": [case.topics.word_topic]}
    for absent in given:
        rest = {name: value for name, value in given.items() if name != absent}
        result, missing = evaluate_topics(case.topics, reasons={absent: f"no {absent}"}, **rest)
        lost = {path for path, reason in missing.items() if reason == f"no {absent}"}
        assert lost == LOST[absent]
        assert all(lookup(result, path) is None for path in missing)
        assert missing["recovery_error"] == "the model has no truth"


LOST = {
    "cooccurrence": {
        *("recovery", "relative_recovery", "approximation", "relative_approximation", "specificity.2021"),
        *("mst_incoherence.cooccurrence", "mst_incoherence.documents"),
    },
    "counts": {"coherence", "u_mass", "npmi", "mst_incoherence.documents"},
    "replicas": {"stability"},
}


@given(cases())
def test_the_result_is_json_without_nan(case):
    result = everything(case)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert all(number is None or np.isfinite(number) for number in numbers(result))
    assert result["recovery_error"] == 0.0
    assert result["stability"] == {"value": 1.0, "standard_error": 0.0}


@given(cases(), st.integers(0, 100))
def test_order_of_topics_changes_the_lists_alone(case, seed):
    order = np.random.default_rng(seed).permutation(len(case.topics.top_words))
    moved = replace(case, topics=reordered(case.topics, order))

    def without_lists(value):
        if not isinstance(value, dict):
            return value
        return {key: without_lists(item) for key, item in value.items() if key != "per_topic"}

    straight, changed = everything(case), everything(moved)
    left, right = (numbers(without_lists(result)) for result in (straight, changed))
    assert [x is None for x in left] == [x is None for x in right]
    pairs = [(x, y) for x, y in zip(left, right, strict=True) if x is not None]
    np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-8, atol=1e-10)
    assert changed["npmi"]["per_topic"] == [straight["npmi"]["per_topic"][k] for k in order]


def test_values_are_those_of_the_kernels_and_their_words():
    case = make_case(6)
    result, H, top = everything(case), case.documents, case.topics.top_words
    assert result["npmi"]["per_topic"] == pytest.approx(reference_metrics.npmi(H, top[:, :10]))
    assert result["u_mass"]["mean"] == pytest.approx(np.mean(reference_metrics.u_mass(H, top[:, :10], 1e-12)))
    for name, epsilon, words in [("mimno_2011", 1, 10), ("jsmf_2015", 0.01, 20), ("softclique", 1e-8, 10)]:
        found = result["coherence"][name]
        assert (found["epsilon"], found["words"]) == (epsilon, words)
        assert found["per_topic"] == pytest.approx(reference_metrics.coherence(H, top[:, :words], epsilon))
    B = case.topics.word_topic
    u = case.cooccurrence.row_sum
    assert result["specificity"]["2015"] == pytest.approx(
        reference_metrics.specificity(B, case.topics.word_probability)
    )
    assert result["specificity"]["2021"] == pytest.approx(reference_metrics.specificity(B, u))
    assert result["specificity"]["2015"] != pytest.approx(result["specificity"]["2021"], rel=1e-3)


def test_without_further_inputs_their_metrics_are_null():
    topics = replace(
        make_case(1).topics, topic_topic=None, topic_probability=None, anchors=None, rectified=None
    )
    result, _ = evaluate_topics(topics)
    given_ = {
        "specificity",
        "dissimilarity",
        "distinct_share",
        "exclusivity",
        "hoyer_sparsity",
        "mst_incoherence",
    }
    assert {key for key, value in result.items() if value is not None} == given_
    assert result["mst_incoherence"] == {"cooccurrence": None, "documents": None}
    assert result["specificity"]["2021"] is None


def test_an_engine_without_anchors_and_correlations():
    """Everything that C and counts alone can give is there."""
    case = make_case(2)
    plain = replace(case.topics, topic_topic=None, anchors=None, rectified=None)
    result = everything(replace(case, topics=plain))
    missing = {key for key, value in result.items() if value is None}
    assert missing == {"approximation", "relative_approximation", "dominancy", "relative_dominancy"}
    assert None not in result["mst_incoherence"].values()


def test_one_topic_of_one_word():
    one = np.ones(1)
    topics = TopicArrays(
        np.ones((1, 1)), np.zeros((1, 1), np.int64), one, np.ones((1, 1)), one, np.zeros(1, np.int64)
    )
    C = Cooccurrence(one, np.ones((1, 1)).__getitem__)
    counts = SelectedCounts(np.zeros(1, np.int64), np.full((1, 1), 3), 3)
    result, _ = evaluate_topics(topics, cooccurrence=C, counts=counts)
    json.dumps(result, allow_nan=False)
    assert [result[key] for key in ("recovery", "approximation", "coherence", "u_mass", "npmi")] == [
        0.0,
        0.0,
        None,
        None,
        None,
    ]
    assert result["dominancy"] == result["relative_dominancy"] == result["effective_topics"] == 1.0
    assert result["mst_incoherence"]["documents"] == {"mean": 0.0, "per_topic": [0.0]}


def test_a_top_word_that_was_not_counted_is_refused():
    case = make_case(5)
    few = SelectedCounts(np.array([0]), np.array([[1]]), 2)
    with pytest.raises(ValueError, match="is a top word and was not counted"):
        evaluate_topics(case.topics, counts=few)
