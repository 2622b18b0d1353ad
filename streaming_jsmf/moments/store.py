"""A moments store: its records, its verified arrays, and the moments that inference reads from them.

Layout::

    MOMENTS/            attributes: kind, manifest
      word              vocabulary
      row_sum ... basis, basis_eigenvalues, projection             final arrays, each named by a record
      records/          one attributes-only group for each commit
      partials/         results of partitions, with their documents, and folds
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import InputError, StoreError, TooFewFactorsError, option
from streaming_jsmf.jobs.checkpoints import RECORDS, Checkpoints, Held, key_of, read_record
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.tensor import FEWEST_TOKENS, BasisMoments
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.moments.manifest import CorpusEntry, StoreManifest, read_manifest
from streaming_jsmf.moments.stages import stages_of
from streaming_jsmf.moments.stages.base import Stage
from streaming_jsmf.moments.stages.range import read_sample
from streaming_jsmf.moments.stages.third_moment import adding_command
from streaming_jsmf.storage.arrays import ArrayDigest, Variable, read_array
from streaming_jsmf.storage.paths import StorePath, store_path

Value = TypeVar("Value")

#: Name of the vocabulary's record; the vocabulary is written when the store is created.
WORDS = "words"

VOCABULARY = {"word": Variable(("word",), "vocabulary")}


#: Records by stage that were read from a store; None for those that are missing.
Records: TypeAlias = dict[str, dict[str, Any] | None]


@dataclass(frozen=True)
class Moments:
    """Statistics of a corpus in a moments store, complete or not. Arrays are verified when they are read.

    ``open_moments`` opens a complete store; ``read_store`` also opens one whose scan is unfinished.
    """

    path: StorePath
    manifest: StoreManifest
    #: What stages have read, committed or computed, by name, see ``forget``; None outside ``run_stages``.
    recent: Held | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __repr__(self) -> str:
        return f"Moments({str(self.path)!r}, {self.n_words} words, up to {self.settings.max_topics} topics)"

    def __fspath__(self) -> str:
        """Path of the store, so that an open store can be passed as a path."""
        return str(self.path)

    # What the store consists of, and what of it is there.

    @cached_property
    def settings(self) -> ScanSettings:
        return self.manifest.scan_settings

    @property
    def n_words(self) -> int:
        return self.manifest.n_words

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of a complete store, in order."""
        return stages_of(self.settings)

    @property
    def hint(self) -> str:
        """The end of a message about damage that can be repaired."""
        return f"run its scan again to repair it: streaming-jsmf scan CORPUS {self.path}"

    @property
    def sample_share(self) -> float:
        """Share of the documents that the store holds."""
        share = self.manifest.sample_share
        assert share is not None, "halko holds no documents"
        return share

    @property
    def reads_twice(self) -> bool:
        """Whether any stage after scan 1 reads the corpora."""
        settings = self.settings
        return settings.exact or settings.third_moment or (settings.has_projection and self.sample_share < 1)

    @cached_property
    def order(self) -> FoldOrder:
        """Folding order of scan 1."""
        return self.manifest.order

    def order_with(self, *salts: str) -> FoldOrder:
        """Folding order of a scan with the basis; ``salts`` are its dependencies besides the partition contents."""
        keys = [key_of(name, *salts) for name in self.manifest.contents]
        return self.manifest.order_of(keys, self.base)

    @property
    def base(self) -> str:
        """Key of the fold of scan 1 that the basis is computed from."""
        return self.manifest.base or self.order.total

    def checkpoints(self, stage: str) -> Checkpoints:
        made = self._named(stage)
        keep = bool(made.unfolded) and self.manifest.sample_share is not None
        return Checkpoints(self.path, stage, self.hint, keep, made.unfolded)

    @property
    def record_names(self) -> tuple[str, ...]:
        return (WORDS, *(stage.name for stage in self.stages))

    @property
    def missing_stages(self) -> tuple[str, ...]:
        """Names of the stages that are not committed yet."""
        read: Records = {}
        return tuple(stage.name for stage in self.stages if self.outcome(stage.name, read) is None)

    def outcome(self, stage: str, read: Records | None = None) -> dict[str, Any] | None:
        """The committed record of a stage (digests, scalars, history), or None.

        A record that covers other partitions or words than the manifest belongs to an earlier state and is ignored.
        Records that were ``read`` before are not read again, and those of earlier stages are added to them.
        """
        read = {} if read is None else read
        if stage not in read:
            read[stage] = read_record(self.path, stage, self.hint)
        record = read[stage]
        return record if record is not None and record.get("covers") == self.covers(stage, read) else None

    def has_outcome(self, stage: str, read: Records | None = None) -> bool:
        """Whether a stage is committed and its record intact."""
        try:
            return self.outcome(stage, read) is not None
        except StoreError:
            return False

    def is_complete(self) -> bool:
        """Whether all stages are committed and their records intact."""
        read: Records = {}
        return all(self.has_outcome(stage.name, read) for stage in self.stages)

    def covers(self, stage: str, read: Records | None = None) -> str:
        """Key of everything that the outcome of a stage is computed from."""
        if stage == WORDS:
            return self.manifest.vocabulary
        made = self._named(stage)
        fold = self.base if made.of_base else self.order.total
        if not made.inputs:
            return fold
        # A different basis, for example one recomputed on another processor during a repair, makes old results stale.
        read = {} if read is None else read
        found = (self._fields_of(name, read) for name in made.inputs)
        return key_of(fold, *("" if fields is None else fields["sha256"] for fields in found))

    def variables(self, stage: str) -> Mapping[str, Variable]:
        """The final arrays of a record."""
        return VOCABULARY if stage == WORDS else self._named(stage).variables

    def _named(self, stage: str) -> Stage:
        return next(each for each in self.stages if each.name == stage)

    def _fields_of(self, name: str, read: Records | None = None) -> dict[str, Any] | None:
        """The committed digest of a final array as stored in its record, or None."""
        maker = next((stage for stage in self.record_names if name in self.variables(stage)), None)
        record = None if maker is None else self.outcome(maker, read)
        fields: dict[str, Any] | None = None if record is None else record["arrays"].get(name)
        return fields

    def array_digest(self, name: str) -> ArrayDigest:
        """The committed digest of a final array. Raises ``StoreError`` if its stage is not complete."""
        fields = self._fields_of(name)
        if fields is None:
            raise StoreError(f"{self.path}: {name} is not committed; run the same scan again to finish it")
        return ArrayDigest.from_fields(fields)

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

    # Reading it.

    def read(self, name: str) -> NDArray[Any]:
        """Read a final array and verify its digest. Raises ``StoreError`` if it is damaged."""
        return self.once(name, lambda: read_array(self.path, name, self.array_digest(name), hint=self.hint))

    def once(self, name: str, compute: Callable[[], Value]) -> Value:
        """The value of ``compute``, or the one that is ``recent`` under this name."""
        return compute() if self.recent is None else self.recent.once(name, compute)

    def forget(self, stages: Sequence[Stage]) -> None:
        """Keep of what is ``recent`` only arrays that these stages read again."""
        wanted = {name for stage in stages for name in stage.inputs + stage.reads}
        if self.recent is not None:
            for name in [name for name in self.recent if name.partition(" ")[0] not in wanted]:
                del self.recent[name]

    def scalars(self, stage: str) -> Mapping[str, float]:
        """Sums of a stage that are single numbers. Raises ``StoreError`` if its record is missing or damaged."""
        record = self.outcome(stage)
        if record is None:
            raise StoreError(f"{self.path}/{RECORDS}/{stage} is missing; {self.hint}")
        scalars: Mapping[str, float] = record["scalars"]
        return scalars

    def word_ids(self, entry: CorpusEntry) -> Integers | None:
        """The id in the store of each word of a corpus, or None if unchanged. Raises ``StoreError`` if damaged."""
        known = entry.word_ids
        if known is None:
            return None
        expected = ArrayDigest(known.sha256, (known.n_words,), "int64")
        return np.asarray(read_array(self.path, known.name, expected, hint=self.hint))

    # The moments.

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The vocabulary; position = word id."""
        return tuple(str(word) for word in self.read("word"))

    @property
    def n_documents(self) -> int:
        """Number of documents with two or more tokens; shorter ones are not counted."""
        return int(self.scalars("range")["n_documents"])

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

    def sample(self) -> csr_array[Any]:
        """H_s, the documents that the store holds (documents x words, CSR, float32), read on each call.

        H_s'H_s ~ C + diag(D), equal if it holds all documents.
        """
        return read_sample(self)

    def projected_basis(self) -> tuple[Floats, Floats] | None:
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

    @cached_property
    def _all_eigenpairs(self) -> Eigenpairs:
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
        # As CSR: SciPy converts the right factor, which is all documents, to the format of the left one.
        rows: Floats = (documents[:, ids].T.tocsr() @ documents).toarray().astype(np.float64)
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
            f"{path}: incomplete, missing {', '.join(missing)}; run the same scan command again to finish it"
        )
    return store
