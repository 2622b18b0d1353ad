"""Scans whose basis comes from a sample of the documents: against the dense oracle, and what a store must survive."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.sample_error import Law
from pipelines.common.matching import yy_error
from streaming_jsmf.cli.main import cli
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.config.scan import HELD_NONZEROS, SAMPLED_DOCUMENTS
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.units import list_units, plan_partitions
from streaming_jsmf.interface.describe import describe
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg import sampled
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import each, panel_threads
from streaming_jsmf.linalg.probes import drawn_rows, uniform_probes
from streaming_jsmf.linalg.sampled import (
    CorrectedPairs,
    SampleParts,
    certify,
    corrected_eigenpairs,
    sample_eigenpairs,
)
from streaming_jsmf.moments.integrity import require_intact
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.stages import eigenpairs
from streaming_jsmf.moments.stages.eigenpairs import ProductReduction
from streaming_jsmf.moments.stages.sums import SumsReduction
from streaming_jsmf.moments.stages.third_moment import ThirdMomentReduction
from streaming_jsmf.moments.store import Moments, open_moments, read_store
from tests import reference
from tests.cases import first_cases
from tests.corpora import planted, with_more, words, write_corpus
from tests.processes import PATIENCE
from tests.stores import dense, digests, followed, half, made_anew, scanned

K = 5
SAMPLED = ScanSettings(max_topics=K, partition_nonzeros=3000, sample_share=0.3)
COUNTS = planted(900, 120, K, length=30, seed=8).counts


#: Far more topics than are asked for: C has something outside of the basis, as that of texts has.
RICH = planted(6000, 150, 40, length=40, seed=9).counts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("sampled") / "corpus", COUNTS, row_group_rows=50)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path) -> Path:
    path = corpus.parent / "undisturbed"
    scanned(corpus, path, SAMPLED)
    return path


def exact_half(counts: NDArray[np.int64], k: int = K) -> NDArray[np.float64]:
    pairs = reference.truncated_eig(dense(counts), k)
    return np.asarray(pairs.vectors * np.sqrt(pairs.values))


def test_rows_are_drawn_one_by_one_and_never_none() -> None:
    drawn = drawn_rows(20_000, 0.2, 1, "a")
    assert drawn.mean() == pytest.approx(0.2, abs=0.015)
    assert (drawn[1:] & drawn[:-1]).mean() == pytest.approx(0.04, abs=0.01), "neighbours are independent"
    np.testing.assert_array_equal(drawn, drawn_rows(20_000, 0.2, 1, "a"))
    for seed, label in ((2, "a"), (1, "b")):
        assert (drawn != drawn_rows(20_000, 0.2, seed, label)).any()
    for rows, share, expected in ((3, 1e-9, 1), (7, 1.0, 7), (0, 0.5, 0)):
        assert drawn_rows(rows, share, 0, "few").sum() == expected


def test_the_sample_is_chosen_by_the_size_of_the_corpus() -> None:
    many = 10 * SAMPLED_DOCUMENTS
    for documents, n_words, nonzeros, share in (
        (many, 1000, HELD_NONZEROS, 1),
        (many, 1000, HELD_NONZEROS + 1, 0.1),
        (many, 2 * SAMPLED_DOCUMENTS, 2 * HELD_NONZEROS, 0.2),
        (SAMPLED_DOCUMENTS * 3 // 2, 1000, 2 * HELD_NONZEROS - 9, 0.5),
        # It has to fit in memory however long the documents are.
        (many, 1000, 20 * HELD_NONZEROS, 0.05),
    ):
        assert ScanSettings().held_share(documents, n_words, nonzeros) == pytest.approx(share)
    assert ScanSettings(sample_share=0.03).held_share(10, 10, 10) == 0.03


def ruin(array: Path) -> None:
    """Overwrite the chunks of a stored array."""
    for chunk in (array / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"nothing")


def scaled(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """H of Eq. 1, divided so that H'H = C + diag(D)."""
    lengths = counts.sum(axis=1).astype(float)
    weights = reference.document_weights(lengths, "capped")
    scale = weights / (lengths * (lengths - 1)) / weights.sum()
    return np.asarray(counts * np.sqrt(scale)[:, None])


