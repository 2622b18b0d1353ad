"""Settings of a scan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from streaming_jsmf.config.fields import Settings, seed_setting, setting
from streaming_jsmf.errors import InputError, option

DocumentWeights = Literal["capped", "uniform", "length"]
RangeFinder = Literal["auto", "factors", "sample", "halko"]

#: Tokens at which the weight of a document stops growing under ``capped``.
CAPPED_LENGTH = 200

#: Size of the default sample, in documents; never fewer than there are words.
SAMPLED_DOCUMENTS = 80_000

#: Largest share of the documents in a default sample. A larger sample costs more than it gains in accuracy.
LARGEST_SAMPLE = 0.5

#: Most nonzeros of a default sample, which is kept in memory as a partition is.
SAMPLED_NONZEROS = 64_000_000

#: Bounds of the default partition size, in nonzeros.
SMALLEST_PARTITION, LARGEST_PARTITION, DEFAULT_PARTITIONS = 8_000_000, 64_000_000, 64

#: Nonzeros of a partition for each word: the cost of merging and committing a partition grows with the number of words,
#: and must stay small relative to that of its nonzeros.
NONZEROS_PER_WORD = 200

SCAN = "Scan"

_setting = partial(setting, group=SCAN, rare=True)


@dataclass(frozen=True)
class ScanSettings(Settings):
    """What a scan computes. All fields enter the fingerprint of the moments store.

    Parameters
    ----------
    max_topics
        Largest number of topics K that can be inferred from the store; determines its width.
    scans
        Number of passes over the documents. The second pass halves the error of the eigenpairs at about a
        tenth of the cost of the first. A scan with a sample makes a third pass where the estimated error after
        two is too large.
    range_finder
        How to find the range of the co-occurrence matrix. factors: from factors of all partitions, merged.
        sample: from a random sample of the documents, which the store keeps. auto: sample for large corpora
        unless partitions are kept, otherwise factors. halko: the single-view sketch of Halko et al. (2011),
        for comparison.
    document_weights
        Weight of a document. capped: its length in tokens, but at most 200. uniform: 1, as in the papers.
        length: its length.
    partition_nonzeros
        Number of nonzeros per partition, the unit of work and of resuming.
    power_steps
        Number of power iterations on each partition, or on the sample. More iterations reduce the error but
        take longer.
    seed
        Seed of all random draws. The same seed gives the same topics.
    partition_by
        Metadata column, such as year, each of whose values gets its own partitions. 'rows % 16' makes 16
        partitions of every sixteenth document.
    exact
        Compute the full co-occurrence matrix (words x words, 8 bytes each), which must fit in memory.
        The rectifications ap, dykstra and dc require it.
    third_moment
        Also compute the third moment, which the engine stod requires, in an additional pass. It can be added to an
        existing store.
    sample_share
        Size of the sample as a share of all documents. Requires the range finder sample.
    """

    max_topics: int = setting(50, ge=1)
    scans: int = _setting(2, ge=1, le=2)
    range_finder: RangeFinder = _setting("auto", flags=("--range",))
    document_weights: DocumentWeights = _setting("capped")
    partition_nonzeros: int | None = _setting(
        None, absent="the larger of total / 64 and 200 per word, between 8 M and 64 M", ge=1
    )
    power_steps: int = _setting(3, ge=1)
    seed: int = seed_setting()
    partition_by: str | None = _setting(None, absent="none", metavar="COLUMN")
    exact: bool = _setting(False, added=True)
    third_moment: bool = setting(False, group=SCAN, added=True)
    sample_share: float | None = _setting(
        None,
        absent="80,000 documents, or one per word if that is more, up to half of the corpus; all of a smaller corpus",
        metavar="SHARE",
        gt=0,
        le=1,
        added=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        sampled = self.range_finder == "sample"
        if sampled and self.exact:
            raise InputError(
                f"{option.range_finder('sample')} does not count all documents; with {option.exact(True)} give "
                f"{option.range_finder('factors')}"
            )
        if self.sample_share is not None and not sampled:
            raise InputError(
                f"{option.sample_share(self.sample_share)} requires {option.range_finder('sample')}; give both or "
                "neither"
            )

    @property
    def factor_width(self) -> int:
        """Columns L of a factor: 4 K, and at least 2 K + 100, which costs little where K is small."""
        return max(4 * self.max_topics, 2 * self.max_topics + 100)

    @property
    def basis_width(self) -> int:
        """Columns m of the basis Q of the second pass: 2 K, and at least K + 10."""
        return max(2 * self.max_topics, self.max_topics + 10)

    def partition_budget(self, nonzeros: int, n_words: int) -> int:
        """Nonzeros of a partition for a corpus; independent of the number of workers."""
        if self.partition_nonzeros is not None:
            return self.partition_nonzeros
        wanted = max(nonzeros // DEFAULT_PARTITIONS, NONZEROS_PER_WORD * n_words, SMALLEST_PARTITION)
        most = min(wanted, LARGEST_PARTITION)
        count = -(-nonzeros // most)
        # With three or five partitions, one of two workers would idle for the last third or fifth of the time.
        return most if count == 1 or count % 2 == 0 else -(-nonzeros // (count + 1))

    def sampled_share(self, n_documents: int, n_words: int, nonzeros: int) -> float:
        """Share of the documents of a corpus in the sample; 1 if there are too few documents for a sample."""
        if self.sample_share is not None:
            return self.sample_share
        share = max(SAMPLED_DOCUMENTS, n_words) / max(n_documents, 1)
        return 1.0 if share >= 1 else min(share, LARGEST_SAMPLE, SAMPLED_NONZEROS / max(nonzeros, 1))

    def resolved(
        self, n_documents: int, n_words: int, nonzeros: int, *, keep_partitions: bool = False
    ) -> ScanSettings:
        """The settings for a corpus of this size, with ``auto`` replaced; a store keeps them for good.

        ``auto`` is ``factors`` for a single pass, with ``exact``, and where partitions are kept or made by a column:
        results for some of the partitions need all of their documents.
        """
        if self.range_finder not in ("auto", "sample"):
            return self
        whole = self.scans == 1 or self.exact or keep_partitions or self.partition_by is not None
        if (self.range_finder == "auto" and whole) or self.sampled_share(n_documents, n_words, nonzeros) == 1:
            return replace(self, range_finder="factors", sample_share=None)
        return replace(self, range_finder="sample")

    def as_chosen_in(self, stored: ScanSettings) -> ScanSettings:
        """The settings with ``auto`` replaced by the choice of an existing store."""
        if self.range_finder == "auto" and stored.range_finder in ("factors", "sample"):
            return replace(self, range_finder=stored.range_finder, sample_share=stored.sample_share)
        return self

    @property
    def has_factor(self) -> bool:
        """Whether there is a factor F with F F' ~ C + diag(D); with ``sample`` it is computed on demand."""
        return self.range_finder != "halko"
