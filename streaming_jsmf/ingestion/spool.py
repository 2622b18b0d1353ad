"""What a notebook has at hand -> a file that a reader reads: tables of any kind, texts, rows."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.config import Curation, IngestRequest, TextReading, request_of, settings_of, takes
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError, StreamingJSMFError
from streaming_jsmf.ingestion.ingest import ingest as ingest_path
from streaming_jsmf.ingestion.plan import IngestFolder
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.paths import exists, local_path, normalise, sha256_of

#: Texts or rows of a batch; one is in memory at a time.
BATCH = 10_000


@contextmanager
def at_hand(
    source: Any, corpus: Path, request: IngestRequest | None = None
) -> Iterator[tuple[str | Path, IngestRequest | None]]:
    """Where a reader finds a source: at its own path, or in a temporary file of what is in memory.

    What is in memory is written a batch at a time, and the request then has the hash of it. If the block is
    interrupted, nothing that was begun for ``corpus`` stays: nobody could give the same file again.

    Raises
    ------
    InputError
        If the source is neither a path nor texts, rows or a table.
    """
    if isinstance(source, str | PathLike):
        if isinstance(source, str) and " " in source and not Path(source).suffix and not exists(source):
            raise InputError(f"nothing is at {source[:60]!r}; texts are given as a list of them")
        yield fspath(source), request
        return
    with TemporaryDirectory(prefix="streaming-jsmf-") as folder:
        path = Path(folder) / "texts.parquet"
        _write(_tables(source), path)
        try:
            yield path, replace(request or IngestRequest(), made_for=sha256_of(path))
        except InputError as error:
            # Of the file nobody knows.
            error.args = (str(error).replace(str(path), f"the {type(source).__name__}"),)
            raise
        except StreamingJSMFError:
            raise
        except BaseException:
            IngestFolder.beside(corpus).remove()
            raise


@takes(IngestRequest, Curation, TextReading, Execution)
def ingest(
    source: Any,
    corpus: str | Path,
    request: IngestRequest | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    overwrite: bool = False,
    progress: bool = False,
    **options: Any,
) -> Corpus:
    """Make a corpus of a source: what lies on a disk, or what a notebook has at hand.

    Parameters
    ----------
    source
        A path, URL or spec, as ``streaming-jsmf ingest`` takes it. Or a table with a column of text: a pandas or polars
        ``DataFrame``, an Arrow table, anything that exports Arrow streams. Or texts: a list, a generator, a series. Or
        rows as mappings: a list, a generator, a Hugging Face data set. These are written to a temporary file first, a
        batch at a time, and other columns are kept as metadata where ``request`` says so.
    corpus
        Local path of the corpus.
    request
        What is asked beyond the defaults, such as ``IngestRequest(read={"text": "body"})``. Its fields, those of its
        ``curation`` and of ``Execution`` are also keyword arguments, such as ``min_df=5``.

    Raises
    ------
    InputError
        If the source is neither, or as ``streaming-jsmf ingest``.

    Warns
    -----
    UserWarning
        If every text is the path of an existing file.

    Examples
    --------
    >>> ingest(["the cat sat", "the dog ran"], "corpus")  # doctest: +SKIP
    """
    request = request_of(request, options)
    execution = settings_of("execution", Execution, execution, options)
    with at_hand(source, local_path(normalise(corpus, "a corpus"), "a corpus")) as (place, _):
        return ingest_path(
            place, corpus, request, execution, listener, overwrite=overwrite, progress=progress
        )


def _write(tables: Iterator[pa.Table], path: Path) -> None:
    first = next(tables, None)
    if first is None or not first.num_columns:
        raise InputError("the source is empty; give texts, or a table with a column of text")
    with pq.ParquetWriter(path, first.schema) as writer:
        for number, table in enumerate(itertools.chain([first], tables)):
            try:
                writer.write_table(table.cast(first.schema))
            except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
                raise InputError(
                    f"rows {number * BATCH} and after have other columns or types than the first ones ({error}); give "
                    "all rows the same"
                ) from error


def _tables(source: Any) -> Iterator[pa.Table]:
    """The source as Arrow tables, one after the other."""
    if hasattr(source, "__arrow_c_stream__"):
        yield from _exported(source)
    elif hasattr(source, "tocsr") or (isinstance(source, np.ndarray) and source.ndim > 1):
        raise InputError(
            f"the source is a matrix ({type(source).__name__}); corpus_from_matrix(matrix, words, path) makes a corpus "
            "of counts, and LRJSMF fits one"
        )
    elif isinstance(source, Mapping) or not isinstance(source, Iterable):
        lazy = ", collected if it is lazy" if hasattr(source, "collect") else ""
        raise InputError(
            f"the source is of type {type(source).__name__}; give a path, texts, rows or a table with a column of text"
            f"{lazy}"
        )
    else:
        rows, kinds = iter(source), set()
        while batch := list(itertools.islice(rows, BATCH)):
            kinds.add(False not in kinds and all(map(_is_file, batch)))
            yield _table(batch)
        if kinds == {True}:
            warnings.warn(
                "every text given is the path of an existing file, and the paths are read as the texts; to read the "
                "files, give their folder or a glob, such as 'texts/*.txt', instead of a list",
                stacklevel=2,
            )


def _is_file(row: Any) -> bool:
    # Not by ``Path``, which raises OSError for a text that is longer than a path can be.
    return isinstance(row, str) and os.path.isfile(row)  # noqa: PTH113


def _exported(source: Any) -> Iterator[pa.Table]:
    """The batches of a table that exports Arrow streams; a column by itself, as a series of polars, is one of texts."""
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    except pa.ArrowInvalid:
        yield pa.table({"text": pa.chunked_array(source)})
        return
    yield from (pa.Table.from_batches([batch]) for batch in reader)


def _table(rows: list[Any]) -> pa.Table:
    if all(isinstance(row, str) for row in rows):
        return pa.table({"text": pa.array(rows, pa.string())})
    if not all(isinstance(row, Mapping) for row in rows):
        kinds = ", ".join(sorted({type(row).__name__ for row in rows}))
        raise InputError(
            f"the source has {kinds} in its rows; give texts only, or mappings with a text only (counts of words go to "
            "corpus_from_matrix or corpus_from_gensim)"
        )
    return pa.Table.from_pylist([dict(row) for row in rows])
