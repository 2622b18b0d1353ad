"""The third moment as a stage: what STOD needs besides the basis, in one more pass, for any K and alpha0."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.blocks.units import Partition
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.ledger import Partial
from streaming_jsmf.linalg.document_tensor import (
    DOCUMENT_BLOCK,
    SHORTEST_DOCUMENT,
    BasisMoments,
    Documents,
    TensorSums,
    basis_moments,
    tensor_sums,
    tensor_weights,
)
from streaming_jsmf.moments.partition import iter_shares
from streaming_jsmf.moments.stages import add_scalars, read_basis
from streaming_jsmf.moments.store import MomentsStore
from streaming_jsmf.storage.arrays import ArrayDigest
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.timing import span

logger = logging.getLogger(__name__)

#: Arrays of a result, as in ``TensorSums``; those with a row for each word and a column for each component lie in
#: float32 until they are folded, like the products that they are sums of.
ARRAYS = ("third", "triples", "pairs", "triple_counts", "pair_counts", "shares")
WIDE_ARRAYS = ("triples", "pairs")
SCALARS = ("n_documents", "total_weight")

#: Options of ``scan`` that are not named like their setting.
_OPTIONS = {"range_finder": "range"}


@dataclass(frozen=True)
class ThirdMomentStage:
    """The sums of ``TensorSums`` in the basis of the store, additive given the basis.

    Parameters
    ----------
    n_words
        N.
    settings
        Of the scan.
    store
        Root of the moments store, where each worker reads the basis.
    basis
        Digest that the basis must have.
    """

    n_words: int
    settings: ScanSettings
    store: StorePath
    basis: ArrayDigest
    name: str = "third_moment"

    def compute(self, partition: Partition) -> Partial:
        """One pass over the partition's data, of which a row group at a time is in memory."""
        basis = read_basis(self.store, self.basis)
        sums = tensor_sums(self._documents(partition), basis)
        arrays: dict[str, NDArray[Any]] = {name: getattr(sums, name) for name in ARRAYS}
        arrays |= {name: arrays[name].astype(np.float32) for name in WIDE_ARRAYS}
        return Partial(arrays, {name: getattr(sums, name) for name in SCALARS})

    def _documents(self, partition: Partition) -> Iterator[Documents]:
        for shares in iter_shares(partition, self.n_words):
            weights = tensor_weights(shares.lengths, self.settings.document_weights)
            yield Documents(shares.block, shares.lengths, weights)

    def fold(self, folded: Partial | None, partial: Partial) -> Partial:
        """Add in float64. The sums take the place of ``folded``, which are the largest arrays of the pass."""
        if folded is None:
            return Partial(
                {name: a.astype(np.float64) for name, a in partial.arrays.items()}, partial.scalars
            )
        for name, values in partial.arrays.items():
            total = folded.arrays[name]
            total += values
        return Partial(folded.arrays, add_scalars(folded, partial))


def final_arrays(folded: Partial, basis: NDArray[np.float64], store: str) -> Mapping[str, NDArray[Any]]:
    """The final arrays of the stage from the sums over all partitions, which are overwritten.

    All zero, with a warning, where no document is long enough: the store serves LR-JSMF all the same.
    """
    values: dict[str, Any] = {**folded.arrays, **folded.scalars}
    sums = TensorSums(**values)
    if not sums.total_weight > 0:
        logger.warning(
            "%s: no document has %d tokens or more, so there is no third moment to infer topics from",
            store,
            SHORTEST_DOCUMENT,
        )
        return {"word_mean": sums.shares, "pair_projection": sums.pairs, "third_moment": sums.third}
    with span("third moment"):
        moments = basis_moments(sums, basis, np.float32)
    return {
        "word_mean": moments.word_mean,
        "pair_projection": moments.pair_projection,
        "third_moment": moments.third,
    }


def tensor_memory(n_words: int, width: int) -> int:
    """Most bytes that the stage holds besides a row group: its sums, the basis, and the products of some documents.

    Without their nonzeros sorted by word, 8 bytes for each of ``linalg.document_tensor.NONZERO_BLOCK``.
    """
    # Both sums in float64 and in float32, and the basis; the tensor in slabs and packed.
    return 28 * n_words * width + 4 * width**3 + 16 * DOCUMENT_BLOCK * width


@dataclass(frozen=True)
class TensorMoments:
    """What the tensor engine reads of a store: the basis (Q, N x m) and the moments in it."""

    basis: NDArray[np.float64]
    moments: BasisMoments


def read_tensor_moments(store: MomentsStore) -> TensorMoments:
    """Read the moments of a complete store.

    Raises
    ------
    InputError
        If it lacks the third moment: with the command that adds it. If no document has three tokens.
    StoreError
        If an array is damaged.
    """
    if not store.settings.third_moment:
        raise InputError(
            f"{store.path}: has no third moment, which --engine stod needs; add it with {adding_command(store)}"
        )
    record = store.outcome("third_moment")
    assert record is not None, "the store is complete"
    if not record["scalars"]["total_weight"] > 0:
        raise InputError(
            f"{store.path}: no document has {SHORTEST_DOCUMENT} tokens or more, so there is no third moment; use "
            "--engine lr-jsmf, or ingest longer documents"
        )
    arrays = (store.read(name) for name in ("word_mean", "pair_projection", "third_moment"))
    return TensorMoments(store.read("basis"), BasisMoments(*arrays))


def adding_command(store: MomentsStore) -> str:
    """The command that adds the third moment to a store as it is."""
    usual, given = ScanSettings().fields(), store.settings.fields()
    options = [_option(name, value) for name, value in given.items() if value != usual.get(name)]
    corpus = shlex.quote(str(store.manifest["corpora"][0]["path"]))
    return " ".join(["streaming-jsmf scan", corpus, shlex.quote(str(store.path)), *options, "--third-moment"])


def _option(name: str, value: object) -> str:
    option = f"--{_OPTIONS.get(name, name.replace('_', '-'))}"
    return option if value is True else f"{option} {shlex.quote(str(value))}"
