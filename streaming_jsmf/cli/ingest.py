"""The verb that makes corpora."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, get_args

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.log_json import STANDARD_ERROR
from streaming_jsmf.cli.observation import observed
from streaming_jsmf.cli.verb import option, verb
from streaming_jsmf.errors import InputError

if TYPE_CHECKING:
    from streaming_jsmf.workflow.ingest import IngestRequest


def _readers() -> list[str]:
    from streaming_jsmf.sources.registry import ReaderName

    return list(get_args(ReaderName))


class _Reader(click.ParamType):  # type: ignore[type-arg]
    """Checked when used, so that ``--help`` of other verbs does not load all readers."""

    name = "reader"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if value not in _readers():
            self.fail(f"{value!r} is not one of {', '.join(_readers())}", param, ctx)
        return str(value)


#: Headings of the options.
WORDS, READING = "Words and documents that stay", "Reading the source"

_CURATION = (
    option("--stop-words", group=WORDS, metavar="english|FILE|none", default=None,
                 help="Stop words, which are left out.  [default: english for texts and docword, none for items "
                      "and genes]"),
    option("--vocabulary-size", group=WORDS, type=int, default=None, help="Words kept, by tf-idf.  [default: all]"),
    option("--min-document-frequency", group=WORDS, type=float, default=None,
                 help="Documents a word must be in; below 1 a share of all.  [default: 1]"),
    option("--max-document-frequency", group=WORDS, type=float, default=None,
                 help="Documents a word may be in; below 1 a share of all.  [default: all]"),
    option("--min-word-length", group=WORDS, type=int, default=None,
                 help="Least number of characters of a word.  [default: 1]"),
    option("--duplicates", group=WORDS, type=click.Choice(["keep", "drop"]), default=None,
                 help="What becomes of documents with the words of another.  [default: keep, and count]"),
    option("--min-distinct-words", group=WORDS, rare=True, type=int, default=None,
                 help="Distinct words that a document needs to stay; 0 is off.  [default: 3]"),
    option("--min-tokens", group=WORDS, rare=True, type=int, default=None,
                 help="Tokens of words kept that a document needs to stay; 0 is off.  [default: 5]"),
)  # fmt: skip

_READING = (
    option("--reader", group=READING, type=_Reader(), default=None, metavar="NAME",
                 help="text, text-files, docword, triples, ratings, baskets, npz, matrix-market, h5ad or "
                      "bag-of-words-parquet.  [default: by names and columns]"),
    option("--read", group=READING, multiple=True, metavar="KEY=VALUE",
                 help="An option of the reader, such as text=body, id=url, metadata=year,country or delimiter=;"),
    option("--tokenizer", group=READING, default=None, metavar="NAME",
                 help="Of texts: arrow, sklearn, or a callable of your own as MODULE:FUNCTION.  [default: arrow]"),
    option("--ngrams", group=READING, type=click.IntRange(1, 3), default=None,
                 help="Longest run of words that counts as a word, too.  [default: 1]"),
    option("--stemmer", group=READING, metavar="LANGUAGE", default=None,
                 help="Snowball stemmer that cuts words down, such as english.  [default: none]"),
    option("--files", group=READING, rare=True, type=click.Path(), default=None,
                 help="Directory of a spec's files; missing ones are fetched to it.  [default: the user's cache]"),
    option("--on-bad-record", group=READING, type=click.Choice(["fail", "quarantine"]),
                 default="fail", show_default=True,
                 help="fail: stop at the first bad record. quarantine: keep bad records in "
                      "quarantine.parquet and go on."),
    option("--tokens-per-shard", group=READING, rare=True, type=int, default=None,
                 help="Tokens of a shard, a file of the corpus.  [default: 20 M]"),
)  # fmt: skip


def _decorate(command: Any) -> Any:
    for decorator in reversed((*_CURATION, *_READING)):
        command = decorator(command)
    return command


@verb(
    "streaming-jsmf ingest texts/ CORPUS --vocabulary-size 20000",
    "streaming-jsmf ingest ratings.csv CORPUS --reader ratings",
)
@click.argument("source")
@click.argument("corpus", type=click.Path())
@_decorate
@options.execution_options
@options.log_option
def ingest(source: str, corpus: str, log_json: str | None, **asked: Any) -> None:
    """Make CORPUS from SOURCE: a spec (.toml), a file, a directory or a glob, local or a URL.

    An interrupted ingest is finished by running it again.
    """
    from streaming_jsmf.workflow.ingest import ingest as run

    with observed(log_json) as listener:
        execution = options.take_execution(asked)
        # A bar of the files that are fetched has no place between lines of JSON.
        progress = sys.stderr.isatty() and log_json != STANDARD_ERROR
        built = run(source, corpus, _request(asked), execution, listener, progress=progress)
    sizes = f"{built.n_documents} documents, {built.n_words} words, {built.nonzeros} nonzeros"
    click.echo(f"corpus: {corpus} ({sizes})")


def _request(asked: dict[str, Any]) -> IngestRequest:
    """What the options ask for; those that no reader takes are curation."""
    from streaming_jsmf.workflow.ingest import IngestRequest

    reader, tokenizer, tokens_per_shard, on_bad_record, files = (
        asked.pop(name) for name in ("reader", "tokenizer", "tokens_per_shard", "on_bad_record", "files")
    )
    read = _reader_options(asked.pop("read"))
    own = tokenizer if tokenizer is not None and ":" in tokenizer else None
    of_texts = {"tokenizer": None if own else tokenizer}
    of_texts |= {name: asked.pop(name) for name in ("ngrams", "stemmer")}
    read |= {name: value for name, value in of_texts.items() if value is not None}
    if own:
        # As with other programs that import what the user names: from where the command was started.
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    return IngestRequest(reader, read, asked, own, tokens_per_shard, on_bad_record, files)


def _reader_options(pairs: tuple[str, ...]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise InputError(f"--read is {pair!r}; give KEY=VALUE, such as text=body")
        given[key] = value
    return given
