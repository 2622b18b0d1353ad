"""The verb ``documents``."""

from __future__ import annotations

from typing import Any

from streaming_jsmf.cli.answer import Answer, answer_options
from streaming_jsmf.cli.verb import options_of, path, verb
from streaming_jsmf.config import DocumentQuery


@verb(
    "streaming-jsmf documents MODEL SHARES.parquet --topic 3 --number 20",
    "streaming-jsmf documents MODEL SHARES.parquet --by year --csv",
)
@path("model")
@path("shares")
@options_of(DocumentQuery)
@answer_options
def documents(model: str, shares: str, *, listener: object, **options: Any) -> str:
    """Query SHARES, which transform wrote with MODEL: documents of a topic, shares by group, similar documents.

    Without --topic, --by and --similar: the mean share of each topic over all documents.
    """
    del listener
    from streaming_jsmf.documents.queries import query

    answer = Answer.pop(options)
    return answer.text(query(model, shares, **options), "documents")
