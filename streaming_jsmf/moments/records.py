"""The records of a moments store and the arrays that they commit, which stages compute from and add to.

Layout::

    MOMENTS/            attributes: kind, manifest
      word              vocabulary
      row_sum ... basis, basis_eigenvalues, projection             final arrays, each named by a record
      records/          one attributes-only group for each commit
      partials/         results of partitions, with their documents, and folds
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.checkpoints import RECORDS, Checkpoints, Held, joined_arrays, key_of, read_record
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.linalg.csr import rows_of
from streaming_jsmf.moments.manifest import StoreManifest
from streaming_jsmf.storage.arrays import ArrayDigest, read_array
from streaming_jsmf.storage.paths import StorePath

Value = TypeVar("Value")

#: Name of the vocabulary's record; the vocabulary is written when the store is created.
WORDS = "words"
#: Name of the first stage.
SUMS = "sums"
#: Stages in the order in which they run, each with the property of the settings that a store with it has.
STAGES = {
    SUMS: "",
    "cooccurrence": "exact",
    "projection": "has_projection",
    "refinement": "has_projection",
    "third_moment": "third_moment",
}

#: Prefix of the arrays of the documents of a part of pass 1, whose values are counts times sqrt(w / (n (n - 1))), and
#: name in ``Records.recent`` of all documents.
SAMPLE = "sample"
#: These arrays, as ``linalg.csr.row_arrays`` names them. They are not folded.
DOCUMENTS = ("sample_lengths", "sample_words", "sample_values")


def is_made(stage: str, settings: ScanSettings) -> bool:
    """Whether a store with these settings has the stage."""
    return not STAGES[stage] or bool(getattr(settings, STAGES[stage]))


@dataclass(frozen=True)
class Records:
    """What is committed in a moments store, complete or not. Arrays are verified when they are read."""

    path: StorePath
    manifest: StoreManifest
    #: What stages have read, committed or computed, by name; None outside ``run_stages``.
    recent: Held | None = field(default=None, compare=False, repr=False, kw_only=True)

    @cached_property
    def settings(self) -> ScanSettings:
        return self.manifest.scan_settings

    @property
    def n_words(self) -> int:
        return self.manifest.n_words

    @property
    def hint(self) -> str:
        """The end of a message about damage."""
        return f"run its scan again to repair it: streaming-jsmf scan CORPUS {self.path}"

    @property
    def sample_share(self) -> float:
        """Share of the documents that the store holds."""
        share = self.manifest.sample_share
        assert share is not None, "halko holds no documents"
        return share

    @property
    def holds_documents(self) -> bool:
        return self.manifest.sample_share is not None

    @cached_property
    def order(self) -> FoldOrder:
        """Folding order of pass 1."""
        return self.manifest.order

    def order_with(self, *salts: str) -> FoldOrder:
        """Folding order of a later pass; ``salts`` are its dependencies besides the contents of the partitions."""
        return FoldOrder(tuple(key_of(name, *salts) for name in self.manifest.contents), self.order.total)

    def checkpoints(self, stage: str) -> Checkpoints:
        """The partial results of a stage; those of pass 1 keep the documents."""
        holds = stage == SUMS and self.holds_documents
        documents = frozenset(DOCUMENTS if stage == SUMS else ())
        return Checkpoints(self.path, stage, self.hint, holds, documents, "scan")

    @cached_property
    def stage_names(self) -> tuple[str, ...]:
        """Names of the stages of a complete store with these settings, in order."""
        return tuple(name for name in STAGES if is_made(name, self.settings))

    @property
    def record_names(self) -> tuple[str, ...]:
        return (WORDS, *self.stage_names)

    @property
    def missing_stages(self) -> tuple[str, ...]:
        """Names of the stages that are not committed yet."""
        return tuple(name for name in self.stage_names if name not in self.outcomes)

    @cached_property
    def outcomes(self) -> dict[str, dict[str, Any]]:
        """The records of the vocabulary and of the committed stages (digests, scalars, history), by name.

        A record of another vocabulary, of other partitions or of other ``inputs`` belongs to an earlier state of the
        store and is ignored, for example if the basis was computed again on another processor. Raises ``StoreError`` if
        a record is damaged. They are read once; see ``fresh``.
        """
        found: dict[str, dict[str, Any]] = {}
        for name in self.record_names:
            record = read_record(self.path, name, self.hint)
            if record is None or record.get("covers") != self.covers(name):
                continue
            known = {
                array: digest["sha256"] for each in found.values() for array, digest in each["arrays"].items()
            }
            if record.get("inputs", {}).items() <= known.items():
                found[name] = record
        return found

    def covers(self, name: str) -> str:
        """Key of the words of a record, or of the partitions, words and settings of the record of a stage."""
        return self.manifest.vocabulary if name == WORDS else self.order.total

    def outcome(self, name: str) -> dict[str, Any] | None:
        """The record of the vocabulary or of a committed stage, or None."""
        return self.outcomes.get(name)

    def fresh(self) -> Self:
        """The store with the records that are committed now."""
        return replace(self)

    def array_digest(self, name: str) -> ArrayDigest:
        """The committed digest of a final array. Raises ``StoreError`` if its stage is not complete."""
        fields = next(
            (each["arrays"][name] for each in self.outcomes.values() if name in each["arrays"]), None
        )
        if fields is None:
            raise StoreError(f"{self.path}: {name} is not committed; run the same scan again to finish it")
        return ArrayDigest.from_fields(fields)

    def scalars(self, stage: str) -> Mapping[str, float]:
        """Sums of a stage that are single numbers. Raises ``StoreError`` if its record is missing or damaged."""
        record = self.outcome(stage)
        if record is None:
            raise StoreError(f"{self.path}/{RECORDS}/{stage} is missing; {self.hint}")
        scalars: Mapping[str, float] = record["scalars"]
        return scalars

    def scalars_of(self, array: str) -> Mapping[str, float]:
        """Scalars of the stage that an array was committed by, such as the error of ``eigenvectors``."""
        return next((each["scalars"] for each in self.outcomes.values() if array in each["arrays"]), {})

    def read(self, name: str) -> NDArray[Any]:
        """Read a final array and verify its digest. Raises ``StoreError`` if it is damaged."""
        return self.once(name, lambda: read_array(self.path, name, self.array_digest(name), hint=self.hint))

    def once(self, name: str, compute: Callable[[], Value]) -> Value:
        """The value of ``compute``, or the one that is ``recent`` under this name."""
        return compute() if self.recent is None else self.recent.once(name, compute)

    def sample(self, scalars: Mapping[str, float] | None = None) -> csr_array[Any]:
        """H_s, the documents that the store holds (documents x words, CSR, float32), read on each call.

        H_s'H_s ~ C + diag(D), equal if it holds all documents. ``scalars`` are those of the first stage, if it is not
        committed.
        """

        def read() -> csr_array[Any]:
            checkpoints = self.checkpoints(SUMS)
            arrays = joined_arrays([checkpoints.read_part(key) for key in self.manifest.part_keys], DOCUMENTS)
            return scaled(arrays, self.n_words, self.sample_share, scalars or self.scalars(SUMS))

        return self.once(SAMPLE, read)


def scaled(
    arrays: Mapping[str, NDArray[Any]], n_words: int, share: float, sums: Mapping[str, float]
) -> csr_array[Any]:
    """H_s from the arrays of its documents, a ``share`` of all, whose values are overwritten."""
    values = arrays[DOCUMENTS[-1]]
    values *= np.float32(1 / np.sqrt(share * sums["total_weight"]))
    return rows_of(SAMPLE, arrays, n_words)