def drawn(corpus: Path, share: float = 0.3) -> NDArray[np.bool_]:
    partitions = plan_partitions(list_units(open_corpus(corpus)), SAMPLED.partition_nonzeros)
    assert len(partitions) > 3
    return np.concatenate([drawn_rows(p.rows, share, 0, f"sample {p.content}") for p in partitions])


def test_the_sums_are_of_all_documents_and_the_sample_of_some(corpus: Path, undisturbed: Path) -> None:
    moments = open_moments(undisturbed)
    np.testing.assert_allclose(moments.row_sum, dense(COUNTS).sum(axis=1), atol=1e-15)
    np.testing.assert_array_equal(moments.document_frequency, (COUNTS > 0).sum(axis=0))
    expected = scaled(COUNTS)[drawn(corpus)] / np.sqrt(0.3)
    np.testing.assert_allclose(moments.sample().toarray(), expected, rtol=1e-6)
    rows = moments.cooccurrence_rows([3, 70])
    all_rows = expected.T @ expected - np.diag(moments.diagonal)
    np.testing.assert_allclose(rows, all_rows[[3, 70]], atol=1e-6 * all_rows.max())


def corrected_oracle(counts: NDArray[np.int64], sample: NDArray[Any], basis: NDArray[Any]) -> NDArray[Any]:
    """C on the span of Q, and what the sample says between vectors that are orthogonal to it; dense."""
    c, projector = dense(counts), basis @ basis.T
    diagonal = np.diag(scaled(counts).T @ scaled(counts) - c)
    of_sample = sample.T @ sample - np.diag(diagonal)
    other = np.eye(len(c)) - projector
    return np.asarray(c - other @ (c - of_sample) @ other)


@pytest.mark.parametrize("words", [120, 450], ids=["dense", "davidson"])
def test_eigenpairs_are_those_of_c_where_the_basis_reaches_and_of_the_sample_elsewhere(words: int) -> None:
    counts = planted(600, words, K, length=60, seed=2).counts
    h, c = scaled(counts), dense(counts)
    chosen = np.arange(600) % 3 == 0
    sample = csr_array((h[chosen] * np.sqrt(3)).astype(np.float32))
    basis, _ = np.linalg.qr(np.linalg.eigh(sample.toarray().T @ sample.toarray())[1][:, -15:].astype(float))
    diagonal = np.diag(h.T @ h - c).copy()
    expected = corrected_oracle(counts, sample.toarray().astype(float), basis)
    corrected = corrected_eigenpairs(sample, diagonal, basis, c @ basis, 15)
    pairs = corrected.pairs
    values, eigenvectors = np.linalg.eigh(expected)
    best = eigenvectors[:, ::-1][:, :K] * np.sqrt(values[::-1][:K])
    found = pairs.vectors[:, :K] * np.sqrt(pairs.values[:K])
    assert yy_error(found, best) < 0.01
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(15), atol=1e-6)
    left = np.linalg.norm(expected @ pairs.vectors - pairs.vectors * pairs.values, axis=0)
    np.testing.assert_allclose(corrected.residuals, left, rtol=0.01, atol=3e-6 * values[-1])
    outside = pairs.vectors - basis @ (basis.T @ pairs.vectors)
    np.testing.assert_allclose(np.abs(corrected.outside), np.abs(outside), atol=1e-6)
    np.testing.assert_allclose(
        corrected.inside, np.linalg.eigvalsh(basis.T @ c @ basis), rtol=1e-6, atol=1e-12
    )


