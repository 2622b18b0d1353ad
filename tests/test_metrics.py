"""The metrics of topics against the dense formulas."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.common.matching import match_topics, yy_error
from streaming_jsmf.evaluation import inputs, topic_shape
from streaming_jsmf.evaluation.coherence import (
    GENSIM_SMOOTHING,
    coherence,
    distinct_share,
    incoherence_in_cooccurrence,
    incoherence_in_documents,
    npmi,
    pair_npmi,
    spanning_tree_weight,
    u_mass,
)
from streaming_jsmf.evaluation.factorization import factorization_errors
from streaming_jsmf.evaluation.inputs import Cooccurrence, TopicArrays, draw_words
from streaming_jsmf.evaluation.metrics import evaluate_topics
from streaming_jsmf.evaluation.topic_shape import (
    recovery_error,
    stability,
)
from streaming_jsmf.inference.words import frex_words
from streaming_jsmf.linalg.probes import Estimate
from streaming_jsmf.reporting.topics import read_frex
from streaming_jsmf.topics.edits import shown_topics
from streaming_jsmf.topics.store import Model
from tests import reference, reference_metrics
from tests import reference_metrics as oracle
from tests.metric_models import Case, cases, make_case

EPSILONS = (1.0, 0.01, 1e-8)


@given(cases(), st.integers(2, 10))
def test_values_equal_loops_over_the_documents(case, words):
    H, top = case.documents, case.topics.top_words[:, :words]
    places = case.counts.positions(top)
    pairs, M = case.counts.pairs, case.counts.n_documents
    frequency = np.diag(pairs)
    for epsilon in EPSILONS:
        found = coherence(frequency, pairs, places, epsilon=epsilon)
        np.testing.assert_allclose(found, reference_metrics.coherence(H, top, epsilon), rtol=1e-12)
    for smoothing in (0.0, GENSIM_SMOOTHING):
        found = npmi(frequency, pairs, M, places, smoothing=smoothing)
        expected = reference_metrics.npmi(H, top, smoothing)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        assert (np.abs(found) <= 1).all()
    found = u_mass(frequency, pairs, M, places)
    np.testing.assert_allclose(found, reference_metrics.u_mass(H, top, GENSIM_SMOOTHING), rtol=1e-10)


def gensim_values(H, top_words, measure):
    """gensim's coherence of each topic, documents as texts and windows longer than any of them."""
    models = pytest.importorskip("gensim.models.coherencemodel")
    from gensim.corpora import Dictionary

    texts = [[f"w{i}" for i in np.repeat(np.arange(H.shape[1]), h.astype(int))] for h in H]
    # The words in order of their ids, so that gensim's ids are ours.
    dictionary = Dictionary([[f"w{i}" for i in range(H.shape[1])]])
    topics = [[f"w{i}" for i in words] for words in top_words]
    arguments = {"topics": topics, "dictionary": dictionary, "topn": top_words.shape[1], "processes": 1}
    if measure == "u_mass":
        arguments["corpus"] = [dictionary.doc2bow(text) for text in texts]
    else:
        arguments |= {"texts": texts, "window_size": 1 + max(map(len, texts))}
    model = models.CoherenceModel(coherence=measure, **arguments)
    return model.get_coherence_per_topic(), model.get_coherence()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("measure", ["u_mass", "c_npmi"])
def test_gensim_agrees(seed, measure):
    case = make_case(seed)
    H = case.documents
    # gensim divides by zero for words of no document, and has its own mind about words of all of them.
    frequency = (H > 0).sum(axis=0)
    usable = np.flatnonzero((frequency > 0) & (frequency < len(H)))
    scores = case.topics.word_topic[usable]
    top = usable[np.argsort(-scores, axis=0, kind="stable")[:10].T]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gensim's own deprecations
        per_topic, mean = gensim_values(H, top, measure)
    present = (H[:, usable] > 0).astype(np.int64)
    pairs = present.T @ present
    places = np.searchsorted(usable, top)
    assert any((pairs[np.ix_(topic, topic)] == 0).any() for topic in places), "all pairs meet"
    if measure == "u_mass":
        found = u_mass(np.diag(pairs), pairs, len(H), places)
    else:
        found = npmi(np.diag(pairs), pairs, len(H), places, smoothing=GENSIM_SMOOTHING)
    np.testing.assert_allclose(found, per_topic, rtol=0, atol=1e-6)
    assert found.mean() == pytest.approx(mean, abs=1e-6)


