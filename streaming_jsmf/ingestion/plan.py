"""Plan an ingest: convert a request and a source or spec to an ``Ingest`` and its origin."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from platformdirs import user_cache_dir

from streaming_jsmf.config import (
    AUTO,
    Curation,
    IngestRequest,
    ReadOptions,
    TokenOptions,
    check_options,
    for_texts,
)
from streaming_jsmf.corpus.footer import is_list
from streaming_jsmf.corpus.format import is_corpus, open_corpus
from streaming_jsmf.corpus.manifest import MANIFEST_NAME, PHRASES, Json
from streaming_jsmf.corpus.shards import LAYOUT, TOKENS_PER_SHARD
from streaming_jsmf.corpus.vocabulary import read_vocabulary
from streaming_jsmf.corpus.write import Origin
from streaming_jsmf.errors import InputError, Option, StoreError, option
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.ingestion.in_memory import Location
from streaming_jsmf.ingestion.job import Ingest
from streaming_jsmf.ingestion.readers.guess import (
    default_curation,
    files_named,
    guess_source,
    open_source,
    reads_texts,
)
from streaming_jsmf.ingestion.source_files import SourceFiles
from streaming_jsmf.ingestion.sources.listing import list_files
from streaming_jsmf.ingestion.sources.protocol import BadRecords, Reader, Unit
from streaming_jsmf.ingestion.sources.streams import find_beside
from streaming_jsmf.ingestion.spec import CorpusSpec, fetch_files, load_spec
from streaming_jsmf.ingestion.tokens.stop_words import (
    ENGLISH,
    LANGUAGES,
    NONE,
    SAMPLE,
    load_stop_words,
    sample,
    shown,
    with_languages,
)
from streaming_jsmf.ingestion.tokens.tokenizer import is_phrase, require_words, suited_tokenizer
from streaming_jsmf.ingestion.users_code import code_of
from streaming_jsmf.ingestion.value_kinds import kind_of_type
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.arrays import ArrayDigest, read_array, read_attributes
from streaming_jsmf.storage.heads import planning
from streaming_jsmf.storage.kinds import unsuitable
from streaming_jsmf.storage.paths import (
    StorePath,
    exists,
    is_chain,
    is_file,
    is_url,
    join,
    node_exists,
    normalize,
    sha256_of,
    store_path,
)
from streaming_jsmf.storage.results import UNIDENTIFIED, FileContents, identity_of_files

#: What ``--vocabulary`` takes.
_VOCABULARY = "a file of words, a corpus or a model"


logger = logging.getLogger(__name__)

#: Characters of each text from which the tokenizer is chosen.
_LONGEST = 1000

#: Fields of ``Curation`` that choose words; ``stop_words`` is not listed, because the stemmer uses it as well.
_WORD_RULES = (
    "numbers",
    "min_word_length",
    "min_document_frequency",
    "max_document_frequency",
    "vocabulary_size",
)


@planning()
def plan_ingest(
    source: Location,
    target: StorePath,
    request: IngestRequest,
    *,
    progress: bool = False,
    choose: Callable[[SourceFiles], Collection[str]] | None = None,
) -> tuple[Ingest, Origin]:
    """Return the ingest of a spec (``.toml``) or a source, and its origin for the manifest.

    Missing files of a spec are downloaded, with a progress bar if ``progress``, and all are verified. ``choose``
    selects the files to read from those of the source. Raises ``InputError`` if the spec, source or request is bad, or
    files cannot be fetched.
    """
    is_spec, tokens_per_shard = source.path.lower().endswith(".toml"), TOKENS_PER_SHARD
    given = GivenWords() if request.vocabulary is None else given_words(request.vocabulary)
    if is_spec:
        spec = load_spec(source.path)
        opened, curation, origin = _from_spec(spec, request, given, progress)
        tokens_per_shard = spec.output.tokens_per_shard
    else:
        opened, curation, origin = _from_source(source.path, request, given)
    if given.words:
        chosen = [key for key in _WORD_RULES if request.curation.get(key) is not None]
        chosen += ["phrases"] * (opened.phrases is not None)
        if chosen:
            names = ", ".join(str(Option(key)) for key in chosen)
            raise InputError(f"{option.vocabulary} gives the words to keep; leave {names} out")
    units, words, contents = opened.units(), opened.vocabulary, FileContents()
    held = {path: _files_at(path) for path in dict.fromkeys(unit.path for unit in units)}
    named = {find_beside(path, [name]) for path in held for name in files_named(opened.options) if name}
    beside = [*filter(None, named)]
    n_buckets = opened.n_buckets()
    whole = words is not None or bool(beside or n_buckets)
    files = SourceFiles.of(normalize(source.path), held, contents, whole=whole, sha256=source.sha256)
    if choose is not None:
        chosen_files = choose(files)
        units = [unit for unit in units if files.path(unit.path) in chosen_files]
    if not (is_spec or given.words or "tokenizer" in request.options):
        opened = _with_suited_tokenizer(opened, units)
    ingest = Ingest(
        opened,
        curation,
        Workspace.beside(target, "ingest"),
        request.tokens_per_shard or tokens_per_shard,
        request.on_bad_record,
        given.words or None,
        units,
        words,
        words is not None,
        n_buckets,
        known_kinds=given.kinds,
        max_dropped=request.max_dropped,
        files=files,
        recorded=choose is not None or request.made_for == "fit",
    )
    if source.sha256 is None:
        read = [file for path in dict.fromkeys(unit.path for unit in units) for file in held[path]]
        identity = identity_of_files([*read, *beside], contents)
    else:
        identity = {"files": source.sha256}
    if is_spec:
        identity["spec"] = sha256_of(source.path)
    identity = _identity(ingest, source, identity)
    folder = replace(ingest.folder, arguments={**identity, **LAYOUT}, result=fingerprint(identity))
    ingest = replace(ingest, folder=folder)
    marked = {} if request.made_for is None else {"made_for": request.made_for}
    return ingest, replace(origin, settings={**opened.settings(), **marked}, request=identity)


def _from_spec(
    spec: CorpusSpec, request: IngestRequest, given: GivenWords, progress: bool
) -> tuple[Reader, Curation, Origin]:
    for name in ("reader", "preset"):
        if getattr(request, name) is not None:
            raise InputError(f"a spec has its own {name}; leave {Option(name)} out, or edit the spec")
    curation = replace(default_curation(spec.reader, "papers"), **{**spec.curation, **request.curation})
    options = check_options(spec.reader, {**spec.read, **request.options})
    directory = (
        Path(request.files)
        if request.files is not None
        else Path(user_cache_dir("streaming-jsmf")) / spec.name
    )
    found = fetch_files(spec.source.files, directory, page=spec.source.url, progress=progress)
    spec.check_word_lists(directory)
    for name, digest in found.items():
        if spec.source.files[name].sha256 is None:
            logger.info("%s: sha256 %s; write it into the spec to pin this file", name, digest)
    names = list(found)
    location = directory
    if options.member is not None and options.member not in names:
        archives = [name for name in names if name.lower().endswith(".zip")]
        if len(archives) != 1:
            raise InputError(
                f"the spec {spec.name}: read.path is not one of its files, and it does not list exactly one zip archive"
            )
        location = directory / archives[0]
    options = _with_phrases(options, given)
    opened = open_source(location, spec.reader, options, files=names, stop_words=curation.stop_words)
    return opened, curation, Origin((), spec.source.attribution, spec.origin(found))


def _with_suited_tokenizer(opened: Any, units: Sequence[Unit]) -> Any:
    """The reader with the tokenizer for its first texts."""
    if not isinstance(opened.options, TokenOptions):
        return opened
    texts: list[str] = []
    for unit in units[:: len(units) // SAMPLE + 1]:
        found = _first_texts(opened, opened.beginning(unit)) or _first_texts(opened, unit)
        if is_list(found.type):
            require_words(found)
        chosen = () if is_list(found.type) else sample(len(found)).tolist()
        texts += [found[i].as_py()[:_LONGEST] for i in chosen]
        if len(texts) >= SAMPLE // 4:
            break
    name = suited_tokenizer(pa.array(texts, pa.string())) if texts else opened.options.tokenizer
    options = replace(opened.options, tokenizer=name)
    return replace(opened, options=options, tokenizer=replace(opened.tokenizer, options=options))


def _first_texts(opened: Any, unit: Unit) -> Any:
    return next(iter(opened.texts(unit, BadRecords("quarantine", unit, opened.place))), pa.array([]))


def _from_source(
    source: str | Path, request: IngestRequest, given: GivenWords
) -> tuple[Reader, Curation, Origin]:
    if request.files is not None:
        raise InputError(
            f"{option.files} is for a spec (.toml); give the source itself as the first argument"
        )
    guess = guess_source(source, request.reader, request.options)
    if guess.note:
        logger.info("%s", guess.note)
    reader = guess.reader
    stemmer = str(request.options.get("stemmer") or "").lower()
    rules = {"stop_words": AUTO, **request.curation} if stemmer else dict(request.curation)
    curation = replace(default_curation(reader, request.preset), **rules)
    if stemmer:
        # The stemmer needs the stop words during reading, before the languages are known.
        named = stemmer if stemmer in LANGUAGES else ENGLISH
        curation = replace(curation, stop_words=with_languages(curation.stop_words, [named]))
    texts = for_texts(TokenOptions) if reads_texts(reader) and request.preset != "papers" else {}
    options = _with_phrases(check_options(reader, {**texts, **guess.read, **request.options}), given)
    opened = open_source(source, reader, options, stop_words=curation.stop_words)
    return opened, curation, Origin()


def _with_phrases(options: ReadOptions, given: GivenWords) -> ReadOptions:
    """The options with the phrases that they name, or those of the vocabulary."""
    if not isinstance(options, TokenOptions):
        return options
    asked = options.phrases
    if asked is None and options.ngrams == 1 and given.words:
        asked = given.phrases
    elif isinstance(asked, str):
        asked = () if asked == NONE else given_words(asked).phrases
    return replace(options, phrases=asked)


@dataclass(frozen=True)
class GivenWords:
    """Words that a user gives, in order, the phrases among them, and kinds of metadata columns (see ``Ingest``)."""

    words: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)


def given_words(given: str | Path | Sequence[str]) -> GivenWords:
    """Return the words of a list, a file of words (text or Parquet), a corpus or a model.

    Raises ``InputError`` if nothing exists at the path or a word is empty or repeated, ``StoreError`` if a store is
    damaged.
    """
    if not isinstance(given, str | Path):
        words = tuple(given) if isinstance(given, Iterable) else ()
        if (
            not words
            or not all(isinstance(word, str) and word for word in words)
            or len({*words}) < len(words)
        ):
            raise InputError("the vocabulary is empty, or has an empty or repeated word; give distinct words")
        return GivenWords(words, tuple(filter(is_phrase, words)))
    root = normalize(given)
    if not exists(root):
        raise unsuitable(root, _VOCABULARY, "")
    if is_file(root):
        words = read_vocabulary(root)[0].words
        return GivenWords(words, tuple(filter(is_phrase, words)))
    if not exists(join(root, MANIFEST_NAME)) and node_exists(store := store_path(given, "a model")):
        return _words_of_model(store)
    if not is_corpus(root, _VOCABULARY):
        raise unsuitable(root, _VOCABULARY)
    corpus = open_corpus(root)
    kinds: dict[str, str] = {}
    if exists(join(root, MANIFEST_NAME)):
        kinds = {column.name: kind_of_type(column.type) for column in corpus.schema()}
    return GivenWords(corpus.vocabulary().words, _phrases_in(corpus.tokens), kinds)


def _phrases_in(tokens: Mapping[str, Any] | None) -> tuple[str, ...]:
    return tuple(str(tokens[PHRASES]).split("\n")) if tokens and PHRASES in tokens else ()


def _words_of_model(store: StorePath) -> GivenWords:
    """Words and phrases of a model, read here because corpora must not import models."""
    attributes = read_attributes(store)
    if attributes.get("kind") != "streaming_jsmf.model":
        raise unsuitable(store, _VOCABULARY)
    missing = {"digests", "provenance"} - attributes.keys()
    if missing or "word" not in attributes["digests"]:
        raise StoreError(f"{store}/zarr.json: metadata are incomplete; run infer again")
    expected = ArrayDigest.from_fields(attributes["digests"]["word"])
    words = map(str, read_array(store, "word", expected, hint="run infer again"))
    return GivenWords(tuple(words), _phrases_in(attributes["provenance"].get("tokens")))


def _identifying(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Fields that determine what is read; notes are in the words of a command, and files are identified by state."""
    return {name: value for name, value in fields if name not in ("notes", "files")}


