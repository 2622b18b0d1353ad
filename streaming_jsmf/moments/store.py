"""A moments store as inference reads it: sums, eigenpairs and the third moment of one corpus."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, StoreError, TooFewFactorsError, option
from streaming_jsmf.jobs.events import what
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.tensor import FEWEST_TOKENS, BasisMoments
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.moments.manifest import read_manifest
from streaming_jsmf.moments.records import SUMS, Records
from streaming_jsmf.moments.stages.third_moment import adding_command
from streaming_jsmf.storage.large_arrays import large_empty
from streaming_jsmf.storage.paths import StorePath, store_path

#: Rows of C counted at a time: as sparse matrices they take more memory than as arrays.
ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class Moments(Records):
    """Statistics of a corpus in a moments store, complete or not. Arrays are verified when they are read.

    ``open_moments`` opens a complete store; ``read_store`` also opens one whose scan is unfinished.
    """

    def __repr__(self) -> str:
        return f"Moments({str(self.path)!r}, {self.n_words} words, up to {self.settings.max_topics} topics)"

    def __fspath__(self) -> str:
        """Path of the store, so that an open store can be passed as a path."""
        return str(self.path)

    def digests(self, *, third_moment: bool = False) -> dict[str, str]:
        """sha256 of the arrays by name, which identify these moments; the third moment is included on request."""
        return {
            name: str(fields["sha256"])
            for stage, record in self.outcomes.items()
            if third_moment or stage != "third_moment"
            for name, fields in record["arrays"].items()
        }

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The vocabulary; position = word id."""
        return tuple(str(word) for word in self.read("word"))

    @property
    def n_documents(self) -> int:
        """Number of documents with two or more tokens; shorter ones are not counted."""
        return int(self.scalars(SUMS)["n_documents"])

    @cached_property
    def row_sum(self) -> Floats:
        """u = C e, (N,), exact."""
        return self.read("row_sum")

    @cached_property
    def diagonal(self) -> Floats:
        """D of Eq. 1, (N,), exact."""
        return self.read("diagonal")

    @cached_property
    def document_frequency(self) -> Integers:
        """Number of documents that contain each word, (N,)."""
        return self.read("document_frequency")

    @cached_property
    def term_count(self) -> Floats:
        """Tokens of each word, (N,)."""
        return self.read("term_count")

    def projected_basis(self) -> tuple[Floats, Floats] | None:
        """Q and C Q, read on each call, or None if the store has no such product."""
        return (self.read("basis"), self.read("projection")) if self.settings.has_projection else None

    def eigenpairs(self, n_topics: int, extra: int = 10) -> Eigenpairs:
        """The ``n_topics + extra`` leading algebraic eigenpairs of C, or as many as exist. No scan.

        Raises ``TooFewFactorsError`` if the scan was made for fewer topics, or C has fewer positive eigenvalues.
        """
        widest = self.settings.max_topics
        if n_topics > widest:
            scan = f"streaming-jsmf scan {self.manifest.corpus.path} OTHER_MOMENTS"
            raise TooFewFactorsError(
                f"{self.path}: this scan supports up to {widest} topics, {n_topics} were asked for; run {scan} "
                f"{option.max_topics(n_topics).on_command_line}"
            )
        pairs = self._all_eigenpairs
        if pairs.positive < n_topics:
            raise TooFewFactorsError(
                f"{self.path}: the co-occurrences have {pairs.positive} positive eigenvalues, {n_topics} topics "
                f"were asked for; use {option.n_topics(pairs.positive)} or fewer, or a larger corpus"
            )
        return pairs.leading(n_topics + extra)

    @property
    def _all_eigenpairs(self) -> Eigenpairs:
        """All eigenpairs of the store, read on each call."""
        if self.settings.has_projection:
            return Eigenpairs(self.read("eigenvalues"), self.read("eigenvectors"))
        return Eigenpairs(self.read("basis_eigenvalues"), self.read("basis"))

    def cooccurrence(self) -> Floats:
        """C of Eq. 1, N x N, symmetric and nonnegative, from a scan with ``exact``. 8 N^2 bytes, read on each call.

        Raises ``InputError`` if the scan did not count C, or these are the moments of some partitions.
        """
        if not self.settings.exact:
            raise InputError(
                f"{self.path}: holds no full co-occurrences; scan into another path with "
                f"{option.exact(True).alone}, or use "
                f"{option.rectify('enn')}"
            )
        return self.read("cooccurrence")

    def cooccurrence_rows(self, words: Sequence[int] | NDArray[np.integer[Any]]) -> Floats:
        """Rows of C for the given word ids, (len(words), N).

        From the documents that the store holds, which are all of a small corpus; after ``halko`` from V diag V'.
        """
        ids = np.asarray(words)
        if self.settings.exact:
            return np.asarray(self.cooccurrence()[ids])
        if self.settings.range_finder == "sample":
            return self._sampled_rows(ids)
        pairs = self._all_eigenpairs
        return np.asarray((pairs.vectors[ids] * pairs.values) @ pairs.vectors.T)

    def _sampled_rows(self, ids: NDArray[np.integer[Any]]) -> Floats:
        documents = self.sample()
        rows: Floats = large_empty((ids.size, self.n_words))
        for some in panels(ids.size, ROWS_AT_ONCE):
            # As CSR: SciPy converts the right factor, which is all documents, to the format of the left one.
            rows[some] = (documents[:, ids[some]].T.tocsr() @ documents).toarray()
        rows[np.arange(ids.size), ids] -= self.diagonal[ids]
        return rows

    def tensor_moments(self) -> BasisMoments:
        """The three moments of LDA in the basis, read on each call. No scan.

        Raises ``InputError`` if the store lacks the third moment, no document has three tokens, or these are the
        moments of some partitions.
        """
        if not self.settings.third_moment:
            raise InputError(
                f"{self.path}: has no third moment, which {option.engine('stod')} needs; add it with "
                f"{adding_command(self)}"
            )
        if not self.scalars("third_moment")["total_weight"] > 0:
            raise InputError(
                f"{self.path}: no document has {FEWEST_TOKENS} tokens or more, so there is no third moment; use "
                f"{option.engine('lr-jsmf')}, or ingest longer documents"
            )
        return BasisMoments(*map(self.read, ("basis", "word_mean", "pair_projection", "third_moment")))


def read_store(path: StorePath) -> Moments:
    """Return the store at ``path``, complete or not.

    Raises ``InputError`` if there is no store or its format version is unknown, and ``StoreError`` if its metadata is
    damaged.
    """
    return Moments(path, read_manifest(path))


def open_moments(path: str | os.PathLike[str] | StorePath) -> Moments:
    """Open a complete moments store at a path or URL.

    Raises
    ------
    InputError
        If there is no moments store at ``path``.
    StoreError
        If it is incomplete; the message names the missing stages.
    """
    store = read_store(store_path(path, "a moments store").absolute())
    if missing := store.missing_stages:
        raise StoreError(
            f"{path}: incomplete (still to do: {', '.join(map(what, missing))}); run the same scan command again to "
            "finish it"
        )
    return store
