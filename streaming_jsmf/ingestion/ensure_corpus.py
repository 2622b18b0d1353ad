"""Whatever a user names -> a corpus: one that is there, or one made of a source beside what needs it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus.format import damage_of_corpus, read_manifest, require_no_store
from streaming_jsmf.corpus.manifest import MANIFEST_NAME
from streaming_jsmf.corpus.vocabulary import TEXT_NAMES, VOCABULARY_NAME
from streaming_jsmf.errors import InputError, finding
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.ingestion.readers.files import find_files
from streaming_jsmf.ingestion.readers.units import is_parquet
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.lock import recover
from streaming_jsmf.storage.paths import exists, file_size, is_file, join, normalise, read_bytes

logger = logging.getLogger(__name__)


def is_corpus(place: str | Path) -> bool:
    """Whether this is a corpus already, by a manifest or by Parquet files with a vocabulary; or nothing at all."""
    root = normalise(place)
    require_no_store(root)
    if not exists(root) or exists(join(root, MANIFEST_NAME)):
        return not str(root).lower().endswith(".toml") and "*" not in root
    if is_file(root) or not any(exists(join(root, name)) for name in (VOCABULARY_NAME, *TEXT_NAMES)):
        return False
    return any(is_parquet(file.path) and not file.name.startswith("vocab") for file in find_files(root))


def corpus_of(
    source: str | Path,
    beside: Path,
    request: IngestRequest | None,
    execution: Execution | None,
    listener: Listener,
    *,
    replacing: Callable[[], None] | None = None,
) -> str | Path:
    """The path of the corpus: ``source`` itself if it is one, else ``beside``, where it is made unless it is there.

    One that is there is read, and compared with its hashes; a damaged one is made again.

    Parameters
    ----------
    replacing
        Called before a corpus at ``beside`` that is of other files, or made in another way, is replaced: removes what
        was made of it. None refuses such a corpus.

    Raises
    ------
    InputError
        For a request about a corpus that is there, and for one at ``beside`` that is another's.
    """
    if is_corpus(source):
        if request is not None and request != IngestRequest():
            raise InputError(
                f"{source} is a corpus already; leave out what says how to make one, or give the source itself"
            )
        return source
    asked = request or IngestRequest()
    mark = _mark(source, asked)
    recover(beside)
    overwrite = replacing is not None
    if beside.exists():
        if read_manifest(beside).settings.get("made_for") == mark:
            damage = damage_of_corpus(beside)
            if damage is None:
                logger.info("%s: made by an earlier run, compared with its hashes and used as it is", beside)
                return beside
            logger.warning("%s; %s is made again", finding(damage), beside)
            overwrite = True
        elif replacing is not None:
            replacing()
        else:
            raise InputError(
                f"{beside} is the corpus of other files, or made in another way; remove it, replace it with "
                "--overwrite, or choose another path for the result"
            )
    # A cluster of its own, so a report of its own.
    own = execution and execution.reporting_on("ingest")
    # The old one goes when the new one is there.
    ingest(source, beside, replace(asked, made_for=mark), own, listener, overwrite=overwrite)
    return beside


def _mark(source: str | Path, request: IngestRequest) -> str:
    """A hash of what is asked for and of the names and sizes of the files, or of the spec."""
    root = normalise(source)
    if root.lower().endswith(".toml"):
        try:
            files: object = hashlib.sha256(read_bytes(root)).hexdigest()
        except OSError:
            files = None  # which ingest says better
    else:
        files = [(file.name, _size(file.path)) for file in find_files(root)]
    # Of texts in memory what they are stands there, of files nothing.
    asked = {key: value for key, value in asdict(request).items() if key != "made_for" or value is not None}
    return hashlib.sha256(json.dumps([files, asked], sort_keys=True, default=str).encode()).hexdigest()


def _size(path: str) -> int | None:
    try:
        return file_size(path)
    except (OSError, TypeError):
        return None
