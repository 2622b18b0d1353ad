"""A data set described in a small TOML file, and the corpus built from it. Nothing in a spec is executed."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, ValidationError

from streaming_jsmf.corpus.curate import Curation, curate_corpus
from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.corpus.stop_words import ENGLISH, NONE
from streaming_jsmf.corpus.storage import AnyPath, exists, join, normalise, sha256_of
from streaming_jsmf.corpus.validation import RelativeName, Sha256, Strict, explain
from streaming_jsmf.errors import InputError


class SourceTable(Strict):
    """[source]: where the files are from and what their licence asks for; ``sha256`` by relative file name."""

    url: str
    doi: str | None = None
    licence: str
    attribution: str
    document_id: str | None = None
    sha256: Annotated[dict[RelativeName, Sha256], Field(min_length=1)]


class CurationTable(Strict):
    """[curation]: the fields of ``Curation``; a path of stop words is relative to the spec."""

    stop_words: str = Curation.stop_words
    vocabulary_size: PositiveInt | None = Curation.vocabulary_size
    min_document_frequency: PositiveInt = Curation.min_document_frequency
    min_distinct_words: PositiveInt = Curation.min_distinct_words
    min_tokens: PositiveInt = Curation.min_tokens


class OutputTable(Strict):
    """[output]: how the corpus is cut."""

    tokens_per_shard: PositiveInt = TOKENS_PER_SHARD


class CorpusSpec(Strict):
    """A whole spec. ``note`` says what was changed, for the attribution."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    title: str
    note: str = ""
    reader: Literal["bag-of-words-parquet"]
    source: SourceTable
    curation: CurationTable = CurationTable()
    output: OutputTable = OutputTable()


def load_spec(path: AnyPath) -> CorpusSpec:
    """Read and check a spec.

    Raises
    ------
    InputError
        If the spec is bad; the message names the key and what is allowed there.
    """
    where = Path(normalise(path))
    try:
        raw = tomllib.loads(where.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the spec {where} ({type(error).__name__}); check the path") from error
    except ValueError as error:
        raise InputError(f"the spec {where} is not valid TOML: {error}") from error
    try:
        spec = CorpusSpec.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"the spec {where}: {explain(error, CorpusSpec)}") from error
    return _with_stop_words_beside(spec, where.parent)


def build_corpus(spec: CorpusSpec | AnyPath, source_dir: AnyPath, target: AnyPath) -> Corpus:
    """Verify the source files of a spec, curate them, and write the corpus at ``target`` (local, new).

    One pass over the bytes to hash them here, one in ``open_corpus`` unless the source has a manifest, then the
    two passes of ``curate_corpus``.

    Raises
    ------
    InputError
        For a bad spec, a source file that is missing or has another hash, a file that the spec does not list,
        and whatever ``open_corpus`` and ``curate_corpus`` refuse.
    """
    if not isinstance(spec, CorpusSpec):
        spec = load_spec(spec)
    root = normalise(source_dir)
    _verify_source(spec, root)
    corpus = open_corpus(root)
    _check_all_listed(spec, corpus)
    return curate_corpus(
        corpus,
        target,
        Curation(**{field.name: getattr(spec.curation, field.name) for field in fields(Curation)}),
        id_column=spec.source.document_id,
        tokens_per_shard=spec.output.tokens_per_shard,
        attribution=spec.source.attribution,
        source=_source(spec),
    )


def _with_stop_words_beside(spec: CorpusSpec, directory: Path) -> CorpusSpec:
    """A list of stop words is found beside its spec, wherever the command was started."""
    choice = spec.curation.stop_words
    if choice in (ENGLISH, NONE):
        return spec
    curation = spec.curation.model_copy(update={"stop_words": str(directory / choice)})
    return spec.model_copy(update={"curation": curation})


def _verify_source(spec: CorpusSpec, root: str) -> None:
    for name, expected in sorted(spec.source.sha256.items()):
        path = join(root, name)
        if not exists(path):
            raise InputError(f"{path} is missing; get the source from {spec.source.url}")
        found = sha256_of(path)
        if found != expected:
            raise InputError(
                f"{path} has sha256 {found[:12]}..., the spec {spec.name} expects {expected[:12]}...; "
                f"get the source again from {spec.source.url}, or correct the spec"
            )


def _check_all_listed(spec: CorpusSpec, corpus: Corpus) -> None:
    """A file beside the listed ones would enter the corpus unverified."""
    vocabulary = corpus.vocabulary_path.removeprefix(corpus.root).lstrip("/")
    for name in (*(shard.name for shard in corpus.shards), vocabulary):
        if name not in spec.source.sha256:
            raise InputError(
                f"{join(corpus.root, name)} is not listed under source.sha256 of the spec {spec.name}; "
                "list it there or move it away"
            )


def _source(spec: CorpusSpec) -> dict[str, Json]:
    return {
        "name": spec.name,
        "title": spec.title,
        "url": spec.source.url,
        "doi": spec.source.doi,
        "licence": spec.source.licence,
        "note": spec.note,
    }
