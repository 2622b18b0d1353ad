"""Questions about the topic shares of documents: options of transform, documents, over-time and effects."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from streaming_jsmf.config.fields import Settings, seed_setting, setting
from streaming_jsmf.errors import InputError, Option

#: Default number of documents in an answer.
DEFAULT_NUMBER = 10

_question = partial(setting, group="Query")


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


def number_in(text: str, name: str, given: str) -> int:
    try:
        return int(text)
    except ValueError:
        example = "3=elections" if name == "label" else "3,7"
        raise InputError(f"{Option(name)} is {given!r}; give numbers of topics, such as {example}") from None


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
    return tuple(number_in(part, "topics", given) for part in parts)


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
