"""Settings of both engines and of polish."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from streaming_jsmf.config.fields import Settings, seed_setting, setting
from streaming_jsmf.errors import InputError, option

Rectifier = Literal["enn", "ap", "palm", "ipalm", "none"]
Acceleration = Literal["momentum", "none"]
MissingMass = Literal["uniform", "marginals"]
AnchorMethod = Literal["pivoted-qr", "soft-clique"]
CorrelationMethod = Literal["diagonal", "refined"]

#: Rectifications of earlier versions, and the experiments that have them now.
_MOVED_RECTIFIERS = {
    "dykstra": "pipelines.jsmf_2015 (its method DP)",
    "dc": "pipelines.jsmf_2015 (its method DC)",
}
#: The same of the tensor engine: keyword arguments, and what computes the same now.
MOVED = dict.fromkeys(("refine", "stod_refine"), "pipelines.stod_any_k")
#: Value of settings that are chosen from the data.
AUTO: Literal["auto"] = "auto"

#: Largest ``alpha0`` that is accepted, 20 times the largest that is ever estimated.
LARGEST_ALPHA0 = 1000.0

#: Relative change of the matrix at which rectification stops: alone, and before polish, whose topics stay as good
#: (docs/findings/rectification_steps.md).
TOLERANCE, TOLERANCE_BEFORE_POLISH = 1e-05, 1e-04

#: Share of its row sum that an anchor word keeps after rectification.
ANCHOR_ROW_SUM = 0.1

RECTIFICATION, ANCHORS, POLISH, STOD = "Rectification", "Anchor words and topics", "Polish", "Engine stod"

_topics = partial(setting, ge=1, option=False, aliases=("n_components", "topics"))
_rectification = partial(setting, group=RECTIFICATION, rare=True)
_anchors = partial(setting, group=ANCHORS, rare=True)
_stod = partial(setting, group=STOD, rare=True)


def parse_anchor_words(given: Any) -> Any:
    """Convert ``--anchor-words``: comma-separated words, or the path of a file with one line per topic.

    Empty lines of a file and lines that start with # are skipped. Other values than text are returned unchanged. Raises
    ``InputError`` if the file is not UTF-8 text, or no words are given.
    """
    if not isinstance(given, str):
        return given
    # Unlike Path.is_file, False for a list that is too long to be a name.
    if not os.path.isfile(given):  # noqa: PTH113
        groups = [_words(part) for part in given.split(",")]
        if not all(groups):
            raise InputError(
                f"{option.anchor_words} is {given!r}: there is no such file, and as a list it has an empty word"
            )
        return tuple(groups)
    try:
        lines = Path(given).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{option.anchor_words(given)}: cannot be read as UTF-8 text: {error}") from error
    groups = [_words(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not groups:
        raise InputError(f"{option.anchor_words(given)}: the file has no words; give one line per topic")
    return tuple(groups)


def _are_words(group: Any) -> bool:
    return isinstance(group, Iterable) and all(isinstance(word, str) for word in group)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


@dataclass(frozen=True)
class EngineChoice(Settings):
    """Which engine infers the topics.

    Parameters
    ----------
    engine
        Inference engine. lr-jsmf: anchor words. stod: tensor decomposition.
    """

    engine: Literal["lr-jsmf", "stod"] = setting("lr-jsmf")


@dataclass(frozen=True)
class InferSettings(Settings):
    """Settings of LR-JSMF for one number of topics.

    Parameters
    ----------
    n_topics
        Number of topics K.
    rectify
        Rectification of the co-occurrence matrix. enn: epsilon non-negative (LR-JSMF, Algorithm 3). palm,
        ipalm: non-negative factors (Algorithm 4), plain or inertial. none: the eigenpairs unchanged. ap:
        alternating projections (Algorithm 2), which require an exact scan, and take minutes and gigabytes for 20,000
        words.
    max_iterations
        Maximum number of rectification steps.
    tolerance
        Stop rectification when the relative change of the matrix in one step is below this value. A model
        records the value that was used.
    anchor_min_df
        Minimum document frequency of an anchor word: a number of documents, or a share of them if below 1. 0
        allows any word, as in the papers.
    acceleration
        Acceleration of enn. momentum: reach the same limit in a quarter of the steps. none: Algorithm 3 as
        printed.
    missing_mass
        How enn distributes the missing probability mass: uniform, as in the paper, or marginals, in
        proportion to the row sums.
    anchors
        How to find anchor words. pivoted-qr: rows farthest from the span of those already chosen (LR-JSMF,
        Algorithm 5). soft-clique: words that rarely co-occur (He et al.).
    anchor_shrinkage
        How strongly to prefer frequent words as anchors, in documents. 0 disables this, as in the papers.
    anchor_words
        Words to use as anchors, one entry per topic; the others are found. Several words in one entry, or on one line
        of a FILE, form one anchor. Rare words are left out.
    anchor_row_sum
        Share of its row sum that a word must keep after rectification to be an anchor. 0 allows any word.
    correlations
        How to estimate topic correlations. diagonal: from the rows of the anchors, as in the papers. refined:
        the non-negative matrix of sum 1 that best fits all words.
    cliques
        Number of searches for soft cliques, from different words. The model lists all cliques found.
    clique
        Which clique to use as anchors; 1 is the lightest.
    """

    engine: ClassVar[str] = "lr-jsmf"

    n_topics: int = _topics()
    rectify: Rectifier = _rectification("enn", moved=_MOVED_RECTIFIERS)
    max_iterations: int = _rectification(150, ge=1, aliases=("max_iter",))
    tolerance: float | None = _rectification(
        None,
        absent=f"{TOLERANCE:.0e}; {TOLERANCE_BEFORE_POLISH:.0e} for enn in fit, before polish",
        ge=0,
        lt=1,
        aliases=("tol",),
    )
    anchor_min_df: float | None = _anchors(
        None, absent="1 % of the documents, at least 20", metavar="NUMBER|SHARE", ge=0
    )
    acceleration: Acceleration = _rectification("momentum")
    missing_mass: MissingMass = _rectification("uniform")
    anchors: AnchorMethod = _anchors("pivoted-qr")
    anchor_shrinkage: float | None = _anchors(
        None, absent="2 sqrt(number of documents)", metavar="DOCUMENTS", ge=0
    )
    anchor_words: Sequence[str | Sequence[str]] = setting(
        (), group=ANCHORS, absent="all are found", metavar="FILE|W1,W2,...", parse=parse_anchor_words
    )
    anchor_row_sum: float = _anchors(ANCHOR_ROW_SUM, metavar="SHARE", ge=0, lt=1)
    correlations: CorrelationMethod = _anchors("diagonal")
    cliques: int = _anchors(1, ge=1)
    clique: int = _anchors(1, ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clique > self.cliques:
            raise InputError(
                f"{option.clique} is {self.clique}; give 1 to {self.cliques}, the number of {option.cliques}"
            )
        if self.cliques > 1 and self.anchors != "soft-clique":
            raise InputError(
                f"{option.cliques} requires {option.anchors('soft-clique')}, not {self.anchors}; leave one out"
            )
        self._check_anchor_words()

    def _check_anchor_words(self) -> None:
        given: Any = self.anchor_words
        listed = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
        if not (listed and all(map(_are_words, given))):
            raise InputError(
                f"{option.anchor_words} is {given!r}; list a word, or a list of words, for each topic"
            )
        object.__setattr__(self, "anchor_words", self.anchor_groups)
        words = [word for group in self.anchor_groups for word in group]
        if not all(self.anchor_words):
            raise InputError(
                f"{option.anchor_words} has an entry without words; give at least one word for each topic"
            )
        if len(self.anchor_words) > self.n_topics:
            raise InputError(
                f"{option.anchor_words} has {len(self.anchor_words)} entries and {option.n_topics} is {self.n_topics}; "
                "give fewer entries or more topics"
            )
        repeated = next((word for word in words if words.count(word) > 1), None)
        if repeated is not None:
            raise InputError(
                f"{option.anchor_words} has {repeated!r} twice; a word can be the anchor of one topic only"
            )
        if words and self.anchors != "pivoted-qr":
            raise InputError(
                f"{option.anchor_words} requires {option.anchors('pivoted-qr')}, not {self.anchors}; leave one out"
            )

    @property
    def needs_whole_c(self) -> bool:
        """Whether the rectification works on the whole matrix C, which only ``scan --exact`` stores."""
        return self.rectify == "ap"

    @property
    def anchor_groups(self) -> tuple[tuple[str, ...], ...]:
        """``anchor_words`` as tuples of words, one for each topic."""
        return tuple((group,) if isinstance(group, str) else tuple(group) for group in self.anchor_words)

    @property
    def stops_below(self) -> float:
        """``tolerance``, or that of an inference without polish."""
        return TOLERANCE if self.tolerance is None else self.tolerance

    def before_polish(self) -> Self:
        """The settings if polish follows at once."""
        if self.tolerance is not None or (self.rectify, self.acceleration) != ("enn", "momentum"):
            return self
        return replace(self, tolerance=TOLERANCE_BEFORE_POLISH)

    def fields(self) -> dict[str, Any]:
        """The settings as plain JSON values, with the tolerance that is used."""
        return {**super().fields(), "tolerance": self.stops_below}

    def shrinkage(self, n_documents: int) -> float:
        """The shrinkage of anchor rows, in documents, for a corpus of ``n_documents``."""
        return 2.0 * math.sqrt(n_documents) if self.anchor_shrinkage is None else self.anchor_shrinkage

    def anchor_floor(self, n_documents: int) -> float:
        """Smallest document frequency of an anchor, in documents, for a corpus of ``n_documents``."""
        share = self.anchor_min_df
        if share is None:
            return max(0.01 * n_documents, min(20.0, n_documents / 50))
        return share * n_documents if share < 1 else share


def _number_or_text(given: Any) -> Any:
    try:
        return float(given)
    except ValueError:
        return given


@dataclass(frozen=True)
class StodSettings(Settings):
    """Settings of STOD, the tensor engine, for one number of topics; requires a scan with the third moment.

    Parameters
    ----------
    n_topics
        Number of topics K.
    alpha0
        Sum of the parameters of the Dirichlet prior of topic shares. auto: estimated from the topic
        correlations of LR-JSMF, for any K; often slightly too large. A value three times too small multiplies the
        error by 1.5 to 2.7, one three times too large by 1.2 to 1.6.
    restarts
        Number of random starts of the power method per topic.
    iterations
        Maximum number of iterations per start.
    threshold
        Rank words in lists by the part of their probability that exceeds this multiple of its noise; 0 ranks
        by the probability itself. Does not affect the topics.
    seed
        Seed of the random starts of stod.
    """

    engine: ClassVar[str] = "stod"

    n_topics: int = _topics()
    alpha0: float | Literal["auto"] = _stod(
        AUTO,
        flags=("--stod-alpha0",),
        metavar="auto|X",
        parse=_number_or_text,
        moved={"shares": MOVED["refine"]},
        gt=0,
        le=LARGEST_ALPHA0,
    )
    restarts: int = _stod(30, flags=("--stod-restarts",), ge=1)
    iterations: int = _stod(30, flags=("--stod-iterations",), ge=1)
    threshold: float = _stod(6.0, flags=("--stod-threshold",), ge=0)
    seed: int = seed_setting(group=STOD, rare=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.alpha0, str):
            # 1 and 1.0 are the same setting, with the same fingerprint.
            object.__setattr__(self, "alpha0", float(self.alpha0))

    @property
    def prior_settings(self) -> InferSettings | None:
        """Settings of the (at most K) LR-JSMF topics whose correlations give ``alpha0``; None if it is not auto."""
        return InferSettings(self.n_topics, correlations="refined") if self.alpha0 == AUTO else None

    def fields(self) -> dict[str, Any]:
        """The settings as plain JSON values, with the engine first."""
        return {"engine": self.engine, **super().fields()}


#: Largest share of the documents that polish holds out.
MOST_HELD_OUT = 0.02


@dataclass(frozen=True)
class PolishSettings(Settings):
    """Settings of the passes over the documents that polish topics.

    Parameters
    ----------
    steps
        Number of passes; on large corpora, all but the last two read a sample. 30 passes are thorough.
    rounds
        Number of iterations within each document at each step. More iterations lower the perplexity
        slightly but make topics overlap more.
    held_out
        Number of documents held out to measure the perplexity, give or take chance, and at most a fiftieth of all. 0
        disables it.
    seed
        Seed for sampling documents, and for drawing topics.
    """

    steps: int = setting(10, group=POLISH, ge=1)
    rounds: int = setting(4, group=POLISH, rare=True, ge=2)
    held_out: int = setting(1000, group=POLISH, rare=True, ge=0)
    seed: int = seed_setting()

    def held_out_share(self, n_documents: int) -> float:
        """Probability that a document of so many is held out."""
        return min(self.held_out / max(n_documents, 1), MOST_HELD_OUT)

    def held_out_note(self, n_documents: int) -> str:
        """Why the number of documents that were held out is not the one asked for."""
        if self.held_out_share(n_documents) < MOST_HELD_OUT:
            return f"each document by chance, {self.held_out:,} on average"
        return f"a fiftieth of all at most; {self.held_out:,} were asked for"


#: What happens to documents whose file the source no longer has.
Vanished = Literal["remove", "keep"]


@dataclass(frozen=True)
class UpdateSettings(Settings):
    """How a model follows its source.

    Parameters
    ----------
    steps
        Number of passes that polish the topics, starting from the present ones.
    vanished
        Whether to remove or keep the documents of files that SOURCE no longer has.
    """

    steps: int | None = setting(None, absent="a third of those of fit, at least 3", ge=1)
    vanished: Vanished | None = setting(None, absent="remove, if they are at most half of all")