def test_words_of_no_document_are_never_nan():
    frequency, pairs = [3, 0, 0], [[3, 0, 0], [0, 0, 0], [0, 0, 0]]
    top = [[0, 1, 2], [1, 2, 0]]
    assert npmi(frequency, pairs, 4, top).tolist() == [-1.0, -1.0]
    assert npmi(frequency, pairs, 4, top, smoothing=GENSIM_SMOOTHING).tolist() == [-1.0, -1.0]
    # Word 0 is in three documents, the others count as if in one.
    expected = [2 * np.log(1e-8 / 3) + np.log(1e-8), 3 * np.log(1e-8)]
    np.testing.assert_allclose(coherence(frequency, pairs, top, epsilon=1e-8), expected)
    np.testing.assert_allclose(u_mass(frequency, pairs, 4, top), [2 * np.log(1e-12 / 0.75) / 3, 0.0])


def test_pair_npmi_stays_within_its_bounds():
    """What a cut factor may give: negative and too large joint probabilities."""
    values = pair_npmi(np.array([-0.1, 0.2, 0.5, 0.1]), np.array([0.1, 1e-6, 0.9, 0.0]))
    assert values[0] == -1.0
    assert values[1] == 1.0
    assert -1 < values[2] < 0
    assert values[3] == -1.0


@given(st.integers(0, 10**6), st.integers(1, 8), st.booleans())
def test_trees_equal_kruskal(seed, n, coarse):
    """Coarse weights have ties and zeros."""
    weights = np.random.default_rng(seed).random((n, n))
    weights = np.round(weights * 2) / 2 if coarse else weights
    weights = np.minimum(weights, weights.T)
    assert spanning_tree_weight(weights) == pytest.approx(reference_metrics.spanning_tree(weights), abs=1e-12)
    assert spanning_tree_weight(np.zeros((n - 1, n - 1))) == 0.0


@given(cases())
def test_incoherence_in_cooccurrence_equals_the_dense_one(case):
    C, rows = reference.cooccurrence(case.documents), case.cooccurrence.rows(case.topics.anchors)
    found = incoherence_in_cooccurrence(case.topics, case.cooccurrence, rows)
    expected = reference_metrics.mst_incoherence(case.topics.top_words, rows, C, case.cooccurrence.row_sum)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert (found >= 0).all()
    assert (found <= 13).all()
    counted = Cooccurrence(case.cooccurrence.row_sum, C.__getitem__)
    np.testing.assert_allclose(incoherence_in_cooccurrence(case.topics, counted, rows), found, rtol=1e-9)


