"""The verb ``documents``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import click

from streaming_jsmf.cli.answer import Answer, answer_options
from streaming_jsmf.cli.verb import options_of, path, verb
from streaming_jsmf.config import EXCERPT, DocumentQuery
from streaming_jsmf.display import printable

#: Number of most probable words of a topic that are marked in excerpts.
MARKED_WORDS = 100


@verb(
    "streaming-jsmf documents MODEL SHARES.parquet --topic 3 --number 20",
    "streaming-jsmf documents MODEL SHARES.parquet --by year --csv",
    long=False,
)
@path("model")
@path("shares")
@options_of(DocumentQuery)
@answer_options
def documents(model: str, shares: str, **options: Any) -> str:
    """Query topic shares that transform wrote with MODEL.

    Lists the documents of a topic, those similar to a document, or outliers, or prints mean shares by group. Without
    --topic, --by, --similar and --outliers: the mean share of each topic over all documents.
    """
    from streaming_jsmf.documents.queries import query

    answer = Answer.pop(options)
    found = query(model, shares, **options)
    if not (answer.is_text and EXCERPT in found.column_names):
        return answer.text(found, "documents")
    head, *rows = answer.text(found.drop_columns([EXCERPT]), "documents").splitlines()
    excerpts = _marked(found.column(EXCERPT).to_pylist(), model, options.get("topic"))
    return "\n".join([head, *(f"{row}\n{text}" for row, text in zip(rows, excerpts, strict=True))])


def _marked(excerpts: Sequence[str | None], model: str, topic: int | None) -> Iterator[str]:
    """Excerpts in lines of 80 characters, with the words of a topic in bold."""
    from streaming_jsmf.reporting.topics import read_topics

    shown = read_topics(model, MARKED_WORDS) if topic is not None else []
    words = {word.text for one in shown if one.number == topic for word in one.words}

    def bold(match: re.Match[str]) -> str:
        return click.style(match[0], bold=True) if match[0].lower() in words else match[0]

    for text in excerpts:
        text = printable(text or "")
        lines = textwrap.wrap(f"{text}..." if text[-1:].isalnum() else text, 76)
        yield textwrap.indent(re.sub(r"\w+", bold, "\n".join(lines)), "    ")
