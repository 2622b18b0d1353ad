"""How a source is read: options that several readers share, and those of the readers of texts.

They are also the keys of ``[read]`` in specs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from typing import Any, Literal

from streaming_jsmf.config.fields import Settings, setting
from streaming_jsmf.errors import InputError, option

Header = Literal["auto", "first", "none"]
KeepOrDrop = Literal["keep", "drop"]

#: Column with the beginning of each text; default and maximum of its length.
EXCERPT = "excerpt"
EXCERPT_CHARACTERS, LONGEST_EXCERPT = 300, 10_000

#: Value of ``id`` for documents without ids, and of ``phrases`` for none.
NONE = "none"

#: Tokenizers by name; others are functions MODULE:FUNCTION.
BUILT_IN = ("arrow", "sklearn", "chinese", "japanese")

READING, TEXTS = "Reading the source", "Texts"

#: Functions of this process that cannot be imported, by the name that they were given.
_LOCAL: dict[str, Callable[..., Any]] = {}

#: An option, a rare one, and one of texts that a given model fixes.
reading = partial(setting, group=READING)
rarely = partial(reading, rare=True)
_texts = partial(setting, group=TEXTS, rare=True)


_character = partial(
    rarely, metavar="CHARACTER", pattern=r"[\x00-\x09\x0b\x0c\x0e-\x7f]", wanted="one ASCII character"
)


def of_text(convert: Callable[[str], Any]) -> Callable[[Any], Any]:
    """A parser of texts and other values but integers and None, which it returns unchanged."""

    def parse(given: Any) -> Any:
        whole = isinstance(given, int) and not isinstance(given, bool)
        return given if given is None or whole else convert(str(given).strip())

    return parse


def encodings(given: Any) -> Any:
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else ()
    for name in names:
        with suppress(LookupError, UnicodeDecodeError):
            if b"a,\n".decode(name) == "a,\n":
                continue
        raise ValueError(name)
    return ",".join(names) or given


def _longest_run(text: str) -> int:
    numbers = [int(part) for part in text.strip(" ()[]").split(",")]
    if len(numbers) > 2 or not 1 <= numbers[-1] <= 3 or (len(numbers) == 2 and numbers[0] != 1):
        raise ValueError
    return numbers[-1]


def _phrases(given: Any) -> Any:
    """An NPMI as a number, a list of phrases as a tuple, and the path of a file or store as a string."""
    given = fspath(given) if isinstance(given, PathLike) else given
    if isinstance(given, str):
        with suppress(ValueError):
            given = float(given)
    if isinstance(given, list | tuple) and all(isinstance(phrase, str) for phrase in given):
        return tuple(given)
    if given is None or isinstance(given, str) or (isinstance(given, int | float) and 0 < given <= 1):
        return given
    raise ValueError(given)


delimiting = partial(
    rarely,
    metavar="CHARACTERS",
    parse=lambda given: given.replace("\\t", "\t") if isinstance(given, str) else given,
    pattern=r"[^\r\n]+",
    wanted="one or more characters without line ends, such as ; or \\t for a tab",
)


def _groups(given: Any) -> Any:
    try:
        groups = re.compile(given).groupindex if isinstance(given, str) else ()
    except re.error as error:
        raise ValueError(given) from error
    if "label" in groups:
        raise ValueError(given)
    return given


def name_of(given: Any) -> Any:
    """Return the name of a function, MODULE:FUNCTION; other values than functions are returned unchanged.

    One that cannot be imported (lambdas, functions of notebooks, methods of objects) gets a name in this process only.
    """
    if not callable(given):
        return given
    module = getattr(given, "__module__", None) or type(given).__module__
    name = f"{module}:{getattr(given, '__qualname__', type(given).__qualname__)}"
    found: Any = sys.modules.get(module) if module != "__main__" else None
    for part in name.partition(":")[2].split("."):
        found = getattr(found, part, None)
    if found is not given:
        known = (known for known, function in _LOCAL.items() if function == given)
        name = next(known, f"{name}#{len(_LOCAL) + 1}")
        _LOCAL[name] = given
    return name


def is_local(name: str) -> bool:
    """Return whether ``name_of`` has given this name to a function that cannot be imported."""
    return "#" in name


def local_function(name: str, advice: str) -> Callable[..., Any]:
    """Return the function to which ``name_of`` has given this name; ``InputError`` in another process."""
    if name not in _LOCAL:
        raise InputError(
            f"other processes cannot import {name!r}; write the function into a module, or use {advice}"
        )
    return _LOCAL[name]


@dataclass(frozen=True)
class ReadOptions(Settings):
    """Options of all readers. Raises ``InputError`` for a value that is not allowed.

    Parameters
    ----------
    member
        File to read in a directory or a zip archive.
    """

    member: str | None = rarely(None, absent="all", metavar="FILE")


@dataclass(frozen=True)
class Identified(ReadOptions):
    """Options of readers of named documents.

    Parameters
    ----------
    id
        Column of the document ids, or none.
    """

    id: str | None = rarely(None, absent="detected, or file and row", metavar="COLUMN|none")


@dataclass(frozen=True)
class DatedColumns(ReadOptions):
    """Options of readers with columns of metadata.

    Parameters
    ----------
    date_format
        How dates are written: day-first, month-first, none (dates stay strings) or a format such as %d.%m.%Y.
    """

    date_format: str | None = rarely(
        None,
        absent="detected",
        metavar="FORMAT",
        pattern=f"day-first|month-first|{NONE}|.*%.*",
        wanted="day-first, month-first, none or a format such as %d.%m.%Y",
    )


@dataclass(frozen=True)
class TextColumns(DatedColumns, Identified):
    """Columns of tables of texts.

    Names such as ``content.body`` stand for values within the objects of JSON.

    Parameters
    ----------
    text
        Column of the texts, or several: title,body.
    metadata
        Columns to keep, such as author,date.
    """

    text: tuple[str, ...] = reading(("text",), absent="detected", metavar="COLUMNS")
    metadata: Literal["all"] | tuple[str, ...] = reading("all", metavar="COLUMNS")


@dataclass(frozen=True)
class Encoded(ReadOptions):
    """Options of readers of text files.

    Parameters
    ----------
    encoding
        Text encoding, such as cp1252, or several to try in order: utf-8,cp1252.
    """

    encoding: str = rarely(
        "utf-8",
        absent="utf-8, or as the byte order mark says",
        metavar="NAME,NAME",
        parse=encodings,
        wanted="an encoding that holds ASCII, such as cp1252 or gb18030, or several to try in order: utf-8,cp1252; "
        "UTF-16 is detected",
    )


@dataclass(frozen=True)
class Delimited(Encoded):
    """Layout of delimited files.

    Parameters
    ----------
    delimiter
        Characters between the fields of a record, such as ; or \\t for a tab.
    header
        Whether the first record names the columns (first) or not (none).
    columns
        Names of the columns of files without a header, separated by commas.
    quoting
        Quotation marks. none: they are ordinary characters, as in most tab-separated files.
    quotechar
        Quotation mark that surrounds fields with delimiters or line ends.
    escapechar
        Character that makes the next one an ordinary character, such as \\.
    skip_lines
        Lines, or rows of a sheet, before the header or the first record.
    """

    delimiter: str | None = delimiting(None, absent="detected")
    header: Header = rarely(
        "auto",
        metavar="auto|first|none",
        parse=lambda given: {"true": "first", "false": NONE}.get(str(given).lower(), given),
    )
    columns: tuple[str, ...] = rarely(
        (), absent="those of the header", metavar="NAMES", flags=("--columns", "--column-names")
    )
    quoting: Literal["auto", "none"] = rarely("auto")
    quotechar: str | None = _character(None, absent="detected")
    escapechar: str | None = _character(None, absent="none")
    skip_lines: int | None = rarely(None, absent="titles and comments are detected", ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns and self.header == "first":
            raise InputError(
                f"{option.columns} names the columns of files without a header; leave it or "
                f"{option.header('first')} out"
            )
        if self.columns:
            object.__setattr__(self, "header", NONE)
        # Quotes are text with a delimiter of several bytes.
        is_text = self.quoting == NONE or len((self.delimiter or "").encode()) > 1
        quotes = "" if is_text else self.quotechar or '"'
        if quotes and quotes in (self.delimiter, self.escapechar):
            raise InputError(
                f"{quotes!r} is the quotation mark and the delimiter or the escape character; "
                "give different characters"
            )


@dataclass(frozen=True)
class TokenOptions(Encoded):
    """Options of the readers of texts. The defaults are those of the papers.

    Parameters
    ----------
    excerpt
        Store this many characters of each text. 0 stores no text.
    split
        Split texts into passages of this many words, which keep the id and the metadata.
    language_column
        Store the language of each text in the metadata column language.
    tokenizer
        Tokenizer: arrow, sklearn, chinese, japanese, or a callable as MODULE:FUNCTION; in Python also the
        function itself.
    ngrams
        Maximum length of n-grams to count as words.
    stemmer
        Language of the Snowball stemmer, such as english.
    boilerplate
        Whether to keep mail headers, quoted lines, signatures, tags and addresses.
    phrases
        Join adjacent words into phrases such as new york: all pairs with at least this NPMI, from 0 to 1 (0.5
        finds names, 0.3 more), or those listed.
    normalization
        Unicode normalization form of the words. NFKC: also replaces ligatures, full-width letters and the like.
    """

    excerpt: int = reading(
        0,
        texts=EXCERPT_CHARACTERS,
        absent=f"{EXCERPT_CHARACTERS}; 0 with the preset papers",
        metavar="CHARACTERS",
        ge=0,
        le=LONGEST_EXCERPT,
    )
    split: int | None = rarely(None, absent="whole texts", metavar="WORDS", ge=1)
    language_column: bool = rarely(False)
    tokenizer: str = _texts("arrow", metavar="NAME", parse=name_of)
    ngrams: int = _texts(
        1,
        flags=("--ngrams", "--ngram-range"),
        metavar="1|2|3|1,2|1,3",
        parse=of_text(_longest_run),
        wanted="1, 2 or 3, or a range that starts at 1, such as 1,2",
        ge=1,
        le=3,
    )
    stemmer: str | None = _texts(None, absent="none", metavar="LANGUAGE")
    boilerplate: KeepOrDrop = _texts("keep", texts="drop", absent="drop; keep with the preset papers")
    phrases: float | str | tuple[str, ...] | None = _texts(
        None,
        absent="none, or those of the vocabulary",
        metavar="NPMI|FILE|CORPUS|MODEL|none",
        parse=_phrases,
        wanted="an NPMI above 0 and at most 1, a list of phrases, or where they are",
    )
    normalization: Literal["NFC", "NFKC"] = _texts("NFC")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.phrases is not None and self.ngrams > 1:
            raise InputError(
                f"{option.phrases} joins some adjacent words, and {option.ngrams} counts all of them; give one of them"
            )


@dataclass(frozen=True)
class TextOptions(TokenOptions, Delimited, TextColumns):
    """Options of the reader of tables of texts.

    Parameters
    ----------
    sheet
        Name of the sheet of a spreadsheet.
    """

    sheet: str | None = rarely(None, absent="the first", metavar="NAME")


@dataclass(frozen=True)
class TextFilesOptions(TokenOptions, DatedColumns):
    """Options of the reader of files of texts.

    Parameters
    ----------
    members
        Glob for the paths of the files within the directory or archive.
    name_pattern
        Regular expression that is searched in these paths; its named groups become columns of metadata.
    """

    members: str = rarely("*", metavar="GLOB", absent="all files")
    name_pattern: str | None = rarely(
        None,
        absent="none",
        metavar="REGEX",
        parse=_groups,
        wanted="a regular expression, whose groups have other names than 'label', the name of the folder",
    )


@dataclass(frozen=True)
class FunctionOptions(TokenOptions, TextColumns):
    """Options of a reader that is a function.

    Parameters
    ----------
    function
        Function from the path of a file to its Arrow record batches, as MODULE:FUNCTION.
    """

    function: str | None = reading(None, parse=name_of, option=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.function is None:
            raise InputError(
                f"{option.reader('function')} needs the function; give {option.reader('MODULE:FUNCTION')}"
            )