@given(cases())
def test_incoherence_in_documents_equals_the_dense_one(case):
    H, rows = case.documents, case.cooccurrence.rows(case.topics.anchors)
    present = (H > 0).astype(float)
    joint = present.T @ present / len(H)
    found = incoherence_in_documents(case.topics, case.counts, rows)
    expected = reference_metrics.mst_incoherence(
        case.topics.top_words, rows, joint, np.diag(joint), case.counts.words
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_an_anchor_without_documents_has_no_characteristic_words():
    """Rows of zeros would otherwise name the words of the lowest ids."""
    case = make_case(2)
    topics = replace(case.topics, top_words=case.topics.top_words[:, :3])
    none = incoherence_in_documents(topics, case.counts, np.zeros((4, 30)))
    assert (none <= 2).all()
    assert not np.array_equal(
        none, incoherence_in_documents(topics, case.counts, case.cooccurrence.rows(case.topics.anchors))
    )


# -- Metrics of B, A, p(topic) and the anchors alone, and how topics and factors are compared: against dense oracles --


def values(topics: TopicArrays) -> list[float]:
    B, A = topics.word_topic, topics.topic_topic
    return [
        topic_shape.dominancy(A),
        topic_shape.relative_dominancy(A),
        topic_shape.specificity(B, topics.word_probability),
        topic_shape.dissimilarity(topics.top_words),
        topic_shape.effective_topics(topics.topic_probability),
        topic_shape.hoyer_sparsity(B),
        distinct_share(topics.top_words[:, :10]),
    ]


@given(cases())
def test_values_equal_the_dense_ones(case):
    topics = case.topics
    B, A, p = topics.word_topic, topics.topic_topic, topics.topic_probability
    expected = [
        oracle.dominancy(A),
        oracle.relative_dominancy(A),
        oracle.specificity(B, topics.word_probability),
        oracle.dissimilarity(topics.top_words),
        oracle.effective_topics(p),
        oracle.hoyer_sparsity(B),
        oracle.distinct_share(topics.top_words),
    ]
    np.testing.assert_allclose(values(topics), expected, rtol=1e-10, atol=1e-12)


@given(cases(), st.integers(1, 10))
def test_exclusivity_and_frex_words_equal_the_dense_ones(case, words):
    B, top = case.topics.word_topic, case.topics.top_words[:, :words]
    np.testing.assert_allclose(topic_shape.exclusivity(B, top), oracle.exclusivity(B, top), rtol=1e-12)
    found = evaluate_topics(case.topics)[0]["exclusivity"]["per_topic"]
    np.testing.assert_allclose(found, oracle.exclusivity(B, case.topics.top_words[:, :10]), rtol=1e-12)
    scores = np.where(B > 0, oracle.frex(B), 0.0)
    for listed, own in zip(frex_words(B, words), scores.T, strict=True):
        # Words of equal scores, up to rounding, may change places.
        np.testing.assert_allclose(
            np.append(own, 0.0)[listed[: len(own)]], np.sort(own)[::-1][:words], rtol=1e-9
        )
        assert len({*listed.tolist()} - {-1}) == (listed >= 0).sum()


@pytest.mark.parametrize("columns", [1, 3, 99])
def test_frex_words_of_a_model_are_those_of_all_its_topics(columns, monkeypatch):
    """Columns of a large model are read a few at a time."""
    case = make_case(4, n_words=40, n_topics=5)
    B, top = case.topics.word_topic, case.topics.top_words[:, :7]
    monkeypatch.setattr("streaming_jsmf.reporting.topics.FREX_BYTES", columns * 8 * len(B))
    whole = frex_words(B, 7)
    monkeypatch.setattr("streaming_jsmf.inference.words.FREQUENT", columns)
    arrays = {"word_topic": B, "prominent_words": top, "topic_probability": np.full(5, 0.2)}
    words, exclusive = read_frex(shown_topics(Model(arrays, {}, {}, {})), 7)
    np.testing.assert_array_equal(words, whole)
    np.testing.assert_allclose(exclusive, oracle.exclusivity(B, top), rtol=1e-12)


def test_more_words_than_a_panel_holds(monkeypatch):
    case = make_case(3)
    whole = values(case.topics)
    monkeypatch.setattr("streaming_jsmf.linalg.panels.PANEL_ROWS", 4)
    np.testing.assert_allclose(values(case.topics), whole, rtol=1e-9)


def test_specificity_of_words_that_the_corpus_lacks_and_of_any_sum():
    """Half of the first topic is on a word of no document; the second topic has no other word."""
    B = np.array([[0.5, 0.0], [0.0, 0.0], [0.5, 1.0]])
    assert topic_shape.specificity(B, np.array([0.25, 0.75, 0.0])) == pytest.approx((np.log(4) + 0.0) / 2)
    assert topic_shape.specificity(B, np.zeros(3)) == 0.0
    topics = make_case(4).topics
    B, p = topics.word_topic, topics.word_probability
    assert topic_shape.specificity(B, 7 * p) == pytest.approx(topic_shape.specificity(B, p), rel=1e-10)


@pytest.mark.parametrize(
    ("measure", "argument", "expected"),
    [
        ("dominancy", np.zeros((2, 2)), 0.0),
        ("relative_dominancy", np.zeros((2, 2)), 0.0),
        ("relative_dominancy", np.ones((1, 1)), 1.0),
        ("hoyer_sparsity", np.zeros((4, 1)), 0.0),
        ("hoyer_sparsity", np.ones((1, 3)), 1.0),
        ("hoyer_sparsity", np.full((9, 2), 1 / 9), 0.0),
        ("effective_topics", np.array([1.0, 0.0]), 1.0),
        ("effective_topics", np.zeros(3), 3.0),
        ("dissimilarity", np.array([[4]]), 1.0),
    ],
)
def test_empty_topics_and_single_words(measure, argument, expected):
    assert getattr(topic_shape, measure)(argument) == pytest.approx(expected, abs=1e-12)


def test_prior_without_topic_probability():
    topics, rows = make_case(9).topics, slice(0, 30)
    from_rows = replace(topics, topic_probability=None)
    expected = topic_shape.topic_given_word(topics, rows)
    np.testing.assert_array_equal(topic_shape.topic_given_word(from_rows, rows), expected)
    uniform = topic_shape.topic_given_word(replace(from_rows, topic_topic=None), rows)
    even = oracle.topic_given_word(topics.word_topic, np.ones(4))
    np.testing.assert_allclose(uniform, even, rtol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4))
