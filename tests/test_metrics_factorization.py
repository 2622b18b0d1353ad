"""Recovery and Approximation against dense C, of cut factors, and estimated from sketches with honest errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.evaluation import factorization
from streaming_jsmf.evaluation.factorization import (
    cooccurrence_rows,
    estimated_errors,
    factorization_errors,
)
from streaming_jsmf.evaluation.inputs import Cooccurrence, RowSketch, TopicArrays, sketch_probes
from streaming_jsmf.evaluation.metrics import evaluate_topics
from tests import reference, reference_metrics
from tests.metric_models import Case, cases, make_case


def oracle(case: Case, C: np.ndarray | None = None) -> list[float]:
    """The four errors with the dense C of the factor, or another."""
    topics, u = case.topics, case.cooccurrence.row_sum
    found = case.cooccurrence
    C = reference_metrics.dense_cooccurrence(found.factor, found.diagonal) if C is None else C
    prior = topics.topic_probability
    prior = np.ones(len(topics.top_words)) if prior is None else prior
    shares = reference_metrics.topic_given_word(topics.word_topic, prior)
    return [
        reference_metrics.recovery(C, u, shares, topics.representatives),
        reference_metrics.relative_recovery(C, u, shares, topics.representatives),
        reference_metrics.approximation(C, topics.word_topic, topics.topic_topic),
        reference_metrics.relative_approximation(C, topics.word_topic, topics.topic_topic),
    ]


def errors(topics: TopicArrays, found: Cooccurrence) -> list[float]:
    return list(vars(factorization_errors(topics, found)).values())[:4]


@given(cases(), st.booleans())
def test_errors_equal_the_dense_ones(case, other_blocks):
    """Of a factor, and of a C that was counted."""
    np.testing.assert_allclose(errors(case.topics, case.cooccurrence), oracle(case), rtol=1e-8)
    C = reference.cooccurrence(case.documents)
    counted = replace(case.cooccurrence, counted=C)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factorization, "BLOCK_ENTRIES", 70 if other_blocks else 2**24)
        np.testing.assert_allclose(errors(case.topics, counted), oracle(case, C), rtol=1e-10)
    np.testing.assert_array_equal(cooccurrence_rows(counted, case.topics.anchors), C[case.topics.anchors])


def test_more_words_than_a_panel_holds(monkeypatch):
    case = make_case(3, 30, 4)
    straight = errors(case.topics, case.cooccurrence)
    monkeypatch.setattr("streaming_jsmf.linalg.panels.PANEL_ROWS", 7)
    np.testing.assert_allclose(errors(case.topics, case.cooccurrence), straight, rtol=1e-9)
    np.testing.assert_allclose(errors(case.topics, case.cooccurrence), oracle(case), rtol=1e-8)


def test_topics_that_share_a_representative():
    case = make_case(7)
    topics = replace(case.topics, anchors=np.array([2, 5, 2, 2]))
    np.testing.assert_allclose(
        errors(topics, case.cooccurrence), oracle(replace(case, topics=topics)), rtol=1e-8
    )


def test_without_anchors_the_top_words_stand_for_them():
    case = make_case(8)
    topics = replace(case.topics, anchors=None)
    named = replace(case.topics, anchors=case.topics.top_words[:, 0])
    assert errors(topics, case.cooccurrence) == errors(named, case.cooccurrence)


def test_nothing_at_all_gives_numbers():
    """No word occurs, and one topic that holds no word."""
    topics = TopicArrays(np.zeros((5, 1)), np.arange(5)[None], np.zeros(5), np.zeros((1, 1)))
    for counted in (None, np.zeros((5, 5))):
        empty = Cooccurrence(np.zeros((5, 2), np.float32), np.zeros(5), np.zeros(5), counted)
        assert errors(topics, empty) == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("is_counted", [False, True])
def test_without_a_there_is_no_approximation(is_counted):
    case = make_case(10)
    C = reference.cooccurrence(case.documents) if is_counted else None
    found = factorization_errors(
        replace(case.topics, topic_topic=None), replace(case.cooccurrence, counted=C)
    )
    assert found.approximation is None
    assert found.relative_approximation is None
    assert found.recovery == pytest.approx(oracle(case, C)[0])


def test_other_words_are_refused():
    case, other = make_case(1, 20), make_case(1, 21)
    with pytest.raises(ValueError, match="21 words in C, 20 in the model"):
        factorization_errors(case.topics, other.cooccurrence)


NAMES = ("recovery", "relative_recovery", "approximation", "relative_approximation")


def sketch_of(H, *, width=64, seed=0):
    """C G of the documents with uniform weights."""
    products = reference.cooccurrence(H) @ sketch_probes(H.shape[1], width, seed)
    return RowSketch(products, reference.mean_of_shares(H), seed)


def dense(case: Case, H) -> list[float]:
    """The four errors against the documents' own C."""
    cooccurrence = replace(case.cooccurrence, row_sum=reference.mean_of_shares(H))
    return oracle(replace(case, cooccurrence=cooccurrence), reference.cooccurrence(H))


