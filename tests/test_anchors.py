"""Anchors: greedy, given, of soft cliques, and those of planted topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import qr

from pipelines.common.matching import match_topics
from streaming_jsmf import InferSettings, ScanSettings, fit, infer, open_model, scan
from streaming_jsmf.cli.main import run
from streaming_jsmf.errors import InputError
from streaming_jsmf.inference.anchors import (
    Clique,
    DegenerateAnchorsError,
    RejectedAnchorError,
    anchor_candidates,
    dense_similarity,
    low_rank_similarity,
    pivoted_anchors,
    shrunken_rows,
    soft_cliques,
)
from streaming_jsmf.inference.law import AnchorRules, anchor_words, low_rank_anchor_words
from streaming_jsmf.inference.words import characteristic_words, longer_lists, prominent_words
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.simulation import simulate_lda
from streaming_jsmf.simulation.truth import read_truth
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.store import Model, read_model
from tests import reference
from tests import reference_anchors as oracle
from tests.corpora import planted, write_corpus
from tests.outcomes import Command, refused
from tests.reference import row_normalized
from tests.stores import scanned

Floats = NDArray[np.float64]
N, K = 70, 4
EVERYWHERE = np.full(N, 1000)
#: Scales of the columns of Y: equal, falling slowly, and one topic that hides the others.
SPECTRA = {"flat": np.ones(6), "slow": 1.0 / np.arange(1, 7), "steep": np.geomspace(1.0, 1e-2, 6)}
RULES = pytest.mark.parametrize(
    "rules", [AnchorRules(), AnchorRules(shrinkage=50.0), AnchorRules("soft-clique")]
)


def separable(seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Y with Y Y' = B A B' exactly, words 0..K-1 the anchors; and B and A."""
    rng = np.random.default_rng(seed)
    b = np.vstack([np.diag(rng.uniform(0.05, 0.1, K)), rng.dirichlet(np.full(K, 0.5), N - K)])
    b[K:] *= (1 - b[:K].sum(axis=0)) / b[K:].sum(axis=0)
    theta = rng.dirichlet(np.full(K, 0.4), 200)
    a = theta.T @ theta / 200
    return b @ np.linalg.cholesky(a), b, a


def noisy(seed: int = 0) -> tuple[Floats, Floats]:
    """Y whose d is zero or negative for some words, and the row sums u before truncation."""
    y, b, _ = separable(seed)
    y = y.copy()
    y[10] = -0.3 * y[11]
    y[12] = 0.0
    return y, np.maximum(b.mean(axis=1), 1e-6)


def factor(seed: int, spectrum: Floats) -> Floats:
    """Y without a negative entry, so that Y Y' has none either; entries of Y Y' sum to 1."""
    y = np.random.default_rng(seed).gamma(0.4, size=(N, spectrum.size)) * spectrum
    return np.asarray(y / np.linalg.norm(y.sum(axis=0)))


def frequencies(seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed + 1000).integers(1, 400, N)


def row_sums(y: Floats) -> Floats:
    return np.asarray(y @ y.sum(axis=0))


# Topics


@given(st.integers(0, 10_000))
def test_exact_separable_topics_are_recovered(seed: int) -> None:
    y, b, a = separable(seed)
    found = low_rank_anchor_words(y, row_sums(y), EVERYWHERE)
    assert sorted(found.anchors.words) == list(range(K))
    matching = match_topics(found.word_topic, b)
    assert matching.mean_l1 < 1e-8
    expected = a[np.ix_(matching.permutation, matching.permutation)]
    np.testing.assert_allclose(found.topic_topic, expected, atol=1e-8)
    assert found.topic_topic.sum() == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("shrinkage", [0.0, 60.0])
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("seed", range(3))
def test_law_is_aw_and_the_oracle_where_no_entry_is_negative(
    seed: int, spectrum: str, shrinkage: float
) -> None:
    y, frequency = factor(seed, SPECTRA[spectrum]), frequencies(seed)
    c = y @ y.T
    u, rules = c.sum(axis=1), AnchorRules(min_document_frequency=40, shrinkage=shrinkage)
    low, full = low_rank_anchor_words(y, u, frequency, rules), anchor_words(c, u, frequency, 6, rules)
    np.testing.assert_array_equal(low.anchors.words, full.anchors.words)
    np.testing.assert_allclose(low.anchors.pivots, full.anchors.pivots, rtol=1e-9)
    # The rows of a steep spectrum have a condition of 1e4, and the simplex problems work with its square.
    tolerance = 1e-10 if spectrum == "steep" else 1e-12
    np.testing.assert_allclose(low.word_topic, full.word_topic, rtol=0, atol=tolerance)
    np.testing.assert_allclose(low.topic_topic, full.topic_topic, rtol=1e3 * tolerance)
    allowed = frequency >= 40
    slow = (
        oracle.shrunken_law(y, 6, allowed, frequency, shrinkage)
        if shrinkage
        else reference.low_rank_anchor_word_algorithm(y, 6, allowed)
    )
    np.testing.assert_array_equal(low.anchors.words, slow.anchors)
    np.testing.assert_allclose(low.word_topic, slow.word_topic, atol=1e-8)
    np.testing.assert_allclose(low.topic_given_word, slow.topic_given_word, atol=1e-6)
    np.testing.assert_allclose(low.topic_topic, slow.topic_topic, rtol=1e-5)


