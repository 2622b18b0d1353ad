"""The third moment: its oracle, in a store, and in stores that follow their corpus."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf import STOD
from streaming_jsmf.cli.main import run
from streaming_jsmf.config import InferSettings, ScanSettings, StodSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.inference.stod import cube, in_basis, unpacked, vector_product
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.tensor import (
    BasisMoments,
    TensorSums,
    basis_moments,
    tensor_sums,
)
from streaming_jsmf.moments.needs import scan_memory
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.run import commit
from streaming_jsmf.moments.stages import STAGES
from streaming_jsmf.moments.store import open_moments, read_store
from streaming_jsmf.topics.infer import InferPlan
from tests import reference_stod
from tests.corpora import planted, with_more, write_corpus
from tests.outcomes import Command, refused
from tests.stores import SMALL, digests, followed, require_moments, scanned

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

N_WORDS = 30


@pytest.fixture(scope="module")
def counts() -> Counts:
    """Documents of 0 to 12 tokens, words repeated, some words never there."""
    rng = np.random.default_rng(2)
    shares = np.append(rng.dirichlet(np.full(N_WORDS - 2, 0.5)), [0.0, 0.0])
    lengths = [0, 2, 3, 1, 2, 3, *rng.integers(4, 13, size=24)]
    return np.array([rng.multinomial(n, shares) for n in lengths])


def basis_of(width: int, n_words: int = N_WORDS, seed: int = 0) -> Floats:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n_words, width))).Q


def sums_of(
    counts: Counts, basis: Floats, scheme: Any = "capped", dtype: type[np.floating[Any]] = np.float64
) -> TensorSums:
    lengths = counts.sum(axis=1).astype(np.float64)
    shares = csr_array((counts / np.maximum(lengths, 1.0)[:, None]).astype(dtype))
    return tensor_sums([(shares, lengths)], basis.astype(dtype), scheme)


def added(parts: list[TensorSums]) -> TensorSums:
    return TensorSums(*(sum(values) for values in zip(*(vars(part).values() for part in parts), strict=True)))


def moments_of(counts: Counts, basis: Floats, scheme: Any = "capped") -> BasisMoments:
    return basis_moments(sums_of(counts, basis, scheme), basis, np.float64)


@pytest.mark.parametrize("scheme", ["capped", "uniform", "length"])
@pytest.mark.parametrize(
    "basis", [np.eye(N_WORDS), basis_of(N_WORDS), basis_of(7)], ids=["words", "full", "thin"]
)
def test_the_moments_are_those_of_counting(counts: Counts, basis: Floats, scheme: str) -> None:
    exact = reference_stod.counted_moments(counts, reference_stod.tensor_weights(counts, scheme))
    found = moments_of(counts, basis, scheme)
    np.testing.assert_allclose(found.word_mean, exact.first, atol=1e-15)
    np.testing.assert_allclose(found.pair_projection, exact.second @ basis, atol=1e-14)
    third = np.einsum("xyz,xi,yj,zk->ijk", exact.third, basis, basis, basis, optimize=True)
    np.testing.assert_allclose(unpacked(found.third, basis.shape[1]), third, atol=1e-14)


def test_the_oracle_in_closed_form_is_counting(counts: Counts) -> None:
    weights = reference_stod.tensor_weights(counts, "capped")
    exact, closed = (
        law(counts, weights) for law in (reference_stod.counted_moments, reference_stod.dense_moments)
    )
    for name, values in vars(exact).items():
        np.testing.assert_allclose(getattr(closed, name), values, atol=1e-15, err_msg=name)


def test_equation_8_is_exact_with_the_permutations_of_matlab_only(counts: Counts) -> None:
    few = counts[:, :8]
    weights = reference_stod.tensor_weights(few, "uniform")
    exact = reference_stod.counted_moments(few, weights).third
    kept = few[weights > 0].astype(float)
    lengths = kept.sum(axis=1)
    scaled = kept / (lengths * (lengths - 1) * (lengths - 2))[:, None]
    identity = np.eye(8)
    a1, a2 = (
        np.einsum("dx,dy,dz->xyz", scaled, kept, kept),
        np.einsum("dx,dy,yz->xyz", scaled, kept, identity),
    )
    a3 = np.einsum("dx,xy,yz->xyz", scaled, identity, identity)
    matlab, printed = (
        (a1 - a2 - first - second + 2 * a3) / len(kept)
        for first, second in (
            (np.transpose(a2, (1, 0, 2)), np.transpose(a2, (1, 2, 0))),
            (np.einsum("jik->ijk", a2), np.einsum("jki->ijk", a2)),
        )
    )
    np.testing.assert_allclose(matlab, exact, atol=1e-15)
    assert printed.sum() == pytest.approx(1.0)
    assert printed.min() < 0
    assert np.abs(printed - printed.transpose(1, 0, 2)).max() > 0.01


def relative(first: TensorSums, second: TensorSums) -> float:
    return max(
        float(np.linalg.norm(np.subtract(a, b)) / np.linalg.norm(b))
        for a, b in zip(vars(first).values(), vars(second).values(), strict=True)
    )


def test_partitions_shards_and_order_are_rounding() -> None:
    rng = np.random.default_rng(4)
    many = rng.poisson(0.3, size=(5000, N_WORDS))
    basis = basis_of(8)
    whole = sums_of(many, basis)
    assert relative(sums_of(many[rng.permutation(len(many))], basis), whole) < 1e-12
    for pieces in (2, 7, 40):
        assert relative(added([sums_of(part, basis) for part in np.array_split(many, pieces)]), whole) < 1e-12
    single = sums_of(many, basis, dtype=np.float32)
    assert 1e-10 < relative(single, whole) < 2e-6, "the products are float32, the sums float64"


def test_a_long_document_stays_within_float32() -> None:
    rng = np.random.default_rng(6)
    counts = rng.multinomial(50, np.full(N_WORDS, 1 / N_WORDS), size=20)
    counts[3] = rng.multinomial(90_000, rng.dirichlet(np.full(N_WORDS, 0.1)))
    basis = basis_of(N_WORDS)
    for scheme in ("capped", "length"):
        exact = sums_of(counts, basis, scheme)
        assert relative(sums_of(counts, basis, scheme, np.float32), exact) < 1e-6


def test_no_documents_have_no_weight() -> None:
    nothing = sums_of(np.zeros((0, N_WORDS), np.int64), basis_of(4))
    short = sums_of(np.eye(N_WORDS, dtype=np.int64) * 2, basis_of(4))
    for sums in (nothing, short):
        assert (sums.n_documents, sums.total_weight) == (0, 0.0)
        assert all(np.all(np.asarray(values) == 0) for values in vars(sums).values())


def test_changes_of_basis_and_products_of_vectors() -> None:
    rng = np.random.default_rng(8)
    symmetric, v = rng.standard_normal((5, 5)), rng.standard_normal(5)
    symmetric = symmetric + symmetric.T
    tensor = vector_product(symmetric, v) + cube(v)
    exact = sum(
        np.einsum(f"{first},{second}->ijk", symmetric, v)
        for first, second in (("ij", "k"), ("ik", "j"), ("jk", "i"))
    ) + np.einsum("i,j,k->ijk", v, v, v)
    np.testing.assert_allclose(tensor, exact, atol=1e-13)
    basis = rng.standard_normal((5, 3))
    turned = np.einsum("xyz,xi,yj,zk->ijk", exact, basis, basis, basis)
    np.testing.assert_allclose(in_basis(exact, basis), turned, atol=1e-12)


# -- The third moment in a store: what it holds, and that it is added, resumed, mended and kept up like the rest --


THIRD = replace(SMALL, third_moment=True)
COUNTS = planted(500, 60, 4, length=30).counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora a, and b with more; stores of a, and of both, without and with the third moment from the start."""
    root = tmp_path_factory.mktemp("third")
    with_more(write_corpus(root / "a", COUNTS[:300]), root / "b", COUNTS[300:])
    for name, settings in (("plain", SMALL), ("third", THIRD)):
        scanned(root / "a", root / f"{name}-of-a", settings)
        shutil.copytree(root / f"{name}-of-a", root / f"{name}-of-both")
        followed(root / "b", root / f"{name}-of-both")
    require_moments(open_moments(root / "third-of-both"), COUNTS)
    return root


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(folder / name, tmp_path / name))


