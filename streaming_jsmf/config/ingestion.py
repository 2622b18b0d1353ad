"""What a user chooses when a corpus is made: how the source is read, and which words and documents are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Literal

from streaming_jsmf.config.fields import Settings, declared, declared_in, fields_given, for_texts, setting
from streaming_jsmf.config.inference import AUTO
from streaming_jsmf.config.keywords import require_kind
from streaming_jsmf.config.readers import READER_OPTIONS, ReaderName, read_values
from streaming_jsmf.config.reading import READING, TEXTS, KeepOrDrop, name_of, of_text, rarely, reading
from streaming_jsmf.errors import InputError, Option, as_word, option

#: Starting point of the curation of texts: readable topics, or the papers.
Preset = Literal["text", "papers"]
OnBadRecord = Literal["fail", "quarantine"]

#: A document frequency above any number of documents: no limit.
ALL_DOCUMENTS = 2**53

CURATION = "Words and documents to keep"

_curation = partial(setting, group=CURATION)
_texts = partial(_curation, rare=True)


def _limit(text: str) -> Any:
    if text == AUTO or text.isdecimal():
        return text if text == AUTO else int(text)
    # As in scikit-learn, 1 is one document and 1.0 are all of them.
    return ALL_DOCUMENTS if (number := _share(text)) == 1 else number


def _share(text: str) -> float:
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def _in_lines(given: Any) -> Any:
    """Stop words as one string, in which each item of a list or set has a line, and = marks those of a set as words."""
    kinds = (list, tuple, set, frozenset)
    given = given.tolist() if hasattr(given, "tolist") else given  # NumPy and pandas
    if not isinstance(given, kinds):
        return given
    mark = "=" if isinstance(given, set | frozenset) else ""
    lines = [
        _in_lines(item) if isinstance(item, kinds) else f"\n{mark}{as_word(item, str(option.stop_words))}"
        for item in given
    ]
    return "".join(sorted(lines) if mark else lines)


_frequency = partial(
    _curation,
    metavar="NUMBER|SHARE",
    parse=of_text(_limit),
    wanted="a number of documents, or a share of them such as 0.3 or 30%",
    gt=0,
)


@dataclass(frozen=True)
class Curation(Settings):
    """Which words and documents of a source are kept. The defaults are those of the papers.

    Texts start from ``TEXT_CURATION`` instead.

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
        texts=AUTO,
        absent="auto for texts, english for docword, none for items",
        metavar="auto,LANGUAGES,FILES|none",
        parse=_in_lines,
    )
    numbers: KeepOrDrop = _texts("keep", texts="drop")
    min_word_length: int | Literal["auto"] = _texts(
        1, texts=AUTO, absent="1; for texts 3, or 2 in Han, Kana and Hangul", ge=1
    )
    min_document_frequency: float | Literal["auto"] = _frequency(
        1,
        texts=AUTO,
        absent="1; for texts 5, or more in large corpora",
        flags=("--min-document-frequency", "--min-df"),
    )
    max_document_frequency: float | None = _frequency(
        None, texts=0.2, absent="no limit; for texts 20%", flags=("--max-document-frequency", "--max-df")
    )
    vocabulary_size: int | None = _curation(
        None, absent="all", flags=("--vocabulary-size", "--max-features"), ge=1
    )
    duplicates: KeepOrDrop = _texts("keep", texts="drop")
    min_distinct_words: int = _texts(3, texts=1, ge=0)
    min_tokens: int = _texts(5, texts=1, ge=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop_words", _in_lines(self.stop_words) or "none")
        super().__post_init__()
        for name in ("min_document_frequency", "max_document_frequency"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str) or value < 1 or float(value).is_integer()):
                raise InputError(
                    f"{Option(name)} is {value}; give a whole number of documents, or a share below 1"
                )


#: Default for texts; gave readable topics for four kinds of texts (docs/ingest.md).
TEXT_CURATION = Curation(**for_texts(Curation))


