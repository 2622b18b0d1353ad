"""Spec or source -> corpus."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from streaming_jsmf.config import Curation, IngestRequest, ReaderName, request_of, require_kind
from streaming_jsmf.corpus.format import Corpus, read_manifest
from streaming_jsmf.corpus.losses import losses_table
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.corpus.write import Origin, free_target
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion import IngestSettings, ingest_source, load_spec
from streaming_jsmf.ingestion.given_words import given_phrases, given_words
from streaming_jsmf.ingestion.readers.fetch import fetch_files
from streaming_jsmf.ingestion.readers.guess import guess_source
from streaming_jsmf.ingestion.readers.registry import (
    OpenedSource,
    check_options,
    default_curation,
    open_source,
    reads_texts,
)
from streaming_jsmf.ingestion.readers.text_records import TokenOptions
from streaming_jsmf.ingestion.spec import CorpusSpec
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH, LANGUAGES, NONE
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.paths import is_url, normalise
from streaming_jsmf.validation import Strict

logger = logging.getLogger(__name__)


def ingest(
    source: str | Path,
    corpus: str | Path,
    request: IngestRequest | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    overwrite: bool = False,
    progress: bool = False,
) -> Corpus:
    """Make the corpus of a spec (``.toml``) or of a source, or finish an interrupted ingest.

    What was left out is logged as a table (``losses_table``).

    With a spec its files are fetched if they are missing, with a bar when ``progress``, and verified. Passes over the
    data: see ``ingest_source``.

    Raises
    ------
    InputError
        For a bad spec or source, files that cannot be had, bad records, and all that ``ingest_source`` refuses.
    """
    request = request_of(request, {}) or IngestRequest()
    require_kind("execution", execution, Execution)
    _require_outside(
        free_target(corpus, overwrite=overwrite, resumed=True),
        request.files if request.files is not None else source,
    )
    if str(source).lower().endswith(".toml"):
        opened, settings, origin = _from_spec(load_spec(source), request, progress)
    else:
        opened, settings, origin = _from_source(source, request)
    if request.made_for is not None:
        origin = replace(origin, settings={**(origin.settings or {}), "made_for": request.made_for})
    built = ingest_source(
        opened.source,
        corpus,
        settings,
        origin=origin,
        execution=execution,
        overwrite=overwrite,
        listener=listener,
    )
    # Line by line: a message is one line, and what would break it is spelled out.
    for line in losses_table(read_manifest(built.root)).splitlines():
        logger.info("%s", line)
    return built


def _from_spec(
    spec: CorpusSpec, request: IngestRequest, progress: bool
) -> tuple[OpenedSource, IngestSettings, Origin]:
    if request.reader is not None or request.read:
        given = ", ".join(
            ["--reader"] * (request.reader is not None) + [f"--read {key}" for key in request.read]
        )
        raise InputError(f"a spec names its own reader and its options; leave {given} out, or edit the spec")
    if request.preset is not None:
        raise InputError("a spec says itself what stays; leave --preset out, or edit the spec")
    directory = Path(request.files) if request.files is not None else _cache(spec.name)
    found = fetch_files(spec.remote_files, directory, page=spec.source.url, progress=progress)
    spec.check_word_lists(directory)
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
        _phrased(spec.options, spec.reader, request),
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
    guess = guess_source(source, request.reader, request.read)
    if guess.note:
        logger.info("%s", guess.note)
    reader = guess.reader
    curation = _curation(request, reader)
    read = {**guess.read, **request.read}
    path = read.pop("path", None)
    if reads_texts(reader) and request.preset != "papers":
        read = {"boilerplate": "drop", **read}
    opened = open_source(
        source,
        reader,
        _phrased(check_options(reader, read, "--read"), reader, request),
        path=path,
        tokenizer=request.tokenizer,
        stop_words=curation.stop_words,
    )
    settings = _settings(request, curation, opened, TOKENS_PER_SHARD)
    return opened, settings, Origin(settings=opened.settings)


def _phrased(options: Strict, reader: ReaderName, request: IngestRequest) -> Strict:
    """The options of a reader with the phrases that are asked for, or that come with a vocabulary."""
    asked = request.phrases
    if not isinstance(options, TokenOptions):
        if asked is not None:
            raise InputError(f"the reader {reader} takes words as they are; leave --phrases out")
        return options
    if asked is None:
        if request.vocabulary is None or options.phrases is not None or options.ngrams > 1:
            return options
        asked = given_phrases(request.vocabulary)
    elif isinstance(asked, str) and asked == NONE:
        asked = ()
    elif isinstance(asked, str | Path) and not _is_number(asked):
        asked = given_phrases(asked)
    return check_options(reader, {**options.model_dump(), "phrases": asked}, "--phrases")


def _is_number(text: str | Path) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def _curation(request: IngestRequest, reader: ReaderName) -> Curation:
    """The default of the reader with what the request says in its place."""
    given = {key: value for key, value in request.curation.items() if value is not None}
    if request.read.get("stemmer") is not None and "stop_words" not in given:
        # Words are spared from stemming while the texts are read, before their language can be told from counts.
        stemmer = str(request.read["stemmer"]).lower()
        given["stop_words"] = stemmer if stemmer in LANGUAGES else ENGLISH
    return replace(default_curation(reader, request.preset), **given)


def _settings(
    request: IngestRequest, curation: Curation, opened: OpenedSource, tokens_per_shard: int
) -> IngestSettings:
    given = request.tokens_per_shard
    tokens = tokens_per_shard if given is None else given
    words = None if request.vocabulary is None else given_words(request.vocabulary)
    if words is not None:
        chosen = [key for key in _OF_WORDS if request.curation.get(key) is not None]
        chosen += ["phrases"] * (opened.phrases is not None)
        if chosen:
            names = ", ".join("--" + key.replace("_", "-") for key in chosen)
            raise InputError(f"--vocabulary says which words stay; leave {names} out")
    return IngestSettings(curation, tokens, request.on_bad_record, opened.ngrams, opened.phrases, words)


#: Fields of ``Curation`` that choose words; the stop words besides are those that a stemmer spares.
_OF_WORDS = (
    "numbers",
    "min_word_length",
    "min_document_frequency",
    "max_document_frequency",
    "vocabulary_size",
)


def _require_outside(target: Path, source: str | Path) -> None:
    """A corpus within its own source would be found there as a part of it."""
    root = normalise(source)
    if not is_url(root) and Path(root).is_dir() and target.resolve().is_relative_to(Path(root).resolve()):
        raise InputError(f"{target} lies inside the source {root}; choose another place for the corpus")


def _cache(name: str) -> Path:
    import pooch

    return Path(pooch.os_cache("streaming-jsmf")) / name
