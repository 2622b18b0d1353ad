"""A corpus of a source over the words of a model, for ``transform``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from streaming_jsmf.config import BUILT_IN, EXCERPT, EXCERPT_CHARACTERS, IngestRequest
from streaming_jsmf.corpus.format import Corpus, read_manifest
from streaming_jsmf.corpus.manifest import PHRASES, Json
from streaming_jsmf.corpus.write import Origin
from streaming_jsmf.errors import InputError, StreamingJSMFError, option
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.ingestion.in_memory import located
from streaming_jsmf.ingestion.job import Ingest
from streaming_jsmf.ingestion.plan import plan_ingest
from streaming_jsmf.ingestion.readers.guess import guess_source, reads_texts
from streaming_jsmf.ingestion.steps import run_ingest
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.heads import planning
from streaming_jsmf.storage.lock import recover
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.replace import remove_store
from streaming_jsmf.storage.results import UNIDENTIFIED
from streaming_jsmf.topics.parameters import TopicParameters
from streaming_jsmf.topics.store import Model


@dataclass(frozen=True)
class SourceDocuments:
    """Documents of a source over the words of a model, which are ingested when they are needed."""

    planned: Ingest
    origin: Origin
    execution: Execution
    listener: Listener

    @property
    def identity(self) -> str:
        """Fingerprint of the request of the corpus, or of the corpus if its source cannot be identified."""
        unknown = UNIDENTIFIED in self.origin.request
        return self.corpus[0].fingerprint if unknown else fingerprint(self.origin.request)

    @cached_property
    def corpus(self) -> tuple[Corpus, float]:
        """The corpus, made next to the result, and the number of unknown tokens left out of it."""
        made = run_ingest(self.planned, self.origin, self.execution.reporting_on("ingest"), self.listener)
        dropped = read_manifest(made.root).dropped
        return made, float(sum(step.tokens for step in dropped if step.step == "vocabulary"))

    def remove(self) -> None:
        """Remove the corpus if it was made of these documents."""
        path = self.planned.folder.target
        recover(path)  # an earlier removal may have been interrupted
        with suppress(StreamingJSMFError):
            if fingerprint(read_manifest(str(path)).request) == fingerprint(self.origin.request):
                remove_store(path)


@contextmanager
def documents_of_source(
    source: Any,
    topics: TopicParameters,
    model: Model,
    place: StorePath,
    reading: IngestRequest | None,
    execution: Execution,
    listener: Listener,
) -> Iterator[SourceDocuments]:
    """Yield the documents of a source; data in memory are in a temporary file during the block."""
    with located(source, place if execution.elsewhere else None) as location:
        tokens = model.provenance.get("tokens")
        with planning():
            request = _over_model_words(reading or IngestRequest(), location.path, topics, tokens)
            planned = plan_ingest(location, place, request)
        yield SourceDocuments(*planned, execution, listener)


def _over_model_words(
    request: IngestRequest, source: str | Path, topics: TopicParameters, tokens: Mapping[str, Json] | None
) -> IngestRequest:
    """Return the request for a corpus over the model's words; ``tokens`` describes the model's tokenization."""
    guess = guess_source(source, request.reader, request.options)
    read: dict[str, Any] = {**guess.read, **request.options}
    curation: dict[str, Any] = {"min_distinct_words": 0, "min_tokens": 0}
    if reads_texts(guess.reader):
        options, curation["stop_words"] = _text_options(tokens)
        read = {EXCERPT: EXCERPT_CHARACTERS, **read, **options}
    return IngestRequest(
        reader=guess.reader,
        options=read,
        curation=curation,
        preset="papers",
        vocabulary=topics.words,
        on_bad_record=request.on_bad_record,
        made_for="transform",
    )


def _text_options(tokens: Mapping[str, Json] | None) -> tuple[dict[str, Any], str]:
    """Return reader options that tokenize as for the model, and the stop words that its stemmer skips."""
    # Tokenizers named in a model are never imported: users must name their own functions.
    advice = f"make a corpus with ingest {option.vocabulary('MODEL').alone} and give that"
    if tokens is None:
        raise InputError(f"the model does not say how to split texts into words; {advice}")
    if tokens.get("tokenizer") not in BUILT_IN:
        raise InputError(
            f"the model's words were made by {tokens.get('tokenizer')!r}; {advice}, naming it with "
            f"{option.tokenizer('NAME')}"
        )
    stop_words = str(tokens.get("stop_words") or "none")
    own = not {"file", "words"}.isdisjoint(stop_words.split(","))
    if tokens.get("stemmer") is not None and own:
        raise InputError(
            f"the model's words were stemmed except for a list of stop words; {advice}, naming the list with "
            f"{option.stop_words}"
        )
    read: dict[str, Any] = {
        key: value for key, value in tokens.items() if key != "stop_words" and value is not None
    }
    if PHRASES in read:
        read[PHRASES] = tuple(read[PHRASES].split("\n"))
    return read, "none" if own else stop_words
