"""Recovery and Approximation estimated from a sketch: no bias, and standard errors that repetition confirms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.evaluation.factorization import estimated_errors, factorization_errors
from streaming_jsmf.evaluation.inputs import RowSketch, sketch_probes
from streaming_jsmf.evaluation.metrics import evaluate_topics
from tests import reference, reference_metrics
from tests.metric_models import Case, cases, make_case, reordered

NAMES = ("recovery", "relative_recovery", "approximation", "relative_approximation")


def sketch_of(H, *, width=64, seed=0):
    """C G of the documents with uniform weights."""
    products = reference.cooccurrence(H) @ sketch_probes(H.shape[1], width, seed)
    return RowSketch(products, reference.mean_of_shares(H), seed)


def dense(case: Case, H) -> list[float]:
    """The four errors against the documents' own C."""
    topics, C, u = case.topics, reference.cooccurrence(H), reference.mean_of_shares(H)
    shares = reference_metrics.topic_given_word(topics.word_topic, topics.topic_probability)
    return [
        reference_metrics.recovery(C, u, shares, topics.anchors),
        reference_metrics.relative_recovery(C, u, shares, topics.anchors),
        reference_metrics.approximation(C, topics.word_topic, topics.topic_topic),
        reference_metrics.relative_approximation(C, topics.word_topic, topics.topic_topic),
    ]


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


@given(cases(), st.integers(0, 100))
def test_order_of_topics_does_not_matter_and_values_are_finite(case, seed):
    sketch = sketch_of(case.documents, width=4, seed=seed)
    straight = estimated_errors(case.topics, case.cooccurrence, sketch)
    order = np.random.default_rng(seed).permutation(len(case.topics.top_words))
    moved = estimated_errors(reordered(case.topics, order), case.cooccurrence, sketch)
    for name in NAMES:
        one, other = getattr(straight, name), getattr(moved, name)
        assert one.value == pytest.approx(other.value, rel=1e-9, abs=1e-15)
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-6, abs=1e-12)
        assert np.isfinite([one.value, one.standard_error]).all()
        assert one.value >= 0
        assert one.standard_error >= 0


def test_splits_of_the_corpus_add_up():
    case = make_case(3)
    H = case.documents
    halves = [H[:20], H[20:]]
    weights = [len(half) / len(H) for half in halves]
    parts = [sketch_of(half) for half in halves]
    products = sum(w * part.products for w, part in zip(weights, parts, strict=True))
    row_sum = sum(w * part.row_sum for w, part in zip(weights, parts, strict=True))
    added = estimated_errors(case.topics, case.cooccurrence, RowSketch(products, row_sum))
    whole = estimated_errors(case.topics, case.cooccurrence, sketch_of(H))
    assert added.recovery.value == pytest.approx(whole.recovery.value, rel=1e-9)
    assert added.approximation.value == pytest.approx(whole.approximation.value, rel=1e-9)


def test_a_whole_factor_leaves_nothing_to_estimate_of_the_norms():
    case = make_case(4)
    found = estimated_errors(case.topics, case.cooccurrence, sketch_of(case.documents))
    exact = dense(case, case.documents)
    assert found.approximation.value == pytest.approx(exact[2], rel=1e-5)
    assert found.approximation.standard_error < 1e-5 * exact[2]
    assert abs(found.recovery.value - exact[0]) < 4 * found.recovery.standard_error


def test_more_words_than_a_panel_holds(monkeypatch):
    case = make_case(5, width=10)
    sketch = sketch_of(case.documents)
    straight = estimated_errors(case.topics, case.cooccurrence, sketch)
    monkeypatch.setattr("streaming_jsmf.linalg.panels.PANEL_ROWS", 7)
    split = estimated_errors(case.topics, case.cooccurrence, sketch)
    for name in NAMES:
        assert getattr(split, name).value == pytest.approx(getattr(straight, name).value, rel=1e-9)


def test_without_a_there_is_no_approximation():
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
    without, _ = evaluate_topics(case.topics, cooccurrence=case.cooccurrence, counts=case.counts)
    assert isinstance(without["recovery"], float)


def test_sketches_that_do_not_fit_are_refused():
    case = make_case(1)
    with pytest.raises(ValueError, match="at least 2"):
        RowSketch(np.zeros((3, 1)), np.zeros(3))
    with pytest.raises(ValueError, match="row_sum"):
        RowSketch(np.zeros((3, 2)), np.zeros(4))
    with pytest.raises(ValueError, match="3 words in the sketch, 30 in the model"):
        estimated_errors(case.topics, case.cooccurrence, RowSketch(np.zeros((3, 2)), np.zeros(3)))
