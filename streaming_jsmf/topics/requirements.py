"""What settings of an engine require of a corpus or a moments store: words, documents, the whole C, and memory."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeAlias

from dask.utils import format_bytes

from streaming_jsmf.config import InferSettings, Rectifier, StodSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError, TooFewFactorsError, option
from streaming_jsmf.inference.anchors import RejectedAnchorError, too_little_mass
from streaming_jsmf.linalg.typing import Integers
from streaming_jsmf.moments.memory import matrix_bytes
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.process_limits import machine_memory, shortage
from streaming_jsmf.rectification.enn import papers_rows

logger = logging.getLogger(__name__)

EngineSettings: TypeAlias = InferSettings | StodSettings

#: Documents that contain an anchor word that the user gives; fewer suffice if ``anchor_min_df`` allows them.
GIVEN_ANCHOR_MIN_DF = 5.0
#: Rectifications that keep the whole C, if it is stored, in memory.
_OF_WHOLE_C: tuple[Rectifier, ...] = ("ap", "palm", "ipalm")

#: Number of words from which the cost of rectifying the whole C is announced, and of topics for ENN.
_MANY_WORDS, _MANY_TOPICS = 5_000, 300
#: Number of N x K arrays in memory during ENN, and its operations per second on one core;
#: measured on KOS with K = 100 and 300.
_BLOCKS, _OPERATIONS = 15, 1e10


def inference_bytes(n_words: int, n_topics: int) -> int:
    """Bytes of the arrays of an inference, accurate to a factor of about two."""
    return _BLOCKS * 8 * n_words * n_topics


@dataclass(frozen=True)
class Requirements:
    """Settings beside the words and documents that they are for, before any computation.

    source : Name of the corpus or store in messages.
    words, n_documents : The vocabulary, in the order of word ids, and the number of documents.
    document_frequency : Number of documents that contain each word, (N,); None for a corpus that has not counted it.
    exact : Whether the whole C is stored, or will be.
    """

    settings: EngineSettings
    source: str
    words: Sequence[str]
    n_documents: int
    document_frequency: Integers | None
    exact: bool

    @classmethod
    def of_corpus(cls, settings: EngineSettings, corpus: Corpus, *, exact: bool) -> Self:
        """Requirements of a corpus before its scan; reads its vocabulary only."""
        vocabulary = corpus.vocabulary()
        counted = vocabulary.document_frequency
        return cls(settings, corpus.root, vocabulary.words, corpus.n_documents, counted, exact)

    @classmethod
    def of_moments(cls, settings: EngineSettings, moments: Moments) -> Self:
        """Requirements of a complete moments store."""
        counts = moments.n_documents, moments.document_frequency
        return cls(settings, str(moments.path), moments.words, *counts, moments.settings.exact)

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
        """Bytes that the inference needs, accurate to a factor of about two."""
        return inference_bytes(len(self.words), self.settings.n_topics) + self._matrix

    def _require_memory(self, threads: int) -> None:
        n_topics, n_words = f"{self.settings.n_topics:,}", f"{len(self.words):,}"
        short = shortage(self.memory, threads)
        if short is not None:
            raise InputError(
                f"the inference of {n_topics} topics of {n_words} words needs {short}; lower {option.n_topics} or "
                f"{option.workers}, or raise the limit"
            )
        available = machine_memory()
        if (self._matrix or self._is_wide) and self.memory > available:
            advice = f"lower {option.n_topics}" if self._is_wide else f"use {option.rectify('enn')}"
            raise InputError(
                f"{option.n_topics} is {n_topics}, which takes about {format_bytes(self.memory)} of memory for "
                f"{n_words} words and this machine has {format_bytes(available)}; {advice}"
            )

    def announce(self) -> None:
        """Log the time and memory of a long rectification, accurate to a factor of about two."""
        settings, n_words = self.settings, len(self.words)
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
