"""Recognize the corpus of an earlier run by what a user asks for and the status of the files, of which none is opened.

A corpus is also recognized by its full request, for which the source is planned; this is the shorter way.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from streaming_jsmf.config import AUTO, BUILT_IN, READER_OPTIONS, IngestRequest, declared
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.corpus.write import ASKED, wanted_corpus
from streaming_jsmf.errors import StreamingJSMFError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.ingestion.in_memory import Location
from streaming_jsmf.ingestion.sources.listing import find_files
from streaming_jsmf.ingestion.sources.protocol import PATH_OPTIONS
from streaming_jsmf.ingestion.tokens.stop_words import LANGUAGES, NONE
from streaming_jsmf.storage.objects import of_each_file
from streaming_jsmf.storage.paths import StorePath, is_free, is_url, normalize, state_of
from streaming_jsmf.storage.results import package_versions

#: Of what is detected in files and texts; a change of it reads them again.
_DETECTION = 1

#: Some file systems count time in steps of up to two seconds, within which a file may change twice.
_STEP_SECONDS = 2


def what_is_asked(source: Location, request: IngestRequest) -> str:
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


def needs_no_other_file(reader: Any) -> bool:
    """Whether documents and words are in the files alone, rather than also in lists beside them."""
    return not {*PATH_OPTIONS} & declared(READER_OPTIONS[reader]).keys()


def is_made(target: StorePath, asked: str) -> bool:
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
