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
from streaming_jsmf.corpus.curation import ALL_DOCUMENTS
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


class _Limit(click.ParamType):  # type: ignore[type-arg]
    """A number of documents, or a share of them: 5, 0.3, 30%; all of them: 100%, 1.0."""

    name = "limit"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(
                f"{value!r} is neither a number of documents nor a share such as 0.3 or 30%", param, ctx
            )
        # As in scikit-learn: 1 is one document, 1.0 are all.
        return ALL_DOCUMENTS if number == 1 and text != "1" else number


class _Ngrams(click.ParamType):  # type: ignore[type-arg]
    """The longest run of words; also as scikit-learn has it: 1,2."""

    name = "ngrams"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        parts = str(value).strip(" ()").split(",")
        try:
            numbers = [int(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 2) or not 1 <= numbers[-1] <= 3 or (len(numbers) == 2 and numbers[0] != 1):
            self.fail(f"{value!r} is not 1, 2 or 3, nor a range from 1: 1,2", param, ctx)
        return numbers[-1]


#: Headings of the options.
DOCUMENTS, READING, TEXTS = "Words and documents that stay", "Reading the source", "Texts"

_CURATION = (
    option("--preset", group=DOCUMENTS, rare=True, type=click.Choice(["text", "papers"]), default=None,
                 help="What texts start from. text: the defaults below. papers: stop words alone are left out.  "
                      "[default: text]"),
    option("--stop-words", group=DOCUMENTS, metavar="auto|LANGUAGES|FILE|none", default=None,
                 help="Stop words, left out: auto guesses the language; or english, german,french, a file of words.  "
                      "[default: auto for texts, english for docword, none for items and genes]"),
    option("--vocabulary", group=DOCUMENTS, metavar="FILE|CORPUS|MODEL", default=None,
                 help="Keep exactly these words, so that the corpus fits a store or a model.  [default: chosen]"),
    option("--vocabulary-size", "--max-features", group=DOCUMENTS, type=int, default=None,
                 help="Words kept, the best by tf-idf.  [default: all]"),
    option("--min-document-frequency", "--min-df", group=DOCUMENTS, type=_Limit(), default=None,
                 metavar="NUMBER|SHARE",
                 help="Documents a word must be in, or a share of all.  [default: 1; of texts 5, more beyond 10,000 "
                      "documents and less below 100]"),
    option("--max-document-frequency", "--max-df", group=DOCUMENTS, type=_Limit(), default=None,
                 metavar="NUMBER|SHARE",
                 help="Documents a word may be in, or a share of all; 100% for no limit.  [default: of texts 20%]"),
    option("--min-word-length", group=DOCUMENTS, rare=True, type=int, default=None,
                 help="Least number of characters of a word.  [default: 1; of texts 3, and 2 in Han, Kana and Hangul]"),
    option("--numbers", group=DOCUMENTS, rare=True, type=click.Choice(["keep", "drop"]), default=None,
                 help="What becomes of words without a letter.  [default: keep; of texts drop]"),
    option("--duplicates", group=DOCUMENTS, rare=True, type=click.Choice(["keep", "drop"]), default=None,
                 help="What becomes of copies, documents with the words of another.  [default: keep; of texts drop]"),
    option("--min-distinct-words", group=DOCUMENTS, rare=True, type=int, default=None,
                 help="Distinct words that a document needs to stay; 0 is off.  [default: 3]"),
    option("--min-tokens", group=DOCUMENTS, rare=True, type=int, default=None,
                 help="Tokens of words kept that a document needs to stay; 0 is off.  [default: 5]"),
)  # fmt: skip

_READING = (
    option("--reader", group=READING, type=_Reader(), default=None, metavar="NAME",
                 help="text, text-files, lines, docword, triples, ratings, baskets, npz, matrix-market, h5ad or "
                      "bag-of-words-parquet.  [default: by names and columns]"),
    option("--read", group=READING, multiple=True, metavar="KEY=VALUE",
                 help="An option of the reader, such as text=body, id=url, metadata=year,country or delimiter=;"),
    option("--encoding", group=READING, rare=True, default=None, metavar="NAME,NAME",
                 help="Encoding of texts, such as cp1252, or several that are tried in turn: utf-8,cp1252.  "
                      "[default: utf-8, or as a byte order mark tells]"),
    option("--on-bad-record", group=READING, type=click.Choice(["fail", "quarantine"]), default="fail",
                 show_default=True,
                 help="fail: stop at the first bad record. quarantine: keep bad ones in quarantine.parquet and go on."),
)  # fmt: skip

_WORDS = (
    option("--tokenizer", group=TEXTS, rare=True, default=None, metavar="NAME",
                 help="How texts become words: arrow, sklearn, chinese, japanese, or a callable of your own as "
                      "MODULE:FUNCTION.  "
                      "[default: arrow]"),
    option("--ngrams", "--ngram-range", group=TEXTS, rare=True, type=_Ngrams(), default=None, metavar="1|2|3|1,2|1,3",
                 help="Longest run of words that counts as a word, too.  [default: 1]"),
    option("--phrases", group=TEXTS, rare=True, metavar="NPMI|FILE|CORPUS|MODEL|none", default=None,
                 help="Neighbouring words that become one word, such as new york: those with so high an NPMI, from 0 "
                      "to 1 (0.5 finds names, 0.3 more), or those listed.  [default: none, or of --vocabulary]"),
    option("--stemmer", group=TEXTS, rare=True, metavar="LANGUAGE", default=None,
                 help="Snowball stemmer that cuts words down, such as english.  [default: none]"),
    option("--boilerplate", group=TEXTS, rare=True, type=click.Choice(["keep", "drop"]), default=None,
                 help="Headers, quoted lines and signatures of mail, tags, addresses: keep or drop.  [default: drop]"),
    option("--files", group=READING, rare=True, type=click.Path(), default=None,
                 help="Directory of a spec's files; missing ones are fetched to it.  [default: the user's cache]"),
    option("--tokens-per-shard", group=TEXTS, rare=True, type=int, default=None,
                 help="Tokens of a shard, a file of the corpus.  [default: 20 M]"),
)  # fmt: skip

#: Names of all of these options among a verb's.
_NAMES = (
    "preset", "stop_words", "vocabulary", "vocabulary_size", "min_document_frequency", "max_document_frequency",
    "min_word_length", "numbers", "duplicates", "min_distinct_words", "min_tokens", "reader", "read", "encoding",
    "on_bad_record", "tokenizer", "phrases", "ngrams", "stemmer", "boilerplate", "files", "tokens_per_shard",
)  # fmt: skip


def ingest_options(command: Any) -> Any:
    """All options about how a source becomes a corpus; ``take_request`` takes their values."""
    for decorator in reversed((*_READING, *_CURATION, *_WORDS)):
        command = decorator(command)
    return command


def reading_options(command: Any) -> Any:
    """Those about how the records of a source are read, whatever becomes of their words."""
    for decorator in reversed(_READING):
        command = decorator(command)
    return command


@verb(
    "streaming-jsmf ingest texts/ CORPUS --vocabulary-size 20000",
    "streaming-jsmf ingest ratings.csv CORPUS --reader ratings",
)
@click.argument("source")
@click.argument("corpus", type=click.Path())
@ingest_options
@options.overwrite_option
@option("--quiet", is_flag=True, help="Say nothing but the result and what is wrong.")
@options.execution_options
@options.log_option
def ingest(
    source: str, corpus: str, overwrite: bool, quiet: bool, log_json: str | None, **asked: Any
) -> None:
    """Make CORPUS from SOURCE: a spec (.toml), a file, a directory or a glob, local or a URL.

    What was left out is told when it is done. An interrupted ingest is finished by running it again.
    """
    from streaming_jsmf.workflow.ingest import ingest as run

    with observed(log_json, quiet=quiet) as listener:
        request = take_request(asked)
        execution = options.take_execution(asked)
        # A bar of the files that are fetched has no place between lines of JSON.
        progress = sys.stderr.isatty() and log_json != STANDARD_ERROR and not quiet
        built = run(source, corpus, request, execution, listener, overwrite=overwrite, progress=progress)
    sizes = f"{built.n_documents} documents, {built.n_words} words, {built.nonzeros} nonzeros"
    click.echo(f"corpus: {corpus} ({sizes})")


def take_request(given: dict[str, Any]) -> IngestRequest:
    """Take the values of ``ingest_options`` out of a verb's options; those that no reader takes are curation."""
    from streaming_jsmf.workflow.ingest import IngestRequest

    asked = {name: given.pop(name) for name in _NAMES}
    reader, tokenizer, phrases, preset, vocabulary, tokens_per_shard, on_bad_record, files = (
        asked.pop(name)
        for name in (
            "reader",
            "tokenizer",
            "phrases",
            "preset",
            "vocabulary",
            "tokens_per_shard",
            "on_bad_record",
            "files",
        )
    )
    read = reader_options(asked.pop("read"), asked.pop("encoding"))
    own = tokenizer if tokenizer is not None and ":" in tokenizer else None
    of_texts = {"tokenizer": None if own else tokenizer}
    of_texts |= {name: asked.pop(name) for name in ("ngrams", "stemmer", "boilerplate")}
    read |= {name: value for name, value in of_texts.items() if value is not None}
    if own:
        # As with other programs that import what the user names: from where the command was started.
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    return IngestRequest(
        reader=reader,
        read=read,
        curation={name: value for name, value in asked.items() if value is not None},
        preset=preset,
        vocabulary=vocabulary,
        tokenizer=own,
        phrases=phrases,
        tokens_per_shard=tokens_per_shard,
        on_bad_record=on_bad_record,
        files=files,
    )


def reader_options(pairs: tuple[str, ...], encoding: str | None) -> dict[str, Any]:
    """The values of ``--read`` and ``--encoding``; ``InputError`` for what is no pair."""
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise InputError(f"--read is {pair!r}; give KEY=VALUE, such as text=body")
        given[key] = value
    return given if encoding is None else {**given, "encoding": encoding}
