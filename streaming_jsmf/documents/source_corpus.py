"""A corpus of a source over the words of a model, for ``transform``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streaming_jsmf.config import EXCERPT, EXCERPT_CHARACTERS, IngestRequest
from streaming_jsmf.corpus.format import Corpus, read_manifest
from streaming_jsmf.corpus.manifest import PHRASES, Json
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.ensure_corpus import ensure_corpus
from streaming_jsmf.ingestion.readers.guess import guess_source
from streaming_jsmf.ingestion.readers.registry import reads_texts
from streaming_jsmf.ingestion.spool import spool_input
from streaming_jsmf.ingestion.tokens.tokenizer import BUILT_IN
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.topics.parameters import TopicParameters
from streaming_jsmf.topics.store import Model


def corpus_of_source(
    source: Any,
    topics: TopicParameters,
    model: Model,
    beside: Path,
    reading: IngestRequest | None,
    execution: Execution | None,
    listener: Listener,
) -> tuple[Corpus, float]:
    """Return the corpus of a source, made at ``beside``, and the number of unknown tokens left out of it."""
    with spool_input(source, beside) as (path, made_for):
        tokens = model.provenance.get("tokens")
        request = replace(reading or IngestRequest(), made_for=made_for)
        request = _over_model_words(request, path, topics, tokens)
        corpus = ensure_corpus(path, beside, request, execution, listener)
    dropped = read_manifest(corpus.root).dropped
    return corpus, float(sum(step.tokens for step in dropped if step.step == "vocabulary"))


def _over_model_words(
    request: IngestRequest, source: str | Path, topics: TopicParameters, tokens: Mapping[str, Json] | None
) -> IngestRequest:
    """Return the request for a corpus over the model's words; ``tokens`` describes the model's tokenization."""
    guess = guess_source(source, request.reader, request.read)
    read: dict[str, Any] = {**guess.read, **request.read}
    curation: dict[str, Any] = {"min_distinct_words": 0, "min_tokens": 0}
    if reads_texts(guess.reader):
        options, curation["stop_words"] = _text_options(tokens)
        read = {EXCERPT: EXCERPT_CHARACTERS, **read, **options}
    return IngestRequest(
        reader=guess.reader,
        read=read,
        curation=curation,
        preset="papers",
        vocabulary=topics.words,
        on_bad_record=request.on_bad_record,
        made_for=request.made_for,
    )


def _text_options(tokens: Mapping[str, Json] | None) -> tuple[dict[str, Any], str]:
    """Return reader options that tokenize as for the model, and the stop words that its stemmer skips.

    Tokenizers named in a model are never imported: users must name their own functions.
    """
    advice = f"make a corpus with ingest {option.vocabulary('MODEL')} and give that"
    if tokens is None:
        raise InputError(f"the model does not say how to split texts into words; {advice}")
    if tokens.get("tokenizer") not in BUILT_IN:
        raise InputError(
            f"the model's words were made by {tokens.get('tokenizer')!r}; {advice}, naming it with "
            f"{option.tokenizer('NAME')}"
        )
    stop_words = str(tokens.get("stop_words") or "none")
    if tokens.get("stemmer") is not None and stop_words == "file":
        raise InputError(
            f"the model's words were stemmed except for a list of stop words; {advice}, naming the list with "
            f"{option.stop_words}"
        )
    read: dict[str, Any] = {
        key: value for key, value in tokens.items() if key != "stop_words" and value is not None
    }
    if PHRASES in read:
        read[PHRASES] = tuple(read[PHRASES].split("\n"))
    return read, "none" if stop_words == "file" else stop_words
