"""What users choose for texts: how they become words, and in which columns they are."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from streaming_jsmf.ingestion.tokens.tokenizer import LONGEST_NGRAM, BuiltIn
from streaming_jsmf.validation import Strict


def _are_codecs(names: str) -> str:
    tidy = [name.strip() for name in names.split(",")]
    for name in tidy:
        try:
            plain = b"a,\n".decode(name) == "a,\n"
        except (LookupError, UnicodeDecodeError):
            plain = False
        if not plain:
            raise ValueError(
                "give an encoding that holds ASCII, such as cp1252 or gb18030, or several that are tried in turn: "
                "utf-8,cp1252"
            )
    return ",".join(tidy)


Encoding = Annotated[str, AfterValidator(_are_codecs)]


def _is_delimiter(value: str) -> str:
    value = value.replace("\\t", "\t")
    if len(value) != 1 or value in '"\r\n':
        raise ValueError("a delimiter is one character, such as ; or \\t for a tab")
    return value


def _number_in(given: Any) -> Any:
    """On the command line a number is text, which may have become a list of one."""
    try:
        return float(given[0]) if isinstance(given, list) and len(given) == 1 else given
    except ValueError:
        return given


#: The least NPMI of neighbours that are found to be a phrase, or a list of phrases.
Phrases = Annotated[Annotated[float, Field(gt=0, le=1)] | tuple[str, ...] | None, BeforeValidator(_number_in)]


class TokenOptions(Strict):
    """How texts become words; see ``Tokenizer``. A spec can name only what is built in."""

    tokenizer: BuiltIn = "arrow"
    ngrams: Annotated[int, Field(ge=1, le=LONGEST_NGRAM)] = 1
    stemmer: str | None = None
    boilerplate: Literal["keep", "drop"] = "keep"
    phrases: Phrases = None

    @model_validator(mode="after")
    def _one_kind_of_runs(self) -> Self:
        if self.phrases is not None and self.ngrams > 1:
            raise ValueError(
                "phrases are chosen among the runs of words that ngrams takes all; give one of them"
            )
        return self


class TextOptions(TokenOptions):
    """Columns of texts: the text, the id (by its usual names when not given), and what else is kept.

    ``encoding`` is that of JSON lines and CSV; of several the first that a line of JSON, or a whole file of CSV, is in.
    ``delimiter`` is that of CSV, by its suffix when not given.
    """

    text: str = "text"
    id: str | None = None
    metadata: Literal["all"] | tuple[str, ...] = "all"
    encoding: Encoding = "utf-8"
    delimiter: Annotated[str, AfterValidator(_is_delimiter)] | None = None


class LineOptions(TokenOptions):
    """Texts a line each, in one of the encodings."""

    encoding: Encoding = "utf-8"
