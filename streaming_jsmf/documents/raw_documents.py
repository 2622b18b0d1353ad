"""Raw documents -> a corpus over a model's words: texts are cut as those that the model was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming_jsmf.config import IngestRequest, OnBadRecord, ReaderName
from streaming_jsmf.corpus.format import Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import PHRASES, Json
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.ensure_corpus import corpus_of
from streaming_jsmf.ingestion.readers.guess import guess_source
from streaming_jsmf.ingestion.readers.registry import reads_texts
from streaming_jsmf.ingestion.tokens.tokenizer import BUILT_IN
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.jobs.execution import Execution


@dataclass(frozen=True)
class Reading:
    """How raw documents are read: the fields of ``IngestRequest`` that do not say what a word is."""

    reader: ReaderName | None = None
    read: Mapping[str, Any] = field(default_factory=dict)
    on_bad_record: OnBadRecord = "fail"


def raw_documents(
    source: str | Path,
    beside: Path,
    words: tuple[str, ...],
    tokens: Mapping[str, Json] | None,
    reading: Reading,
    execution: Execution | None,
    listener: Listener,
    *,
    content: str | None = None,
) -> tuple[Corpus, float]:
    """Make the corpus of all documents of a source at ``beside``, and count the tokens of words that are none of these.

    Parameters
    ----------
    words, tokens
        Of the model: its vocabulary, and how its texts became words (None: it does not know).
    content
        A hash of the documents, if their file does not stay.

    Raises
    ------
    InputError
        For texts that cannot be cut as the model's, and all that ``ingest`` refuses.
    """
    guess = guess_source(source, reading.reader, reading.read)
    read: dict[str, Any] = {**guess.read, **reading.read}
    curation: dict[str, Any] = {"min_distinct_words": 0, "min_tokens": 0}
    if reads_texts(guess.reader):
        cut, stop_words = _as_the_model(tokens)
        read |= cut
        curation |= {"stop_words": stop_words}
    request = IngestRequest(
        reader=guess.reader,
        read=read,
        curation=curation,
        preset="papers",
        vocabulary=words,
        on_bad_record=reading.on_bad_record,
        made_for=content,
    )
    corpus = open_corpus(corpus_of(source, beside, request, execution, listener))
    steps = read_manifest(corpus.root).dropped
    return corpus, float(sum(step.tokens for step in steps if step.step == "vocabulary"))


def _as_the_model(tokens: Mapping[str, Json] | None) -> tuple[dict[str, Any], str]:
    """The options of a reader of texts that cut them as the model's were, and the stop words that a stemmer spares.

    Nothing that a model names is imported: a function of the user's own is given by the user.
    """
    own_way = "make a corpus with ingest --vocabulary MODEL and give that"
    if tokens is None:
        raise InputError(f"the model does not know how its texts became words; {own_way}")
    if tokens.get("tokenizer") not in BUILT_IN:
        raise InputError(
            f"the model's words were made by {tokens.get('tokenizer')!r}; {own_way}, naming it with --tokenizer"
        )
    stop_words = str(tokens.get("stop_words") or "none")
    if tokens.get("stemmer") is not None and stop_words == "file":
        raise InputError(
            f"the model's words were stemmed but for those of a list of stop words; {own_way}, naming the list with "
            "--stop-words"
        )
    read: dict[str, Any] = {
        key: tokens[key] for key in tokens if key != "stop_words" and tokens[key] is not None
    }
    if PHRASES in read:
        read[PHRASES] = tuple(read[PHRASES].split("\n"))
    return read, "none" if stop_words == "file" else stop_words