def test_a_store_holds_the_moments_of_its_documents(tmp_path: Path) -> None:
    # Short documents too, one pass over the data, other partitions and weights.
    counts = planted(200, 60, 4, length=4, seed=5).counts
    assert (counts.sum(axis=1) < 3).sum() > 20
    settings = ScanSettings(
        max_topics=5, partition_nonzeros=300, document_weights="uniform", third_moment=True
    )
    store = scanned(write_corpus(tmp_path / "short", counts), tmp_path / "m", settings)
    assert len(store.manifest.partitions) > 1
    require_moments(store, counts)
    assert store.outcome("third_moment")["scalars"]["n_documents"] == (counts.sum(axis=1) >= 3).sum()  # type: ignore[index]


def test_models_depend_on_what_they_are_made_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the third moment only models of the tensor engine; on ENN's version all that it has rectified."""
    stores = [open_moments(folder / name) for name in ("third-of-a", "plain-of-a")]
    cases = [
        (InferSettings(4), True),
        (InferSettings(4, rectify="none"), False),
        (StodSettings(4), True),
        (StodSettings(4, alpha0=1.0), False),
    ]

    def fingerprints(settings: InferSettings | StodSettings) -> list[str]:
        return [InferPlan(store, settings, 1).fingerprint for store in stores]

    before = [fingerprints(settings) for settings, _ in cases]
    assert [one == other for one, other in before] == [True, True, False, False]
    monkeypatch.setattr("streaming_jsmf.topics.infer.ENN_ALGORITHM", 100)
    for (settings, depends), old in zip(cases, before, strict=True):
        assert (fingerprints(settings)[0] != old[0]) is depends


