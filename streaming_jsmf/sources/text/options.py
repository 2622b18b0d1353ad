"""What users choose for texts: how they become words, and in which columns they are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

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


class TokenOptions(Strict):
    """How texts become words; see ``Tokenizer``. A spec can name only what is built in."""

    tokenizer: BuiltIn = "arrow"
    ngrams: Annotated[int, Field(ge=1, le=LONGEST_NGRAM)] = 1
    stemmer: str | None = None
    boilerplate: Literal["keep", "drop"] = "keep"


class TextOptions(TokenOptions):
    """Columns of texts: the text, the id (by its usual names when not given), and what else is kept.

    ``encoding`` is that of JSON lines and CSV, and must hold ASCII as it is.
    """

    text: str = "text"
    id: str | None = None
    metadata: Literal["all"] | tuple[str, ...] = "all"
    encoding: Encoding = "utf-8"
