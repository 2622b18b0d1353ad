"""Values of records: decoding bytes, checking Arrow columns, and writing bad records as JSON."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.corpus.records import without_views
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers.base import BadValue, UnreadableError, limits
from streaming_jsmf.validation import is_utf8


def name_encoding() -> str:
    """What to do about text in another encoding."""
    return f"name its encoding, such as {option.encoding('cp1252')}, or utf-8,cp1252 where files differ"


def encoding_hint() -> str:
    return f" ({name_encoding()})"


_MOST_NAMES = 20
_HEAD = 1000  # bytes of a file that show whether it is text

#: Longer marks first, because the mark of UTF-32 starts with that of UTF-16.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_DATE, _TIME = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}", "[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]{1,6})?)?"

#: Kinds of values in strings, the narrowest first: type in the corpus, and pattern. Leading zeros and more digits than
#: float64 holds mark an identifier. Only JSON has booleans.
KINDS: dict[str, tuple[Any, str]] = {
    "booleans": (pa.bool_(), "$^"),
    "integers": (pa.int64(), "^(?:0|-?[1-9][0-9]{0,17})$"),
    "numbers": (pa.float64(), "^-?(?:0|[1-9][0-9]{0,14})(?:[.][0-9]+)?$"),
    "dates": (pa.date32(), f"^{_DATE}$"),
    "times": (pa.timestamp("us"), f"^{_DATE}(?:[T ]{_TIME})?$"),
    "times in UTC": (pa.timestamp("us", "UTC"), f"^{_DATE}[T ]{_TIME}(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)$"),
}

_HEAD_ROWS = 100
_PAST_INT64 = 2**63


def decode(data: bytes, encoding: str, what: str = "line", hint: Callable[[], str] = str) -> str:
    """Decode bytes with the first encoding of a comma-separated list that succeeds.

    Raises BadValue, which names the first byte that the first encoding cannot decode, followed by ``hint()``.
    """
    first: UnicodeDecodeError | None = None
    for codec in encoding.split(","):
        try:
            return data.decode(codec)
        except UnicodeDecodeError as error:
            first = first or error
    assert first is not None
    raise BadValue(f"byte {first.start} of the {what} is not {encoding_name(encoding)}{hint()}") from first


def decode_file(data: bytes, encoding: str) -> str:
    """Decode a whole file; a byte order mark overrides the encoding. Raises as ``decode``."""
    return decode(data, marked_encoding(data) or encoding, "file", encoding_hint)


def marked_encoding(data: bytes) -> str | None:
    """Return the encoding of a byte order mark at the start of a file, or None."""
    return next((codec for mark, codec in _BYTE_ORDER_MARKS if data.startswith(mark)), None)


def is_binary(data: bytes) -> bool:
    """Return whether a file is not text: PDF, or zero bytes at its start, as in archives and office files."""
    return data.startswith(b"%PDF-") or (b"\0" in data[:_HEAD] and marked_encoding(data) is None)


def encoding_name(encoding: str) -> str:
    return " or ".join(encoding.upper().split(","))


def require_utf8(name: str, text: str) -> str:
    """Return the text. Raises BadValue for lone surrogates, from JSON escapes or undecodable bytes of CSV."""
    if not is_utf8(text):
        raise BadValue(f"{name} holds a byte or an escape that is not a character")
    return text


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type holds strings, or bytes that may be strings."""
    types = pa.types
    return is_string(kind) or any(
        of(kind) for of in (types.is_string_view, types.is_binary, types.is_large_binary)
    )


def value_type(kind: Any) -> Any:
    kind = without_views(kind)
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def decoded(values: Any) -> Any:
    """Return an Arrow array without dictionary encoding and views."""
    values = values.cast(without_views(values.type))
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def holds_strings(kind: Any) -> bool:
    """Return whether an Arrow type holds strings, also as a dictionary; bytes are not meant."""
    kind = value_type(kind)
    return bool(is_text(kind) and not pa.types.is_binary(kind) and not pa.types.is_large_binary(kind))


def kinds_of(texts: Any, kinds: Iterable[str] = KINDS) -> list[str]:
    """Return those of ``kinds`` that all strings of an Arrow array are; missing values (null or empty) are any."""
    for values in (texts[:_HEAD_ROWS], texts):
        if kinds:
            values = _without_missing(values).drop_null()
            kinds = [kind for kind in kinds if not len(values) or _all_are(values, kind)]
    return list(kinds)


def n_given(texts: Any) -> int:
    """Return the number of strings that are not missing."""
    return len(texts) - int(_without_missing(texts).null_count)


