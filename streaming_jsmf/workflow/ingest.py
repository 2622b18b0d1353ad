"""Spec or source -> corpus."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming_jsmf.corpus.curation import Curation
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.corpus.write import Origin, free_target
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion import IngestSettings, ingest_source, load_spec
from streaming_jsmf.ingestion.spec import CorpusSpec
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.sources.base import OnBadRecord
from streaming_jsmf.sources.fetch import fetch_files
from streaming_jsmf.sources.guess import guess_reader
from streaming_jsmf.sources.registry import (
    OpenedSource,
    ReaderName,
    check_options,
    default_stop_words,
    open_source,
)
from streaming_jsmf.storage.paths import is_url, normalise
from streaming_jsmf.tokens.stop_words import NONE

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class IngestRequest:
    """What a user asks of an ingest, beyond what a spec says; None keeps the spec's value, or the default.

    Attributes
    ----------
    reader
        Guessed from the source when None; not with a spec.
    read
        Options of the reader by key, as values or as text; not with a spec. ``path`` names one file of a zip archive.
    curation
        Fields of ``Curation`` by name.
    tokenizer
        A callable of the user's own as MODULE:FUNCTION.
    tokens_per_shard
        A shard ends with the document that brings it to this many tokens.
    on_bad_record
        "fail" or "quarantine".
    files
        With a spec: directory of its files, where those that are missing are fetched to; by default one of the
        user's cache.
    """

    reader: ReaderName | None = None
    read: Mapping[str, Any] = field(default_factory=dict)
    curation: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: str | None = None
    tokens_per_shard: int | None = None
    on_bad_record: OnBadRecord = "fail"
    files: str | Path | None = None


def ingest(
    source: str | Path,
    corpus: str | Path,
    request: IngestRequest | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    progress: bool = False,
) -> Corpus:
    """Make the corpus of a spec (``.toml``) or of a source, or finish an interrupted ingest.

    With a spec its files are fetched if they are missing, with a bar when ``progress``, and verified. Passes over the
    data: see ``ingest_source``.

    Raises
    ------
    InputError
        For a bad spec or source, files that cannot be had, bad records, and all that ``ingest_source`` refuses.
    """
    request = request or IngestRequest()
    _require_outside(
        free_target(corpus, resumed=True), request.files if request.files is not None else source
    )
    if str(source).lower().endswith(".toml"):
        opened, settings, origin = _from_spec(load_spec(source), request, progress)
    else:
        opened, settings, origin = _from_source(source, request)
    return ingest_source(
        opened.source, corpus, settings, origin=origin, execution=execution, listener=listener
    )


def _from_spec(
    spec: CorpusSpec, request: IngestRequest, progress: bool
) -> tuple[OpenedSource, IngestSettings, Origin]:
    if request.reader is not None or request.read:
        given = ", ".join(
            ["--reader"] * (request.reader is not None) + [f"--read {key}" for key in request.read]
        )
        raise InputError(f"a spec names its own reader and its options; leave {given} out, or edit the spec")
    directory = Path(request.files) if request.files is not None else _cache(spec.name)
    found = fetch_files(spec.remote_files, directory, page=spec.source.url, progress=progress)
    for name, digest in found.items():
        if spec.source.files[name].sha256 is None:
            logger.info("%s: sha256 %s; write it into the spec to pin this file", name, digest)
    curation = spec.curation_with(dict(request.curation))
    names = list(found)
    location = directory
    if spec.path is not None and spec.path not in names:
        archives = [name for name in names if name.lower().endswith(".zip")]
        if len(archives) != 1:
            raise InputError(
                f"the spec {spec.name}: read.path is none of its files, nor is there one zip archive"
            )
        location = directory / archives[0]
    opened = open_source(
        location,
        spec.reader,
        spec.options,
        path=spec.path,
        files=names,
        tokenizer=request.tokenizer,
        stop_words=curation.stop_words,
    )
    settings = _settings(request, curation, opened, spec.output.tokens_per_shard)
    return opened, settings, Origin((), spec.source.attribution, spec.origin(found), opened.settings)


def _from_source(source: str | Path, request: IngestRequest) -> tuple[OpenedSource, IngestSettings, Origin]:
    if request.files is not None:
        raise InputError("--files is for a spec (.toml); give the source itself as the first argument")
    reader = request.reader or guess_reader(source)
    given = dict(request.curation)
    given["stop_words"] = given.get("stop_words") or default_stop_words(reader)
    curation = Curation(**{key: value for key, value in given.items() if value is not None})
    read = {key: value for key, value in request.read.items() if key != "path"}
    opened = open_source(
        source,
        reader,
        check_options(reader, read, "--read"),
        path=request.read.get("path"),
        tokenizer=request.tokenizer,
        stop_words=curation.stop_words if curation.stop_words else NONE,
    )
    settings = _settings(request, curation, opened, TOKENS_PER_SHARD)
    return opened, settings, Origin(settings=opened.settings)


def _settings(
    request: IngestRequest, curation: Curation, opened: OpenedSource, tokens_per_shard: int
) -> IngestSettings:
    given = request.tokens_per_shard
    tokens = tokens_per_shard if given is None else given
    return IngestSettings(curation, tokens, request.on_bad_record, opened.ngrams)


def _require_outside(target: Path, source: str | Path) -> None:
    """A corpus within its own source would be found there as a part of it."""
    root = normalise(source)
    if not is_url(root) and Path(root).is_dir() and target.resolve().is_relative_to(Path(root).resolve()):
        raise InputError(f"{target} lies inside the source {root}; choose another place for the corpus")


def _cache(name: str) -> Path:
    import pooch

    return Path(pooch.os_cache("streaming-jsmf")) / name