@RULES
def test_words_without_mass_get_no_topic_and_never_a_nan(rules: AnchorRules) -> None:
    y, u = noisy()
    found = low_rank_anchor_words(y, u, EVERYWHERE, rules)
    assert found.words_without_mass == 2
    np.testing.assert_array_equal(found.topic_given_word[[10, 12]], 0.0)
    np.testing.assert_array_equal(found.word_topic[[10, 12]], 0.0)
    np.testing.assert_allclose(found.word_topic.sum(axis=0), 1.0, atol=1e-12)
    with_mass = np.delete(found.topic_given_word, [10, 12], axis=0)
    np.testing.assert_allclose(with_mass.sum(axis=1), 1.0, atol=1e-12)
    assert found.topic_probability.sum() == pytest.approx(1.0)
    assert np.isfinite(found.topic_topic).all()
    assert found.largest_gap < 1e-10


def test_topic_topic_is_never_negative() -> None:
    rng = np.random.default_rng(7)
    y = rng.standard_normal((N, K)) + np.array([3.0, 0, 0, 0])
    found = low_rank_anchor_words(y, row_sums(y), EVERYWHERE)
    assert (y[found.anchors.words] @ y[found.anchors.words].T).min() < 0, "the case must bite"
    assert found.topic_topic.min() >= 0
    np.testing.assert_array_equal(found.topic_topic, found.topic_topic.T)


def test_duplicate_rows_give_one_anchor_each_and_equal_topics() -> None:
    y = factor(3, np.ones(4))
    y = np.vstack([y, y[:10]])
    found = low_rank_anchor_words(y, row_sums(y), np.full(N + 10, 100))
    assert len(np.unique(y[found.anchors.words], axis=0)) == 4, "no word twice under two ids"
    assert (found.anchors.words < N).all(), "the lower id of two equal words"
    np.testing.assert_allclose(found.topic_given_word[:10], found.topic_given_word[N:], atol=1e-12)


# Anchors


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("shrinkage", [0.0, 60.0])
@pytest.mark.parametrize("seed", range(3))
def test_pivots_are_those_of_lapack(seed: int, shrinkage: float, spectrum: str) -> None:
    rows = np.random.default_rng(seed).standard_normal((N, 6)) * SPECTRA[spectrum]
    rows = shrunken_rows(rows, np.ones(N), frequencies(seed), np.arange(N), shrinkage)
    _, r, order = qr(rows.T, pivoting=True, mode="economic")
    found = pivoted_anchors(rows, np.arange(N), 6)
    np.testing.assert_array_equal(found.words, order[:6])
    np.testing.assert_allclose(found.pivots, np.abs(np.diag(r)), rtol=1e-8)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 1e6))
def test_shrunken_rows_equal_the_oracle_and_rotate_with_the_rows(seed: int, shrinkage: float) -> None:
    rng = np.random.default_rng(seed)
    rows, mass, frequency = rng.standard_normal((N, 4)), rng.standard_normal(N), frequencies(seed)
    shrunken = shrunken_rows(rows, mass, frequency, np.arange(N), shrinkage)
    np.testing.assert_allclose(shrunken, oracle.shrunken(rows, mass, frequency, shrinkage), atol=1e-12)
    rotation, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    rotated = shrunken_rows(rows @ rotation, mass, frequency, np.arange(N), shrinkage)
    np.testing.assert_allclose(rotated, shrunken @ rotation, atol=1e-12)


