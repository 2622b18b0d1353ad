"""Moments of selected parts of a store, or of a bootstrap sample of its parts, without a scan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config.share_queries import column_names
from streaming_jsmf.errors import InputError, StoreError, option
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import PartialResult, joined_arrays
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, Eigenpairs, block_width
from streaming_jsmf.linalg.probes import keyed_generator
from streaming_jsmf.linalg.sampled import apply_sample, corrected_eigenpairs, sample_eigenpairs
from streaming_jsmf.linalg.tensor import BasisMoments
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.moments.records import DOCUMENTS, SUMS, scaled
from streaming_jsmf.moments.stages.sums import SumsReduction, normalized, repeated, sample_probes
from streaming_jsmf.moments.store import Moments

Label = str | int | None

#: Label of documents whose metadata column is null.
NULL = "null"
#: With fewer parts, bootstrap samples are identical too often.
FEWEST_PARTS = 4


def labels_named(expression: str) -> dict[str, Callable[[Label], bool]]:
    """For each part of an expression, whether it names a label: that label, or a range of whole numbers with both ends.

    ``1990..1999`` is a range, also of texts such as "1995" and "1995-12-31" (see ``number_of``); ``a,b`` is a list, in
    which labels with a comma are quoted, and ``null`` stands for documents without a value. Raises ``InputError`` if
    the expression names nothing.
    """
    if not isinstance(expression, str):
        raise InputError(f"{option.partitions} is {expression!r}; give one string, such as '1990..1999,2005'")
    found = dict[str, Callable[[Label], bool]]()
    for part in filter(None, column_names(expression)):
        first, dots, last = part.partition("..")
        try:
            found[part] = partial(_is_within, int(first), int(last)) if dots else partial(_is_label, part)
        except ValueError as error:
            raise InputError(
                f"{option.partitions} is {expression!r}; a range has whole numbers at both ends: 1990..1999"
            ) from error
    if not found:
        raise InputError(f"{option.partitions} is {expression!r}; give labels such as 1990..1999 or a,b")
    return found


def _is_within(low: int, high: int, label: Label) -> bool:
    number = number_of(label)
    return number is not None and low <= number <= high


def _is_label(name: str, label: Label) -> bool:
    return (NULL if label is None else str(label)) == name


def number_of(label: Label) -> int | None:
    """The whole number of a label, or of a text that has one; the year of a text that starts with an ISO date."""
    if label is None or isinstance(label, int):
        return label
    found = re.fullmatch(r"\s*([+-]?[0-9]+)\s*|\s*([0-9]{4})-[0-9]{2}(?:[^0-9].*)?", label)
    return None if found is None else int(found[1] or found[2])


@dataclass(frozen=True)
class SelectedMoments(Moments):
    """Moments of some partitions of a store, folded in memory. Eigenpairs are computed from their documents.

    ``partitions`` describes the selection; ``folded`` holds its sums, and ``documents`` H_s.
    """

    partitions: str
    folded: PartialResult
    documents: Mapping[str, NDArray[Any]]

    @cached_property
    def _sample(self) -> csr_array[Any]:
        return scaled(self.documents, self.n_words, self.sample_share, self.folded.scalars)

    def sample(self, scalars: Mapping[str, float] | None = None) -> csr_array[Any]:
        """H_s of the selection."""
        del scalars
        return self._sample

    def scalars(self, stage: str) -> Mapping[str, float]:
        return self.folded.scalars if stage == SUMS else super().scalars(stage)

    @cached_property
    def _sums(self) -> dict[str, NDArray[Any]]:
        return normalized(self.folded)

    def read(self, name: str) -> NDArray[Any]:
        return self._sums[name] if name in self._sums else super().read(name)

    def cooccurrence(self) -> Floats:
        """Raise ``InputError``: the co-occurrences of single partitions are not kept."""
        raise InputError(
            f"{self.path}: the full co-occurrences are those of all partitions, not of {self.partitions}; use "
            f"{option.rectify('enn')}, or scan the selected documents into a store of their own with "
            f"{option.exact(True).alone}"
        )

    def cooccurrence_rows(self, words: Sequence[int] | NDArray[np.integer[Any]]) -> Floats:
        """Rows of C of the selected partitions, (len(words), N), from the documents that the store holds."""
        return self._sampled_rows(np.asarray(words))

    def digests(self, *, third_moment: bool = False) -> dict[str, str]:
        return {**super().digests(third_moment=third_moment), "partitions": self.partitions}

    def tensor_moments(self) -> BasisMoments:
        """Raise ``InputError``: partitions have no third moment."""
        raise InputError(
            f"{self.path}: the third moment is that of the whole store; leave {option.partitions} out, or scan the "
            "documents that are meant into a store of their own"
        )

    @cached_property
    def _projected(self) -> tuple[Floats, Floats]:
        documents, diagonal = self.sample(), self.diagonal
        width = min(self.settings.basis_width, self.n_words)
        basis = sample_eigenpairs(
            documents, diagonal, sample_probes(self.n_words, self.settings), width
        ).vectors
        product = apply_sample(documents, np.ascontiguousarray(basis, np.float32)).astype(np.float64)
        return basis, product - diagonal[:, None] * basis

    def projected_basis(self) -> tuple[Floats, Floats]:
        """Q and C Q from the documents of the selection."""
        with single_blas_thread():
            return self._projected

    @cached_property
    def _all_eigenpairs(self) -> Eigenpairs:
        count = block_width(self.settings.max_topics + GUARD_VECTORS)
        with single_blas_thread():
            return corrected_eigenpairs(self.sample(), self.diagonal, *self._projected, count).pairs


def select_partitions(moments: Moments, expression: str) -> SelectedMoments:
    """Moments of the partitions whose label matches an expression (see ``labels_named``). No pass over the corpus.

    Memory: their documents. Raises ``InputError`` if partitions were not made by a column, or if no label matches a
    part of the expression; the message lists the labels.
    """
    parts = labels_named(expression)
    column = moments.settings.partition_by
    if column is None:
        raise InputError(
            f"{moments.path}: partitions are selected from a store scanned with "
            f"{option.partition_by('COLUMN').alone}; scan "
            "again with it"
        )
    if moments.settings.range_finder == "halko":
        raise InputError(
            f"{moments.path}: sketches of single partitions cannot be used; scan with "
            f"{option.range_finder('sample').alone}"
        )
    known = [partition.label for partition in moments.manifest.partitions]
    for part, names in parts.items():
        if not any(map(names, known)):
            raise InputError(f"{moments.path}: no partition has {column} {part}; there are {_listed(known)}")
    labels = zip(moments.manifest.part_keys, known, strict=True)
    chosen = [key for key, label in labels if any(names(label) for names in parts.values())]
    checkpoints = moments.checkpoints(SUMS)
    selected = _folded(moments, expression, (checkpoints.read_part(key) for key in chosen))
    if not selected.folded.scalars["total_weight"] > 0:
        raise StoreError(
            f"{moments.path}: the selected partitions hold no document of two tokens; select more"
        )
    return selected


def _folded(moments: Moments, selection: str, parts: Iterable[PartialResult]) -> SelectedMoments:
    """Fold one or more parts of pass 1 in order; of each part only the documents stay in memory."""
    fold, folded = SumsReduction(moments.n_words, moments.settings).fold, None
    documents = []
    for part in parts:
        folded = fold(folded, part)
        documents.append(PartialResult({name: part.arrays[name] for name in DOCUMENTS}))
    assert folded is not None, "there are parts"
    return SelectedMoments(moments.path, moments.manifest, selection, folded, joined_arrays(documents))


def _listed(labels: Sequence[Label]) -> str:
    """Labels in order, or the range of a long list of integers."""
    distinct = list(dict.fromkeys(labels))
    if len(distinct) > 12 and all(isinstance(label, int) for label in distinct):
        numbers = np.array(distinct)
        return f"{len(distinct)} from {numbers.min()} to {numbers.max()}"
    shown = ", ".join(NULL if label is None else str(label) for label in distinct[:12])
    return shown if len(distinct) <= 12 else f"{shown} and {len(distinct) - 12} more"


def drawn_parts(n_parts: int, seed: int, replica: int) -> Integers:
    """How often each part is drawn in a bootstrap sample, (n_parts,); depends only on the arguments."""
    draws = keyed_generator(seed, replica).integers(n_parts, size=n_parts)
    return np.bincount(draws, minlength=n_parts)


def require_parts(moments: Moments) -> None:
    """Raise ``InputError`` if the parts cannot be resampled: too few, or linear sketches."""
    if moments.settings.range_finder == "halko":
        raise InputError(f"{moments.path} holds sketches; scan with {option.range_finder('sample').alone}")
    if len(moments.manifest.part_keys) < FEWEST_PARTS:
        raise InputError(
            f"{moments.path} has {len(moments.manifest.part_keys)} partitions, {FEWEST_PARTS} are needed; "
            f"scan with a smaller {option.partition_nonzeros.alone}"
        )


def resampled(moments: Moments, seed: int, replica: int) -> SelectedMoments:
    """Moments of a bootstrap sample of the parts. No pass over the corpus; memory: its documents.

    A part drawn twice counts as two copies of its documents. Raises ``InputError`` as ``require_parts``, and
    ``StoreError`` if a part is damaged.
    """
    require_parts(moments)
    times = drawn_parts(len(moments.manifest.part_keys), seed, replica)
    checkpoints, keys = moments.checkpoints(SUMS), moments.manifest.part_keys
    drawn = (repeated(checkpoints.read_part(key), int(n)) for key, n in zip(keys, times, strict=True) if n)
    return _folded(moments, f"bootstrap {seed} {replica}", drawn)
