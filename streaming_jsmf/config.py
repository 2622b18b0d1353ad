"""Settings with a fingerprint: what decides the bits of a store, checked where it enters.

A setting belongs here when another value gives another result. How a job runs (scheduler, workers,
memory, progress) is not a setting: it changes no bit.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, get_args

from streaming_jsmf.errors import InputError

DocumentWeights = Literal["capped", "uniform", "length"]
RangeFinder = Literal["factors", "sample", "halko"]
Rectifier = Literal["enn", "ap", "dykstra", "palm", "ipalm", "dc", "none"]
Acceleration = Literal["momentum", "none"]
MissingMass = Literal["uniform", "marginals"]
AnchorMethod = Literal["pivoted-qr", "soft-clique"]
SimplexMethod = Literal["auto", "active-set", "fista", "exponentiated-gradient"]
CorrelationMethod = Literal["diagonal", "refined"]
Refinement = Literal["none", "als"]

#: Values of ``alpha0`` that have it found: from the correlations of anchor words' topics, or from the tensor itself.
AUTO, SHARES = "auto", "shares"

#: Largest ``alpha0`` that may be given: 20 times the largest that is looked for.
LARGEST_ALPHA0 = 1000.0

#: Tokens at which the weight of a document stops growing under ``capped``.
CAPPED_LENGTH = 200

#: Share of its row sum that an anchor keeps at least after rectification.
ANCHOR_ROW_SUM = 0.1

#: Characters of a value that a message about settings still shows; a digest has more.
LONGEST_VALUE = 60

#: Documents whose factor is basis enough for all the others, whatever their number; no fewer than there are words, and
#: no smaller a share of all documents.
SAMPLED_DOCUMENTS, SMALLEST_SAMPLE = 60_000, 0.01

#: A sample of more than this share saves too little, so that all documents are multiplied.
LARGEST_SAMPLE = 0.5

#: Bounds of the default partition size, in nonzeros.
SMALLEST_PARTITION, LARGEST_PARTITION, DEFAULT_PARTITIONS = 8_000_000, 64_000_000, 64

#: Nonzeros of a partition for each word, within the bounds: what is done once for each partition (merging, committing)
#: grows with the words, and is to stay small beside what is done for each nonzero.
NONZEROS_PER_WORD = 200


def fingerprint(fields: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of the canonical JSON of ``fields``."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _require(condition: bool, setting: str, value: object, wanted: str) -> None:
    if not condition:
        raise InputError(f"{setting} is {value!r}; give {wanted}")


def _require_choice(setting: str, value: str, choices: tuple[str, ...]) -> None:
    _require(value in choices, setting, value, "one of " + ", ".join(choices))


@dataclass(frozen=True)
class ScanSettings:
    """What a scan computes. All fields enter the moments store's fingerprint.

    Parameters
    ----------
    max_topics
        The largest number of topics K that will be asked of the store; widths follow from it.
    scans
        1: the range scan alone. 2: also C Q on the basis Q, which halves the error of the eigenpairs
        at about a tenth of the time of the first. 3, with ``sample`` only: C Q once more, on the basis that the second
        scan gives.
    range_finder
        ``factors``: a factor per partition with power steps, merged. ``sample``: the same of a sample of the documents;
        sums over all documents are exact, and the second scan reads them all. ``halko``: the single-view sketch of
        Halko et al. (2011) that LR-JSMF names, with its range truncated; kept to compare with.
    document_weights
        ``capped``: min(length, 200). ``uniform``: 1, as in the papers. ``length``: the tokens of the document.
    partition_nonzeros
        Nonzeros of a partition, the unit of work and of resumption. None: the larger of total / 64 and 200 for each
        word, between 8 M and 64 M.
    power_steps
        Multiplications of a partition by itself, all in memory. More: smaller error, more time.
    seed
        Of the probes.
    exact
        The second scan counts the whole C (words x words) instead of C Q: for vocabularies whose C fits in memory.
        Eigenpairs are then those of C itself, and rectifications that need C can run.
    third_moment
        Also what the tensor engine (STOD) needs: one more pass. It changes nothing else, and can be added later.
    sample_share
        Share of the documents that ``sample`` multiplies. None: see ``sampled_share``.

    Raises
    ------
    InputError
        If a field is out of range; the message names the field and what is allowed.
    """

    max_topics: int = 50
    scans: int = 2
    range_finder: RangeFinder = "factors"
    document_weights: DocumentWeights = "capped"
    partition_nonzeros: int | None = None
    power_steps: int = 3
    seed: int = 0
    partition_by: str | None = None
    exact: bool = False
    third_moment: bool = False
    sample_share: float | None = None

    def __post_init__(self) -> None:
        _require(self.max_topics >= 1, "max_topics", self.max_topics, "a whole number of at least 1")
        _require_choice("range_finder", self.range_finder, get_args(RangeFinder))
        if self.range_finder == "sample":
            _require(self.scans in (1, 2, 3), "scans", self.scans, "1, 2 or 3")
            _require(not self.exact, "range_finder", "sample", "factors where exact counts all of C")
        else:
            _require(self.scans in (1, 2), "scans", self.scans, "1 or 2, or 3 where range_finder is sample")
        share = self.sample_share
        _require(share is None or 0 < share <= 1, "sample_share", share, "a number above 0 and up to 1")
        _require(
            share is None or self.range_finder == "sample",
            "sample_share",
            share,
            "range_finder sample with it",
        )
        _require_choice("document_weights", self.document_weights, get_args(DocumentWeights))
        size = self.partition_nonzeros
        _require(size is None or size >= 1, "partition_nonzeros", size, "a whole number of at least 1")
        _require(self.power_steps >= 1, "power_steps", self.power_steps, "a whole number of at least 1")
        _require(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 to 2^63 - 1")

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
        return min(wanted, LARGEST_PARTITION)

    def sampled_share(self, n_documents: int, n_words: int) -> float:
        """Share of the documents that are multiplied in scan 1: 1 where all are.

        By default ``SAMPLED_DOCUMENTS`` or one for each word, at least ``SMALLEST_SAMPLE``, and all where that would be
        more than ``LARGEST_SAMPLE``.
        """
        if self.range_finder != "sample":
            return 1.0
        if self.sample_share is not None:
            return self.sample_share
        share = max(max(SAMPLED_DOCUMENTS, n_words) / max(n_documents, 1), SMALLEST_SAMPLE)
        return share if share <= LARGEST_SAMPLE else 1.0

    @property
    def has_factor(self) -> bool:
        """Whether scan 1 leaves a factor F with F F' ~ C + diag(D)."""
        return self.range_finder != "halko"

    def fields(self) -> dict[str, Any]:
        """The settings as plain JSON values, in the order of the definition."""
        fields = asdict(self)
        for stage in ("exact", "third_moment", "sample_share"):
            # Stores older than such a stage have no such field, and keep their fingerprint.
            if not fields[stage]:
                del fields[stage]
        return fields


