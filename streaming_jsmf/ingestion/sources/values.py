"""Values of records: decoding bytes, checking Arrow columns, what of them a corpus can hold, and JSON."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.corpus.footer import is_list, is_string
from streaming_jsmf.corpus.metadata import without_extension, without_views
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.sources.protocol import BadValue, UnreadableError, limits


def name_encoding() -> str:
    """What to do about text in another encoding."""
    return f"name its encoding, such as {option.encoding('cp1252')}, or utf-8,cp1252 where files differ"


def encoding_hint() -> str:
    return f" ({name_encoding()})"


#: Names of columns of ids, the likeliest first.
ID_NAMES = ("document_id", "doc_id", "id")

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

#: Encodings without a mark that the first bytes show.
_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
START = 64

#: Types of strings, dates and times in a corpus.
TEXT, DAY, TIME, UTC = pa.string(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")

_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]")
_LEFT_OUT = "values are left out, because a corpus cannot hold"
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAYS = (-719_162, 2_932_897)  # years 1 to 9999, which Python can show, as days since 1970


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


def marked_encoding(data: bytes) -> str | None:
    """Return the encoding of a byte order mark at the start of a file, UTF-16 or UTF-32 without one, or None."""
    start = data[:START]
    marks = (codec for mark, codec in _BYTE_ORDER_MARKS if start.startswith(mark))
    wide = (codec for codec in _WIDE if b"\0" in start and _is_in(start, codec))
    return next(marks, None) or next(wide, None)


def _is_in(start: bytes, codec: str) -> bool:
    """Whether the first bytes of a file are printable text in an encoding, with some ASCII."""
    try:
        text = codecs.getincrementaldecoder(codec)().decode(start)
    except UnicodeDecodeError:
        return False
    n_ascii = sum(character.isascii() for character in text)
    # Other characters than ASCII rarely have bytes of ASCII only, and a space in the other order of bytes is U+2000.
    likely = n_ascii == len(text) if start.isascii() else 8 * n_ascii > len(text)
    return likely and "".join(text.split()).isprintable() and "\u2000" not in text


def is_binary(data: bytes) -> bool:
    """Return whether a file is not text: PDF, RTF, or zero bytes at its start, as in archives and office files."""
    return data.startswith((b"%PDF-", b"%!PS", b"{\\rtf")) or (
        b"\0" in data[:_HEAD] and marked_encoding(data) is None
    )


def encoding_name(encoding: str) -> str:
    return " or ".join(encoding.upper().split(","))


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


def without_surrogates(raw: bytes) -> bytes:
    """Return bytes with U+FFFD for lone surrogates, which JSON and Python can have."""
    return _SURROGATE.sub("\ufffd".encode(), raw)


def mended(texts: Any, mend: Callable[[bytes], bytes]) -> Any:
    """Return strings, or lists of them, whose bytes are replaced."""
    if not is_text(texts.type):
        return _lists(pc.list_value_length(texts).to_pylist(), mended(texts.flatten(), mend))
    raw = [None if each is None else mend(each) for each in as_bytes(texts).to_pylist()]
    return pa.array(raw, pa.binary()).view(TEXT)


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


def id_name(columns: Sequence[Any]) -> str | None:
    """Return the likeliest column of ids by its name, ignoring case."""
    known = {str(name).lower(): name for name in columns} | {name: name for name in columns}
    return next((known[name] for name in ID_NAMES if name in known), None)


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
    values = {name: _python(column.slice(row, 1))[0] for name, column in columns}
    return json.dumps(values, ensure_ascii=False, default=str).encode("utf-8", "surrogateescape")


def _python(values: Any) -> list[Any]:
    values = decoded(values)
    if is_list(values.type) and len(values) == 1 and not values.null_count:
        return [_python(values.flatten())]
    if is_text(values.type):
        raw = as_bytes(values).to_pylist()
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in raw]
    try:
        return list(values.to_pylist())
    except UnicodeDecodeError:
        return ["not UTF-8"] * len(values)


def is_number(of: Any) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of))


def plain(values: Any) -> Any:
    """Return an Arrow array without dictionary encoding and views, with times of the types that a corpus has."""
    values = decoded(values)
    if pa.types.is_timestamp(values.type):
        return values.cast(UTC if values.type.tz else TIME, safe=False)
    if pa.types.is_float16(values.type):
        return values.cast(pa.float32())
    return values.cast(DAY) if pa.types.is_date(values.type) else values


def as_text(values: Any) -> Any:
    """Strings as JSON and Python write the values."""
    if pa.types.is_floating(values.type):
        return _strings([None if value is None else str(value) for value in values.to_pylist()])
    texts = values.cast(TEXT)
    return (
        pc.replace_substring_regex(texts, "[.]0+(Z?)$", r"\1") if pa.types.is_temporal(values.type) else texts
    )


def from_python(values: Sequence[Any], errors: str = "surrogatepass") -> Any:
    """Return Python values as an Arrow array: strings if they are of several types (JSON for lists and mappings).

    Lists of strings stay lists. Lone surrogates become bytes that are not UTF-8, which ``storable`` replaces:
    three, or the one that a surrogate stands for if ``errors`` is "surrogateescape".
    """
    types = set(map(type, values)) - {type(None)}
    if types <= {str}:
        return _strings(values, errors)
    if types == {list} and all(isinstance(item, str) for value in values for item in value or ()):
        sizes = [None if value is None else len(value) for value in values]
        return _lists(sizes, _strings([item for value in values for item in value or ()]))
    as_arrow = types == {int, float} or (len(types) == 1 and not types & {list, tuple, dict})
    # Objects with bytes are images of Hugging Face.
    if as_arrow or any(
        isinstance(item, bytes) for each in values if isinstance(each, dict) for item in each.values()
    ):
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            pass
    return _strings([None if value is None else _json_text(value) for value in values])


def _lists(sizes: Sequence[int | None], items: Any) -> Any:
    """An Arrow array of lists of these sizes; None for null."""
    ends = np.cumsum([0, *(size or 0 for size in sizes)], dtype=np.int32)
    return pa.ListArray.from_arrays(
        pa.array(ends, mask=np.array([*(n is None for n in sizes), False])), items
    )


def _strings(values: Sequence[str | None], errors: str = "surrogatepass") -> Any:
    try:
        return pa.array(values, TEXT)
    except UnicodeEncodeError:
        raw = [None if value is None else value.encode("utf-8", errors) for value in values]
        return pa.array(raw, pa.binary()).view(TEXT)


def _json_text(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).lower() if isinstance(value, bool) else str(value)


def storable(name: str, values: Any) -> tuple[Any, str]:
    """Return an Arrow array as a corpus can hold it, or None if it cannot, and a line if that changed values.

    What becomes of a value does not depend on the others. Bytes that are not UTF-8 are replaced by U+FFFD in strings,
    lists, objects and mappings become JSON, durations seconds, decimals numbers, and times of day strings. Periods of
    pandas become the times at which they begin, and its intervals strings.
    """
    values = decoded(values)
    of = values.type
    if isinstance(of, pa.BaseExtensionType):
        return storable(name, without_extension(values))
    if pa.types.is_run_end_encoded(of):
        return storable(name, pc.run_end_decode(values))
    if pa.types.is_boolean(of) or pa.types.is_null(of) or is_number(of):
        return values, ""
    if pa.types.is_duration(of):
        return pc.divide(values.cast(pa.int64()).cast(pa.float64(), safe=False), _TICKS[of.unit]), ""
    if pa.types.is_time(of):
        return as_text(values), ""
    if pa.types.is_decimal(of):
        texts = values.cast(TEXT)  # the cast of decimals to numbers is not correctly rounded
        return texts.cast(pa.float64()) if of.scale > 0 else texts, ""
    kept, note = next((store for is_of, store in _STORES if is_of(of)), _left_out)(values)
    return kept, f"{name}: {note}" if note else ""


def _characters(values: Any) -> tuple[Any, str]:
    """Strings, or lists of them, without bytes that are not UTF-8."""
    if is_valid(values):
        return values, ""
    kept = mended(values, lambda raw: as_characters(raw).encode())
    return kept, "bytes that are not UTF-8 are replaced by U+FFFD"


def as_characters(raw: bytes) -> str:
    """Decode UTF-8, with U+FFFD for lone surrogates and other bytes that are no characters."""
    return without_surrogates(raw).decode("utf-8", "replace")


def _bytes(values: Any) -> tuple[Any, str]:
    """Bytes that are strings."""
    texts = [None if raw is None else raw.decode("utf-8", "ignore") for raw in values.to_pylist()]
    same = pc.equal(_strings(texts).cast(values.type), values)
    kept = pc.if_else(same, _strings(texts), pa.scalar(None, TEXT))
    lost = kept.null_count > values.null_count
    return (None if lost and kept.null_count == len(kept) else kept), _left_out(values)[1] * lost


def _dates(values: Any) -> tuple[Any, str]:
    """Dates and times without those that no library shows."""
    of = values.type
    per_day = {DAY: 1, pa.date64(): 86_400_000}.get(of) or 86_400 * _TICKS[of.unit]
    days = (
        np.asarray(values.cast(pa.int32() if of == DAY else pa.int64()).cast(pa.float64(), safe=False))
        / per_day
    )
    lost = (days < _DAYS[0]) | (days >= _DAYS[1])
    kept = plain(pc.if_else(pa.array(lost), pa.scalar(None, of), values))
    return kept, "dates before year 1 or after 9999 are left out" if lost.any() else ""


def _nested(values: Any) -> tuple[Any, str]:
    """Lists, objects and mappings as JSON; null if Python has no such value or JSON no such key."""
    if _holds_bytes(values.type):
        return _left_out(values)
    if is_list_of_strings(values.type):
        values, _ = _characters(values)
    note = "lists and objects are kept as JSON, if they can be"
    try:
        rows = values.to_pylist(maps_as_pydicts="lossy")
        return _strings([None if value is None else _json_text(value) for value in rows]), note
    except (ValueError, OverflowError, TypeError):
        if len(values) == 1:
            return pa.nulls(1, TEXT), note
    return pa.concat_arrays([_nested(values[row : row + 1])[0] for row in range(len(values))]), note


def is_code(text: bytes) -> bool:
    """Whether a string is no text: a URL, ASCII without blanks such as a hash, or half digits such as a date."""
    is_word = text.isascii() and len(text.split()) < 2
    return is_word or b"://" in text[:8] or 2 * sum(map(text.count, b"0123456789")) >= len(text)


def is_list_of_strings(of: Any) -> bool:
    types = pa.types
    lists = types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of)
    return bool(lists and is_string(of.value_type))


def _holds_bytes(of: Any) -> bool:
    types = pa.types
    fields = [of.field(i).type for i in range(of.num_fields)] if types.is_nested(of) else []
    binary = types.is_binary(of) or types.is_large_binary(of) or types.is_fixed_size_binary(of)
    return bool(binary or any(map(_holds_bytes, fields)))


def _left_out(values: Any) -> tuple[Any, str]:
    return None, f"{_LEFT_OUT} {'images and other bytes' if _holds_bytes(values.type) else values.type}"


#: What becomes of the values of a type, by functions that recognize it.
_STORES: tuple[tuple[Any, Any], ...] = (
    (is_string, _characters),
    (pa.types.is_binary, _bytes),
    (pa.types.is_large_binary, _bytes),
    (pa.types.is_date, _dates),
    (pa.types.is_timestamp, _dates),
    (pa.types.is_nested, _nested),
)