def _all_are(values: Any, kind: str) -> bool:
    into, pattern = KINDS[kind]
    if not pc.all(pc.match_substring_regex(values, pattern)).as_py():
        return False
    try:
        values.cast(into)
    except pa.ArrowInvalid:  # such as February 30
        return False
    return True


def kind_of_type(kind: Any) -> str | None:
    """Return which of ``KINDS`` an Arrow type holds, or None."""
    wide = pa.int64() if pa.types.is_integer(kind) else pa.float64() if pa.types.is_floating(kind) else kind
    return next((name for name, (into, _) in KINDS.items() if into == wide), None)


def as_kind(texts: Any, kind: str) -> Any:
    """Convert an Arrow array of strings to one of ``KINDS``; missing values are null."""
    return _without_missing(texts).cast(KINDS[kind][0])


def _without_missing(texts: Any) -> Any:
    texts = decoded(texts)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)


def as_texts(values: Sequence[Any]) -> tuple[Any, list[str] | None]:
    """Return Python values as an Arrow array of strings (JSON for lists and mappings), and their kinds.

    The kinds are None if they have to be found by ``kinds_of``, as for strings.
    """
    types = set(map(type, values)) - {type(None)}
    kinds = None
    if types == {bool}:
        kinds = ["booleans"]
    elif (
        types
        and types <= {int, float}
        and all(-_PAST_INT64 <= value < _PAST_INT64 for value in values if type(value) is int)
    ):
        kinds = ["integers", "numbers"] if types == {int} else ["numbers"]
    if not types <= {str}:
        values = [None if value is None else _as_text(value) for value in values]
    return pa.array(values, pa.string()), kinds


def _as_text(value: Any) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_bytes(texts: Any) -> Any:
    return decoded(texts).cast(pa.large_binary())


def invalid_rows(values: Any) -> list[int]:
    """Return the rows of an Arrow array with bytes that are not UTF-8, which reading Parquet does not check."""
    if is_valid(values):
        return []
    if is_text(values.type):
        raw = enumerate(as_bytes(values).to_pylist())
        return [i for i, data in raw if data is not None and data.decode("utf-8", "replace").encode() != data]
    return [i for i in range(len(values)) if not is_valid(values.take([i]))]


def utf8_faults(batch: Any, texts: Iterable[str], others: Iterable[str]) -> dict[int, str]:
    """Return why rows hold bytes that are not UTF-8, by row; ``others`` may hold them if they are binary columns."""
    names = [*texts, *(name for name in others if not pa.types.is_binary(batch.column(name).type))]
    found = [(row, name) for name in names for row in invalid_rows(batch.column(name))]
    return {row: f"{name} holds bytes that are not UTF-8" for row, name in reversed(found)}


def is_valid(values: Any) -> bool:
    try:
        if is_text(values.type):
            as_bytes(values).cast(pa.large_string())
        else:
            values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def listed(names: Iterable[str]) -> str:
    """Format names for a message on one line: the first twenty, with unprintable characters escaped."""
    names = list(names)
    shown = [name if name.isprintable() else repr(name) for name in names[:_MOST_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def require_columns(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Check that each wanted column occurs exactly once. Raises UnreadableError, which lists the columns."""
    for name in wanted:
        if name not in names:
            raise UnreadableError(f"there is no column {name!r}; it has {listed(names)}")
        if list(names).count(name) > 1:
            raise UnreadableError(f"it has {list(names).count(name)} columns {name!r}; rename all but one")


def require_few(names: Sequence[str]) -> None:
    """Check the number of columns that the first records lack. Raises InputError, which names the first of them."""
    if len(names) > limits.LATE_COLUMNS:
        raise InputError(
            f"the records have more than {limits.LATE_COLUMNS} names that the first ones lack, such as "
            f"{listed(names[:3])}; choose the columns to keep with {option.metadata('COLUMNS')}"
        )


def as_json(batch: Any, row: int) -> bytes:
    """Return a row of a record batch as JSON for the quarantine; bytes that are not UTF-8 are unchanged."""
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return _to_json({name: _python(column.slice(row, 1))[0] for name, column in columns})


def list_as_json(batch: Any, row: int) -> bytes | None:
    """Return a list of a batch's only column as JSON for the quarantine; None for a null."""
    held = batch.column(0).slice(row, 1)
    return None if held.null_count else _to_json(_python(held.flatten()))


def _to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "surrogateescape")


def _python(values: Any) -> list[Any]:
    values = decoded(values)
    if is_text(values.type):
        raw = as_bytes(values).to_pylist()
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in raw]
    try:
        return list(values.to_pylist())
    except UnicodeDecodeError:
        return ["not UTF-8"] * len(values)