def test_of_words_in_one_direction_the_well_measured_one_becomes_the_anchor() -> None:
    # Topic 0 has a rare anchor that noise moved a little too far out, and a frequent one.
    rows = np.array([[1.05, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.3, 0.3, 0.4]])
    frequency, mass, ids = np.array([30, 3000, 3000, 3000, 3000]), np.ones(5), np.arange(5)
    assert 0 in pivoted_anchors(rows.copy(), ids, 3).words
    shrunken = shrunken_rows(rows, mass, frequency, ids, 100.0)
    assert set(pivoted_anchors(shrunken, ids, 3).words) == {1, 2, 3}
    # As df grows the rows come back.
    unshrunken = shrunken_rows(rows, mass, frequency * 10**9, ids, 100.0)
    np.testing.assert_allclose(unshrunken, rows, atol=1e-8)


def test_the_guards_equal_the_oracle_under_a_mask() -> None:
    y, u = noisy()
    frequency = np.random.default_rng(2).integers(1, 100, N)
    d = row_sums(y)
    allowed = reference.anchor_guard(d, u, frequency, 30) & (d > 0)
    found = low_rank_anchor_words(y, u, frequency, AnchorRules(min_document_frequency=30))
    expected = reference.low_rank_anchor_word_algorithm(y, K, allowed)
    np.testing.assert_array_equal(found.anchors.words, expected.anchors)
    np.testing.assert_allclose(found.word_topic, expected.word_topic, atol=1e-9)
    assert (frequency[found.anchors.words] >= 30).all()


def test_a_rare_word_with_a_shrunken_row_sum_is_not_a_candidate() -> None:
    d, u = np.array([0.2, 0.009, 0.2, -0.1, 0.0]), np.array([0.2, 0.1, 0.2, 0.2, 0.0])
    frequency = np.array([50, 50, 3, 50, 50])
    np.testing.assert_array_equal(anchor_candidates(d, u, frequency, 20), [True, False, False, False, False])
    papers = anchor_candidates(d, u, frequency, 0, min_row_sum=0.0)
    np.testing.assert_array_equal(papers, [True, True, True, False, False])


def test_ties_go_to_the_lowest_id() -> None:
    rows = np.vstack([np.eye(K), np.eye(K)])[::-1].copy()
    np.testing.assert_array_equal(pivoted_anchors(rows, np.arange(2 * K), K).words, range(K))


def test_too_few_directions_are_refused_with_their_number() -> None:
    rng = np.random.default_rng(0)
    rows, ids = rng.standard_normal((N, 2)) @ rng.standard_normal((2, K)), np.arange(N)
    with pytest.raises(DegenerateAnchorsError, match="only 2 words"):
        pivoted_anchors(rows.copy(), ids, K)
    with pytest.raises(DegenerateAnchorsError, match="3 words"):
        pivoted_anchors(rows[:3], ids[:3], K)
    with pytest.raises(DegenerateAnchorsError):
        pivoted_anchors(np.zeros((N, K)), ids, K)


@RULES
def test_more_topics_than_the_rank_are_refused(rules: AnchorRules) -> None:
    y = factor(5, np.ones(3))
    wide = np.hstack([y, y @ np.array([[1.0], [2.0], [0.5]])])
    with pytest.raises(DegenerateAnchorsError, match="only 3 words"):
        low_rank_anchor_words(wide, row_sums(wide), EVERYWHERE, rules)
    with pytest.raises(DegenerateAnchorsError, match="only 3 words"):
        anchor_words(y @ y.T, row_sums(y), EVERYWHERE, 4, rules)
    with pytest.raises(DegenerateAnchorsError, match="0 words"):
        low_rank_anchor_words(np.zeros((N, 2)), np.zeros(N), EVERYWHERE, rules)


def test_word_lists_fall_and_break_ties_by_id() -> None:
    b = np.array([[0.1, 0.5], [0.4, 0.25], [0.4, 0.25], [0.1, 0.0]])
    np.testing.assert_array_equal(prominent_words(b, 3), [[1, 2, 0], [0, 1, 2]])
    np.testing.assert_array_equal(characteristic_words(b.T, 2), [[1, 2], [0, 1]])
    for cut in range(1, 4):
        longer = longer_lists(np.array([[1], [0]]), [b[:cut], b[cut:]], 3)
        np.testing.assert_array_equal(longer, prominent_words(b, 3))