def held_out(seed):
    """Other documents than those of the model's factor, over the same words."""
    return make_case(seed + 1000).documents


@pytest.mark.parametrize("other_corpus", [False, True], ids=["training", "held-out"])
def test_a_hundred_repetitions_confirm_value_and_standard_error(other_corpus):
    """A factor of 10 columns for 29 words: the factor alone is far off."""
    case = make_case(2, width=10)
    H = held_out(2) if other_corpus else case.documents
    found = [estimated_errors(case.topics, case.cooccurrence, sketch_of(H, seed=seed)) for seed in range(100)]
    exact = dense(case, H)
    for name, expected in zip(NAMES, exact, strict=True):
        values = np.array([getattr(errors, name).value for errors in found])
        stated = np.sqrt(np.mean([getattr(errors, name).standard_error ** 2 for errors in found]))
        spread = values.std(ddof=1)
        assert 0.75 < stated / spread < 1.33, name
        # The mean of a hundred is ten times as sure as one; roots of estimates are off by order 1 / probes.
        assert abs(values.mean() - expected) < 3.5 * spread / 10 + 0.003 * expected, name
    assert abs(factorization_errors(case.topics, case.cooccurrence).recovery / exact[0] - 1) > 0.02


def test_a_whole_factor_leaves_nothing_to_estimate_of_the_norms():
    case = make_case(4)
    # The factor is used although C was counted, which may be that of other documents.
    counted = replace(case.cooccurrence, counted=np.zeros((30, 30)))
    found = estimated_errors(case.topics, counted, sketch_of(case.documents))
    exact = dense(case, case.documents)
    assert found.approximation.value == pytest.approx(exact[2], rel=1e-5)
    assert found.approximation.standard_error < 1e-5 * exact[2]
    assert abs(found.recovery.value - exact[0]) < 4 * found.recovery.standard_error


def test_a_sketch_of_more_words_than_a_panel_holds(monkeypatch):
    case = make_case(5, width=10)
    sketch = sketch_of(case.documents)
    straight = estimated_errors(case.topics, case.cooccurrence, sketch)
    monkeypatch.setattr("streaming_jsmf.linalg.panels.PANEL_ROWS", 7)
    split = estimated_errors(case.topics, case.cooccurrence, sketch)
    for name in NAMES:
        assert getattr(split, name).value == pytest.approx(getattr(straight, name).value, rel=1e-9)


def test_without_a_the_sketch_gives_no_approximation():
    case = make_case(6, width=10)
    sketch = sketch_of(case.documents)
    found = estimated_errors(replace(case.topics, topic_topic=None), case.cooccurrence, sketch)
    assert found.approximation is None
    assert found.relative_approximation is None
    whole = estimated_errors(case.topics, case.cooccurrence, sketch)
    assert found.relative_recovery == whole.relative_recovery


def test_no_documents_for_any_word():
    case = make_case(7)
    nothing = RowSketch(np.zeros((30, 4)), np.zeros(30))
    found = estimated_errors(case.topics, case.cooccurrence, nothing)
    assert found.recovery.value == 0.0
    assert np.isfinite([getattr(found, name).value for name in NAMES]).all()


def test_the_summary_prefers_the_sketch():
    case = make_case(8, width=10)
    counts = replace(case.counts, sketch=sketch_of(case.documents))
    found, _ = evaluate_topics(case.topics, cooccurrence=case.cooccurrence, counts=counts)
    expected = estimated_errors(case.topics, case.cooccurrence, counts.sketch)
    for name in NAMES:
        assert found[name] == vars(getattr(expected, name))


def test_sketches_that_do_not_fit_are_refused():
    case = make_case(1)
    with pytest.raises(ValueError, match="at least 2"):
        RowSketch(np.zeros((3, 1)), np.zeros(3))
    with pytest.raises(ValueError, match="row_sum"):
        RowSketch(np.zeros((3, 2)), np.zeros(4))
    with pytest.raises(ValueError, match="3 words in the sketch, 30 in the model"):
        estimated_errors(case.topics, case.cooccurrence, RowSketch(np.zeros((3, 2)), np.zeros(3)))
