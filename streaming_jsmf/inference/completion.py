"""Sums of a document completion (see ``perplexity``), which models keep; the kernels are not loaded to read them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Self

#: Weight of the word frequencies in smoothed topics (``cvb0.smoothed``).
SMOOTHING = 0.01


@dataclass(frozen=True)
class Completion:
    """Additive sums over documents. Merging in a fixed order gives the same bits.

    documents, too_short : Documents with scored tokens; those of fewer than two tokens, which cannot be split.
    tokens, without_mass : Scored tokens; those whose word has a probability only by the smoothing.
    unseen : Tokens whose word has probability 0 in the training corpus; they are not scored.
    log_likelihood, unigram_log_likelihood : Sums of natural logarithms of the probabilities of the scored tokens.
    unconverged : Documents whose shares are not known to be accurate enough.
    fractional : Documents with counts that are not integers, which are not split.
    """

    documents: int = 0
    too_short: int = 0
    tokens: int = 0
    unseen: int = 0
    without_mass: int = 0
    log_likelihood: float = 0.0
    unigram_log_likelihood: float = 0.0
    unconverged: int = 0
    fractional: int = 0

    def merge(self, other: Completion) -> Self:
        """Sum of both, as if the documents of ``other`` followed these."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in (f.name for f in fields(self))}
        return type(self)(**sums)

    @property
    def perplexity(self) -> float:
        """exp of minus the mean log probability of a scored token; NaN without tokens."""
        return math.exp(-self.log_likelihood / self.tokens) if self.tokens else math.nan

    @property
    def unigram_perplexity(self) -> float:
        """Perplexity of the unigram distribution on the same tokens; NaN without tokens."""
        return math.exp(-self.unigram_log_likelihood / self.tokens) if self.tokens else math.nan

    @property
    def tokens_without_mass(self) -> float:
        """Share of the scored tokens whose word has no topic; NaN without tokens."""
        return self.without_mass / self.tokens if self.tokens else math.nan