# -- Anchors that the user gives: alone, with others found beside them, and several words as one --


@pytest.fixture(scope="module")
def moments(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Moments:
    path = tmp_path_factory.mktemp("moments") / "m"
    return scan(corpus_path, path, ScanSettings(max_topics=5), Execution("synchronous"))


def test_all_anchors_given_are_the_anchors_in_their_order() -> None:
    y = factor(0, np.ones(4))
    c = y @ y.T
    d = c.sum(axis=1)
    given = [40, 3, 22, 9]
    found = low_rank_anchor_words(y, d, EVERYWHERE, AnchorRules(given=[[word] for word in given]))
    np.testing.assert_array_equal(found.anchors.words, given)
    slow = oracle.topics_of_anchors(row_normalized(c, d), d, c, given)
    np.testing.assert_allclose(found.word_topic, slow.word_topic, atol=1e-8)
    np.testing.assert_allclose(found.topic_topic, slow.topic_topic, rtol=1e-6)


def test_the_others_are_farthest_from_the_span_of_those_given() -> None:
    y = factor(1, np.ones(5))
    c = y @ y.T
    rows = row_normalized(c, c.sum(axis=1))
    found = low_rank_anchor_words(y, c.sum(axis=1), EVERYWHERE, AnchorRules(given=[[12], [50]])).anchors.words
    np.testing.assert_array_equal(found[:2], [12, 50])
    for count in range(2, 5):
        span, _ = np.linalg.qr(rows[found[:count]].T)
        distance = np.linalg.norm(rows - rows @ span @ span.T, axis=1)
        assert distance.argmax() == found[count]


def test_a_tandem_anchor_is_its_words_counted_as_one() -> None:
    y = factor(2, np.ones(4))
    c = y @ y.T
    groups = [[5, 8, 31], [0], [17, 60], [44]]
    rules = AnchorRules(given=groups)
    full = anchor_words(c, c.sum(axis=1), EVERYWHERE, 4, rules)
    low = low_rank_anchor_words(y, c.sum(axis=1), EVERYWHERE, rules)
    assert full.anchors.groups == low.anchors.groups == ((5, 8, 31), (0,), (17, 60), (44,))
    np.testing.assert_array_equal(low.anchors.words, [5, 0, 17, 44])
    slow = oracle.tandem_topics(c, groups)
    for found in (full, low):
        np.testing.assert_allclose(found.word_topic, slow.word_topic, atol=1e-8)
        np.testing.assert_allclose(found.topic_topic, slow.topic_topic, rtol=1e-6)


def test_given_words_may_be_rare_and_those_without_mass_are_left_out() -> None:
    y = factor(3, np.ones(4))
    u, frequency = y @ y.sum(axis=0), EVERYWHERE.copy()
    frequency[7] = 12
    rules = AnchorRules(min_document_frequency=30, given=[[2], [4, 7]])
    assert low_rank_anchor_words(y, u, frequency, rules).anchors.groups[:2] == ((2,), (4, 7))
    u[4] *= 11
    assert low_rank_anchor_words(y, u, frequency, rules).anchors.groups[:2] == ((2,), (7,))
    free = AnchorRules(given=[[2], [4]], min_row_sum=0.0)
    assert 4 in low_rank_anchor_words(y, u, EVERYWHERE, free).anchors.words
    with pytest.raises(RejectedAnchorError, match=r"word 4 keeps less than 0.1 of .* lower anchor_row_sum"):
        low_rank_anchor_words(y, u, EVERYWHERE, AnchorRules(given=[[2], [4]]))
    y = y.copy()
    y[4] = 0
    with pytest.raises(RejectedAnchorError, match="word 4 keeps none of its co-occurrences"):
        low_rank_anchor_words(y, u, EVERYWHERE, free)


def test_given_anchors_that_say_the_same_are_refused() -> None:
    y = factor(4, np.ones(4))
    y[1] = 2 * y[0]
    with pytest.raises(
        DegenerateAnchorsError, match=r"only 1 words are far enough apart.*other anchor words"
    ):
        low_rank_anchor_words(y, y @ y.sum(axis=0), EVERYWHERE, AnchorRules(given=[[0], [1]]))


def test_guided_topics_leave_out_words_that_cannot_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = ["the room was clean and the staff friendly", "a refund of my money please", "wifi slow all day"]
    texts = [f"{text} {number % 7} x{number}" for number in range(400) for text in table]
    texts += ["rare word", "rare internet wifi"]
    model = fit(
        texts,
        tmp_path / "m",
        3,
        anchor_words=[["refund", "money"], ["wifi", "internet"]],
        min_df=1,
        max_df=1.0,
    )
    assert model.metrics["given_anchors"] == [["refund", "money"], ["wifi"]]
    line = "the anchor word 'internet' is left out; it occurs in 1 documents; a given anchor needs 5"
    assert line in caplog.text
    lists = [{word for word, _ in pairs} for pairs in model.topics(4)["words"]]
    assert any({"refund", "money"} <= words for words in lists)


KEPT: dict[str, Any] = {"min_df": 1, "max_df": 1.0, "duplicates": "keep"}


@pytest.mark.parametrize(
    ("anchor", "line"),
    [
        (["fig"], ": the anchor word 'fig' occurs in 2 documents"),
        (["nothing"], ": the anchor word 'nothing' is not in the"),
        (
            ["fig", "nothing"],
            "corpus: none of .* can be used: the anchor word 'fig' .*; the anchor word 'nothing' ",
        ),
    ],
)
def test_fit_finds_a_wrong_word_before_the_scan(anchor: list[str], line: str, tmp_path: Path) -> None:
    texts = [f"apple pear plum {'fig' * (number < 2)}" for number in range(400)]
    with pytest.raises(InputError, match=line) as error:
        fit(texts, tmp_path / "model", 2, anchor_words=[anchor, "pear"], **KEPT)
    assert ("none of" in str(error.value)) == (len(anchor) > 1)
    assert error.value.__cause__ is None
    assert not (tmp_path / "model").exists()


def test_the_command_line_takes_a_list_and_a_file(moments: Moments, tmp_path: Path, invoke: Command) -> None:
    def inferred(name: str, *options: object) -> Model:
        assert invoke("infer", moments.path, tmp_path / name, "--topics", 5, *options).code == 0
        return read_model(tmp_path / name)

    found = inferred("a", "--anchor-words", "word0003,word0000")
    np.testing.assert_array_equal(found.arrays["anchors"][:2], [3, 0])
    assert found.settings["anchor_words"] == [["word0003"], ["word0000"]]
    assert inferred("papers", "--anchor-row-sum", 0).settings["anchor_row_sum"] == 0
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("# one topic a line\n\nword0003, word0000\nword0001\n", encoding="utf-8")
    tandem = inferred("b", "--anchor-words", seeds)
    assert tandem.settings["anchor_words"] == [["word0003", "word0000"], ["word0001"]]
    assert tandem.provenance["fingerprint"] != found.provenance["fingerprint"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("word0003,,word0001", "'word0003,,word0001'"),
        ("word0003,word0003", "'word0003' twice"),
        (",".join(f"word{number}" for number in range(6)), "--anchor-words has 6 entries"),
        (b"# nothing\n", "the file has no words"),
        (b"\xff\xfe", "cannot be read as UTF-8"),
    ],
)
def test_bad_lists_of_words_are_refused(
    words: str | bytes, line: str, tmp_path: Path, invoke: Command
) -> None:
    if isinstance(words, bytes):
        (tmp_path / "seeds").write_bytes(words)
    given = words if isinstance(words, str) else tmp_path / "seeds"
    refused(invoke("infer", "m", "n", "--topics", 5, "--anchor-words", given), 2, line)


