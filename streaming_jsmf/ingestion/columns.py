"""Columns of metadata: what a corpus can hold, the kinds of their values, and one type for each column."""

from __future__ import annotations

import datetime
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.config import EXCERPT
from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.corpus.records import without_views
from streaming_jsmf.errors import option

logger = logging.getLogger(__name__)

TEXT, DAY, TIME, UTC = pa.string(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")

_HEAD = 100  # values that are tried first
_SHOWN = 20  # columns in a line
_LEFT_OUT = "values are left out, because a corpus cannot hold"
_EXACT = 10**15  # integers of up to 15 digits are exact in float64

#: Years 1 to 9999, which Python and its libraries can show, in days since 1970; numbers in 1980 to 2100 may be times.
_DAYS = (-719_162, 2_932_896)
_SECONDS_PER_DAY = 86_400
_PLAUSIBLE = (3652 * _SECONDS_PER_DAY, 47_482 * _SECONDS_PER_DAY)

#: Words in names of columns whose numbers may be times: created_utc, retrieved_on, reviewTime.
_TIME_NAMES = frozenset(
    [
        "time",
        "date",
        "datetime",
        "timestamp",
        "ts",
        "epoch",
        "utc",
        "at",
        "on",
        "when",
        "created",
        "published",
        "updated",
        "modified",
        "edited",
        "posted",
        "retrieved",
        "crawled",
        "sent",
        "received",
        "pubdate",
        "unixtime",
    ]
)

_MONTHS = pa.array(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"])
_HOURS = {"EDT": -4, "EST": -5, "CDT": -5, "CST": -6, "MDT": -6, "MST": -7, "PDT": -7, "PST": -8}


@dataclass(frozen=True)
class Kind:
    """Values of one kind: their type in the corpus, the pattern of their strings, and how these are converted.

    ``read`` converts an Arrow array of strings, or of numbers that may be dates. It returns null, or raises
    ArrowInvalid, if a value is not of the kind.
    """

    type: Any
    pattern: str
    read: Callable[[Any, Kind], Any]

    @property
    def dated(self) -> bool:
        return bool(pa.types.is_temporal(self.type))


def _by_arrow(values: Any, kind: Kind) -> Any:
    """Convert strings that Arrow can cast."""
    return _matching(values, kind).cast(kind.type)


def _since_1970(values: Any, kind: Kind, per_second: int) -> Any:
    """Convert seconds or milliseconds since 1970."""
    numbers = np.asarray((_matching(values, kind) if is_string(values.type) else values).cast(pa.float64()))
    seconds = numbers / per_second
    good = (_PLAUSIBLE[0] <= seconds) & (seconds < _PLAUSIBLE[1])
    return pa.array(np.round(np.where(good, seconds, 0) * 1e6).astype(np.int64), mask=~good).view(kind.type)


def _by_parts(values: Any, kind: Kind) -> Any:
    """Convert the parts of dates and times that the groups of the pattern find; what does not exist is null."""
    found = pc.extract_regex(values.cast(TEXT), kind.pattern)
    parts = dict(zip((field.name for field in found.type), found.flatten(), strict=True))

    def number(name: str, absent: int = 0) -> Any:
        texts = parts.get(name, pa.nulls(len(found), TEXT))
        return np.asarray(pc.if_else(pc.equal(texts, ""), None, texts).cast(pa.int64()).fill_null(absent))

    year, day, hour = number("year", 1970), number("day", 1), number("hour")
    month = number("month", 1)
    if "name" in parts:
        month = np.asarray(pc.index_in(pc.utf8_lower(parts["name"]), _MONTHS).fill_null(-1)).astype(int) + 1
    first = (12 * (year - 1970) + np.maximum(month, 1) - 1).astype("datetime64[M]")
    days = first.astype("datetime64[D]").astype(int) + day - 1
    good = np.asarray(found.is_valid()) & (month > 0) & (month <= 12)
    good &= days < (first + 1).astype("datetime64[D]").astype(int)
    if "half" in parts:
        halves = np.asarray(pc.utf8_lower(parts["half"]).fill_null("").to_pylist(), object)
        good &= (halves == "") | ((hour > 0) & (hour <= 12))
        hour = np.where(halves == "", hour, hour % 12 + 12 * (halves == "p"))
    good &= hour < 24
    if kind.type == DAY:
        return pa.array(days.astype(np.int32), mask=~good).view(DAY)
    seconds = _SECONDS_PER_DAY * days + 3600 * hour + 60 * number("minute") + number("second")
    if "zone" in parts:
        seconds -= np.array([_offset(zone) for zone in parts["zone"].to_pylist()], int)
    return pa.array(seconds * 10**6, mask=~good).view(kind.type)


def _offset(zone: str | None) -> int:
    """The offset of a zone such as +01:00, GMT or EST in seconds."""
    if zone and zone[0] in "+-":
        return int(f"{zone[0]}1") * (3600 * int(zone[1:3]) + 60 * int(zone[-2:]))
    return 3600 * _HOURS.get(zone or "", 0)


def _by_format(values: Any, kind: Kind) -> Any:
    """Convert strings by a format of strptime, each distinct one once."""
    coded = values.cast(TEXT).dictionary_encode()
    moments = []
    for text in coded.dictionary.to_pylist():
        try:
            moment: Any = datetime.datetime.strptime(text, kind.pattern)
        except ValueError as error:
            raise pa.ArrowInvalid(str(error)) from error
        moments.append(moment.astimezone(datetime.UTC) if kind.type == UTC else moment)
    return pa.array(moments, UTC if kind.type == UTC else TIME).cast(kind.type).take(coded.indices)


def _matching(values: Any, kind: Kind) -> Any:
    return pc.if_else(pc.match_substring_regex(values, kind.pattern), values, pa.scalar(None, values.type))


_ISO, _CLOCK = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}", "[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]{1,6})?)?"
_YEAR, _MONTH, _DAY = "(?P<year>1[0-9]{3}|20[0-9]{2})", "(?P<month>[0-9]{1,2})", "(?P<day>[0-3]?[0-9])"
_NAME = "(?P<name>[A-Za-z]{3})[a-z]{0,6}[.]?"
_TIME = "(?P<hour>[0-9]{1,2}):(?P<minute>[0-5][0-9])(?::(?P<second>[0-5][0-9]|60))?"
_HALF = f"(?: {_TIME}(?: ?(?P<half>[AaPp])[Mm])?)?"
_ZONE = f"(?P<zone>[+-][0-9]{{2}}:?[0-9]{{2}}|GMT|UTC?|Z|{'|'.join(_HOURS)})"
_ORDERS = {  # dots are written between day, month and year, never after the month
    "year first": f"{_YEAR}[-/.]{_MONTH}[-/.]{_DAY}",
    "month first": f"{_MONTH}[-/]{_DAY}[-/]{_YEAR}",
    "day first": f"{_DAY}[-/.]{_MONTH}[-/.]{_YEAR}",
}
SECONDS, MILLISECONDS, EIGHT_DIGITS = "times (seconds)", "times (milliseconds)", "dates (YYYYMMDD)"

