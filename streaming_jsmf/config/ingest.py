"""What a user chooses when a corpus is made: how the source is read, and which words and documents are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Literal

from streaming_jsmf.config.fields import Settings, declared, fields_given, setting
from streaming_jsmf.config.keywords import require_kind
from streaming_jsmf.errors import InputError, Option, option

ReaderName = Literal[
    "text",
    "text-files",
    "lines",
    "docword",
    "triples",
    "ratings",
    "baskets",
    "npz",
    "matrix-market",
    "h5ad",
    "bag-of-words-parquet",
]
#: Starting point of the curation of texts: readable topics, or the papers.
Preset = Literal["text", "papers"]
OnBadRecord = Literal["fail", "quarantine"]
KeepOrDrop = Literal["keep", "drop"]

#: Column with the beginning of each text; default and maximum of its length.
EXCERPT = "excerpt"
EXCERPT_CHARACTERS, LONGEST_EXCERPT = 300, 10_000

#: A document frequency above any number of documents: no limit.
ALL_DOCUMENTS = 2**53

CURATION, READING, TEXTS = "Words and documents to keep", "Reading the source", "Texts"

_curation = partial(setting, group=CURATION)
_reading = partial(setting, group=READING)
_texts = partial(setting, group=TEXTS, rare=True)


def _converted(name: str, convert: Callable[[str], Any], wanted: str) -> Callable[[Any], Any]:
    """A parser that passes integers and None on, and names the option if the text cannot be converted."""

    def parse(given: Any) -> Any:
        if given is None or (isinstance(given, int) and not isinstance(given, bool)):
            return given
        try:
            return convert(str(given).strip())
        except ValueError:
            raise InputError(f"{Option(name)} is {given!r}; give {wanted}") from None

    return parse


def _limit(text: str) -> float:
    number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    # As in scikit-learn, 1 is one document and 1.0 are all of them.
    return ALL_DOCUMENTS if number == 1 and text != "1" else number


def _longest_run(text: str) -> int:
    numbers = [int(part) for part in text.strip(" ()[]").split(",")]
    if len(numbers) > 2 or not 1 <= numbers[-1] <= 3 or (len(numbers) == 2 and numbers[0] != 1):
        raise ValueError
    return numbers[-1]


def _in_lines(given: Any) -> Any:
    """Stop words as one string, in which each item of a list or set has a line, and = marks those of a set as words."""
    kinds = (list, tuple, set, frozenset)
    if not isinstance(given, kinds):
        return given
    mark = "=" if isinstance(given, set | frozenset) else ""
    lines = [_in_lines(item) if isinstance(item, kinds) else f"\n{mark}{item}" for item in given]
    return "".join(sorted(lines) if mark else lines)


def _pairs(given: Any) -> Any:
    """KEY=VALUE pairs as a dictionary; a dictionary is returned unchanged."""
    if isinstance(given, Mapping):
        return given
    pairs = [pair.partition("=") for pair in given]
    for key, equals, value in pairs:
        if not (key and equals):
            raise InputError(f"{option.read} is {key + value!r}; give KEY=VALUE, such as delimiter=;")
    return {key: value for key, _, value in pairs}


_SHARE = "a number of documents, or a share of them such as 0.3 or 30%"


@dataclass(frozen=True)
class Curation(Settings):
    """Which words and documents of a source are kept. The defaults are those of the papers.

    Texts start from ``corpus.curation.TEXT_CURATION`` instead.

    Parameters
    ----------
    stop_words
        Stop words to remove: auto (those of the detected languages), languages, FILES of words, several such as
        auto,extra.txt, or none.
    numbers
        Whether to keep words without letters.
    min_word_length
        Minimum number of characters in a word.
    min_document_frequency
        Minimum document frequency of a word.
    max_document_frequency
        Maximum document frequency of a word. 100% removes the limit.
    vocabulary_size
        Keep only this many words, those with the largest tf-idf.
    duplicates
        Whether to keep documents whose words equal those of an earlier document.
    min_distinct_words
        Minimum number of distinct words in a document. 0 disables this filter.
    min_tokens
        Minimum number of tokens in a document, counting kept words only. 0 disables this filter.
    """

    stop_words: str = _curation(
        "english",
        absent="auto for texts, english for docword, none for items",
        metavar="auto,LANGUAGES,FILES|none",
        parse=_in_lines,
    )
    numbers: KeepOrDrop = _curation("keep", absent="keep; for texts drop", rare=True)
    min_word_length: int | Literal["auto"] = _curation(
        1, absent="1; for texts 3, or 2 in Han, Kana and Hangul", ge=1, rare=True
    )
    min_document_frequency: float | Literal["auto"] = _curation(
        1,
        absent="1; for texts 5, or more in large corpora",
        flags=("--min-document-frequency", "--min-df"),
        metavar="NUMBER|SHARE",
        parse=_converted("min_df", _limit, _SHARE),
        gt=0,
    )
    max_document_frequency: float | None = _curation(
        None,
        absent="no limit; for texts 20%",
        flags=("--max-document-frequency", "--max-df"),
        metavar="NUMBER|SHARE",
        parse=_converted("max_df", _limit, _SHARE),
        gt=0,
    )
    vocabulary_size: int | None = _curation(
        None, absent="all", flags=("--vocabulary-size", "--max-features"), ge=1
    )
    duplicates: KeepOrDrop = _curation("keep", absent="keep; for texts drop", rare=True)
    min_distinct_words: int = _curation(3, absent="3; for texts 1", ge=0, rare=True)
    min_tokens: int = _curation(5, absent="5; for texts 1", ge=0, rare=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop_words", _in_lines(self.stop_words) or "none")
        super().__post_init__()
        for name in ("min_document_frequency", "max_document_frequency"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str) or value < 1 or float(value).is_integer()):
                raise InputError(
                    f"{Option(name)} is {value}; give a whole number of documents, or a share below 1"
                )


@dataclass(frozen=True)
class TextReading(Settings):
    """Options of the readers, mostly of those of texts; None leaves the reader's default.

    Parameters
    ----------
    text
        Column of the texts.
    id
        Column of the document ids.
    metadata
        Columns to keep with the documents, separated by commas.
    excerpt
        Store this many characters of each text. 0 stores no text.
    encoding
        Text encoding, such as cp1252, or several to try in order: utf-8,cp1252.
    ngrams
        Maximum length of n-grams to count as words.
    stemmer
        Language of the Snowball stemmer, such as english.
    boilerplate
        Whether to keep mail headers, quoted lines, signatures, tags and addresses.
    """

    text: str | None = _reading(None, absent="detected", metavar="COLUMN")
    id: str | None = _reading(None, absent="detected, or file and row", metavar="COLUMN", rare=True)
    metadata: str | Sequence[str] | None = _reading(None, absent="all", metavar="COLUMNS")
    excerpt: int | None = _reading(
        None,
        absent=f"{EXCERPT_CHARACTERS}; 0 with the preset papers",
        metavar="CHARACTERS",
        ge=0,
        le=LONGEST_EXCERPT,
    )
    encoding: str | None = _reading(
        None, absent="utf-8, or as the byte order mark says", metavar="NAME,NAME", rare=True
    )
    ngrams: int | None = _texts(
        None,
        absent="1",
        flags=("--ngrams", "--ngram-range"),
        metavar="1|2|3|1,2|1,3",
        parse=_converted("ngrams", _longest_run, "1, 2 or 3, or a range that starts at 1, such as 1,2"),
    )
    stemmer: str | None = _texts(None, absent="none", metavar="LANGUAGE")
    boilerplate: KeepOrDrop | None = _texts(None, absent="drop")


@dataclass(frozen=True)
class IngestRequest(Settings):
    """How a source becomes a corpus. None keeps the value of the spec, or the default.

    Parameters
    ----------
    reader
        Reader to use: text, text-files, lines, docword, triples, ratings, baskets, npz, matrix-market, h5ad
        or bag-of-words-parquet.
    read
        Another option of the reader, such as delimiter=; (may be repeated).
    curation
        Fields of ``Curation`` by name.
    preset
        Preset for texts. text: the defaults listed here. papers: remove only stop words.
    vocabulary
        Use exactly these words, for example to match an existing store or model.
    tokenizer
        Tokenizer: arrow, sklearn, chinese, japanese, or a callable as MODULE:FUNCTION; in Python
        also the function itself.
    phrases
        Join adjacent words into phrases such as new york: all pairs with at least this NPMI, from 0 to 1 (0.5
        finds names, 0.3 more), or those listed.
    tokens_per_shard
        Target number of tokens per shard, a file of the corpus.
    on_bad_record
        fail: stop at the first bad record. quarantine: write bad records to quarantine.parquet
        and continue.
    files
        Directory with the files of a spec; missing files are downloaded there.
    made_for
        Function that makes the corpus for its own use, such as fit.
    """

    reader: ReaderName | None = _reading(None, absent="detected from file names and columns", metavar="NAME")
    read: Mapping[str, Any] = _reading(
        factory=dict, metavar="KEY=VALUE", multiple=True, parse=_pairs, rare=True
    )
    curation: Mapping[str, Any] = setting(factory=dict, option=False)
    preset: Preset | None = _curation(None, absent="text", rare=True)
    vocabulary: str | Path | Sequence[str] | None = _curation(
        None, absent="chosen", metavar="FILE|CORPUS|MODEL"
    )
    tokenizer: str | Callable[[str], Iterable[str]] | None = _texts(None, absent="arrow", metavar="NAME")
    phrases: float | str | Path | Sequence[str] | None = _texts(
        None, absent="none, or those of the vocabulary", metavar="NPMI|FILE|CORPUS|MODEL|none"
    )
    tokens_per_shard: int | None = _texts(None, absent="20 M", ge=1)
    on_bad_record: OnBadRecord = _reading("fail", rare=True)
    files: str | Path | None = _reading(None, absent="the user cache directory", metavar="PATH", rare=True)
    made_for: str | None = setting(None, option=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = declared(Curation)
        require_kind("curation", self.curation, Mapping)
        for key in self.curation.keys() - known.keys():
            near = ", ".join(get_close_matches(str(key), known, 3)) or ", ".join(known)
            raise InputError(f"curation has the unknown key {key!r}; did you mean one of {near}?")
        Curation(**{key: value for key, value in self.curation.items() if value is not None})


#: Options of a source that a given model fixes: all but those that say how the source is read.
FIXED_BY_MODEL = tuple(
    name
    for kind in (IngestRequest, TextReading)
    for name, field in declared(kind).items()
    if field.group != READING
)


def request_of(request: IngestRequest | None, options: Mapping[str, Any]) -> IngestRequest | None:
    """Return ``request`` with the fields of ``IngestRequest``, ``Curation`` and ``TextReading`` that ``options`` has.

    None if there is neither.
    """
    require_kind(
        "request",
        request,
        IngestRequest,
        advice="IngestRequest(...), such as IngestRequest(read={'text': 'body'})",
    )
    own, curation, texts = (fields_given(kind, options) for kind in (IngestRequest, Curation, TextReading))
    if not (own or curation or texts):
        return request
    base = request or IngestRequest()
    tokenizer = own.get("tokenizer")
    if isinstance(tokenizer, str) and ":" not in tokenizer:
        texts["tokenizer"] = own.pop("tokenizer")
    read = {**base.read, **own.pop("read", {}), **texts}
    return replace(base, **own, read=read, curation={**base.curation, **curation})
