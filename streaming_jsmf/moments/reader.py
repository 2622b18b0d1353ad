"""Moments as inference reads them: sums, documents, eigenpairs for any supported K, and the third moment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.errors import InputError, StoreError, TooFewFactorsError, option
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Cost
from streaming_jsmf.linalg.document_tensor import SHORTEST_DOCUMENT, BasisMoments
from streaming_jsmf.linalg.eigen import Eigenpairs, nystrom_factor
from streaming_jsmf.moments.manifest import read_manifest
from streaming_jsmf.moments.stages import stages_of
from streaming_jsmf.moments.stages.sample import read_sample
from streaming_jsmf.moments.stages.third_moment import TensorMoments, adding_command
from streaming_jsmf.moments.store import Stage, Store
from streaming_jsmf.storage.paths import StorePath, store_path


@dataclass(frozen=True)
class Moments(Store):
    """Statistics of a corpus in a moments store. Arrays are read and verified on first access.

    ``open_moments`` opens a complete store; ``read_store`` also opens one whose scan is unfinished.
    """

    def __repr__(self) -> str:
        return f"Moments({str(self.path)!r}, {self.n_words} words, up to {self.settings.max_topics} topics)"

    def __fspath__(self) -> str:
        """Path of the store, so that an open store can be passed as a path."""
        return str(self.path)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        return stages_of(self.settings)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The vocabulary; position = word id."""
        return tuple(str(word) for word in self.read("word"))

    @cached_property
    def row_sum(self) -> NDArray[np.float64]:
        """u = C e, (N,), exact."""
        return self.read("row_sum")

    @cached_property
    def diagonal(self) -> NDArray[np.float64]:
        """D of Eq. 1, (N,), exact."""
        return self.read("diagonal")

    @cached_property
    def document_frequency(self) -> NDArray[np.int64]:
        """Number of documents that contain each word, (N,)."""
        return self.read("document_frequency")

    @cached_property
    def term_count(self) -> NDArray[np.float64]:
        """Tokens of each word, (N,)."""
        return self.read("term_count")

    @property
    def n_documents(self) -> int:
        """Number of documents with two or more tokens; shorter ones are not counted."""
        return int(self.scalars("range")["n_documents"])

    def factor(self) -> NDArray[np.float32] | None:
        """F, N x m, with F F' ~ C + diag(D), by ``nystrom_factor`` in the basis on each call; None after ``halko``."""
        with single_blas_thread():
            projected = self.projected_basis()
            if projected is None and self.settings.exact:
                basis = self.read("basis")
                projected = basis, self.cooccurrence() @ basis
            if projected is None:
                return None
            basis, product = projected
            return nystrom_factor(basis, product + self.diagonal[:, None] * basis)

    def sample(self) -> csr_array[Any]:
        """H_s, the documents that the store holds (documents x words, CSR, float32), read on each call.

        H_s'H_s ~ C + diag(D), equal if it holds all documents.
        """
        return read_sample(self)

    def digests(self, *, third_moment: bool = False) -> dict[str, str]:
        """sha256 of the arrays by name, which identify these moments; the third moment is included on request."""
        records = [
            self.outcome(stage) for stage in self.record_names if third_moment or stage != "third_moment"
        ]
        return {
            name: str(fields["sha256"])
            for record in records
            if record
            for name, fields in record["arrays"].items()
        }

    @cached_property
    def _all_eigenpairs(self) -> Eigenpairs:
        return self._eigenpairs()

    def _eigenpairs(self) -> Eigenpairs:
        if self.settings.has_projection:
            return Eigenpairs(self.read("eigenvalues"), self.read("eigenvectors"))
        return Eigenpairs(self.read("basis_eigenvalues"), self.read("basis"))

    def projected_basis(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Q and C Q, read on each call, or None if the store has no such product."""
        return (self.read("basis"), self.read("projection")) if self.settings.has_projection else None

    def eigenpairs(self, n_topics: int, extra: int = 10) -> Eigenpairs:
        """The ``n_topics + extra`` leading algebraic eigenpairs of C, or as many as exist. No scan.

        Raises ``TooFewFactorsError`` if the scan was made for fewer topics, or C has fewer positive eigenvalues.
        """
        widest = self.settings.max_topics
        if n_topics > widest:
            corpus, *more = self.manifest.paths
            scan = f"streaming-jsmf scan {corpus} OTHER_MOMENTS"
            added = (
                f"; then {scan} {' '.join(option.add(path).on_command_line for path in more)}" if more else ""
            )
            raise TooFewFactorsError(
                f"{self.path}: this scan supports up to {widest} topics, {n_topics} were asked for; run {scan} "
                f"{option.max_topics(n_topics).on_command_line}{added}"
            )
        pairs = self._all_eigenpairs
        if pairs.positive < n_topics:
            raise TooFewFactorsError(
                f"{self.path}: the co-occurrences have {pairs.positive} positive eigenvalues, {n_topics} topics "
                f"were asked for; use {option.n_topics(pairs.positive)} or fewer, or a larger corpus"
            )
        return pairs.leading(n_topics + extra)

    def cooccurrence(self) -> NDArray[np.float64]:
        """C of Eq. 1, N x N, symmetric and nonnegative, from a scan with ``exact``. 8 N^2 bytes, read on each call.

        Raises ``InputError`` if the scan did not count C, or these are the moments of some partitions.
        """
        if not self.settings.exact:
            raise InputError(
                f"{self.path}: holds no full co-occurrences; scan into another path with {option.exact(True)}, or use "
                f"{option.rectify('enn')}"
            )
        matrix: NDArray[np.float64] = self.read("cooccurrence")
        return matrix

    def tensor_moments(self) -> TensorMoments:
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
                f"{self.path}: no document has {SHORTEST_DOCUMENT} tokens or more, so there is no third moment; use "
                f"{option.engine('lr-jsmf')}, or ingest longer documents"
            )
        arrays = (self.read(name) for name in ("word_mean", "pair_projection", "third_moment"))
        return TensorMoments(self.read("basis"), BasisMoments(*arrays))

    def cooccurrence_rows(self, words: Sequence[int] | NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Rows of C for the given word ids, (len(words), N).

        From the documents that the store holds, which are all of a small corpus; after ``halko`` from V diag V'.
        """
        ids = np.asarray(words)
        if self.settings.exact:
            exact: NDArray[np.float64] = self.cooccurrence()[ids]
            return exact
        if self.settings.range_finder == "sample":
            return self._sampled_rows(ids)
        pairs = self._all_eigenpairs
        products: NDArray[np.float64] = (pairs.vectors[ids] * pairs.values) @ pairs.vectors.T
        return products

    def _sampled_rows(self, ids: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        documents = self.sample()
        rows: NDArray[np.float64] = (documents[:, ids].T @ documents).toarray().astype(np.float64)
        rows[np.arange(ids.size), ids] -= self.diagonal[ids]
        return rows

    def provenance(self) -> dict[str, Any]:
        """Times, package versions and cost of a store, complete or not; unknown entries are omitted.

        ``started`` and ``finished`` (complete stores only) are UTC times and may span several runs. ``task_seconds``
        is summed over workers. ``peak_memory`` is the largest of any worker, in bytes. ``versions`` lists the package
        versions of all runs. Reads only small records. Raises ``StoreError`` if a record is damaged.
        """
        records = [record for name in self.record_names if (record := self.outcome(name))]
        notes = [note for record in records for note in record.get("history", ())]
        for stage in self.missing_stages:
            checkpoints = self.checkpoints(stage)
            notes += checkpoints.history(sorted(checkpoints.parts()))
        costs = [cost for cost in map(Cost.from_fields, notes) if cost is not None]
        made = [record["made"] for record in records if "made" in record]
        found: dict[str, Any] = {}
        if len(made) == len(records):
            found["started"] = made[0]["committed"]
            if not self.missing_stages:
                found["finished"] = made[-1]["committed"]
            found["versions"] = _versions([entry["versions"] for entry in made])
        if costs:
            found["task_seconds"] = round(sum(cost.seconds for cost in costs), 3)
            found["peak_memory"] = max(cost.peak_memory for cost in costs)
        return found


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
    store = read_store(store_path(path, "a moments store"))
    if missing := store.missing_stages:
        raise StoreError(
            f"{path}: incomplete, missing {', '.join(missing)}; run the same scan command again to finish it"
        )
    return store


def _versions(seen: list[dict[str, str]]) -> dict[str, str]:
    packages = dict.fromkeys(package for versions in seen for package in versions)
    return {
        package: ", ".join(dict.fromkeys(versions[package] for versions in seen if package in versions))
        for package in packages
    }