def _identity(ingest: Ingest, source: Location, files: dict[str, Any]) -> dict[str, Any]:
    """Return everything that determines the bytes of the corpus, to recognize it and an unfinished ingest.

    ``files`` is the identity of the files that are read.
    """

    def digest_of(value: str) -> str:
        # Data in memory are in another temporary file each time.
        plain = value if source.sha256 is None else value.replace(source.path, "")
        return hashlib.sha256(plain.encode()).hexdigest()

    found = {
        **files,
        **ingest.source.settings(),
        "source": digest_of(repr(ingest.source)),
        "units": digest_of(json.dumps([asdict(unit, dict_factory=_identifying) for unit in ingest.units])),
        "words": None if ingest.words is None else _digest(ingest.words),
        **curation_fields(ingest),
        "tokens_per_shard": ingest.tokens_per_shard,
        "on_bad_record": ingest.on_bad_record,
        **({"known_kinds": dict(ingest.known_kinds)} if ingest.known_kinds else {}),
    }
    for users in ("tokenizer", "function"):
        name = getattr(ingest.source.options, users, None) or ""
        if ":" in name:
            code = code_of(name)
            found |= {users: code} if code else {UNIDENTIFIED: [*found.get(UNIDENTIFIED, []), name]}
    return found


def _files_at(path: str) -> Sequence[str]:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{path!a}: the name of the file is not UTF-8; rename it") from error
    if is_chain(path):
        return _files_at(path.rpartition("::")[2])  # the archive
    if not is_url(path) and not Path(path).is_file():
        return list_files(path)  # a folder or a glob
    return (path,)


def curation_fields(ingest: Ingest) -> Mapping[str, Json]:
    """The curation as stored: stop words and a given vocabulary by hash, without paths."""
    stop_words = ingest.curation.stop_words
    fields: dict[str, Json] = {
        # The setting of the papers is not stored, because older corpora lack this field.
        **{
            key: value
            for key, value in asdict(ingest.curation).items()
            if (key, value) != ("numbers", "keep")
        },
        "stop_words": shown(stop_words),
        "stop_words_sha256": _digest(sorted(load_stop_words(stop_words))),
    }
    return (
        fields if ingest.vocabulary is None else {**fields, "vocabulary_sha256": _digest(ingest.vocabulary)}
    )


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()