def test_recovery_error_equals_all_assignments_tried(seed, K, K_true):
    rng = np.random.default_rng(seed)
    first, second = (rng.dirichlet(np.full(8, 0.5), size=k).T for k in (K, K_true))
    found = recovery_error(first, second)
    assert found == pytest.approx(oracle.recovery_error(first, second), rel=1e-12, abs=1e-12)
    assert found == pytest.approx(recovery_error(first[:, rng.permutation(K)], second), abs=1e-12)
    assert 0 <= found <= 2 + 1e-12
    assert recovery_error(first, first[:, rng.permutation(K)]) == 0.0


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_stability_equals_the_plain_mean(seed, replicas):
    rng = np.random.default_rng(seed)
    B = rng.dirichlet(np.ones(6), size=3).T
    others = [rng.dirichlet(np.ones(6), size=int(k)).T for k in rng.integers(2, 5, size=replicas)]
    found = stability(B, others)
    assert found.value == pytest.approx(oracle.stability(B, others), rel=1e-12)
    assert 0 <= found.value <= 1
    assert (found.standard_error is None) == (replicas == 1)
    if replicas > 1:
        each = [stability(B, [other]).value for other in others]
        assert found.standard_error == pytest.approx(np.std(each, ddof=1) / np.sqrt(replicas))
    assert stability(B, [B[:, ::-1]]).value == 1.0


def test_matching_undoes_a_permutation_and_takes_the_cheapest_total():
    rng = np.random.default_rng(0)
    B = rng.dirichlet(np.full(30, 0.3), size=6).T
    order = rng.permutation(6)
    found = match_topics(B[:, order], B)
    np.testing.assert_array_equal(found.permutation, order)
    assert found.mean_l1 == 0.0
    # Straight: 1.5 + 1 = 2.5; crossed: topic 0 with 1 costs 1, topic 1 with 0 costs 0.5.
    crossed = match_topics(np.eye(2), np.array([[0.25, 0.5], [0.75, 0.5]]))
    assert (crossed.permutation.tolist(), crossed.l1.tolist(), crossed.mean_l1) == ([1, 0], [1.0, 0.5], 0.75)


def test_yy_error_against_dense():
    rng = np.random.default_rng(1)
    Y, Z = rng.normal(size=(20, 3)), rng.normal(size=(20, 4))
    dense = np.linalg.norm(Y @ Y.T - Z @ Z.T) / np.linalg.norm(Z @ Z.T)
    assert yy_error(Y, Z) == pytest.approx(dense, rel=1e-12)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert yy_error(Y @ rotation, Y) < 1e-14
    assert yy_error(Y * (1 + 1e-9), Y) == pytest.approx(2e-9, rel=1e-5)


# -- Recovery and Approximation against dense C, and estimated from a draw of words with honest errors --

NAMES = ("recovery", "relative_recovery", "approximation", "relative_approximation")


def dense_errors(case: Case) -> list[float]:
    """The four errors with the dense C of the documents."""
    topics, u, C = case.topics, case.cooccurrence.row_sum, reference.cooccurrence(case.documents)
    shares = reference_metrics.topic_given_word(topics.word_topic, topics.topic_probability)
    return [
        reference_metrics.recovery(C, u, shares, topics.representatives),
        reference_metrics.relative_recovery(C, u, shares, topics.representatives),
        reference_metrics.approximation(C, topics.word_topic, topics.topic_topic),
        reference_metrics.relative_approximation(C, topics.word_topic, topics.topic_topic),
    ]


def errors(topics: TopicArrays, found: Cooccurrence) -> list[float]:
    found_errors = factorization_errors(topics, found)
    return [getattr(found_errors, name) for name in NAMES]


@given(cases(), st.booleans())
def test_errors_equal_the_dense_ones(case, few_rows_at_a_time):
    """From the documents, and from a C that was counted."""
    C = reference.cooccurrence(case.documents)
    counted = Cooccurrence(case.cooccurrence.row_sum, C.__getitem__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "BLOCK_ENTRIES", 70 if few_rows_at_a_time else 2**23)
        np.testing.assert_allclose(errors(case.topics, case.cooccurrence), dense_errors(case), rtol=1e-10)
        np.testing.assert_allclose(errors(case.topics, counted), dense_errors(case), rtol=1e-10)
        np.testing.assert_allclose(
            case.cooccurrence.among(case.topics.anchors),
            counted.among(case.topics.anchors),
            rtol=1e-10,
            atol=1e-16,
        )


