"""Columns of metadata: what a corpus can hold, summaries of their values, and one type for each column."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.config import EXCERPT
from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.corpus.records import without_views
from streaming_jsmf.errors import option
from streaming_jsmf.ingestion.kinds import (
    DAY,
    KINDS,
    MILLISECONDS,
    SECONDS,
    TEXT,
    TIME,
    is_number,
    kind_named,
    kind_of_type,
    kinds_of_numbers,
    plain,
)

logger = logging.getLogger(__name__)

_SHOWN = 20  # columns in a line
_LEFT_OUT = "values are left out, because a corpus cannot hold"
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAYS = (-719_162, 2_932_897)  # years 1 to 9999, which Python can show, as days since 1970

#: Words in names of columns whose numbers may be times, such as created_utc, retrieved_on and reviewTime.
_OF_TIMES = re.compile(
    "(?:^|_)(?:time|date|datetime|timestamp|ts|epoch|utc|at|on|when|created|published|updated|modified|edited|posted|"
    "retrieved|crawled|sent|received|pubdate|unixtime)(?:_|$)"
)


@dataclass(frozen=True)
class ColumnSummary:
    """What is known of a column: its ``kinds`` are those that all values are, in order of preference.

    ``values`` of them are not missing, ``strings`` of these are strings, and ``documents`` is the number of documents
    that have the column, with or without a value.
    """

    kinds: tuple[str, ...]
    values: int
    documents: int
    strings: int = 0

    def joined(self, other: ColumnSummary) -> ColumnSummary:
        """Return the summary of the values of both."""
        kinds = tuple(kind for kind in self.kinds if kind in other.kinds)
        sums = (mine + its for mine, its in zip(astuple(self)[1:], astuple(other)[1:], strict=True))
        return ColumnSummary(kinds, *sums)

    def to_list(self) -> list[Any]:
        return list(astuple(self))

    @classmethod
    def from_list(cls, fields: Sequence[Any]) -> ColumnSummary:
        return cls(tuple(fields[0]), *fields[1:])


def summarize(
    values: Any, date_format: str | None = None, before: ColumnSummary | None = None
) -> ColumnSummary:
    """Return what is known of the values of an Arrow array; strings are tried as the kinds of those ``before``."""
    given = plain(values)
    is_text = is_string(given.type)
    given = given.filter(pc.not_equal(given, "")) if is_text else given.drop_null()
    names = [*([date_format] if date_format and "%" in date_format else []), *KINDS]
    names = names if before is None else list(before.kinds)
    if len(given) and is_text:
        names = [name for name in names if kind_named(name).fits(given)]
    elif len(given) and is_number(given.type):
        names = kinds_of_numbers(given)
    elif len(given):
        wider = (DAY, TIME) if given.type == DAY else (given.type,)
        names = [name for name in names if kind_named(name).type in wider]
    return ColumnSummary(tuple(names), len(given), len(values), len(given) * is_text)


def choose_types(
    summaries: Mapping[str, ColumnSummary],
    known: Mapping[str, str] | None = None,
    date_format: str | None = None,
) -> tuple[dict[str, str], list[str]]:
    """Return the kind of each column, "" for strings, and lines to log.

    ``known`` has the kinds of columns that another corpus determines ("" for strings); a column whose values are not
    of it stays strings, with a warning. ``date_format`` is "day-first", "month-first", "none" or a format of
    ``datetime.strptime``.
    """
    known, chosen, notes = known or {}, {}, []
    for name, summary in summaries.items():
        kinds = [kind for kind in summary.kinds if _allowed(name, kind, summary, date_format)]
        if name in known:
            same = [kind for kind in summary.kinds if known[name] == kind_of_type(kind_named(kind).type)]
            kinds = [kind for kind in kinds if kind in same] or same
            if known[name] and not kinds:
                text = "%s: not all values are %s, as in the corpus of the vocabulary; they stay strings"
                logger.warning(text, name, known[name])
        elif name == EXCERPT or not summary.values:
            kinds = []
        chosen[name] = kind = kinds[0] if kinds else ""
        if kind and (read := _number_read(summary, kind)):
            notes.append(f"{name}: {read:,} values read as {_described(kind, kinds)}")
    more = [f"{len(notes) - _SHOWN} more columns"] if len(notes) > _SHOWN else []
    lines = ["; ".join([*notes[:_SHOWN], *more])] if notes else []
    if date_format and "%" in date_format and date_format not in chosen.values():
        lines.append(f"no column has only dates as in {option.date_format(date_format)}")
    return chosen, lines


def _is_read(summary: ColumnSummary, kind: str) -> bool:
    """Whether dates of a kind would be made of strings or numbers."""
    return kind_named(kind).dated and (summary.strings > 0 or "numbers" in summary.kinds)


def _number_read(summary: ColumnSummary, kind: str) -> int:
    return summary.values if _is_read(summary, kind) else summary.strings


def _described(kind: str, kinds: Sequence[str]) -> str:
    other = kind.replace("month first", "day first")
    if other != kind and other in kinds:
        return f"{kind}; all days are below 13, so {option.date_format('day-first')} would fit as well"
    return f"dates of {option.date_format(kind)}" if "%" in kind else kind


def _allowed(column: str, kind: str, summary: ColumnSummary, date_format: str | None) -> bool:
    """Whether a column may have a kind, by its name and the format of dates that a user gives."""
    if kind == date_format or not _is_read(summary, kind):
        return True
    snake_case = re.sub("(?<=[a-z])(?=[A-Z])", "_", column).lower()
    if kind in (SECONDS, MILLISECONDS) and not _OF_TIMES.search(snake_case):
        return False
    refused = {"none": "", "day-first": "month first", "month-first": "day first"}.get(date_format or "")
    return refused is None or refused not in kind


def as_type(values: Any, kind: str) -> Any:
    """Convert an Arrow array to one of the kinds that ``summarize`` found, or to strings for "".

    Missing values, such as empty strings of numbers, are null. Raises ArrowInvalid if a value is not of the kind.
    """
    values = plain(values)
    if not kind:
        return _as_text(values)
    wanted = kind_named(kind)
    if is_string(values.type):
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    elif not (wanted.dated and is_number(values.type)):
        return values.cast(wanted.type)
    found = wanted.read(values, wanted)
    if found.null_count > values.null_count:
        raise pa.ArrowInvalid(f"not all values are {kind}")
    return found


def _as_text(values: Any) -> Any:
    """Strings as JSON and Python write the values."""
    if pa.types.is_floating(values.type):
        return _strings([None if value is None else str(value) for value in values.to_pylist()])
    texts = values.cast(TEXT)
    return (
        pc.replace_substring_regex(texts, "[.]0+(Z?)$", r"\1") if pa.types.is_temporal(values.type) else texts
    )


def from_python(values: Sequence[Any]) -> Any:
    """Return Python values as an Arrow array: strings if they are of several types (JSON for lists and mappings).

    Lists of strings stay lists. Lone surrogates become bytes that are not UTF-8, which ``storable`` replaces.
    """
    types = set(map(type, values)) - {type(None)}
    if types <= {str}:
        return _strings(values)
    if types == {list} and all(isinstance(item, str) for value in values for item in value or ()):
        sizes = [None if value is None else len(value) for value in values]
        return _lists(sizes, _strings([item for value in values for item in value or ()]))
    as_arrow = types == {int, float} or (len(types) == 1 and not types & {list, tuple, dict})
    if as_arrow or any(map(_has_bytes, values)):
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            pass
    return _strings([None if value is None else _json_text(value) for value in values])


def _has_bytes(value: Any) -> bool:
    """Whether an object has bytes, as images of Hugging Face."""
    return isinstance(value, dict) and any(isinstance(item, bytes) for item in value.values())


def _lists(sizes: Sequence[int | None], items: Any) -> Any:
    """An Arrow array of lists of these sizes; None for null."""
    ends = np.cumsum([0, *(size or 0 for size in sizes)], dtype=np.int32)
    return pa.ListArray.from_arrays(
        pa.array(ends, mask=np.array([*(n is None for n in sizes), False])), items
    )


def _strings(values: Sequence[str | None]) -> Any:
    try:
        return pa.array(values, TEXT)
    except UnicodeEncodeError:
        raw = [None if value is None else value.encode("utf-8", "surrogatepass") for value in values]
        return pa.array(raw, pa.binary()).view(TEXT)


def _json_text(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).lower() if isinstance(value, bool) else str(value)


def storable(name: str, values: Any) -> tuple[Any, str]:
    """Return an Arrow array as a corpus can hold it, or None if it cannot, and a line if that changed values.

    What becomes of a value does not depend on the others. Bytes that are not UTF-8 are replaced by U+FFFD in strings,
    lists, objects and mappings become JSON, durations seconds, decimals numbers, and times of day strings.
    """
    values = values.cast(without_views(values.type))
    of, types = values.type, pa.types
    if isinstance(of, pa.BaseExtensionType):
        if of.extension_name != "arrow.uuid":
            return storable(name, values.storage)
        values = _strings([None if value is None else str(value) for value in values.to_pylist()])
    elif types.is_run_end_encoded(of):
        values = pc.run_end_decode(values)
    elif types.is_dictionary(of):
        values = values.dictionary_decode()
    store = next((store for is_of, store in _STORES if is_of(values.type)), _left_out)
    kept, note = store(values)
    return kept, f"{name}: {note}" if note else ""


def storable_tokens(name: str, values: Any) -> tuple[Any, str]:
    """Like ``storable``, for lists of strings that stay lists."""
    items, note = _characters(values.flatten())
    values = _lists(pc.list_value_length(values).to_pylist(), items) if note else values
    return values, f"{name}: {note}" if note else ""


def _characters(values: Any) -> tuple[Any, str]:
    """Strings without bytes that are not UTF-8."""
    raw = values.cast(pa.large_binary())
    try:
        raw.cast(pa.large_string())
    except pa.ArrowInvalid:
        texts = [None if value is None else as_characters(value) for value in raw.to_pylist()]
        return _strings(texts), "bytes that are not UTF-8 are replaced by U+FFFD"
    return values, ""


def as_characters(raw: bytes) -> str:
    """Decode UTF-8, with U+FFFD for lone surrogates and other bytes that are no characters."""
    return re.sub(b"\xed[\xa0-\xbf][\x80-\xbf]", "\ufffd".encode(), raw).decode("utf-8", "replace")


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


def _durations(values: Any) -> tuple[Any, str]:
    return pc.divide(values.cast(pa.int64()).cast(pa.float64(), safe=False), _TICKS[values.type.unit]), ""


def _nested(values: Any) -> tuple[Any, str]:
    """Lists, objects and mappings as JSON; null if Python has no such value or JSON no such key."""
    if _holds_bytes(values.type):
        return _left_out(values)
    if is_list_of_strings(values.type):
        values, _ = storable_tokens("", values)
    note = "lists and objects are kept as JSON, if they can be"
    try:
        rows = values.to_pylist(maps_as_pydicts="lossy")
        return _strings([None if value is None else _json_text(value) for value in rows]), note
    except (ValueError, OverflowError, TypeError):
        if len(values) == 1:
            return pa.nulls(1, TEXT), note
    return pa.concat_arrays([_nested(values[row : row + 1])[0] for row in range(len(values))]), note


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


def _unchanged(values: Any) -> tuple[Any, str]:
    return values, ""


#: What becomes of the values of a type, by functions that recognise it.
_STORES: tuple[tuple[Any, Any], ...] = (
    (is_string, _characters),
    (pa.types.is_binary, _bytes),
    (pa.types.is_large_binary, _bytes),
    (pa.types.is_date, _dates),
    (pa.types.is_timestamp, _dates),
    (pa.types.is_duration, _durations),
    (pa.types.is_time, lambda values: (_as_text(values), "")),
    (pa.types.is_decimal, lambda values: (values.cast(pa.float64() if values.type.scale > 0 else TEXT), "")),
    (pa.types.is_nested, _nested),
    (pa.types.is_boolean, _unchanged),
    (pa.types.is_null, _unchanged),
    (is_number, _unchanged),
)