#: Kinds of values, in order of preference. Leading zeros and more digits than float64 holds mark an identifier.
KINDS: dict[str, Kind] = {
    SECONDS: Kind(UTC, "^[0-9]{9,10}(?:[.][0-9]{1,6})?$", partial(_since_1970, per_second=1)),
    MILLISECONDS: Kind(UTC, "^[0-9]{12,13}$", partial(_since_1970, per_second=1000)),
    EIGHT_DIGITS: Kind(
        DAY, "^(?P<year>1[6-9][0-9]{2}|20[0-9]{2})(?P<month>[0-9]{2})(?P<day>[0-9]{2})$", _by_parts
    ),
    "booleans": Kind(pa.bool_(), "$^", _by_arrow),  # never strings
    "integers": Kind(pa.int64(), "^(?:0|-?[1-9][0-9]{0,17})$", _by_arrow),
    "numbers": Kind(pa.float64(), "^-?(?:0|[1-9][0-9]{0,14})(?:[.][0-9]+)?$", _by_arrow),
    "dates": Kind(DAY, f"^{_ISO}$", _by_arrow),
    "times": Kind(TIME, f"^{_ISO}(?:[T ]{_CLOCK})?$", _by_arrow),
    "times in UTC": Kind(UTC, f"^{_ISO}[T ]{_CLOCK}(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)$", _by_arrow),
    "dates (months)": Kind(DAY, f"^{_YEAR}-(?P<month>[0-9]{{2}})$", _by_parts),
    **{f"dates ({order})": Kind(DAY, f"^{date}$", _by_parts) for order, date in _ORDERS.items()},
    **{f"times ({order})": Kind(TIME, f"^{date}{_HALF}$", _by_parts) for order, date in _ORDERS.items()},
    "dates (day month year)": Kind(DAY, f"^{_DAY} {_NAME},? {_YEAR}$", _by_parts),
    "dates (month day, year)": Kind(DAY, f"^{_NAME} {_DAY},? {_YEAR}$", _by_parts),
    "times (mail)": Kind(
        UTC, f"^(?:[A-Z][a-z]{{2}},? )?{_DAY} {_NAME} {_YEAR} {_TIME} {_ZONE}(?: [(][^)]*[)])?$", _by_parts
    ),
    "times (Twitter)": Kind(UTC, f"^[A-Z][a-z]{{2}} {_NAME} {_DAY} {_TIME} {_ZONE} {_YEAR}$", _by_parts),
}