def test_another_basis_makes_it_stale(folder: Path, copy: Callable[[str], Path]) -> None:
    # Such as one that another processor computes in a repair.
    path = copy("third-of-a")
    store = read_store(path)
    sums = {name: store.read(name) for name in store.outcomes["sums"]["arrays"]}
    turned = PartialResult({**sums, "basis": -sums["basis"]}, store.scalars("sums"))
    commit(store, "sums", turned, STAGES["sums"].variables)
    assert read_store(path).missing_stages == ("projection", "refinement", "third_moment")
    require_moments(scanned(folder / "a", path, THIRD), COUNTS[:300])


def test_partitions_change_the_moments_by_rounding_only(folder: Path, tmp_path: Path) -> None:
    # The basis differs, so moments of words are compared, which do not depend on it.
    found = []
    for nonzeros in (1000, 10**6):
        settings = replace(THIRD, max_topics=60, partition_nonzeros=nonzeros)
        read = scanned(folder / "a", tmp_path / f"m{nonzeros}", settings).tensor_moments()
        q = read.basis
        # A word occurs in no document.
        assert q.shape == (60, 59)
        third = np.einsum("ijk,xi,yj,zk->xyz", unpacked(read.third, 59), q, q, q, optimize=True)
        found.append((read.pair_projection @ q.T, third))
    for one, other in zip(*found, strict=True):
        assert np.linalg.norm(one - other) < 3e-6 * np.linalg.norm(other)


def test_the_memory_of_the_pass_is_planned(folder: Path) -> None:
    partitions = load_partitions(read_store(folder / "third-of-a").manifest, open_corpus(folder / "a")) * 3
    workers = len(partitions)
    assert workers > 2, "with one or two the basis takes more than they"
    settings = ScanSettings(max_topics=100, third_moment=True)
    without = scan_memory(100_000, replace(settings, third_moment=False), partitions, workers)
    with_it = scan_memory(100_000, settings, partitions, workers)
    # Two sums of 100,000 x 200 in float64 and float32, and the basis, take more than three factors in float32.
    assert with_it - without > workers * (32 * 200 - 12 * 400) * 100_000


def test_documents_too_short_for_triples(tmp_path: Path, invoke: Command) -> None:
    said = "no document has 3 tokens or more"
    counts = np.random.default_rng(0).multinomial(2, np.full(30, 1 / 30), size=200)
    corpus, store, model = write_corpus(tmp_path / "pairs", counts), tmp_path / "m", tmp_path / "model"
    options = ("--max-topics", "2", "--third-moment", "--scheduler", "synchronous")
    outcome = invoke("scan", corpus, store, *options)
    assert outcome.code == 0
    assert said in outcome.err
    inferred = invoke("infer", store, model, "--topics", "2", "--engine", "stod")
    refused(inferred, 2, said, "--engine lr-jsmf")
    assert not model.exists()
    assert invoke("info", store, "--json").code == 0
    with pytest.raises(ValueError, match=said) as caught:
        STOD(2, workers=1).fit(counts)
    assert "\n" not in str(caught.value)


# -- Stores that follow and get the third moment, in any order: the bits of having had it from the start --


SETTINGS = ("--max-topics", "5", "--partition-nonzeros", "4000")
FOLLOW = ("--follow", "--third-moment")


def test_what_cannot_be_added_leaves_the_store_complete(folder: Path, copy: Callable[[str], Path]) -> None:
    store = copy("plain-of-both")
    with pytest.raises(InputError, match="memory"):
        scanned(folder / "b", store, THIRD, execution=Execution("synchronous", memory=2**28))
    assert digests(store) == digests(folder / "plain-of-both")
    assert not read_store(store).missing_stages


@pytest.mark.parametrize(
    ("start", "corpus", "options", "end"),
    [
        (None, "a", (*SETTINGS, *FOLLOW), "third-of-a"),
        ("plain-of-both", "b", (*SETTINGS, "--third-moment"), "third-of-both"),
        ("plain-of-a", "b", (*SETTINGS, *FOLLOW), "third-of-both"),
        ("third-of-both", "a", FOLLOW, "third-of-a"),
        ("plain-of-both", "a", FOLLOW, "third-of-a"),
        ("third-of-a", "b", (*SETTINGS, "--follow"), "third-of-both"),
    ],
)
def test_following_and_the_third_moment_in_any_order(
    start: str | None, corpus: str, options: tuple[str, ...], end: str, folder: Path, tmp_path: Path
) -> None:
    store = tmp_path / "m"
    if start:
        shutil.copytree(folder / start, store)
    assert run(["scan", str(folder / corpus), str(store), *options, "--scheduler", "synchronous"]) == 0
    assert digests(store) == digests(folder / end)
    assert read_store(store).settings == read_store(folder / end).settings