@pytest.mark.parametrize("words", [120, 450], ids=["dense", "davidson"])
def test_the_basis_spans_the_eigenvectors_of_the_sample(words: int) -> None:
    counts = planted(600, words, K, length=60, seed=2).counts
    # Words that no document of the sample holds.
    counts[:, 7:17] = 0
    sample = csr_array(scaled(counts).astype(np.float32))
    diagonal = np.linspace(1e-5, 2e-4, words)
    probes = uniform_probes(words, 32, 0, "sample")
    pairs = sample_eigenpairs(sample, diagonal, probes, 15, steps=6)
    values, vectors = np.linalg.eigh(sample.toarray().astype(float).T @ sample.toarray() - np.diag(diagonal))
    np.testing.assert_allclose(pairs.values[:K], values[::-1][:K], rtol=1e-4)
    best = vectors[:, ::-1][:, :K] * np.sqrt(values[::-1][:K])
    assert yy_error(pairs.vectors[:, :K] * np.sqrt(pairs.values[:K]), best) < 0.005
    assert not pairs.vectors[7:17].any()
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(15), atol=1e-6)


def test_threads_change_no_bit_of_the_eigenpairs() -> None:
    counts = planted(600, 450, K, length=60, seed=2).counts
    sample, diagonal = csr_array(scaled(counts).astype(np.float32)), np.full(450, 1e-5)
    probes = uniform_probes(450, 32, 0, "sample")
    found = []
    for threads in (1, 3):
        with single_blas_thread(), panel_threads(threads):
            basis = sample_eigenpairs(sample, diagonal, probes, 15, steps=2)
            product = np.asarray(dense(counts) @ basis.vectors)
            found.append((basis, corrected_eigenpairs(sample, diagonal, basis.vectors, product, 15).pairs))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.vectors, other.vectors)


