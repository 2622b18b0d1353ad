"""The moments of the tensor engine against counting, and the identities between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.linalg.document_tensor import (
    BasisMoments,
    TensorSums,
    WeightedShares,
    basis_moments,
    tensor_sums,
    tensor_weights,
)
from streaming_jsmf.linalg.tensor import CubeSum, cube, in_basis, packed_size, unpacked, vector_product
from tests import reference_stod

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
    return tensor_sums(
        [WeightedShares(shares, lengths, tensor_weights(lengths, scheme))], basis.astype(dtype)
    )


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


def test_summing_a_moment_gives_the_one_before(counts: Counts) -> None:
    basis = np.eye(N_WORDS)
    found = moments_of(counts, basis)
    third = unpacked(found.third, N_WORDS)
    assert third.sum() == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(third.sum(axis=0), found.pair_projection, atol=1e-15)
    np.testing.assert_allclose(found.pair_projection.sum(axis=0), found.word_mean, atol=1e-15)
    for order in [(0, 2, 1), (1, 0, 2), (2, 1, 0)]:
        np.testing.assert_array_equal(third, third.transpose(order))


def test_short_documents_count_in_no_moment(counts: Counts) -> None:
    long = counts[counts.sum(axis=1) >= 3]
    assert len(long) < len(counts)
    basis = basis_of(6)
    with_short, without = sums_of(counts, basis), sums_of(long, basis)
    assert with_short.n_documents == without.n_documents == len(long)
    for name, values in vars(without).items():
        np.testing.assert_allclose(getattr(with_short, name), values, rtol=1e-13, atol=1e-16, err_msg=name)


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


def test_packing_keeps_a_symmetric_tensor() -> None:
    rng = np.random.default_rng(7)
    rows, weights = rng.standard_normal((6, 50)), rng.standard_normal(50)
    total = CubeSum(6, np.float64)
    total.add_cubes(np.ascontiguousarray(rows.T), weights)
    packed = total.packed()
    assert packed.shape == (packed_size(6),)
    exact = np.einsum("in,jn,kn,n->ijk", rows, rows, rows, weights)
    np.testing.assert_allclose(unpacked(packed, 6), exact, atol=1e-12)
    assert packed[1] == pytest.approx(exact[0, 0, 1])
    with pytest.raises(ValueError, match="has 35 entries"):
        unpacked(packed, 5)
    assert unpacked(np.zeros(0), 0).shape == (0, 0, 0)


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