@dataclass(frozen=True)
class IngestRequest(Settings):
    """How a source becomes a corpus. None keeps the value of the spec, or the default.

    Parameters
    ----------
    reader
        Reader to use: text, text-files, mail, lines, docword, triples, ratings, baskets, npz, matrix-market, h5ad,
        bag-of-words-parquet, or a function MODULE:FUNCTION.
    options
        Options of the reader by name.
    curation
        Fields of ``Curation`` by name.
    preset
        Preset for texts. text: the defaults listed here. papers: remove only stop words.
    vocabulary
        Use exactly these words, for example to match an existing store or model.
    tokens_per_shard
        Target number of tokens per shard, a file of the corpus.
    on_bad_record
        fail: stop at the first bad record. quarantine: write bad records to quarantine.parquet
        and continue.
    max_dropped
        Refuse to make the corpus if more than this share of the documents would be dropped.
    files
        Directory with the files of a spec; missing files are downloaded there.
    made_for
        Function that makes the corpus for its own use, such as fit.
    """

    reader: ReaderName | None = reading(
        None, absent="detected from file names and columns", metavar="NAME", parse=name_of
    )
    options: Mapping[str, Any] = setting(factory=dict, option=False)
    curation: Mapping[str, Any] = setting(factory=dict, option=False)
    preset: Preset | None = _curation(None, absent="text", rare=True)
    vocabulary: str | Path | Sequence[str] | None = _curation(
        None, absent="chosen", metavar="FILE|CORPUS|MODEL"
    )
    tokens_per_shard: int | None = setting(None, group=TEXTS, rare=True, absent="20 M", ge=1)
    on_bad_record: OnBadRecord = rarely("fail")
    max_dropped: float = _curation(
        0.5,
        absent="50%",
        metavar="SHARE",
        rare=True,
        parse=of_text(_share),
        wanted="a share such as 0.5 or 50%",
        ge=0,
        le=1,
    )
    files: str | Path | None = rarely(None, absent="the user cache directory", metavar="PATH")
    made_for: str | None = setting(None, option=False)

    def __post_init__(self) -> None:
        name = name_of(self.reader)
        if isinstance(name, str) and ":" in name:
            object.__setattr__(self, "reader", "function")
            object.__setattr__(self, "options", {**self.options, "function": name})
        super().__post_init__()
        require_kind("options", self.options, Mapping)
        object.__setattr__(self, "options", read_values(self.options, self.reader))
        require_kind("curation", self.curation, Mapping)
        object.__setattr__(self, "curation", curation_values(self.curation))


def curation_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``Curation`` that are not None, converted by type. Raises ``InputError``."""
    known = declared(Curation)
    for key in given.keys() - known.keys():
        near = get_close_matches(str(key), known, 3)
        wanted = f"did you mean {' or '.join(near)}?" if near else f"give one of {', '.join(known)}"
        raise InputError(f"curation has the unknown key {key!r}; {wanted}")
    values = {
        key: known[key].read(value) if isinstance(value, str) else known[key].checked(value)
        for key, value in given.items()
        if value is not None
    }
    Curation(**values)
    return values


#: All settings of an ingest.
INGEST_SETTINGS: tuple[type[Settings], ...] = (
    IngestRequest,
    *dict.fromkeys(READER_OPTIONS.values()),
    Curation,
)

#: Settings that a given model fixes: all but those that say how the source is read.
FIXED_BY_MODEL = tuple(name for name, field in declared_in(INGEST_SETTINGS).items() if field.group != READING)


def request_of(request: IngestRequest | None, options: Mapping[str, Any]) -> IngestRequest | None:
    """Return ``request`` with the fields of ``IngestRequest``, ``Curation`` and of readers that ``options`` has.

    None if there is neither.
    """
    require_kind(
        "request",
        request,
        IngestRequest,
        advice="IngestRequest(...), such as IngestRequest(options={'text': 'body'})",
    )
    own, curation = (fields_given(kind, options) for kind in (IngestRequest, Curation))
    of_readers = {
        key: value for kind in READER_OPTIONS.values() for key, value in fields_given(kind, options).items()
    }
    if not (own or curation or of_readers):
        return request
    base = request or IngestRequest()
    of_readers, curation = {**base.options, **of_readers}, {**base.curation, **curation}
    return replace(base, **own, options=of_readers, curation=curation)