def kind_named(name: str) -> Kind:
    """Return one of ``KINDS``, or that of a format of ``datetime.strptime``."""
    if name in KINDS:
        return KINDS[name]
    zoned, timed = "%z" in name, re.search("%[HIMScXfT]", name)
    return Kind(UTC if zoned else TIME if timed else DAY, name, _by_format)


def kind_of_type(of: Any) -> str:
    """Return which of ``KINDS`` a column of this Arrow type holds; "" for strings and other types."""
    plain = (name for name, kind in KINDS.items() if kind.read is _by_arrow and kind.type == of)
    return next(plain, "")


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

    @property
    def is_read(self) -> bool:
        """Whether there are strings, or numbers, which may be dates."""
        return self.strings > 0 or "numbers" in self.kinds

    def to_list(self) -> list[Any]:
        return list(astuple(self))

    @classmethod
    def from_list(cls, fields: Sequence[Any]) -> ColumnSummary:
        return cls(tuple(fields[0]), *fields[1:])


def summarize(values: Any, date_format: str | None = None) -> ColumnSummary:
    """Return what is known of the values of an Arrow array; strings are tried as all kinds."""
    given = _given(values)
    names = [*([date_format] if date_format and "%" in date_format else []), *KINDS]
    of, n, strings = given.type, len(given), len(given) * is_string(given.type)
    if not n:
        kinds = names
    elif strings:
        kinds = [name for name in names if _fit(given, name)]
    elif _is_number(of):
        kinds = [name for name in names if _fit_numbers(given, name)]
    else:
        wider = {of, TIME} if of == DAY else {of}
        kinds = [name for name in names if kind_named(name).type in wider]
    return ColumnSummary(tuple(kinds), n, len(values), strings)


def _given(values: Any) -> Any:
    """The values that are not missing, without dictionary encoding; times in microseconds."""
    values = plain(values)
    if is_string(values.type):
        values = values.filter(pc.not_equal(values, ""))
    return values.drop_null()


def plain(values: Any) -> Any:
    """Return an Arrow array without dictionary encoding and views, with times of the types that a corpus has."""
    values = values.cast(without_views(values.type))
    values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    if pa.types.is_timestamp(values.type):
        return values.cast(UTC if values.type.tz else TIME, safe=False)
    return values.cast(DAY) if pa.types.is_date(values.type) else values


def _is_number(of: Any) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of))


