"""Model and documents -> the topic shares of every document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streaming_jsmf.config import settings_of, takes
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.documents.open_shares import open_shares
from streaming_jsmf.documents.raw_documents import Reading, raw_documents
from streaming_jsmf.documents.shares import SharesFile
from streaming_jsmf.documents.transform import TransformRequest, transform_documents
from streaming_jsmf.errors import InputError
from streaming_jsmf.inference.document_topics import ShareMethod
from streaming_jsmf.ingestion.ensure_corpus import is_corpus
from streaming_jsmf.ingestion.spool import at_hand
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.lock import is_left
from streaming_jsmf.storage.paths import StorePath, local_path, normalise
from streaming_jsmf.storage.replace import require_outside
from streaming_jsmf.topics.parameters import NEEDED, OPTIONAL, TopicParameters
from streaming_jsmf.topics.store import AnyModel, Model, model_path, read_model


@takes(Execution)
def transform(
    model: AnyModel | Model,
    corpus: Any,
    out: str | Path,
    *,
    top: int | None = None,
    method: ShareMethod = "map",
    reading: Reading | None = None,
    execution: Execution | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
    **options: Any,
) -> SharesFile:
    """Write the topic shares of every document of a corpus to ``out``, given the topics of a model.

    One pass over the documents; never more than some thousand of them in memory. Words are matched by string. Those
    that the model lacks are left out and counted; a document without any other gets the mean of the prior. An
    interrupted run is finished by the same call. The result does not depend on ``execution``.

    Parameters
    ----------
    model
        Path or URL of a model of any engine, or one in memory.
    corpus
        Any corpus with some of the model's words; or whatever ``ingest`` reads, texts and tables in memory, too. Texts
        are then cut into words as those that the model was made of, and all documents are kept; the corpus of them is
        beside ``out`` until it is done.
    out
        Local path. ``*.parquet``: one file. ``*.zarr``: a Zarr group, documents x topics. Anything else: a directory of
        Parquet files, the fastest to write.
    top
        Keep only this many shares of a document, the largest, with the numbers of their topics; None: all K.
    method
        ``map``: the most probable shares. ``cvb0``: nearer to the mean of the posterior, better for documents of some
        ten words.

    reading
        How a source that is no corpus is read: reader, options, what becomes of bad records.

    Returns
    -------
    The shares, opened: ``tables`` streams them, ``about.totals`` counts what they lack.

    Raises
    ------
    InputError
        If ``out`` exists, the corpus has none of the model's words or a bad record, an argument is out of range, or
        memory is too small.
    StoreError
        If the model, a shard, or what an interrupted run left is damaged.

    Examples
    --------
    >>> shares = transform("model", "corpus", "shares.parquet")  # doctest: +SKIP
    """
    execution = settings_of("execution", Execution, execution, options)
    target = local_path(normalise(out, "a file of topic shares"), "a file of topic shares")
    if overwrite or not is_left(target):
        require_free_shares(target, overwrite)
    held = model if isinstance(model, Model) else _read(model_path(model))
    given, beside = TopicParameters.of(held), target.with_name(target.name + ".corpus")
    opened, left_out = _documents(corpus, given, held, beside, reading, (execution, listener))
    request = TransformRequest(given, opened, top, method, left_out)
    temporary = beside if opened.root == str(beside) else None
    with single_blas_thread():
        transform_documents(request, target, execution, listener, overwrite=overwrite, temporary=temporary)
    return open_shares(target)


def _read(path: StorePath) -> Model:
    return read_model(path, NEEDED, OPTIONAL)


def _documents(
    source: Any,
    given: TopicParameters,
    model: Model,
    beside: Path,
    reading: Reading | None,
    how: tuple[Execution | None, Listener],
) -> tuple[Corpus, float]:
    """The corpus, made beside the result if it is none yet, and how many tokens were left out of it as unknown."""
    if isinstance(source, Corpus):
        return source, 0.0
    with at_hand(source, beside) as (place, request):
        if is_corpus(place):
            if reading not in (None, Reading()):
                raise InputError(f"{source} is a corpus already; leave out how a source is read")
            return open_corpus(place), 0.0
        content = None if request is None else request.made_for
        return raw_documents(
            place,
            beside,
            given.words,
            model.provenance.get("tokens"),
            reading or Reading(),
            *how,
            content=content,
        )


def require_free_shares(target: Path, overwrite: bool) -> None:
    """Refuse a path where something lies already.

    Raises
    ------
    InputError
        If ``target`` exists, unless it holds topic shares that may be overwritten.
    """
    if not target.exists():
        return
    if not overwrite:
        raise InputError(
            f"{target}: exists already; give another path, or --overwrite to replace topic shares"
        )
    open_shares(target)
    require_outside(target)
