"""Convert a source to a corpus, unless an earlier run has made it. The bytes do not depend on the scheduler.

A corpus is recognized by what a user asks for and the status of the files, of which none is opened; if that differs, by
its full request, for which the source is planned.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from streaming_jsmf.config import (
    AUTO,
    BUILT_IN,
    INGEST_SETTINGS,
    READER_OPTIONS,
    IngestRequest,
    declared,
    request_of,
    settings_of,
    takes,
)
from streaming_jsmf.corpus.format import Corpus, read_manifest
from streaming_jsmf.corpus.write import ASKED, corpus_target, wanted_corpus
from streaming_jsmf.errors import InputError, StreamingJSMFError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.ingestion.in_memory import Location, located
from streaming_jsmf.ingestion.losses import reported, shown
from streaming_jsmf.ingestion.sources.listing import find_files
from streaming_jsmf.ingestion.sources.protocol import PATH_OPTIONS
from streaming_jsmf.ingestion.tokens.stop_words import LANGUAGES, NONE
from streaming_jsmf.jobs.events import Listener, silent, stage_of
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.heads import planning
from streaming_jsmf.storage.objects import of_each_file
from streaming_jsmf.storage.paths import AnyPath, StorePath, is_free, is_url, normalize, state_of
from streaming_jsmf.storage.results import package_versions

#: Of what is detected in files and texts; a change of it reads them again.
_DETECTION = 1

#: Some file systems count time in steps of up to two seconds, within which a file may change twice.
_STEP_SECONDS = 2


@takes(*INGEST_SETTINGS, Execution)
def ingest(
    source: Any,
    corpus: AnyPath | StorePath,
    request: IngestRequest | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    overwrite: bool = False,
    progress: bool = False,
    **options: Any,
) -> Corpus:
    """Convert a source to a corpus, or resume an interrupted ingest with the same arguments.

    A corpus that the same call has made is verified and returned; the settings and the files must be the same. Makes
    one pass over the source and one over its bags of words. A search for phrases takes one more pass over the source,
    and one more over the bags writes the shards again if some words occur in no kept document. A table of what was
    dropped is logged, and printed in notebooks. Work is done in ``<corpus>.partial``, which is removed on bad input and
    kept on interruption.

    Documents keep the order of the source. Words keep the order of a source with a fixed vocabulary, and are sorted
    otherwise. Words are chosen by their counts over all good documents; the vocabulary has the counts over the kept
    documents. In the table and the manifest, read = kept + dropped in each step, in documents and in tokens.

    Memory: for each worker, one batch and the words and keys of a piece (``tokens_per_shard`` tokens), or of a range of
    all words and keys; in the parent, the kept words, ``MERGE_ROWS`` other ones, and arrays of length N if the source
    has a fixed vocabulary. Repeated ids and documents are found and left out by the workers.

    Parameters
    ----------
    source
        A path, URL or spec (``.toml``), as for ``streaming-jsmf ingest``; a table with a text column (pandas, polars or
        Dask ``DataFrame``, Arrow table, or any object that exports Arrow streams); texts (list, generator, series); or
        rows as mappings (list, generator, Hugging Face data set). Data in memory are first written to a temporary file,
        one batch at a time, next to the corpus for a running scheduler; other columns are kept as metadata.
    corpus
        Path or URL of the corpus. One made with other settings or of other files is only replaced with ``overwrite``.
    request
        Settings, such as ``IngestRequest(options={"text": "body"})``. Its fields, those of its ``curation`` and of
        ``Execution`` are also keyword arguments, such as ``min_df=5``.
    progress
        Whether to show a progress bar while the files of a spec are downloaded.

    Raises
    ------
    InputError
        If the source, spec or target cannot be used, a record is bad (with "fail"), too many documents would be lost
        (``max_dropped``), or texts are few and long.
    SettingsMismatchError
        If there is an unfinished ingest with other arguments.
    StoreError
        If an unfinished ingest is damaged.

    Warns
    -----
    UserWarning
        If every text is the path of an existing file.

    Examples
    --------
    >>> ingest(["the cat sat", "the dog ran"], "corpus")  # doctest: +SKIP
    """
    request = request_of(request, options) or IngestRequest()
    execution = settings_of("execution", Execution, execution, options)
    target = corpus_target(corpus)
    with located(source, target if execution.elsewhere else None) as location:
        _require_outside(target, location.path if request.files is None else request.files)
        with planning(stage_of(listener, "plan", "files")):
            asked = _asked(location, request)
            if _is_made(target, asked):
                return shown(reported(target))
            # What plans and computes takes .3 s to import.
            from streaming_jsmf.ingestion.plan import plan_ingest
            from streaming_jsmf.ingestion.steps import run_ingest

            planned, origin = plan_ingest(location, target, request, progress=progress)
        if asked and _needs_no_other_file(planned.source.reader):
            origin = replace(origin, request={**origin.request, ASKED: asked})
        resumable = location.sha256 is None
        built = run_ingest(planned, origin, execution, listener, overwrite=overwrite, resumable=resumable)
        return shown(built)


def _require_outside(target: StorePath, source: str | Path) -> None:
    """Refuse a target inside the source, which would make the corpus part of its own source."""
    root = normalize(source)
    if not isinstance(target, Path):
        inside = str(target).startswith(f"{root}/")
    else:
        inside = not is_url(root) and Path(root).is_dir()
        inside = inside and target.resolve().is_relative_to(Path(root).resolve())
    if inside:
        raise InputError(f"{target} lies inside the source {root}; choose another place for the corpus")


def _asked(source: Location, request: IngestRequest) -> str:
    """Fingerprint of the options and the status of all files of a source; "" if other files or code matter, too."""
    if source.sha256 is not None or source.path.lower().endswith(".toml") or _reads_others(request):
        return ""
    files = [*find_files(source.path)]
    states = dict(zip(files, of_each_file(_state, files), strict=True))
    if not all(states.values()):
        return ""
    return fingerprint(
        {
            "version": [package_versions()["streaming-jsmf"], _DETECTION],
            "source": normalize(source.path),
            "files": states,
            "request": {key: repr(value) for key, value in request.fields().items() if key != "max_dropped"},
        }
    )


def _needs_no_other_file(reader: Any) -> bool:
    """Whether documents and words are in the files alone, rather than also in lists beside them."""
    return not {*PATH_OPTIONS} & declared(READER_OPTIONS[reader]).keys()


def _is_made(target: StorePath, asked: str) -> bool:
    """Whether the corpus at a target was asked for in the same way, and is intact."""
    if not asked or is_free(target):
        return False
    try:
        manifest = read_manifest(str(target))
    except StreamingJSMFError:
        return False  # another way finds out what is there
    return manifest.request.get(ASKED) == asked and wanted_corpus(target, manifest.request).is_made()


def _reads_others(request: IngestRequest) -> bool:
    """Whether a request names files besides the source, or code."""
    read, listed = request.options, str(request.curation.get("stop_words") or NONE).split(",")
    named = [request.vocabulary, request.files, *(read.get(key) for key in (*PATH_OPTIONS, "function"))]
    is_own = read.get("tokenizer") in (None, *BUILT_IN) and not isinstance(read.get("phrases"), str)
    return any(each is not None for each in named) or not is_own or not {*listed} <= {AUTO, NONE, *LANGUAGES}


def _state(path: str) -> list[Any] | None:
    """Status of a file; None if it has none, or a change could leave it as it is."""
    state = state_of(path)
    if state is None or is_url(path):
        return None if state is None else [*state]
    changed = Path(path).stat().st_ctime_ns
    is_coarse = changed % 10**9 == 0 and abs(time.time() - changed / 10**9) < _STEP_SECONDS
    return None if is_coarse else [*state, changed]