@dataclass(frozen=True)
class InferSettings:
    """What is made of a moments store for one number of topics.

    Parameters
    ----------
    n_topics
        K.
    rectify
        ``enn``: epsilon non-negative rectification (LR-JSMF, Algorithm 3). ``palm``, ``ipalm``: a non-negative Y
        (Algorithm 4), plain and inertial. ``none``: the eigenpairs as they are, which is not the papers' baseline
        (AW on all of C as counted). Of the whole C, which the scan must have counted (``ScanSettings.exact``): ``ap``,
        alternating projections (Algorithm 2); ``dykstra``, the same with Dykstra's corrections; ``dc``, diagonal
        completion.
    max_iterations, tolerance
        Rectification stops when a step changes C* by less than ``tolerance``, relative, or after ``max_iterations``.
    acceleration
        Of ENN. ``momentum``: the same limit in a quarter of the steps. ``none``: the steps of the paper.
    missing_mass
        How ENN spreads the mass that is missing: ``uniform`` as in the paper, ``marginals`` in proportion to the row
        sums of C.
    left_out
        Grow the rows that ENN keeps non-negative until what it leaves out is at most this share of Y Y' (Frobenius
        norm). None: 10 K + 1000 rows, or more where there are few words.
    anchor_min_df
        Documents that a word must occur in to be an anchor: below 1 a share of all documents, otherwise a
        number. 0: no such guard (the papers). None: 1 % of the documents, but no fewer than 20 where the
        corpus has 1,000 documents or more.
    anchors
        ``pivoted-qr``: the rows that are farthest from the span of those before (LR-JSMF, Algorithm 5).
        ``soft-clique``: words that hardly co-occur (He et al.).
    anchor_shrinkage
        In documents: how strongly pivoting prefers words of many documents, see ``inference.anchors.shrunken_rows``.
        0: not at all (the papers). None: twice the square root of the number of documents.
    anchor_row_sum
        Share of its row sum in C that a word must keep in C* to be an anchor. Rows that keep hardly any are noise over
        almost nothing, which pivoting takes for corners. 0: any word whose row sum is positive (the papers).
    anchor_words
        Anchors given by the user, at most K: a word each, or several words that make one tandem anchor, such as
        ``["god", ("car", "engine")]``. The others are found. Kept as tuples of words.
    simplex
        How words are written as mixtures of anchors. ``auto``: ``active-set`` where numba is installed, else
        ``fista``. ``exponentiated-gradient``: as in the papers, less exact.
    correlations
        Of the topics. ``diagonal``: from the anchors' rows (the papers). ``refined``: the non-negative matrix of sum 1
        that fits all words best.

    Raises
    ------
    InputError
        If a field is out of range; the message names the field and what is allowed.
    """

    engine: ClassVar[str] = "lr-jsmf"

    n_topics: int
    rectify: Rectifier = "enn"
    max_iterations: int = 150
    tolerance: float = 1e-5
    anchor_min_df: float | None = None
    acceleration: Acceleration = "momentum"
    missing_mass: MissingMass = "uniform"
    left_out: float | None = None
    anchors: AnchorMethod = "pivoted-qr"
    anchor_shrinkage: float | None = None
    anchor_words: Sequence[str | Sequence[str]] = ()
    anchor_row_sum: float = ANCHOR_ROW_SUM
    simplex: SimplexMethod = "auto"
    correlations: CorrelationMethod = "diagonal"

    def __post_init__(self) -> None:
        _require(self.n_topics >= 1, "n_topics", self.n_topics, "a whole number of at least 1")
        _require_choice("rectify", self.rectify, get_args(Rectifier))
        _require(self.max_iterations >= 1, "max_iterations", self.max_iterations, "at least 1")
        _require(0 <= self.tolerance < 1, "tolerance", self.tolerance, "a number from 0 to below 1")
        _require_choice("acceleration", self.acceleration, get_args(Acceleration))
        _require_choice("missing_mass", self.missing_mass, get_args(MissingMass))
        bound = self.left_out
        _require(bound is None or bound > 0, "left_out", bound, "a number above 0")
        share = self.anchor_min_df
        _require(share is None or share >= 0, "anchor_min_df", share, "a number of at least 0")
        shrinkage = self.anchor_shrinkage
        _require(
            shrinkage is None or 0 <= shrinkage < float("inf"),
            "anchor_shrinkage",
            shrinkage,
            "a number of at least 0",
        )
        kept = self.anchor_row_sum
        _require(0 <= kept < 1, "anchor_row_sum", kept, "a number from 0 to below 1")
        _require_choice("anchors", self.anchors, get_args(AnchorMethod))
        _require_choice("simplex", self.simplex, get_args(SimplexMethod))
        _require_choice("correlations", self.correlations, get_args(CorrelationMethod))
        self._check_anchor_words()

    def _check_anchor_words(self) -> None:
        if isinstance(word := self.anchor_words, str):
            raise InputError(f"anchor_words is {word!r}; give a list of words, such as [{word!r}]")
        object.__setattr__(self, "anchor_words", self.anchor_groups)
        given = [word for group in self.anchor_groups for word in group]
        if not all(self.anchor_words):
            raise InputError("anchor_words has a topic without a word; give at least one for each")
        if len(self.anchor_words) > self.n_topics:
            raise InputError(
                f"anchor_words are for {len(self.anchor_words)} topics and n_topics is {self.n_topics}; "
                "give fewer anchors or ask for more topics"
            )
        repeated = next((word for word in given if given.count(word) > 1), None)
        if repeated is not None:
            raise InputError(f"anchor_words has {repeated!r} twice; a word is an anchor of one topic only")
        if given and self.anchors != "pivoted-qr":
            raise InputError(f"anchor_words go with anchors pivoted-qr, not {self.anchors}; leave one out")

    @property
    def anchor_groups(self) -> tuple[tuple[str, ...], ...]:
        """``anchor_words`` as tuples of words, one for each topic."""
        return tuple((group,) if isinstance(group, str) else tuple(group) for group in self.anchor_words)

    def shrinkage(self, n_documents: int) -> float:
        """The shrinkage of anchor rows, in documents, for a corpus of ``n_documents``."""
        return 2.0 * math.sqrt(n_documents) if self.anchor_shrinkage is None else self.anchor_shrinkage

    def anchor_floor(self, n_documents: int) -> float:
        """Smallest document frequency of an anchor, in documents, for a corpus of ``n_documents``."""
        share = self.anchor_min_df
        if share is None:
            return max(0.01 * n_documents, min(20.0, n_documents / 50))
        return share * n_documents if share < 1 else share

    def fields(self) -> dict[str, Any]:
        """The settings as plain JSON values, in the order of the definition."""
        fields = asdict(self)
        if self.anchor_row_sum == ANCHOR_ROW_SUM:
            # Models older than the setting have no such field.
            del fields["anchor_row_sum"]
        return fields