@pytest.mark.parametrize("options", [{"anchors": "soft-clique"}, {"correlations": "refined"}])
def test_every_method_makes_a_model_and_records_itself(
    moments: Moments, tmp_path: Path, options: dict[str, str]
) -> None:
    settings = InferSettings(5, **options)
    model = infer(moments, tmp_path / "m", settings)
    assert {key: model.settings[key] for key in options} == options
    np.testing.assert_allclose(model.arrays["word_topic"].sum(axis=0), 1.0, atol=1e-10)
    if "correlations" in options:
        assert model.arrays["topic_topic"].sum() == pytest.approx(1.0, abs=1e-12)
        plain = infer(moments, tmp_path / "plain", InferSettings(5))
        assert model.metrics["reconstruction_error"] <= plain.metrics["reconstruction_error"] + 1e-9
    with pytest.raises(InputError, match="one of"):
        InferSettings(5, **dict.fromkeys(options, "else"))


# -- Anchors of drawn documents: the default finds topics about as well as the planted anchors do --


WORDS, TOPICS = 300, 6


def errors(folder: Path, n_documents: int, seed: int) -> dict[str, float]:
    """Errors of topics with anchors of three kinds; narrow topics have few words each, many nearly anchors."""
    options = {"beta": 0.03, "mean_length": 60, "separable": True}
    corpus = simulate_lda(
        folder / f"{n_documents}-{seed}",
        n_documents=n_documents,
        n_words=WORDS,
        n_topics=TOPICS,
        seed=seed,
        **options,
    )
    truth = read_truth(corpus.root)
    assert truth.anchors is not None
    words = corpus.vocabulary().words
    moments = scanned(Path(corpus.root), folder / f"m-{n_documents}-{seed}", ScanSettings(max_topics=TOPICS))
    kinds = {
        "planted": InferSettings(TOPICS, anchor_words=[words[word] for word in truth.anchors]),
        "default": InferSettings(TOPICS),
        "papers": InferSettings(TOPICS, anchor_min_df=0, anchor_shrinkage=0, anchor_row_sum=0),
    }
    return {
        name: match_topics(fit_moments(moments, settings).arrays["word_topic"], truth.word_topic).mean_l1
        for name, settings in kinds.items()
    }


