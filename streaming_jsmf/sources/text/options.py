"""What users choose for texts: how they become words, and in which columns they are."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from streaming_jsmf.tokens.tokenizer import LONGEST_NGRAM, BuiltIn
from streaming_jsmf.validation import Strict


def _is_codec(name: str) -> str:
    try:
        plain = b"a,\n".decode(name) == "a,\n"
    except (LookupError, UnicodeDecodeError):
        plain = False
    if not plain:
        raise ValueError("give a text encoding of Python that holds ASCII, such as utf-8 or latin-1")
    return name


Encoding = Annotated[str, AfterValidator(_is_codec)]


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

    ``encoding`` is that of JSON lines and CSV, and must hold ASCII as it is.
    """

    text: str = "text"
    id: str | None = None
    metadata: Literal["all"] | tuple[str, ...] = "all"
    encoding: Encoding = "utf-8"
