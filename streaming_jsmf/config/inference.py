"""Settings of both engines and of polish."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, get_args

from streaming_jsmf.config.fields import require, require_choice, require_numbers
from streaming_jsmf.errors import InputError

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

#: Share of its row sum that an anchor keeps at least after rectification.
ANCHOR_ROW_SUM = 0.1


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
    cliques
        Of ``soft-clique``: searches from different words. More find a lighter clique as a rule, and others beside it,
        which the model lists.
    clique
        Which of the cliques that were found has the anchors: 1 is the lightest.

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
    cliques: int = 1
    clique: int = 1

    def __post_init__(self) -> None:
        require_numbers(self)
        require(self.n_topics >= 1, "n_topics", self.n_topics, "a whole number of at least 1")
        require_choice("rectify", self.rectify, get_args(Rectifier))
        require(self.max_iterations >= 1, "max_iterations", self.max_iterations, "at least 1")
        require(0 <= self.tolerance < 1, "tolerance", self.tolerance, "a number from 0 to below 1")
        require_choice("acceleration", self.acceleration, get_args(Acceleration))
        require_choice("missing_mass", self.missing_mass, get_args(MissingMass))
        bound = self.left_out
        require(bound is None or bound > 0, "left_out", bound, "a number above 0")
        share = self.anchor_min_df
        require(share is None or share >= 0, "anchor_min_df", share, "a number of at least 0")
        shrinkage = self.anchor_shrinkage
        require(
            shrinkage is None or 0 <= shrinkage < float("inf"),
            "anchor_shrinkage",
            shrinkage,
            "a number of at least 0",
        )
        kept = self.anchor_row_sum
        require(0 <= kept < 1, "anchor_row_sum", kept, "a number from 0 to below 1")
        require_choice("anchors", self.anchors, get_args(AnchorMethod))
        require(self.cliques >= 1, "cliques", self.cliques, "at least 1")
        require(1 <= self.clique <= self.cliques, "clique", self.clique, f"1 to cliques, {self.cliques}")
        if self.cliques > 1 and self.anchors != "soft-clique":
            raise InputError(f"cliques are of anchors soft-clique, not {self.anchors}; leave one out")
        require_choice("simplex", self.simplex, get_args(SimplexMethod))
        require_choice("correlations", self.correlations, get_args(CorrelationMethod))
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
        for name, default in (("anchor_row_sum", ANCHOR_ROW_SUM), ("cliques", 1), ("clique", 1)):
            # Models older than such a setting have no such field.
            if fields[name] == default:
                del fields[name]
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
        require_numbers(self)
        require(self.n_topics >= 1, "n_topics", self.n_topics, "a whole number of at least 1")
        given = self.alpha0
        in_range = given in (AUTO, SHARES) if isinstance(given, str) else 0 < given <= LARGEST_ALPHA0
        require(
            in_range, "alpha0", given, f"{AUTO}, {SHARES}, or a number above 0 and up to {LARGEST_ALPHA0:g}"
        )
        if not isinstance(given, str):
            # 1 and 1.0 are one setting, and have one fingerprint.
            object.__setattr__(self, "alpha0", float(given))
        require(self.restarts >= 1, "restarts", self.restarts, "a whole number of at least 1")
        require(self.iterations >= 1, "iterations", self.iterations, "a whole number of at least 1")
        require(0 <= self.threshold < math.inf, "threshold", self.threshold, "a number of at least 0")
        require_choice("refine", self.refine, get_args(Refinement))
        require(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 to 2^63 - 1")

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
        require_numbers(self)
        require(self.steps >= 1, "steps", self.steps, "a whole number of at least 1")
        require(self.rounds >= 2, "rounds", self.rounds, "a whole number of at least 2")
        require(self.held_out >= 0, "held_out", self.held_out, "a whole number of at least 0")
        require(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 to 2^63 - 1")

    def fields(self) -> dict[str, Any]:
        """The settings as plain JSON values, in the order of the definition."""
        return asdict(self)