def test_the_default_is_near_the_planted_anchors_and_improves_with_the_documents(tmp_path: Path) -> None:
    few, many = ([errors(tmp_path, m, seed) for seed in range(2)] for m in (1_500, 12_000))
    for found in (*few, *many):
        assert found["default"] <= 1.5 * found["planted"]
    means = [np.mean([found["default"] for found in group]) for group in (few, many)]
    assert means[1] < 0.6 * means[0]
    assert np.mean([found["papers"] for found in many]) > 2 * means[1], "the case must bite"


def test_words_of_one_document_are_not_anchors_and_do_no_harm(tmp_path: Path) -> None:
    counts = planted(600, 60, 4).counts
    rare = np.zeros((600, 40), dtype=np.int64)
    rare[np.arange(40) * 7, np.arange(40)] = np.arange(1, 41)
    corpus = write_corpus(tmp_path / "corpus", np.hstack([rare, counts]))
    moments = scanned(corpus, tmp_path / "m", ScanSettings(max_topics=4))
    each: list[dict[str, float]] = [{}, {"anchor_min_df": 0}, {"anchor_min_df": 0, "anchor_shrinkage": 0}]
    for number, options in enumerate(each):
        settings = InferSettings(4, **options)
        arrays = infer(moments, tmp_path / f"model{number}", settings).arrays
        for name in ("word_topic", "topic_given_word", "topic_topic", "topic_probability"):
            assert np.isfinite(arrays[name]).all(), name
        if number < 2:
            # The shrinkage alone keeps them from being anchors.
            assert (arrays["anchors"] >= 40).all()


# -- SoftClique against all cliques, and what it promises about its searches --


