"""A complete moments store as inference reads it: small arrays in memory, and eigenpairs for any supported K."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import InputError, StoreError, TooFewFactorsError
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg.eigen import Eigenpairs, nystrom_eigenpairs
from streaming_jsmf.moments.stages.sample import VARIABLES, factor_of, sample_block
from streaming_jsmf.moments.stages.third_moment import TensorMoments, read_tensor_moments
from streaming_jsmf.moments.store import MomentsStore, read_store
from streaming_jsmf.storage.paths import StorePath, store_path


@dataclass(frozen=True)
class Moments:
    """Statistics of a corpus from a complete moments store. Arrays are read and verified on first access."""

    store: MomentsStore

    @property
    def path(self) -> StorePath:
        """Path of the store."""
        return self.store.path

    def __repr__(self) -> str:
        return f"Moments({str(self.path)!r}, {self.store.n_words} words, up to {self.settings.max_topics} topics)"

    def __fspath__(self) -> str:
        """Path of the store, so that an open store can be passed as a path."""
        return str(self.store.path)

    @property
    def settings(self) -> ScanSettings:
        return self.store.settings

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The vocabulary; position = word id."""
        return tuple(str(word) for word in self._array("word"))

    @cached_property
    def row_sum(self) -> NDArray[np.float64]:
        """u = C e, (N,), exact."""
        return self._array("row_sum")

    @cached_property
    def diagonal(self) -> NDArray[np.float64]:
        """D of Eq. 1, (N,), exact."""
        return self._array("diagonal")

    @cached_property
    def document_frequency(self) -> NDArray[np.int64]:
        """Number of documents that contain each word, (N,)."""
        return self._array("document_frequency")

    @cached_property
    def term_count(self) -> NDArray[np.float64]:
        """Tokens of each word, (N,)."""
        return self._array("term_count")

    @property
    def n_documents(self) -> int:
        """Number of documents with two or more tokens; shorter ones are not counted."""
        return int(self._scalars["n_documents"])

    def factor(self) -> NDArray[np.float32] | None:
        """F, N x L, with F F' ~ C + diag(D), read or computed from the sample on each call; None after ``halko``."""
        if self.settings.range_finder == "sample":
            with single_blas_thread():
                return factor_of(self.sample(), self.settings, "sample")
        return self._array("factor") if self.settings.has_factor else None

    def sample(self) -> csr_array[Any]:
        """H_s of a scan with ``sample`` (documents x words, CSR, float32), H_s'H_s ~ C + diag(D), read on each call."""
        share = self.store.manifest.sample_share
        assert share is not None, "a sampled store"
        arrays = {name: self._array(name) for name in VARIABLES}
        return sample_block(arrays, self.store.n_words, share * self._scalars["total_weight"])

    def digests(self, *, third_moment: bool = False) -> dict[str, str]:
        """sha256 of the arrays by name, which identify these moments; the third moment is included on request."""
        return self.store.digests(without=() if third_moment else ("third_moment",))

    def _array(self, name: str) -> NDArray[Any]:
        return self.store.read(name)

    @property
    def _scalars(self) -> Mapping[str, float]:
        return self.store.scalars("range")

    @cached_property
    def _all_eigenpairs(self) -> Eigenpairs:
        return self._eigenpairs()

    def _eigenpairs(self) -> Eigenpairs:
        if any(stage.name == "eigenpairs" for stage in self.store.stages):
            return Eigenpairs(self._array("eigenvalues"), self._array("eigenvectors"))
        projected = self.projected_basis()
        if projected is not None:
            return nystrom_eigenpairs(*projected)
        return Eigenpairs(self.store.read("basis_eigenvalues"), self.store.read("basis"))

    def projected_basis(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Q and C Q, read on each call, or None if the store has no such product."""
        if any(stage.name == "projection" for stage in self.store.stages):
            return self.store.read("basis"), self.store.read("projection")
        return None

    def eigenpairs(self, n_topics: int, extra: int = 10) -> Eigenpairs:
        """The ``n_topics + extra`` leading algebraic eigenpairs of C, or as many as exist. No scan.

        Raises
        ------
        TooFewFactorsError
            If the scan was made for fewer topics, or C has fewer than ``n_topics`` positive eigenvalues.
        """
        widest = self.settings.max_topics
        if n_topics > widest:
            corpus, *more = self.store.manifest.paths
            added = f", then --add {', '.join(more)}" if more else ""
            raise TooFewFactorsError(
                f"{self.path}: this scan carries up to {widest} topics, {n_topics} were asked for; run streaming-jsmf "
                f"scan {corpus} OTHER_MOMENTS --max-topics {n_topics}{added}"
            )
        pairs = self._all_eigenpairs
        if pairs.positive < n_topics:
            raise TooFewFactorsError(
                f"{self.path}: the co-occurrences have {pairs.positive} positive eigenvalues, {n_topics} topics "
                f"were asked for; use --topics {pairs.positive} or fewer, or a larger corpus"
            )
        return pairs.leading(n_topics + extra)

    def cooccurrence(self) -> NDArray[np.float64]:
        """C of Eq. 1, N x N, symmetric and nonnegative, from a scan with ``exact``. 8 N^2 bytes, read on each call.

        Raises
        ------
        InputError
            If the scan did not count C, or these are the moments of some partitions.
        """
        if not self.settings.exact:
            raise InputError(
                f"{self.path}: holds no full co-occurrences; scan into another path with --exact, or use --rectify enn"
            )
        matrix: NDArray[np.float64] = self._array("cooccurrence")
        return matrix

    def tensor_moments(self) -> TensorMoments:
        """The three moments of LDA in the basis, read on each call. No scan.

        Raises
        ------
        InputError
            If the store lacks the third moment, no document has three tokens, or these are the moments of some
            partitions.
        """
        return read_tensor_moments(self.store)

    def cooccurrence_rows(self, words: Sequence[int] | NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Rows of C for the given word ids, (len(words), N).

        Exact after a scan with ``exact``; otherwise approximated from the sample, by F F' - D, or after ``halko`` by
        V diag V'.
        """
        ids = np.asarray(words)
        if self.settings.exact:
            exact: NDArray[np.float64] = self.cooccurrence()[ids]
            return exact
        if self.settings.has_factor:
            return self._factor_rows(ids)
        pairs = self._all_eigenpairs
        products: NDArray[np.float64] = (pairs.vectors[ids] * pairs.values) @ pairs.vectors.T
        return products

    def _factor_rows(self, ids: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        rows: NDArray[np.float64]
        if self.settings.range_finder == "sample":
            documents = self.sample()
            rows = (documents[:, ids].T @ documents).toarray().astype(np.float64)
        else:
            factor = self._array("factor")
            rows = (factor[ids] @ factor.T).astype(np.float64)
        rows[np.arange(ids.size), ids] -= self.diagonal[ids]
        return rows


def open_moments(path: str | os.PathLike[str] | StorePath) -> Moments:
    """Open a complete moments store at a path or URL.

    Raises
    ------
    InputError
        If there is no moments store at ``path``.
    StoreError
        If it is incomplete; the message names the missing stages.
    """
    store = read_store(store_path(path, "a moments store"))
    missing = store.missing_stages
    if missing:
        raise StoreError(
            f"{path}: incomplete, missing {', '.join(missing)}; run the same scan command again to finish it"
        )
    return Moments(store)
