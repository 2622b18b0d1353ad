"""Use an existing corpus, or make one of a source next to the result that needs it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus.format import (
    Corpus,
    open_corpus,
    read_manifest,
    require_no_other_shards,
    verify_corpus,
)
from streaming_jsmf.errors import InputError, StoreError, finding, option
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.ingestion.readers.files import find_files
from streaming_jsmf.ingestion.spec import read_spec
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.lock import recover
from streaming_jsmf.storage.paths import file_size, normalise

logger = logging.getLogger(__name__)


def ensure_corpus(
    source: str | Path,
    beside: Path,
    request: IngestRequest,
    execution: Execution | None,
    listener: Listener,
    *,
    replacing: Callable[[], None] | None = None,
) -> Corpus:
    """Return the corpus of a source at ``beside``, verified by its hashes, or made if it is missing or damaged.

    ``replacing`` is called before a corpus of other files or settings is replaced, to remove what was made of it; if it
    is None, such a corpus raises ``InputError``. Shards that the manifest does not name raise
    ``StoreError``; other errors are those of ``ingest``.
    """
    made_for = _request_hash(source, request)
    recover(beside)
    overwrite = replacing is not None
    if beside.exists():
        manifest = read_manifest(beside)
        if manifest.settings.get("made_for") == made_for:
            require_no_other_shards(normalise(beside), manifest)
            try:
                corpus = open_corpus(beside)
                verify_corpus(corpus)
            except (StoreError, InputError) as error:
                logger.warning("%s; %s is made again", finding(error), beside)
                overwrite = True
            else:
                logger.info("%s: made by an earlier run, verified and used again", beside)
                return corpus
        elif replacing is not None:
            replacing()
        else:
            raise InputError(
                f"{beside} was made of other files or with other settings; remove it, replace it with "
                f"{option.overwrite(True)}, or choose another path for the result"
            )
    # The ingest starts its own cluster, which needs its own report.
    own = execution and execution.reporting_on("ingest")
    # The old corpus is removed when the new one is complete.
    return ingest(source, beside, replace(request, made_for=made_for), own, listener, overwrite=overwrite)


def _request_hash(source: str | Path, request: IngestRequest) -> str:
    """Hash of the request and of the names and sizes of the files, or of the spec."""
    root = normalise(source)
    if root.lower().endswith(".toml"):
        files: object = hashlib.sha256(read_spec(root)).hexdigest()
    else:
        files = [(name, _size(path)) for path, name in find_files(root).items()]
    # ``made_for`` is the hash of data in memory, and None for files.
    asked = {key: value for key, value in asdict(request).items() if key != "made_for" or value is not None}
    return hashlib.sha256(json.dumps([files, asked], sort_keys=True, default=str).encode()).hexdigest()


def _size(path: str) -> int | None:
    try:
        return file_size(path)
    except (OSError, TypeError):
        return None