def _fit(values: Any, name: str) -> bool:
    kind = kind_named(name)
    try:
        return not any(kind.read(part, kind).null_count for part in (values[:_HEAD], values))
    except pa.ArrowInvalid:  # such as February 30
        return False


def _fit_numbers(values: Any, name: str) -> bool:
    integers = pa.types.is_integer(values.type)
    if name == "numbers":
        low, high = pc.min_max(values).as_py().values()
        return not integers or -_EXACT < low <= high < _EXACT
    if name == "integers":
        return integers and bool(pc.max(values).as_py() < 2**63)
    return name in (SECONDS, MILLISECONDS, *[EIGHT_DIGITS] * integers) and _fit(values, name)


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
    chosen, notes = {}, []
    for name, summary in summaries.items():
        kinds = [kind for kind in summary.kinds if _allowed(name, kind, summary, date_format)]
        if name == EXCERPT or not (summary.values or name in (known or {})):
            kinds = []
        elif known and name in known:
            wanted = known[name]
            same = [kind for kind in summary.kinds if wanted and kind_named(kind).type == KINDS[wanted].type]
            if wanted and not same:
                text = "%s: not all values are %s, as in the corpus of the vocabulary; they stay strings"
                logger.warning(text, name, wanted)
            kinds = [kind for kind in kinds if kind in same] or same
        chosen[name] = kind = kinds[0] if kinds else ""
        read = summary.strings if kind in ("integers", "numbers") else summary.is_read * summary.values
        if kind and read:
            notes.append(f"{name}: {read:,} values read as {_described(kind, kinds)}")
    more = [f"{len(notes) - _SHOWN} more columns"] if len(notes) > _SHOWN else []
    lines = ["; ".join([*notes[:_SHOWN], *more])] if notes else []
    if date_format and "%" in date_format and date_format not in chosen.values():
        lines.append(f"no column has only dates as in {option.date_format(date_format)}")
    return chosen, lines


def _described(kind: str, kinds: Sequence[str]) -> str:
    other = kind.replace("month first", "day first")
    if other != kind and other in kinds:
        return f"{kind}; all days are below 13, so {option.date_format('day-first')} would fit as well"
    return f"{kind}, {option.date_format(kind)}" if "%" in kind else kind


def _allowed(column: str, kind: str, summary: ColumnSummary, date_format: str | None) -> bool:
    """Whether a column may have a kind, by its name and the format of dates that a user gives."""
    if not (summary.is_read and kind_named(kind).dated) or kind == date_format:
        return True
    if kind in (SECONDS, MILLISECONDS):
        words = re.findall("[a-z]+", re.sub("(?<=[a-z])(?=[A-Z])", "_", column).lower())
        if _TIME_NAMES.isdisjoint(words):
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
    wanted, is_text = kind_named(kind), is_string(values.type)
    if is_text:
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    if not is_text and not (wanted.dated and _is_number(values.type)):
        return values.cast(wanted.type)
    found = wanted.read(values, wanted)
    if found.null_count > values.null_count:
        raise pa.ArrowInvalid(f"not all values are {kind}")
    return found


def _as_text(values: Any) -> Any:
    """Strings as JSON and Python write the values."""
    if pa.types.is_floating(values.type):
        return pa.array([None if value is None else str(value) for value in values.to_pylist()], TEXT)
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
        sizes = [0 if value is None else len(value) for value in values]
        offsets = pa.array(
            np.cumsum([0, *sizes]).astype(np.int32), mask=np.array([*(v is None for v in values), False])
        )
        return pa.ListArray.from_arrays(offsets, _strings([item for value in values for item in value or ()]))
    if (len(types) == 1 and not types & {list, dict}) or types == {int, float}:
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            pass
    return _strings([None if value is None else _json_text(value) for value in values])


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
    kept, note = _storable(values.cast(without_views(values.type)))
    return kept, f"{name}: {note}" if note else ""