@dataclass(frozen=True)
class StodSettings:
    """What the tensor engine (STOD) makes of a moments store with the third moment, for one number of topics.

    Parameters
    ----------
    n_topics
        K, up to the width of the store's basis.
    alpha0
        Sum of the Dirichlet prior of the topic shares of documents. ``auto``: what the refined correlations of
        LR-JSMF's topics at the same K imply, for any K; a little too high as a rule. ``shares``: at which the
        components' shares of the corpus sum to 1; nearer the truth where K is the number of topics that the corpus was
        made of, as in a simulation, and useless elsewhere. On simulated corpora a value three times too small cost 1.5
        to 2.7 times the error, one three times too large 1.2 to 1.6 times.
    restarts, iterations
        Random starts of the power method for each topic, and steps of each.
    threshold
        Word lists go by what of a word's probability is above its noise, times this; the topics do not depend on it.
        0: by probability.
    refine
        ``als``: fit the tensor by components that need not be orthogonal.
    seed
        Of the starts.

    Raises
    ------
    InputError
        If a field is out of range; the message names the field and what is allowed.
    """

    engine: ClassVar[str] = "stod"

    n_topics: int
    alpha0: float | Literal["auto", "shares"] = "auto"
    restarts: int = 30
    iterations: int = 30
    threshold: float = 6.0
    refine: Refinement = "none"
    seed: int = 0

    def __post_init__(self) -> None:
        _require(self.n_topics >= 1, "n_topics", self.n_topics, "a whole number of at least 1")
        given = self.alpha0
        in_range = given in (AUTO, SHARES) if isinstance(given, str) else 0 < given <= LARGEST_ALPHA0
        _require(
            in_range, "alpha0", given, f"{AUTO}, {SHARES}, or a number above 0 and up to {LARGEST_ALPHA0:g}"
        )
        if not isinstance(given, str):
            # 1 and 1.0 are one setting, and have one fingerprint.
            object.__setattr__(self, "alpha0", float(given))
        _require(self.restarts >= 1, "restarts", self.restarts, "a whole number of at least 1")
        _require(self.iterations >= 1, "iterations", self.iterations, "a whole number of at least 1")
        _require(0 <= self.threshold < math.inf, "threshold", self.threshold, "a number of at least 0")
        _require_choice("refine", self.refine, get_args(Refinement))
        _require(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 to 2^63 - 1")

    def fields(self) -> dict[str, Any]:
        """The settings as plain JSON values, with the engine first."""
        return {"engine": self.engine, **asdict(self)}


@dataclass(frozen=True)
class PolishSettings:
    """What the finishing passes over the documents do to topics (``documents.polish``).

    Parameters
    ----------
    steps
        Of all; the first see a sample of a large corpus, the last five every document. 40 are thorough.
    rounds
        Of CVB0 in each document at each step, 2 or more. More lower the perplexity a little, and leave topics fewer
        words of their own.
    held_out
        Documents that are drawn to tell the perplexity, and take no part in the steps; at most a fiftieth of all.
        0: none, and no perplexity.
    seed
        Of the draws of documents.

    Raises
    ------
    InputError
        If a field is out of range; the message names the field and what is allowed.
    """

    steps: int = 20
    rounds: int = 5
    held_out: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        _require(self.steps >= 1, "steps", self.steps, "a whole number of at least 1")
        _require(self.rounds >= 2, "rounds", self.rounds, "a whole number of at least 2")
        _require(self.held_out >= 0, "held_out", self.held_out, "a whole number of at least 0")
        _require(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 to 2^63 - 1")

    def fields(self) -> dict[str, Any]:
        """The settings as plain JSON values, in the order of the definition."""
        return asdict(self)


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Name the fields that differ, with both values where these are short; empty when none does."""
    missing = object()
    differing = (
        key for key in sorted({*stored, *wanted}) if stored.get(key, missing) != wanted.get(key, missing)
    )
    return "; ".join(_difference(key, stored.get(key), wanted.get(key)) for key in differing)


def _difference(key: str, stored: Any, wanted: Any) -> str:
    short = max(len(repr(stored)), len(repr(wanted))) <= LONGEST_VALUE
    return f"{key}: stored {stored!r}, asked {wanted!r}" if short else key
