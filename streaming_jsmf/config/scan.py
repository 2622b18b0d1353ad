"""Settings of a scan."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from streaming_jsmf.config.fields import require, require_choice, require_numbers

DocumentWeights = Literal["capped", "uniform", "length"]
RangeFinder = Literal["auto", "factors", "sample", "halko"]

#: Tokens at which the weight of a document stops growing under ``capped``.
CAPPED_LENGTH = 200

#: Documents that are sample enough of all the others, whatever their number; no fewer than there are words.
SAMPLED_DOCUMENTS = 80_000

#: A sample of more than this share saves too little, so that all documents are multiplied.
LARGEST_SAMPLE = 0.5

#: Most nonzeros that a sample of the default size is to hold: it is kept in memory, as a partition is.
SAMPLED_NONZEROS = 64_000_000

#: Bounds of the default partition size, in nonzeros.
SMALLEST_PARTITION, LARGEST_PARTITION, DEFAULT_PARTITIONS = 8_000_000, 64_000_000, 64

#: Nonzeros of a partition for each word, within the bounds: what is done once for each partition (merging, committing)
#: grows with the words, and is to stay small beside what is done for each nonzero.
NONZEROS_PER_WORD = 200


@dataclass(frozen=True)
class ScanSettings:
    """What a scan computes. All fields enter the moments store's fingerprint.

    Parameters
    ----------
    max_topics
        The largest number of topics K that will be asked of the store; widths follow from it.
    scans
        1: the range scan alone. 2: also C Q on the basis Q, which halves the error of the eigenpairs
        at about a tenth of the time of the first.
    range_finder
        ``factors``: a factor per partition with power steps, merged. ``sample``: the basis comes from a sample of the
        documents, which the store keeps; all that is exact is summed over all of them. ``auto``: one of these two, see
        ``resolved``. ``halko``: the single-view sketch of Halko et al. (2011) that LR-JSMF names, with its range
        truncated; kept to compare with.
    document_weights
        ``capped``: min(length, 200). ``uniform``: 1, as in the papers. ``length``: the tokens of the document.
    partition_nonzeros
        Nonzeros of a partition, the unit of work and of resumption. None: the larger of total / 64 and 200 for each
        word, between 8 M and 64 M; a little less where that makes their number even.
    power_steps
        Multiplications of a partition by itself, or steps with a sample, all in memory. More: smaller error, more time.
    seed
        Of the probes.
    exact
        The second scan counts the whole C (words x words) instead of C Q: for vocabularies whose C fits in memory.
        Eigenpairs are then those of C itself, and rectifications that need C can run.
    third_moment
        Also what the tensor engine (STOD) needs: one more pass. It changes nothing else, and can be added later.
    sample_share
        Share of the documents that are the sample. None: see ``sampled_share``.

    Raises
    ------
    InputError
        If a field is out of range; the message names the field and what is allowed.
    """

    max_topics: int = 50
    scans: int = 2
    range_finder: RangeFinder = "auto"
    document_weights: DocumentWeights = "capped"
    partition_nonzeros: int | None = None
    power_steps: int = 3
    seed: int = 0
    partition_by: str | None = None
    exact: bool = False
    third_moment: bool = False
    sample_share: float | None = None

    def __post_init__(self) -> None:
        require_numbers(self)
        require(self.max_topics >= 1, "max_topics", self.max_topics, "a whole number of at least 1")
        require_choice("range_finder", self.range_finder, get_args(RangeFinder))
        require(self.scans in (1, 2), "scans", self.scans, "1 or 2")
        sampled = self.range_finder == "sample"
        require(not (sampled and self.exact), "range_finder", "sample", "factors where exact counts all of C")
        share = self.sample_share
        require(share is None or 0 < share <= 1, "sample_share", share, "a number above 0 and up to 1")
        require(
            share is None or sampled,
            "sample_share",
            share,
            "range_finder sample with it",
        )
        require_choice("document_weights", self.document_weights, get_args(DocumentWeights))
        size = self.partition_nonzeros
        require(size is None or size >= 1, "partition_nonzeros", size, "a whole number of at least 1")
        require(self.power_steps >= 1, "power_steps", self.power_steps, "a whole number of at least 1")
        require(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 to 2^63 - 1")

    @property
    def factor_width(self) -> int:
        """Columns L of a factor: 4 K, and at least 2 K + 100, which costs little where K is small."""
        return max(4 * self.max_topics, 2 * self.max_topics + 100)

    @property
    def basis_width(self) -> int:
        """Columns m of the basis Q of the second scan: 2 K, and at least K + 10."""
        return max(2 * self.max_topics, self.max_topics + 10)

    def partition_budget(self, nonzeros: int, n_words: int) -> int:
        """Nonzeros of a partition for a corpus; the number of workers plays no part."""
        if self.partition_nonzeros is not None:
            return self.partition_nonzeros
        wanted = max(nonzeros // DEFAULT_PARTITIONS, NONZEROS_PER_WORD * n_words, SMALLEST_PARTITION)
        most = min(wanted, LARGEST_PARTITION)
        count = -(-nonzeros // most)
        # With three or five partitions one of two workers would be idle at the end for a third or a fifth of the time.
        return most if count == 1 or count % 2 == 0 else -(-nonzeros // (count + 1))

    def sampled_share(self, n_documents: int, n_words: int, nonzeros: int) -> float:
        """Share of the documents of a corpus that are its sample; 1: all are multiplied, and none is kept.

        By default ``SAMPLED_DOCUMENTS`` or one for each word, at most ``SAMPLED_NONZEROS`` of theirs, and all where
        that would be more than ``LARGEST_SAMPLE``.
        """
        if self.sample_share is not None:
            return self.sample_share
        share = max(SAMPLED_DOCUMENTS, n_words) / max(n_documents, 1)
        if share > LARGEST_SAMPLE:
            return 1.0
        return min(share, SAMPLED_NONZEROS / max(nonzeros, 1))

    def resolved(
        self, n_documents: int, n_words: int, nonzeros: int, *, keep_partitions: bool = False
    ) -> ScanSettings:
        """The settings with which a scan of such a corpus begins, and which its store has ever after.

        ``auto`` is ``sample`` where that is less than all documents. It is ``factors`` for one scan, for all of C, and
        where partitions are kept or made by a column: what is made of a few of them needs all their documents.
        ``sample`` of all documents is ``factors``.
        """
        if self.range_finder not in ("auto", "sample"):
            return self
        whole = self.scans == 1 or self.exact or keep_partitions or self.partition_by is not None
        if (self.range_finder == "auto" and whole) or self.sampled_share(n_documents, n_words, nonzeros) == 1:
            return replace(self, range_finder="factors", sample_share=None)
        return replace(self, range_finder="sample")

    def as_chosen_in(self, stored: ScanSettings) -> ScanSettings:
        """The settings with what ``auto`` was for a store, whatever it would be now."""
        if self.range_finder == "auto" and stored.range_finder in ("factors", "sample"):
            return replace(self, range_finder=stored.range_finder, sample_share=stored.sample_share)
        return self

    @property
    def has_factor(self) -> bool:
        """Whether there is a factor F with F F' ~ C + diag(D); with ``sample`` it is made when it is asked for."""
        return self.range_finder != "halko"

    def fields(self) -> dict[str, Any]:
        """The settings as plain JSON values, in the order of the definition."""
        fields = asdict(self)
        for stage in ("exact", "third_moment", "sample_share"):
            # Stores older than such a stage have no such field, and keep their fingerprint.
            if not fields[stage]:
                del fields[stage]
        return fields