def _storable(values: Any) -> tuple[Any, str]:
    of, types = values.type, pa.types
    if isinstance(of, pa.BaseExtensionType):
        is_uuid = of.extension_name == "arrow.uuid"
        return _storable(from_python([*map(str, values.to_pylist())]) if is_uuid else values.storage)
    if types.is_dictionary(of):
        return _storable(values.dictionary_decode())
    if types.is_run_end_encoded(of):
        return _storable(pc.run_end_decode(values))
    if is_string(of):
        return _repaired(values)
    if types.is_binary(of) or types.is_large_binary(of):
        return _texts_of_bytes(values)
    if types.is_timestamp(of) or types.is_date(of):
        return _shown_dates(values)
    if types.is_duration(of):
        return pc.divide(
            values.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6
        ), ""
    if types.is_decimal(of):
        return values.cast(pa.float64() if of.scale > 0 else TEXT), ""
    if types.is_time(of):
        return _as_text(values), ""
    if types.is_nested(of) and not _holds_bytes(of):
        return _json_texts(values)
    if (types.is_primitive(of) and not types.is_interval(of)) or types.is_null(of):
        return values, ""
    return None, f"{_LEFT_OUT} {'images or other bytes' if _holds_bytes(of) else of}"


def _repaired(values: Any) -> tuple[Any, str]:
    """Strings without bytes that are not UTF-8."""
    try:
        return values.cast(pa.large_binary()).cast(pa.large_string()).cast(values.type), ""
    except pa.ArrowInvalid:
        raw = values.cast(pa.large_binary()).to_pylist()
    texts = [None if value is None else as_characters(value) for value in raw]
    return pa.array(texts, TEXT), "bytes that are not UTF-8 are replaced by U+FFFD"


def as_characters(raw: bytes) -> str:
    """Decode UTF-8, with U+FFFD for lone surrogates and other bytes that stand for no character."""
    return re.sub(b"\xed[\xa0-\xbf][\x80-\xbf]", "\ufffd".encode(), raw).decode("utf-8", "replace")


def _texts_of_bytes(values: Any) -> tuple[Any, str]:
    try:
        return values.cast(pa.large_binary()).cast(pa.large_string()).cast(TEXT), ""
    except pa.ArrowInvalid:
        texts = [None if raw is None else _utf8(raw) for raw in values.to_pylist()]
    kept = pa.array(texts, TEXT)
    return kept if kept.null_count < len(kept) else None, f"{_LEFT_OUT} images or other bytes"


def _utf8(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _shown_dates(values: Any) -> tuple[Any, str]:
    """Dates and times of the types of a corpus, without those that no library shows."""
    of = values.type
    per_day = (
        1
        if of == DAY
        else _SECONDS_PER_DAY * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[getattr(of, "unit", "ms")]
    )
    numbers = values.cast(pa.int32()).cast(pa.int64()) if of == DAY else values.cast(pa.int64())
    low, high = (max(min(day * per_day, 2**63 - 1), -(2**63)) for day in _DAYS)
    shown = pc.and_(pc.greater_equal(numbers, low), pc.less(numbers, high))
    kept = plain(pc.if_else(shown, values, pa.scalar(None, of)))
    return kept, "dates before year 1 or after 9999 are left out" * (kept.null_count > values.null_count)


def _json_texts(values: Any) -> tuple[Any, str]:
    rows = [values[row : row + 1] for row in range(len(values))]
    found = [*map(_json_of, rows)]
    lost = values.null_count < found.count(None)
    return _strings(found), "lists and objects are kept as JSON" + ", but not those that cannot be" * lost


def _json_of(row: Any) -> str | None:
    """The only value of an array as JSON; None for null, or if Python has no such value or JSON no such key."""
    try:
        [value] = row.to_pylist(maps_as_pydicts="lossy")
        return None if value is None else _json_text(value)
    except (ValueError, OverflowError, TypeError):
        return None


def _holds_bytes(of: Any) -> bool:
    types = pa.types
    fields = [of.field(i).type for i in range(of.num_fields)] if types.is_nested(of) else []
    binary = types.is_binary(of) or types.is_large_binary(of) or types.is_fixed_size_binary(of)
    return bool(binary or any(map(_holds_bytes, fields)))