def test_panels_on_threads_come_in_order_and_raise_what_fails() -> None:
    names = []

    def slow_first(number: int) -> int:
        names.append(threading.current_thread().name)
        if number > 0:
            started.set()
        # The first is done after the second has begun, which takes another thread.
        assert started.wait(PATIENCE)
        if number == 30:
            raise ValueError("the thirtieth")
        return number

    started = threading.Event()
    with panel_threads(2):
        assert list(each(slow_first, range(20))) == list(range(20))
        assert all(name.startswith("panels") for name in names)
        with pytest.raises(ValueError, match="thirtieth"):
            list(each(slow_first, range(40)))
        # What the items raise comes after the results of those before.
        numbers = each(slow_first, (1 // (3 - i) for i in range(9)))
        assert [next(numbers) for _ in range(3)] == [0, 0, 1]
        with pytest.raises(ZeroDivisionError):
            next(numbers)
    names.clear()
    assert list(each(slow_first, range(3))) == [0, 1, 2]
    assert set(names) == {threading.current_thread().name}


@pytest.mark.slow
def test_more_documents_take_error_away(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", RICH, row_group_rows=100)
    errors = []
    for share in (0.2, 0.9, 1.0):
        settings = replace(SAMPLED, max_topics=10, sample_share=share, partition_nonzeros=60_000)
        moments = scanned(corpus, tmp_path / f"{share}", settings)
        errors.append(yy_error(half(moments, 10), exact_half(RICH, 10)))
    assert errors[2] < 1e-5 < errors[1] < errors[0] / 2


def test_a_third_pass_is_made_where_it_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, expected = write_corpus(tmp_path / "c", RICH, row_group_rows=100), exact_half(RICH, 10)
    settings = replace(SAMPLED, max_topics=10, partition_nonzeros=40_000)
    read = counted(monkeypatch, ProductReduction, "directions")
    three = scanned(corpus, tmp_path / "three", settings)
    assert set(read) == set(three.manifest.contents)
    read.clear()
    monkeypatch.setattr(eigenpairs, "SMALL_ERROR", three.scalars("projection")["estimated_error"])
    two = scanned(corpus, tmp_path / "two", settings)
    assert (read, two.read("directions").shape, two.read("refinement").shape) == ([], (150, 0), (150, 0))
    require_intact(two)
    errors = [yy_error(half(moments, 10), expected) for moments in (three, two)]
    estimates = [moments.scalars_of("eigenvectors")["estimated_error"] for moments in (three, two)]
    assert errors[0] < 0.3 * errors[1]
    assert estimates[0] < 0.5 * estimates[1]
    assert all(estimate > error for error, estimate in zip(errors, estimates, strict=True))
    assert three.read("basis").tobytes() == two.read("basis").tobytes()


def split(sample: NDArray[np.float64]) -> SampleParts:
    """Half of all documents."""
    return SampleParts.of(csr_array(sample.astype(np.float32)), 0.5)


def test_what_is_fitted_of_a_large_sample_is_limited_and_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "FITTED_DOCUMENTS", 300)
    parts = split(scaled(RICH))
    assert (parts.fitted.shape[0], parts.held_out.shape[0]) == (300, 37)
    assert parts.drawn == pytest.approx(300 / 6000)
    total = scaled(RICH).sum()
    for part in (parts.fitted, parts.held_out):
        assert part.sum() * np.sqrt(6000 / part.shape[0]) == pytest.approx(total, rel=0.05)


def test_a_small_corpus_is_held_as_a_whole(corpus: Path, tmp_path: Path) -> None:
    whole = scanned(corpus, tmp_path / "default", replace(SAMPLED, sample_share=None))
    assert whole.manifest.sample_share == 1
    np.testing.assert_allclose(whole.sample().toarray(), scaled(COUNTS), rtol=1e-6)
    asked = scanned(corpus, tmp_path / "asked", replace(SAMPLED, sample_share=1.0, partition_nonzeros=900))
    # Documents do not depend on partitions, and neither does what is computed from them alone.
    np.testing.assert_array_equal(asked.sample().toarray(), whole.sample().toarray())
    assert yy_error(half(asked, K), half(whole, K)) < 1e-6
    assert asked.scalars_of("eigenvectors")["estimated_error"] < 1e-4


def test_a_store_keeps_what_was_chosen_for_its_first_corpus(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_jsmf.config.scan.HELD_NONZEROS", 15_000)
    monkeypatch.setattr("streaming_jsmf.config.scan.SAMPLED_DOCUMENTS", 200)
    settings = replace(SAMPLED, sample_share=None)
    moments = scanned(corpus, tmp_path / "m", settings)
    assert moments.manifest.sample_share == pytest.approx(200 / 900)
    expected = digests(tmp_path / "m")
    # Another release would choose otherwise.
    monkeypatch.setattr("streaming_jsmf.config.scan.SAMPLED_DOCUMENTS", 10_000)
    scanned(corpus, tmp_path / "m", settings)
    assert digests(tmp_path / "m") == expected


def counted(monkeypatch: pytest.MonkeyPatch, reduction: type[Any], basis: str | None = "basis") -> list[str]:
    """Partitions that a stage reads from now on."""
    compute, read = reduction.compute, list[str]()

    def reading(self: Any, partition: Any) -> Any:
        if getattr(self, "basis_name", None) == basis:
            read.append(partition.content)
        return compute(self, partition)

    monkeypatch.setattr(reduction, "compute", reading)
    return read


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora a, and b with more documents, and the store of a with the third moment."""
    root = tmp_path_factory.mktemp("halves")
    with_more(write_corpus(root / "a", COUNTS[:500]), root / "b", COUNTS[500:])
    scanned(root / "a", root / "of-a", replace(SAMPLED, third_moment=True))
    return root


def test_following_reads_old_documents_only_with_the_new_basis(
    halves: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shutil.copytree(halves / "of-a", tmp_path / "m")
    known = set(read_store(store).manifest.contents)
    first = counted(monkeypatch, SumsReduction, None)
    read = [
        counted(monkeypatch, ProductReduction),
        counted(monkeypatch, ProductReduction, "directions"),
        counted(monkeypatch, ThirdMomentReduction),
    ]
    moments = followed(halves / "b", store)
    every = set(moments.manifest.contents)
    assert set(first) == every - known
    assert [set(each) for each in read] == [every] * 3
    assert moments.n_documents == 900
    made_anew(halves / "b", store, tmp_path / "anew")
    assert digests(store) == digests(tmp_path / "anew")
    require_product(moments, COUNTS)
    expected = reference.mean_of_shares(COUNTS, reference.document_weights(COUNTS.sum(axis=1), "capped"))
    np.testing.assert_allclose(moments.tensor_moments().word_mean, expected, rtol=1e-6)
    assert yy_error(half(moments, K), exact_half(COUNTS)) < 0.01


@pytest.mark.parametrize("small_error", [0.001, 1.0], ids=["directions", "no directions"])
def test_a_store_that_holds_more_documents_than_are_fitted_grows(
    small_error: float, halves: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled, "FITTED_DOCUMENTS", 300)
    monkeypatch.setattr(eigenpairs, "SMALL_ERROR", small_error)
    monkeypatch.setattr(sampled, "DENSE_WORDS", 10)
    scanned(halves / "a", tmp_path / "m", replace(SAMPLED, sample_share=1.0))
    grown = followed(halves / "b", tmp_path / "m")
    assert (grown.read("directions").shape[1] > 0) is (small_error < 1)
    assert yy_error(half(grown, K), exact_half(COUNTS)) < min(
        0.01, grown.scalars_of("eigenvectors")["estimated_error"]
    )


def test_a_damaged_sample_is_repaired_before_it_follows(halves: Path, tmp_path: Path) -> None:
    store, whole = (shutil.copytree(halves / "of-a", tmp_path / name) for name in ("m", "whole"))
    next((store / "partials").glob("sums-part-*/arrays.bin")).unlink()
    for path in (store, whole):
        followed(halves / "b", path)
    assert digests(store) == digests(whole)
    require_intact(read_store(store))


def test_a_damaged_basis_of_a_store_that_has_grown_is_made_of_all(halves: Path, tmp_path: Path) -> None:
    store = shutil.copytree(halves / "of-a", tmp_path / "m")
    followed(halves / "b", store)
    ruin(store / "basis")
    require_product(scanned(halves / "b", store, replace(SAMPLED, third_moment=True)), COUNTS)
    require_intact(read_store(store))


def require_product(moments: Moments, counts: NDArray[np.int64]) -> None:
    """The stored C Q is that of all documents and the stored basis."""
    basis, product = moments.projected_basis() or pytest.fail("no product")
    np.testing.assert_allclose(product, dense(counts) @ basis, atol=1e-6 * np.abs(product).max())


def error_and_estimate(
    counts: NDArray[np.int64], corpus: Path, store: Path, **fields: Any
) -> tuple[float, float]:
    settings = replace(SAMPLED, **{"partition_nonzeros": 60_000, **fields})
    moments, k = scanned(corpus, store, settings), settings.max_topics
    error = yy_error(half(moments, k), exact_half(counts, k))
    return error, moments.scalars_of("eigenvectors")["estimated_error"]


def test_held_out_rows_are_not_fitted_and_exact_eigenpairs_have_no_estimated_error() -> None:
    parts = split(np.eye(200))
    fitted, held_out = (set(part.indices.tolist()) for part in (parts.fitted, parts.held_out))
    assert sorted(fitted | held_out) == list(range(200))
    assert (len(fitted), len(held_out)) == (175, 25)
    for part in (parts.fitted, parts.held_out):
        assert part.data.sum() ** 2 / part.shape[0] == pytest.approx(200, rel=1e-5)
    parts, c = split(scaled(RICH)), dense(RICH)
    values, vectors = (each[..., ::-1][..., :20] for each in np.linalg.eigh(c))
    # The basis contains them, so C Q determines them.
    exact = CorrectedPairs(
        Eigenpairs(values, vectors), np.zeros(20), np.zeros((150, 20), np.float32), values[::-1]
    )
    found = certify(parts, 0.5, vectors, exact, 10, 20)
    assert found.estimated_error < 1e-5


def by_topic(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Documents sorted by the word that they have most of, and so by their topics."""
    return counts[np.argsort(counts.argmax(axis=1), kind="stable")]


@pytest.mark.parametrize(
    ("passes", "largest", "shards"),
    [
        *first_cases([(3, 15, 12), (2, 8, 1), (2, 8, 12), (3, 15, 1)]),
    ],
)
def test_the_estimated_error_is_a_bound_in_any_order(
    passes: int, largest: float, shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if passes == 2:
        monkeypatch.setattr(eigenpairs, "SMALL_ERROR", 1.0)
    counts = by_topic(RICH)
    corpus = write_corpus(tmp_path / "c", counts, shards=shards, row_group_rows=100)
    error, told = error_and_estimate(counts, corpus, tmp_path / "m", max_topics=10, sample_share=0.15)
    assert error < told < largest * error


def test_a_topic_of_one_document_in_two_hundred_is_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    common = planted(8000, 110, 4, length=30, seed=3).counts
    rare = np.hstack([np.zeros((40, 110), int), rng.poisson(3.0, (40, 10))])
    counts = np.vstack([np.hstack([common, np.zeros((8000, 10), int)]), rare])
    corpus = write_corpus(tmp_path / "c", counts, row_group_rows=50)
    error, _ = error_and_estimate(counts, corpus, tmp_path / "m", sample_share=0.25)
    assert error < 0.01


def test_a_small_sample_causes_a_warning_with_advice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = write_corpus(tmp_path / "c", RICH, row_group_rows=100)
    error, _ = error_and_estimate(RICH, corpus, tmp_path / "m", max_topics=10, sample_share=0.02)
    share = caplog.text.rpartition("scan into another path with range_finder='sample' and sample_share=")[2]
    scan(corpus, tmp_path / "wider", max_topics=10, range_finder="sample", sample_share=float(share))
    assert yy_error(half(open_moments(tmp_path / "wider"), 10), exact_half(RICH, 10)) < error / 2
    described = describe(tmp_path / "m")["sample"]
    assert described["documents"] == pytest.approx(120, abs=40)
    assert described["words_hardly_seen"] > 0
    frequency = dict(zip(words(150), open_moments(tmp_path / "m").document_frequency, strict=True))
    few = [frequency[word] for word in described["words"]]
    assert few == sorted(few, reverse=True)
    page = CliRunner().invoke(cli, ["info", str(tmp_path / "m")]).output
    assert f"{described['documents']} documents, 2.0% of the corpus" in " ".join(page.split())
    assert f"% of the tokens), such as {described['words'][0]}" in " ".join(page.split())
    assert "estimated error" in page


@pytest.mark.slow
def test_more_topics_are_advised_where_half_of_the_documents_are_sampled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eigenpairs, "LARGEST_ERROR", 1e-9)
    corpus = write_corpus(tmp_path / "c", RICH, row_group_rows=100)
    sampled_half = replace(SAMPLED, sample_share=0.5, partition_nonzeros=40_000)
    settings = {k: replace(sampled_half, max_topics=k) for k in (10, 20)}
    stores = [scanned(corpus, tmp_path / str(k), settings[k]) for k in settings]
    errors = [yy_error(half(moments, 10), exact_half(RICH, 10)) for moments in stores]
    assert "with max_topics=20, which makes models with up to 10 topics more accurate" in caplog.text
    assert errors[1] < errors[0] / 2


@pytest.mark.slow
def test_the_estimated_error_is_a_bound_on_sorted_and_shuffled_corpora(tmp_path: Path) -> None:
    """Documents by author, whose topics are their own, in the order of the authors; and the same in random order."""
    ratios = []
    for seed in range(3):
        law = Law(authors=150, own=0.6, own_words=25, topics=15)
        documents = law.documents(3000, 500, np.random.default_rng(seed)).toarray()
        for order in (np.arange(3000), np.random.default_rng(9).permutation(3000)):
            path = tmp_path / f"{len(ratios)}"
            corpus = write_corpus(path / "c", documents[order], row_group_rows=500)
            error, told = error_and_estimate(
                documents, corpus, path / "m", max_topics=10, partition_nonzeros=10**6, sample_share=0.2
            )
            ratios.append(told / error)
    assert sum(ratio >= 1 for ratio in ratios) >= 5, ratios
    assert max(ratios) < 10, ratios
