"""How a job runs, and options of the verbs simulate, choose-k, evaluate, report, topics, documents and transform."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from streaming_jsmf.config.fields import Settings, seed_setting, setting
from streaming_jsmf.config.scan import partition_setting, share_setting
from streaming_jsmf.errors import InputError, Option, option

Order = Literal["share", "topic"]

#: Word ids are int32.
MOST_WORDS = 2**31 - 1

#: Default number of words of each topic, and of documents in an answer.
DEFAULT_WORDS = DEFAULT_NUMBER = 10

EXECUTION = "Execution (does not change the result)"

_execution = partial(setting, group=EXECUTION)
_distribution = partial(setting, group="Distributions")
_question = partial(setting, group="Query")
_edit = partial(setting, group="Editing topics (stored beside the model's arrays)", multiple=True)


def _parameters(given: Any) -> Any:
    return tuple(map(float, given.split(","))) if isinstance(given, str) else given


def column_names(given: Any) -> Any:
    """The names in a text such as ``party,date:month``; a name with a comma is quoted, as in CSV, or in a list.

    >>> column_names('"city, state",date:month'), column_names(["city, state"]), column_names("")
    (('city, state', 'date:month'), ('city, state',), ('',))
    """
    if not isinstance(given, str):
        return tuple(given) or ("",) if isinstance(given, list) else given
    try:
        [names] = csv.reader([given], skipinitialspace=True)
    except (csv.Error, ValueError):  # a line break
        names = [given]
    return tuple(name.strip() for name in names) or ("",)


_by = partial(_question, parse=column_names)


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
    return tuple(tuple(_number(part, "merge", group) for part in group.split(",")) for group in given)


def _names(given: Any) -> Any:
    """Each text ``K=NAME`` as a number and a name, which is None if it is empty."""
    pairs = [(text.partition("="), text) for text in given]
    unnamed = next((text for (_, equals, _), text in pairs if not equals), None)
    if unnamed is not None:
        _number(unnamed, "label", unnamed)
        raise InputError(
            f"{option.label} is {unnamed}; give a topic and its name, such as {unnamed}=elections"
        )
    return tuple((_number(topic, "label", text), name or None) for (topic, _, name), text in pairs)


def _number(text: str, name: str, given: str) -> int:
    try:
        return int(text)
    except ValueError:
        example = "3=elections" if name == "label" else "3,7"
        raise InputError(f"{Option(name)} is {given!r}; give numbers of topics, such as {example}") from None


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


@dataclass(frozen=True)
class ShareSettings(Settings):
    """How the topic shares of documents are computed and stored.

    Parameters
    ----------
    top
        Keep only the N largest shares of each document, with their topics.
    raw
        In CSV, do not put an apostrophe before text that a spreadsheet evaluates, such as =2+3.
    """

    top: int | None = setting(None, absent="all", metavar="N", ge=1)
    raw: bool = setting(False)


@dataclass(frozen=True)
class DocumentQuery(Settings):
    """A question about topic shares. By default: the mean share of each topic over all documents.

    Parameters
    ----------
    topic
        List the documents with the largest shares of topic K (numbered from 0).
    by
        Mean topic shares, or the share of --topic, for each value of a metadata column, or each period of dates:
        COLUMN:year, COLUMN:quarter, COLUMN:month or COLUMN:day; of several columns, separated by commas, for each
        combination of their values.
    similar
        List the documents whose shares are most similar to those of this document.
    outliers
        List the documents of this corpus whose words the topics explain least.
    number
        Number of documents to list.
    columns
        Columns of metadata to list with the text of each document, such as date,author, or all.
    """

    topic: int | None = _question(None, absent="all topics", metavar="K")
    by: tuple[str, ...] | None = _by(None, absent="over all documents", metavar="COLUMN[,...]")
    similar: str | None = _question(None, absent="none", metavar="DOCUMENT_ID")
    outliers: Any = _question(None, absent="none", metavar="CORPUS")
    number: int | None = _question(None, absent=str(DEFAULT_NUMBER), ge=1)
    columns: Literal["all"] | tuple[str, ...] | None = _question(
        None, absent="the text, or all columns without one", metavar="COLUMNS"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("similar", "outliers"):
            others = [other for other in ("topic", "by", "similar") if other != name]
            if getattr(self, name) is not None and any(getattr(self, other) is not None for other in others):
                excluded = " and ".join(str(Option(other)) for other in others)
                raise InputError(f"{Option(name)} excludes {excluded}; give one of them")


@dataclass(frozen=True)
class OverTimeRequest(Settings):
    """A question about topics over time.

    Parameters
    ----------
    by
        Column of years or dates; periods of dates are COLUMN:year (the default), COLUMN:quarter, COLUMN:month or
        COLUMN:day. Further columns, separated by commas, are groups, each with its periods.
    topic
        Only topic K (numbered from 0).
    corpus
        Corpus of these documents, which is read once to find the words of each topic in each period.
    words
        Number of these words.
    """

    by: tuple[str, ...] = _by(metavar="COLUMN[,...]")
    topic: int | None = _question(None, absent="all topics", metavar="K")
    corpus: Any = _question(None, absent="no words", metavar="CORPUS")
    words: int | None = _question(None, absent="5 with a corpus", ge=1)


def _topics(given: Any) -> Any:
    """``3,7`` or several numbers as a tuple of numbers."""
    if given is None or isinstance(given, int):
        return given if given is None else (given,)
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(_number(part, "topics", given) for part in parts)


@dataclass(frozen=True)
class EffectsRequest(Settings):
    """A question about the effects of covariates of documents on their topic shares.

    Parameters
    ----------
    formula
        Columns of SHARES, in the syntax of R, such as "party + bs(year, df=4)" or "party * year".
    topics
        Only these topics, separated by commas.
    cluster
        Column whose documents depend on each other, such as speaker, for errors by cluster; by default all documents
        are independent.
    corpus
        Corpus of SHARES, whose words give unbiased estimates of shares.
    draws
        Draw the shares of each document N times instead (method of composition); needs no corpus. Effects are too small
        for short documents.
    seed
        Seed of the draws.
    """

    formula: str = _question(metavar="FORMULA")
    topics: Sequence[int] | None = _question(
        None, absent="all topics", metavar="K[,K...]", parse=_topics, wanted="numbers of topics"
    )
    cluster: str | None = _question(None, absent="none", metavar="COLUMN")
    corpus: Any = _question(None, absent="the one that fit made next to MODEL", metavar="CORPUS")
    draws: int | None = _question(None, absent="none", metavar="N", ge=2)
    seed: int = seed_setting(group="Query")


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
