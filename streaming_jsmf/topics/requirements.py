"""What settings of an engine require of a corpus or a moments store: words, documents, the whole C, and memory."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeAlias

from dask.utils import format_bytes

from streaming_jsmf.config import InferSettings, Rectifier, ScanSettings, StodSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError, TooFewFactorsError, option
from streaming_jsmf.inference.anchors import RejectedAnchorError, too_little_mass
from streaming_jsmf.linalg.eigen import GUARD_VECTORS
from streaming_jsmf.linalg.typing import Integers
from streaming_jsmf.moments.needs import matrix_bytes
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.process_limits import PROCESS_BYTES, machine_memory, shortage
from streaming_jsmf.rectification.enn import papers_rows
from streaming_jsmf.storage.large_arrays import bytes_in_memory

logger = logging.getLogger(__name__)

EngineSettings: TypeAlias = InferSettings | StodSettings

#: Documents that contain an anchor word that the user gives; fewer suffice if ``anchor_min_df`` allows them.
GIVEN_ANCHOR_MIN_DF = 5.0
#: Rectifications that keep the whole C, if it is stored, in memory.
_OF_WHOLE_C: tuple[Rectifier, ...] = ("ap", "palm", "ipalm")

#: Number of words from which the cost of rectifying the whole C is announced, and of topics for ENN.
_MANY_WORDS, _MANY_TOPICS = 5_000, 300
#: Operations per second of ENN on one core, measured on KOS with K = 100 and 300.
_OPERATIONS = 1e10
#: N x K arrays in float64 of the engine stod.
_STOD_ARRAYS = 15
#: Bytes while an array of chunks is read.
_READING = 56 * 2**20
#: Bytes for each negative entry of ENN's N x |I| product, and their share in the first step on text (.03 to .18).
_NEGATIVE_BYTES, _NEGATIVE_SHARE = 2, 0.1
#: Bytes of a nonzero of the documents that a store holds, while they are joined.
_BYTES_PER_HELD = 12


def inference_bytes(
    n_words: int, n_topics: int, *, widest: int = 0, held: int = 0, stod: bool = False
) -> tuple[int, int]:
    """Bytes of the arrays of an inference in memory, and of those in temporary files; see ``Requirements``."""
    stages = _stages(n_words, n_topics, widest, held, stod)
    memory = max(bytes_in_memory(arrays) + others for arrays, others in stages)
    return memory, max(sum(arrays) - bytes_in_memory(arrays) for arrays, _ in stages)


def _stages(n_words: int, k: int, widest: int, held: int, stod: bool) -> list[tuple[list[int], int]]:
    """Bytes of the tall arrays that exist at the same time in each stage, and of what else there is."""
    if stod:
        return [([8 * n_words * k] * _STOD_ARRAYS, 0)]
    scanned = ScanSettings(max_topics=max(widest, k))
    basis, guarded = min(scanned.basis_width, n_words), k + GUARD_VECTORS
    pairs, topics = 8 * n_words * (scanned.max_topics + GUARD_VECTORS), 8 * n_words * k
    negative = int(_NEGATIVE_SHARE * n_words * min(n_words, papers_rows(k)))
    return [
        # The eigenpairs, Q and C Q.
        ([pairs, 8 * n_words * basis, 8 * n_words * basis], _READING),
        # ENN: the eigenpairs, Y in both precisions, and four blocks of a power step.
        ([pairs, topics, topics // 2, *[4 * n_words * guarded] * 4], _NEGATIVE_BYTES * negative),
        # Y, p(word | topic), p(topic | word), and rows of C from the documents; LAW has as many without these.
        ([topics] * 4, _BYTES_PER_HELD * held),
    ]


@dataclass(frozen=True)
class Requirements:
    """Settings beside the words and documents that they are for, before any computation.

    source : Name of the corpus or store in messages.
    words, n_documents : The vocabulary, in the order of word ids, and the number of documents.
    document_frequency : Number of documents that contain each word, (N,); None for a corpus that has not counted it.
    exact : Whether the whole C is stored, or will be.
    widest, held : The number of topics that the scan supports (0: those of the settings), and the nonzeros of the
        documents that the store holds.
    """

    settings: EngineSettings
    source: str
    words: Sequence[str]
    n_documents: int
    document_frequency: Integers | None
    exact: bool
    widest: int = 0
    held: int = 0

    @classmethod
    def of_corpus(cls, settings: EngineSettings, corpus: Corpus, scan: ScanSettings) -> Self:
        """Requirements of a corpus before its scan; reads its vocabulary only."""
        vocabulary, held = corpus.vocabulary(), 0
        if scan.range_finder == "sample":
            sizes = corpus.n_documents, corpus.n_words, corpus.nonzeros
            held = int(scan.held_share(*sizes) * corpus.nonzeros)
        counts = corpus.n_documents, vocabulary.document_frequency
        return cls(settings, corpus.root, vocabulary.words, *counts, scan.exact, held=held)

    @classmethod
    def of_moments(cls, settings: EngineSettings, moments: Moments) -> Self:
        """Requirements of a complete moments store."""
        counts = moments.n_documents, moments.document_frequency
        scan, parts = moments.settings, moments.manifest.partitions
        held = int((moments.manifest.sample_share or 0) * sum(part.nonzeros for part in parts))
        return cls(settings, str(moments.path), moments.words, *counts, scan.exact, scan.max_topics, held)

    def given_anchors(self) -> tuple[tuple[int, ...], ...]:
        """Word ids of the given anchors, one group per topic, without words that cannot serve (``unusable_words``).

        Raises ``InputError`` if none of the words of an anchor can.
        """
        settings = self.settings
        if isinstance(settings, StodSettings) or not settings.anchor_groups:
            return ()
        unusable = self.unusable_words
        groups = [[word for word in group if word not in unusable] for group in settings.anchor_groups]
        for group, usable in zip(settings.anchor_groups, groups, strict=True):
            if not usable:
                which = "none of the anchor words can be used: " * (len(group) > 1)
                reasons = "; ".join(f"the anchor word {word!r} {unusable[word]}" for word in group)
                raise InputError(f"{self.source}: {which}{reasons}")
        return tuple(tuple(self._ids[word] for word in group) for group in groups)

    @cached_property
    def unusable_words(self) -> dict[str, str]:
        """Given anchor words that are unknown or in too few documents, with the reason, which completes a sentence."""
        settings, frequency = self.settings, self.document_frequency
        found: dict[str, str] = {}
        if isinstance(settings, StodSettings):
            return found
        least = min(GIVEN_ANCHOR_MIN_DF, settings.anchor_floor(self.n_documents))
        for word in (word for group in settings.anchor_groups for word in group):
            if word not in self._ids:
                found[word] = "is not in the vocabulary; give words as they are spelled there"
            elif frequency is not None and frequency[self._ids[word]] < least:
                found[word] = (
                    f"occurs in {frequency[self._ids[word]]:,} documents; a given anchor needs {math.ceil(least)}"
                )
        return found

    def warn_of_omitted(self, used: Sequence[Sequence[str]]) -> None:
        """Log each given anchor word that is not among those ``used``, the words of each given anchor."""
        settings = self.settings
        if isinstance(settings, StodSettings):
            return
        for group, kept in zip(settings.anchor_groups, used, strict=True):
            for word in (word for word in group if word not in kept):
                reason = self.unusable_words.get(word, too_little_mass(settings.anchor_row_sum))
                logger.warning("%s: the anchor word %r is left out; it %s", self.source, word, reason)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def rejected(self, error: RejectedAnchorError) -> InputError:
        """The error for users, which spells the rejected anchor word."""
        return InputError(f"{self.source}: the anchor word {self.words[error.word]!r} {error.reason}")

    def require(self, threads: int = 1) -> None:
        """Refuse settings that the words, documents or memory do not support. No pass over the corpus.

        Raises ``TooFewFactorsError`` if there are fewer documents, words or candidates for anchors than topics;
        ``InputError`` if a given anchor word is rejected, the rectification needs a C that is not stored, or the
        machine or a limit of the process lacks the memory, which depends on the number of ``threads``.
        """
        n_topics, most = self.settings.n_topics, min(self.n_documents, len(self.words))
        if n_topics > most:
            raise TooFewFactorsError(
                f"{option.n_topics} is {n_topics:,} and the corpus has {self.n_documents:,} documents and "
                f"{len(self.words):,} words, which support at most {most:,} topics, and far fewer meaningful ones; "
                f"lower {option.n_topics}"
            )
        if isinstance(self.settings, InferSettings):
            self.given_anchors()
            self._require_candidates(self.settings.anchor_floor(self.n_documents))
            if self.settings.needs_whole_c and not self.exact:
                raise InputError(
                    f"{self.source}: {option.rectify(self.settings.rectify)} needs the whole co-occurrences; scan with "
                    f"{option.exact(True).alone}, or use {option.rectify('enn')} or palm"
                )
        self._require_memory(threads)

    def _require_candidates(self, least: float) -> None:
        if self.document_frequency is None:
            return
        candidates = int((self.document_frequency >= least).sum())
        if self.settings.n_topics > candidates:
            raise TooFewFactorsError(
                f"{option.n_topics} is {self.settings.n_topics:,} and each topic needs an anchor word in at least "
                f"{least:g} documents, of which there are {candidates:,}; lower {option.n_topics} or "
                f"{option.anchor_min_df}"
            )

    @property
    def _matrix(self) -> int:
        """Bytes of the N x N matrix of the rectification."""
        settings = self.settings
        if isinstance(settings, StodSettings) or not self.exact or settings.rectify not in _OF_WHOLE_C:
            return 0
        return matrix_bytes(len(self.words))

    @property
    def _is_wide(self) -> bool:
        """Whether ENN takes long because of the number of topics."""
        settings = self.settings
        return (
            isinstance(settings, InferSettings)
            and settings.rectify == "enn"
            and settings.n_topics >= _MANY_TOPICS
        )

    @property
    def memory(self) -> int:
        """Bytes of memory that the inference needs, with the defaults of lr-jsmf to a tenth; files do not count."""
        return PROCESS_BYTES + self._matrix + self._arrays[0]

    @property
    def disk(self) -> int:
        """Bytes of the arrays in temporary files (``storage.large_arrays``)."""
        return self._arrays[1]

    @property
    def _arrays(self) -> tuple[int, int]:
        stod = isinstance(self.settings, StodSettings)
        return inference_bytes(
            len(self.words), self.settings.n_topics, widest=self.widest, held=self.held, stod=stod
        )

    def _require_memory(self, threads: int) -> None:
        n_topics, n_words = f"{self.settings.n_topics:,}", f"{len(self.words):,}"
        short = shortage(self.memory - PROCESS_BYTES, threads, self.disk)
        if short is not None:
            raise InputError(
                f"the inference of {n_topics} topics of {n_words} words needs {short}; lower {option.n_topics} or "
                f"{option.workers}, or raise the limit"
            )
        available = machine_memory()
        if self.memory > available:
            by_matrix = self._matrix and not self._is_wide
            advice = f"use {option.rectify('enn')}" if by_matrix else f"lower {option.n_topics}"
            raise InputError(
                f"{option.n_topics} is {n_topics}, which takes about {format_bytes(self.memory)} of memory for "
                f"{n_words} words and this machine has {format_bytes(available)}; {advice}"
            )

    def announce(self) -> None:
        """Log the temporary files of an inference, and the time and memory of a long rectification."""
        settings, n_words = self.settings, len(self.words)
        if self.disk:
            logger.info(
                "K = %s of %s words takes about %s of memory, and %s in temporary files (in the folder TMPDIR)",
                f"{settings.n_topics:,}",
                f"{n_words:,}",
                format_bytes(self.memory),
                format_bytes(self.disk),
            )
        if isinstance(settings, StodSettings):
            return
        if settings.needs_whole_c and n_words >= _MANY_WORDS:
            logger.info(
                "rectification: %s works on the whole matrix of %s x %s words, %s, in each of up to %d steps, which "
                "takes minutes; enn gives a similar result in seconds",
                settings.rectify,
                f"{n_words:,}",
                f"{n_words:,}",
                format_bytes(self._matrix),
                settings.max_iterations,
            )
        elif self._is_wide:
            checked = min(n_words, papers_rows(settings.n_topics))
            logger.info(
                "K = %s of %s words takes about %s of memory, and the rectification about %.0f s of a core for each "
                "of its steps, usually some dozens and at most %d",
                f"{settings.n_topics:,}",
                f"{n_words:,}",
                format_bytes(self.memory),
                max(2 * n_words * checked * settings.n_topics / _OPERATIONS, 1),
                settings.max_iterations,
            )
