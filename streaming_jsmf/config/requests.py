"""How a job runs, and options of the verbs simulate, choose-k, evaluate, report and topics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from streaming_jsmf.config.fields import Settings, seed_setting, setting
from streaming_jsmf.config.scan import partition_setting, share_setting
from streaming_jsmf.config.share_queries import column_names, number_in
from streaming_jsmf.errors import InputError, option

Order = Literal["share", "topic"]

#: Word ids are int32.
MOST_WORDS = 2**31 - 1

#: Default number of words of each topic.
DEFAULT_WORDS = 10

EXECUTION = "Execution (does not change the result)"

_execution = partial(setting, group=EXECUTION)
_distribution = partial(setting, group="Distributions")
_edit = partial(setting, group="Editing topics (stored beside the model's arrays)", multiple=True)


def _parameters(given: Any) -> Any:
    return tuple(map(float, given.split(","))) if isinstance(given, str) else given


@dataclass(frozen=True)
class SimulationSettings(Settings):
    """A corpus to draw from latent Dirichlet allocation.

    Parameters
    ----------
    n_documents
        Number of documents M.
    n_words
        Number of words N.
    n_topics
        Number of topics K.
    seed
        Seed of all random draws.
    alpha
        Dirichlet parameter of the topic shares of a document: one number, or one for each topic, separated by commas.
    beta
        Mean Dirichlet parameter of the words of a topic.
    mean_length
        Mean length of a document in tokens; lengths follow a Poisson distribution.
    separable
        Give each topic an anchor word that no other topic uses.
    zipf
        Let word frequencies decrease as 1 / rank^S.
    documents_per_shard
        Number of documents per file; does not change the documents.
    """

    n_documents: int = setting(flags=("--documents",), ge=1)
    n_words: int = setting(flags=("--vocabulary-size",), ge=1, le=MOST_WORDS)
    n_topics: int = setting(flags=("--topics",), ge=1)
    seed: int = seed_setting(le=2**64 - 1)
    alpha: Any = _distribution(None, absent="1/K", metavar="X", parse=_parameters, wanted="numbers")
    beta: float | None = _distribution(None, absent="200/N", gt=0)
    mean_length: float = _distribution(100, gt=0, le=1_000_000)
    separable: bool = _distribution(False)
    zipf: float | None = _distribution(None, absent="all words equally frequent", metavar="S", ge=0)
    documents_per_shard: int | None = setting(None, absent="about 20 M tokens", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.separable and self.n_words <= self.n_topics:
            raise InputError(
                f"separable topics need more words than topics, not {self.n_words} and {self.n_topics}; give more words"
            )
        prior = self.prior
        if len(prior) != self.n_topics:
            raise InputError(
                f"{option.alpha} has {len(prior)} values; give one number or one for each of {self.n_topics} topics"
            )
        if not all(math.isfinite(value) and value > 0 for value in prior):
            raise InputError(f"{option.alpha} must be positive and finite")
        object.__setattr__(self, "alpha", prior[0] if len({*prior}) == 1 else prior)
        object.__setattr__(self, "mean_length", float(self.mean_length))

    @property
    def prior(self) -> tuple[float, ...]:
        """Dirichlet parameters of the topics, (K,)."""
        given = 1 / self.n_topics if self.alpha is None else self.alpha
        values = tuple(map(float, given if isinstance(given, Iterable) else [given]))
        return values * self.n_topics if len(values) == 1 else values


@dataclass(frozen=True)
class ComparisonRequest(Settings):
    """How to compare numbers of topics.

    Parameters
    ----------
    out
        Directory for the models, the page choose-k.html and the scan.
    corpus
        Corpus of MOMENTS, for perplexity and NPMI.
    replicas
        Number of models of resampled partitions for measuring stability; 0 disables it.
    partition_nonzeros
        Number of nonzeros per partition of the scan of a corpus, at most a sixteenth of it with replicas.
    sample_share
        Share of the documents of a corpus that the scan holds in memory.
    seed
        Seed of all random draws.
    """

    out: str | Path | None = setting(None, absent="the source with .choose-k appended", metavar="DIRECTORY")
    corpus: str | Path | None = setting(None, absent="its path at the time of the scan", metavar="CORPUS")
    replicas: int = setting(3, ge=0)
    partition_nonzeros: int | None = partition_setting()
    sample_share: float | None = share_setting()
    seed: int = seed_setting()


@dataclass(frozen=True)
class EvaluationRequest(Settings):
    """What to evaluate a model with. Corpora and stores are paths or URLs, or open ones.

    Parameters
    ----------
    corpus
        Corpus in which to count the words of the model and whose documents to predict. The results are stored
        with the model.
    moments
        Moments store from which the model was inferred.
    truth
        Simulated corpus whose topics the model should recover.
    replicas
        Number of models of resampled partitions for measuring stability; requires a store that keeps its
        partitions.
    seed
        Seed for resampling.
    words
        List each topic with its NPMI and this many words.
    """

    corpus: Any = setting(None, absent="the stored results of the training corpus", metavar="CORPUS")
    moments: Any = setting(None, absent="its path at that time", metavar="MOMENTS")
    truth: Any = setting(None, absent="none", metavar="CORPUS")
    replicas: int = setting(5, ge=0)
    seed: int = seed_setting()
    words: int | None = setting(None, absent="topics are not listed", ge=1)


@dataclass(frozen=True)
class ReportRequest(Settings):
    """What the report of a model shows.

    Parameters
    ----------
    words
        Number of words per topic in the table.
    shares
        Topic shares that transform wrote with MODEL; adds the top documents of each topic.
    by
        Column of SHARES by which to group documents; dates by COLUMN:year, :quarter, :month or :day. Several
        columns, separated by commas, have a view each, and one of their combinations.
    corpus
        Corpus of SHARES; adds the documents that the topics explain least.
    topics
        Which model to show from a directory of several K.
    effects
        Formula of columns of SHARES, such as "party + year", whose effects on the topics to show.
    """

    words: int | None = setting(None, absent=str(DEFAULT_WORDS), ge=1)
    shares: str | Path | None = setting(None, absent="none", metavar="SHARES")
    by: tuple[str, ...] | None = setting(
        None, absent="a year or date", metavar="COLUMN[,...]", parse=column_names
    )
    corpus: Any = setting(None, absent="none", metavar="CORPUS")
    topics: int | None = setting(None, absent="the largest", metavar="K")
    effects: str | None = setting(None, absent="none", metavar="FORMULA")

    def __post_init__(self) -> None:
        super().__post_init__()
        for given, what in (
            (self.by, f"{option.by} takes a column"),
            (self.corpus, f"{option.corpus} takes the corpus"),
            (self.effects, f"{option.effects} takes columns"),
        ):
            if given is not None and self.shares is None:
                raise InputError(f"{what} of {option.shares}; give the file that transform wrote, too")


@dataclass(frozen=True)
class TopicsRequest(Settings):
    """How to list the topics of a model.

    Parameters
    ----------
    words
        Number of words per topic.
    order
        Sort by decreasing share of the corpus, or by number.
    characteristic
        Also print words that are frequent in the topic and rarer in the others (by relevance, and by FREX); CSV and
        JSON always include them.
    """

    words: int | None = setting(None, absent=str(DEFAULT_WORDS), ge=1)
    order: Order | None = setting(None, absent="share; topic in JSON", flags=("--sort",))
    characteristic: bool = setting(False)


def _numbers(given: Any) -> Any:
    """Each text ``K,K`` as a tuple of numbers."""
    return tuple(tuple(number_in(part, "merge", group) for part in group.split(",")) for group in given)


def _names(given: Any) -> Any:
    """Each text ``K=NAME`` as a number and a name, which is None if it is empty."""
    pairs = [(text.partition("="), text) for text in given]
    unnamed = next((text for (_, equals, _), text in pairs if not equals), None)
    if unnamed is not None:
        number_in(unnamed, "label", unnamed)
        raise InputError(
            f"{option.label} is {unnamed}; give a topic and its name, such as {unnamed}=elections"
        )
    return tuple((number_in(topic, "label", text), name or None) for (topic, _, name), text in pairs)


@dataclass(frozen=True)
class TopicChanges(Settings):
    """Changes of how the topics of a model are shown.

    Parameters
    ----------
    label
        Name topic K; an empty name removes the label (may be repeated).
    merge
        Show several topics as one, under the first number: shares are added, and word probabilities are
        averaged by share (may be repeated).
    reduce
        Merge the nearest topics, by the Hellinger distance of their word probabilities, until N are shown.
    merge_similar
        Merge all topics within this Hellinger distance of each other, from 0 (the same words) to 1 (none in common).
    unmerge
        Show the parts of the merged topic K separately again.
    hide
        Do not show topic K.
    unhide
        Show topic K again.
    """

    label: Sequence[tuple[int, str | None]] = _edit((), metavar="K=NAME", parse=_names)
    merge: Sequence[Sequence[int]] = _edit((), metavar="K,K[,...]", parse=_numbers)
    reduce: int | None = _edit(None, absent="no merges", metavar="N", multiple=False, ge=1)
    merge_similar: float | None = _edit(
        None, absent="no merges", metavar="DISTANCE", multiple=False, ge=0, le=1
    )
    unmerge: Sequence[int] = _edit((), metavar="K")
    hide: Sequence[int] = _edit((), metavar="K")
    unhide: Sequence[int] = _edit((), metavar="K")


def parse_memory(size: Any) -> Any:
    """Return the bytes of a size such as ``4GB`` or ``500 MiB``; numbers and None are returned unchanged.

    Raises ``InputError`` if the text is not a size.
    """
    if not isinstance(size, str):
        return size
    from dask.utils import parse_bytes

    try:
        # Dask reads a unit without a number as one of it.
        found = int(parse_bytes(size)) if any(character.isdigit() for character in size) else 0
    except (ValueError, OverflowError):
        found = 0
    if found <= 0:
        raise InputError(f"{option.memory} is {size!r}; give a size such as 4GB or 500MiB")
    return found


@dataclass(frozen=True)
class ExecutionOptions(Settings):
    """How a job runs.

    Parameters
    ----------
    scheduler
        Dask scheduler: threads, processes, synchronous, cluster (local processes), or the address of a
        running one, such as tcp://HOST:PORT.
    workers
        Number of concurrent tasks.
    memory
        Memory limit for all workers together, such as 4GB. What would need more is refused.
    performance_report
        Write Dask's performance report to this HTML file. Requires scheduler cluster or an address, with
        bokeh installed.
    allow_mixed
        Also use workers with other versions of numpy, scipy, numba or pyarrow, or with other processor features,
        which may give other bits; recorded in the result.
    """

    scheduler: str = _execution("threads")
    workers: int | None = _execution(None, absent="one per core", ge=1)
    memory: int | None = _execution(None, absent="no limit", metavar="SIZE", parse=parse_memory)
    performance_report: Path | None = _execution(
        None,
        absent="none",
        metavar="FILE.html",
        rare=True,
        parse=lambda given: Path(given) if isinstance(given, str) else given,
    )
    allow_mixed: bool = _execution(False, rare=True)