def test_topics_that_share_a_representative():
    case = make_case(7)
    topics = replace(case.topics, anchors=np.array([2, 5, 2, 2]))
    np.testing.assert_allclose(
        errors(topics, case.cooccurrence), dense_errors(replace(case, topics=topics)), rtol=1e-10
    )


def test_without_anchors_the_top_words_stand_for_them():
    case = make_case(8)
    topics = replace(case.topics, anchors=None)
    named = replace(case.topics, anchors=case.topics.top_words[:, 0])
    assert errors(topics, case.cooccurrence) == errors(named, case.cooccurrence)


def test_nothing_at_all_gives_numbers():
    """No word occurs, and one topic that holds no word."""
    topics = TopicArrays(np.zeros((5, 1)), np.arange(5)[None], np.zeros(5), np.zeros((1, 1)))
    empty = Cooccurrence(np.zeros(5), np.zeros((5, 5)).__getitem__)
    assert errors(topics, empty) == [0.0, 0.0, 0.0, 0.0]
    drawn = errors(topics, replace(empty, draw=draw_words(np.zeros(5), 4)))
    assert drawn == [Estimate(0.0, 0.0)] * 4


@pytest.mark.parametrize("drawn", [None, 8])
def test_without_a_there_is_no_approximation(drawn):
    case = make_case(10)
    topics = replace(case.topics, topic_topic=None)
    draw = drawn and draw_words(case.cooccurrence.row_sum, drawn)
    c = replace(case.cooccurrence, draw=draw)
    found, whole = factorization_errors(topics, c), factorization_errors(case.topics, c)
    assert found.approximation is None
    assert found.relative_approximation is None
    assert (found.recovery, found.relative_recovery) == (whole.recovery, whole.relative_recovery)


def test_draws_are_of_all_words_and_their_density_is_that_of_the_draws():
    mass = np.array([0.0, 8.0, 1.0, 1.0, 0.0, 2.0])
    assert draw_words(mass, 6) is None
    draw = draw_words(mass, 4)
    again = draw_words(mass, 4)
    np.testing.assert_array_equal(draw.words, again.words)
    np.testing.assert_allclose(draw.density, (1 / 6 + mass[draw.words] / 12) / 2)
    many = draw_words(np.random.default_rng(0).gamma(0.2, size=100_000), 2048)
    assert np.mean(1 / many.density) == pytest.approx(100_000, rel=0.1), "the number of words"


def test_a_hundred_draws_confirm_value_and_standard_error(monkeypatch):
    case = make_case(2, n_words=120)
    exact = dense_errors(case)
    found = []
    for seed in range(100):
        monkeypatch.setattr(inputs, "keyed_generator", lambda *_, seed=seed: np.random.default_rng(seed))
        draw = draw_words(case.cooccurrence.row_sum, 40)
        found.append(factorization_errors(case.topics, replace(case.cooccurrence, draw=draw)))
    for name, expected in zip(NAMES, exact, strict=True):
        values = np.array([getattr(errors, name).value for errors in found])
        stated = np.sqrt(np.mean([getattr(errors, name).standard_error ** 2 for errors in found]))
        spread = values.std(ddof=1)
        assert 0.75 < stated / spread < 1.33, name
        # The mean of a hundred is ten times as sure as one; roots of estimates are off by order 1 / draws.
        assert abs(values.mean() - expected) < 3.5 * spread / 10 + 0.005 * expected, name


def test_rows_of_a_draw_are_enough():
    """As they are counted in a pass over documents."""
    case = make_case(8, n_words=60)
    whole = replace(case.cooccurrence, draw=draw_words(case.topics.word_probability, 20))
    words = np.union1d(whole.draw.words, case.topics.anchors)
    rows = case.cooccurrence.rows(words)
    counted = Cooccurrence.of_rows(words, rows, case.cooccurrence.row_sum, whole.draw)
    assert errors(case.topics, counted) == errors(case.topics, whole)
    counts = replace(case.counts, cooccurrence=counted)
    found, _ = evaluate_topics(case.topics, cooccurrence=case.cooccurrence, counts=counts)
    assert [found[name] for name in NAMES] == [vars(each) for each in errors(case.topics, whole)]
    assert evaluate_topics(case.topics, counts=counts)[0]["recovery"] == found["recovery"]
