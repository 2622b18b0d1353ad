"""Settings of a scan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from streaming_jsmf.config.fields import Settings, seed_setting, setting
from streaming_jsmf.errors import InputError, option

DocumentWeights = Literal["capped", "uniform", "length"]
RangeFinder = Literal["sample", "halko"]

#: Tokens at which the weight of a document stops growing under ``capped``.
CAPPED_LENGTH = 200

#: Most nonzeros that are held in memory: those of all documents, or of a sample of a larger corpus.
HELD_NONZEROS = 64_000_000

#: Size of the sample of a larger corpus, in documents; never fewer than there are words.
SAMPLED_DOCUMENTS = 80_000

#: Largest share of the documents in that sample. A larger sample costs more than it gains in accuracy.
LARGEST_SAMPLE = 0.5

#: Bounds of the default partition size, in nonzeros.
SMALLEST_PARTITION, LARGEST_PARTITION, DEFAULT_PARTITIONS = 8_000_000, 64_000_000, 64

#: The largest partition has as many nonzeros for each entry of its result, N x m, if that is more: committing and
#: folding it moves ten bytes for each entry, up to twice what a pass reads (1.8 to 2.4 bytes a nonzero) but little
#: beside the product, so that there is work for many workers (docs/decisions/0058-panels-and-partitions.md).
NONZEROS_PER_ENTRY = 3

#: More than the default number of partitions are made of wide results if there are at least so many times as many.
FEW_TIMES = 4

#: Partitions grow instead of their number above it: the command reads and removes a record for each.
MOST_PARTITIONS = 10_000

#: Nonzeros of a partition for each word: the cost of merging and committing a partition grows with the number of words,
#: and must stay small relative to that of its nonzeros.
NONZEROS_PER_WORD = 200

SCAN = "Scan"

_setting = partial(setting, group=SCAN, rare=True)

#: Declare the size of partitions and the share of held documents, on which the memory of a scan depends.
partition_setting = partial(
    _setting,
    None,
    absent="the larger of total / 64 and 200 per word, between 8 M and 64 M (6 per word and topic or total / 10,000 "
    "if more)",
    ge=1,
)
share_setting = partial(
    _setting,
    None,
    absent="all documents up to 64 M nonzeros; above, 80,000 or one per word if that is more, at most half of them",
    metavar="SHARE",
    gt=0,
    le=1,
)


@dataclass(frozen=True)
class ScanSettings(Settings):
    """What a scan computes. All fields enter the fingerprint of the moments store.

    Parameters
    ----------
    max_topics
        Largest number of topics K that can be inferred from the store; determines its width.
    range_finder
        How to find the range of the co-occurrence matrix. sample: from the documents that the store holds, which are
        all of a corpus of up to 64 million nonzeros and a random sample of a larger one. halko: the single-pass sketch
        of Halko et al. (2011) as in the papers, for comparison.
    document_weights
        Weight of a document. capped: its length in tokens, but at most 200. uniform: 1, as in the papers.
        length: its length.
    partition_nonzeros
        Number of nonzeros per partition, the unit of work and of resuming. Smaller ones take less memory.
    seed
        Seed of all random draws. The same seed gives the same topics.
    partition_by
        Metadata column, such as year, each of whose values gets its own partitions. 'rows % 16' makes 16
        partitions of every sixteenth document.
    exact
        Compute the full co-occurrence matrix (words x words, 8 bytes each), which must fit in memory.
        The rectification ap requires it.
    third_moment
        Also compute the third moment, which the engine stod requires, in an additional pass. It can be added to an
        existing store.
    sample_share
        Share of the documents that the store holds in memory. Requires the range finder sample.
    """

    max_topics: int = setting(50, ge=1)
    range_finder: RangeFinder = _setting("sample", flags=("--range",))
    document_weights: DocumentWeights = _setting("capped")
    partition_nonzeros: int | None = partition_setting()
    seed: int = seed_setting()
    partition_by: str | None = _setting(None, absent="none", metavar="COLUMN")
    exact: bool = _setting(False)
    third_moment: bool = setting(False, group=SCAN)
    sample_share: float | None = share_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample_share is not None and self.range_finder != "sample":
            raise InputError(
                f"{option.sample_share(self.sample_share)} requires {option.range_finder('sample')}; give both or "
                "neither"
            )

    @property
    def sketch_width(self) -> int:
        """Columns L of the sketch of ``halko``: 4 K, and at least 2 K + 100."""
        return max(4 * self.max_topics, 2 * self.max_topics + 100)

    @property
    def basis_width(self) -> int:
        """Columns m of the basis Q of the second pass: 2 K, and at least K + 10."""
        return max(2 * self.max_topics, self.max_topics + 10)

    @property
    def has_projection(self) -> bool:
        """Whether a second pass computes C Q for a basis Q that later documents can extend."""
        return self.range_finder == "sample" and not self.exact

    def partition_budget(self, nonzeros: int, n_words: int) -> int:
        """Nonzeros of a partition for a corpus; independent of the number of workers."""
        if self.partition_nonzeros is not None:
            return self.partition_nonzeros
        least = max(NONZEROS_PER_WORD * n_words, SMALLEST_PARTITION)
        width = self.basis_width if self.range_finder == "sample" else self.sketch_width
        usual, entries = nonzeros // DEFAULT_PARTITIONS, NONZEROS_PER_ENTRY * n_words * width
        # A few more partitions would cost another level of folds, and shorten nothing.
        wide = entries if usual >= FEW_TIMES * entries else usual
        most = max(least, min(usual, max(LARGEST_PARTITION, wide, nonzeros // MOST_PARTITIONS)))
        count = -(-nonzeros // most)
        # With three or five partitions, one of two workers would idle for the last third or fifth of the time.
        return most if count == 1 or count % 2 == 0 else -(-nonzeros // (count + 1))

    def held_share(self, n_documents: int, n_words: int, nonzeros: int) -> float:
        """Share of the documents of a corpus that its store holds; 1: all."""
        if self.sample_share is not None:
            return self.sample_share
        return 1.0 if nonzeros <= HELD_NONZEROS else default_sample(n_documents, n_words, nonzeros)


def default_sample(n_documents: int, n_words: int, nonzeros: int) -> float:
    """Share of the documents in the sample of a corpus that is not held as a whole."""
    share = max(SAMPLED_DOCUMENTS, n_words) / max(n_documents, 1)
    return min(share, LARGEST_SAMPLE, HELD_NONZEROS / max(nonzeros, 1))
