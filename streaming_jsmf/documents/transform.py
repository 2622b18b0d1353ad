"""Topic shares of all documents, given the topics of a model."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from upath import UPath

from streaming_jsmf.config import (
    FIXED_BY_MODEL,
    INGEST_SETTINGS,
    IngestRequest,
    ShareSettings,
    declared,
    request_of,
    settings_of,
    takes,
)
from streaming_jsmf.corpus.format import Corpus, is_corpus, open_corpus
from streaming_jsmf.documents.model_shares import AnyShares, is_table, shares_place
from streaming_jsmf.documents.share_files import is_shares, open_shares
from streaming_jsmf.documents.shares import About, CsvColumns, SharesFile, csv_shares, has_csv_shares, is_csv
from streaming_jsmf.documents.transform_job import (
    request_of_shares,
    share_job,
    transform_documents,
    wanted_shares,
)
from streaming_jsmf.errors import InputError, Option, StoreError, option
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.paths import AnyPath, StorePath, require_suffix, store_path, try_writing
from streaming_jsmf.storage.replace import temporary_place
from streaming_jsmf.topics.edits import shown_topics
from streaming_jsmf.topics.parameters import NEEDED, OPTIONAL, TopicParameters
from streaming_jsmf.topics.store import AnyModel, Model, beside, corpus_beside, model_path, read_model

if TYPE_CHECKING:
    from streaming_jsmf.documents.source_corpus import SourceDocuments

#: Suffixes of the formats of topic shares; a name without one is a directory.
SUFFIXES = (".parquet", ".zarr", ".csv")


@takes(ShareSettings, *INGEST_SETTINGS, Execution, without=FIXED_BY_MODEL)
def transform(
    model: AnyModel | Model,
    corpus: Any,
    out: AnyPath | StorePath,
    *,
    reading: IngestRequest | None = None,
    execution: Execution | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
    **options: Any,
) -> SharesFile:
    """Write the topic shares of every document of a corpus to ``out``, given the topics of a model.

    One pass over the documents, with a few thousand of them in memory. Words are matched as strings; unknown words are
    ignored and counted, and a document without known words gets the mean of the prior. The same call completes an
    interrupted run, and verifies a complete result without computing it again. The result does not depend on
    ``execution``.

    Parameters
    ----------
    model
        Path or URL of a model of any engine, or a model in memory.
    corpus
        A corpus that shares words with the model, or any source that ``ingest`` reads. Texts are tokenized as for the
        model, all documents are kept, and their corpus is stored next to ``out`` until the end.
    out
        Path or URL. ``*.parquet``: one file. ``*.zarr``: a Zarr group, documents x topics. ``*.csv``: a table for other
        programs with a column for each shown topic; queries and reports need one of the others. Without a suffix: a
        directory of Parquet files, which is fastest. A single file behind a URL is first written to a temporary one.
    reading
        How a source is read: its fields can also be given one by one, such as ``text="body"``. Everything else is as
        for the model.

    Returns
    -------
    SharesFile
        The opened shares: ``tables`` streams them, except those of CSV; ``about.totals`` counts unknown words and
        documents.

    Raises
    ------
    InputError
        If ``out`` has another suffix, or other shares are there (without ``overwrite``), the corpus has none of the
        model's words or a bad record, an argument is out of range, or memory is too small.
    StoreError
        If the model, a shard, or the work of an interrupted run is damaged.

    Examples
    --------
    >>> shares = transform("model", "corpus", "shares.parquet")  # doctest: +SKIP
    """
    execution = settings_of("execution", Execution, execution, options)
    asked = ShareSettings.of(options)
    top = asked.top
    target = store_path(out, "a file of topic shares").absolute()
    require_suffix(target, "topic shares", SUFFIXES)
    read = model if isinstance(model, Model) else read_model(model_path(model), NEEDED, OPTIONAL)
    topics = TopicParameters.of(read)
    n_topics = topics.prior.size
    if top is not None and top > n_topics:
        raise InputError(f"{option.top} is {top}; the model has {n_topics} topics, give 1 to {n_topics}")
    reading = request_of(reading, options)
    if asked.raw and not is_csv(target):
        raise InputError(
            f"{option.raw} is for CSV, not {target}; leave it out, or give a name that ends in .csv"
        )
    columns = CsvColumns(_csv_columns(model) if is_csv(target) else {}, asked.raw)
    given = _given_corpus(corpus, reading)
    found: AbstractContextManager[CorpusDocuments | SourceDocuments]
    if given is not None:
        found = nullcontext(given)
    else:
        # Importing the readers takes a sixth of the start-up time, and a corpus does not need them.
        from streaming_jsmf.documents.source_corpus import documents_of_source

        place = beside(target, "corpus")
        found = documents_of_source(corpus, topics, read, place, reading, execution, listener)
    with found as documents:
        request = request_of_shares(topics, documents.identity, top)
        wanted = wanted_shares(target, request, overwrite=overwrite)
        # A source is not ingested again for shares that are there.
        if wanted.is_made():
            documents.remove()
            return open_shares(target)
        opened, left_out = documents.corpus
        about = About(topics.topics_fingerprint, opened.fingerprint, request["request"], n_topics, top)
        with single_blas_thread():
            job = share_job(topics, opened, about, wanted)
            totals = transform_documents(job, about, wanted, left_out, columns, execution, listener)
        documents.remove()
    return csv_shares(target, replace(about, totals=totals)) if is_csv(target) else open_shares(target)


@contextmanager
def shares_of(
    model: AnyModel,
    given: Any = None,
    corpus: Corpus | None = None,
    *,
    listener: Listener = silent,
    **options: Any,
) -> Iterator[AnyShares]:
    """Yield topic shares to query: those given, or those of a source that ``transform`` reads with these options.

    Without both, those of ``corpus``, by default the one that ``fit`` made next to the model. They are kept next to the
    model (``MODEL.shares.parquet``), if that can be written, and computed once; those of a source are temporary.
    """
    if given is not None and _are_shares(given):
        if options:
            raise InputError(f"these are topic shares; leave out {', '.join(map(str, map(Option, options)))}")
        yield given
        return
    path = model_path(model)
    kept = beside(path, "shares.parquet")
    source = (corpus or corpus_beside(path)) if given is None else given
    if source is None:
        read_model(path, ())  # InputError if there is no model
        raise InputError(
            "the corpus of this model is unknown; give texts, a corpus, or shares that transform wrote"
        )
    if given is None and _can_be_written(kept):
        yield transform(model, source, kept, overwrite=True, listener=listener, **options)
        return
    with temporary_shares(model, source, listener=listener, **options) as shares:
        yield shares


@contextmanager
def temporary_shares(
    model: AnyModel, source: Any, *, execution: Execution | None = None, **options: Any
) -> Iterator[SharesFile]:
    """Yield the topic shares that ``transform`` computes, in a temporary file.

    Workers of a running scheduler write it next to a model behind a URL. They may not see the files of a local model,
    so that this process takes their place.
    """
    execution = settings_of("execution", Execution, execution, options)
    near = model_path(model) if execution.elsewhere else None
    if near is not None and (isinstance(near, Path) or not _can_be_written(near)):
        near, execution = None, replace(execution, scheduler=Execution.scheduler, performance_report=None)
    options = {name: value for name, value in options.items() if name not in declared(Execution)}
    with temporary_place(near and near.parent) as folder:
        yield transform(model, source, folder / "shares.parquet", execution=execution, **options)


def _can_be_written(place: StorePath) -> bool:
    if isinstance(place, Path):
        return os.access(place.parent, os.W_OK)
    try:
        try_writing(place.with_name(f".{place.name}.{uuid4().hex}"))
    except StoreError:
        return False
    return True


def _are_shares(given: Any) -> bool:
    if isinstance(given, SharesFile) or is_table(given):
        return True
    if not isinstance(given, str | PathLike | UPath) or isinstance(given, Corpus):
        return False
    with suppress(InputError):  # a source may be what no store is, such as a file in an archive
        place = shares_place(given)
        return has_csv_shares(place) if is_csv(place) else is_shares(place)
    return False


def _csv_columns(model: AnyModel | Model) -> dict[str, Sequence[int]]:
    """The name of each column of shares in CSV, such as ``topic_3_game_team_hockey``, and the topics that it adds.

    R, SQL and formulas take names of letters, digits and underscores as they are.
    """
    shown = shown_topics(model)
    names = (
        re.sub(r"\W+", "_", f"topic {number} {name}").rstrip("_")
        for number, name in zip(shown.numbers, shown.names, strict=True)
    )
    return dict(zip(names, shown.groups, strict=True))


@dataclass(frozen=True)
class CorpusDocuments:
    """Documents of a corpus of the user, with the members of ``SourceDocuments``."""

    identity: str
    corpus: tuple[Corpus, float]

    def remove(self) -> None:
        """Do nothing: the corpus stays."""


def _given_corpus(source: Any, reading: IngestRequest | None) -> CorpusDocuments | None:
    """The documents of a corpus; None for a source."""
    if not (isinstance(source, Corpus) or (isinstance(source, str | PathLike) and is_corpus(source))):
        return None
    if reading not in (None, IngestRequest()):
        raise InputError(f"{source} is a corpus already; leave out how a source is read")
    opened = open_corpus(source)
    return CorpusDocuments(opened.fingerprint, (opened, 0.0))