def graph(n: int, seed: int, empty: float = 0.3) -> Floats:
    """Symmetric weights of which a share is zero, as in a raw co-occurrence."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(0.5, size=(n, n)) * (rng.random((n, n)) > empty)
    return (weights + weights.T) / 2


def search(C: Floats, K: int, allowed: NDArray[np.bool_], **options: int) -> tuple[Clique, ...]:
    return soft_cliques(dense_similarity(C, np.flatnonzero(allowed)), allowed, K, **options)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4), st.sampled_from([0.0, 0.3, 0.7]))
def test_no_exchange_of_one_word_is_left(seed: int, K: int, empty: float) -> None:
    C = graph(14, seed, empty)
    allowed = np.random.default_rng(seed).random(14) > 0.2
    clique = search(C, K, allowed)[0]
    words = tuple(clique.words.tolist())
    assert len(set(words)) == K
    assert allowed[list(words)].all()
    assert clique.weight == pytest.approx(oracle.clique_weight(C, words), abs=1e-12)
    assert oracle.best_exchange(C, words, allowed) >= clique.weight - 1e-10
    assert clique.weight >= oracle.lightest_clique(C, K, allowed) - 1e-12


def test_most_searches_end_in_the_lightest_clique() -> None:
    allowed = np.ones(16, dtype=bool)
    weights, lightest = [], []
    for seed in range(40):
        C = graph(16, seed, 0.0)
        weights.append(search(C, 3, allowed, multiple=8)[0].weight)
        lightest.append(oracle.lightest_clique(C, 3, allowed))
    reached = np.isclose(weights, lightest, atol=1e-12)
    assert reached.mean() > 0.8


def test_ties_go_to_the_lowest_ids_whatever_the_start() -> None:
    for clique in search(np.zeros((30, 30)), 4, np.arange(30) >= 2, multiple=5):
        assert clique.weight == 0.0
    first = search(np.zeros((30, 30)), 4, np.arange(30) >= 2)[0]
    again = search(np.zeros((30, 30)), 4, np.arange(30) >= 2)[0]
    np.testing.assert_array_equal(first.words, again.words)
    np.testing.assert_array_equal(first.words, [2, 3, 4, 5])


def test_several_searches_give_different_cliques_the_lightest_first() -> None:
    C = graph(80, 9, 0.0)
    found = search(C, 4, np.ones(80, dtype=bool), multiple=12)
    assert len(found) > 1
    assert [clique.weight for clique in found] == sorted(clique.weight for clique in found)
    assert len({tuple(clique.words.tolist()) for clique in found}) == len(found)


def test_rows_on_demand_give_the_cliques_of_the_stored_matrix() -> None:
    rng = np.random.default_rng(1)
    Y = rng.gamma(0.3, size=(90, 6))
    allowed = rng.random(90) > 0.3
    stored = search(np.maximum(Y @ Y.T, 0.0), 6, allowed, multiple=3)
    made = soft_cliques(low_rank_similarity(Y, np.flatnonzero(allowed)), allowed, 6, multiple=3)
    assert [clique.words.tolist() for clique in stored] == [clique.words.tolist() for clique in made]


def test_one_topic_and_as_many_topics_as_words() -> None:
    C = graph(6, 0)
    assert search(C, 1, np.ones(6, dtype=bool))[0].weight == 0.0
    np.testing.assert_array_equal(search(C, 6, np.ones(6, dtype=bool))[0].words, range(6))
    with pytest.raises(DegenerateAnchorsError, match="5 words may be anchors for 6 topics"):
        search(C, 6, np.arange(6) > 0)


@pytest.fixture(scope="module")
def clique_moments(tmp_path_factory: pytest.TempPathFactory) -> Moments:
    folder = tmp_path_factory.mktemp("cliques")
    corpus = write_corpus(folder / "corpus", planted(400, 150, 6, length=30, seed=2).counts)
    return scan(corpus, folder / "clique_moments", ScanSettings(max_topics=3), Execution("synchronous"))


def test_a_model_lists_all_cliques_and_any_of_them_can_have_the_anchors(
    clique_moments: Moments, tmp_path: Path
) -> None:
    infer_ = ["infer", str(clique_moments.path)]
    options = ["--topics", "3", "--anchors", "soft-clique", "--cliques", "20"]
    assert run([*infer_, str(tmp_path / "first"), *options]) == 0
    assert run([*infer_, str(tmp_path / "second"), *options, "--clique", "2"]) == 0
    first, second = (read_model(tmp_path / name).arrays for name in ("first", "second"))
    assert len(first["cliques"]) == len(first["clique_weight"]) > 1
    assert (np.diff(first["clique_weight"]) >= 0).all()
    np.testing.assert_array_equal(first["cliques"], second["cliques"])
    for model, listed in ((first, first["cliques"][0]), (second, first["cliques"][1])):
        np.testing.assert_array_equal(np.sort(model["anchors"]), listed)
    assert {*first["anchors"].tolist()} != {*second["anchors"].tolist()}
    # The weights are those of the words in Y Y' (edges below 0 count as 0).
    chosen = first["rectified"][first["cliques"][1]]
    block = np.maximum(chosen @ chosen.T, 0.0)
    assert first["clique_weight"][1] == pytest.approx((block.sum() - np.trace(block)) / 2)
    sizes = {"clique": len(first["cliques"]), "topic_": 3}
    assert dict(open_model(tmp_path / "first")["cliques"].sizes) == sizes


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--cliques", "3"), "soft-clique"),
        (("--anchors", "soft-clique", "--cliques", "400", "--clique", "400"), "400 searches found"),
    ],
)
def test_wrong_cliques_end_in_one_line(
    clique_moments: Moments,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    line: str,
) -> None:
    assert run(["infer", str(clique_moments.path), str(tmp_path / "m"), "--topics", "3", *options]) == 2
    error = capsys.readouterr().err.strip()
    assert line in error
    assert "\n" not in error
    assert not (tmp_path / "m").exists()
