"""Kinds of values: their types in a corpus, and how their strings are recognised and converted."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.corpus.records import without_views

TEXT, DAY, TIME, UTC = pa.string(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")

_HEAD = 100  # values that are tried first
_EXACT = 10**15  # integers of up to 15 digits are exact in float64
_PER_DAY = 86_400  # seconds
_PLAUSIBLE = (3652 * _PER_DAY, 47_482 * _PER_DAY)  # 1980 to 2099, as seconds since 1970
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

    def fits(self, values: Any) -> bool:
        """Return whether all values of an Arrow array without nulls are of the kind."""
        try:
            return not any(self.read(part, self).null_count for part in (values[:_HEAD], values))
        except pa.ArrowInvalid:  # such as February 30
            return False


def _by_arrow(values: Any, kind: Kind) -> Any:
    """Convert strings that Arrow can cast."""
    return _matching(values, kind).cast(kind.type)


def _matching(values: Any, kind: Kind) -> Any:
    return pc.if_else(pc.match_substring_regex(values, kind.pattern), values, pa.scalar(None, values.type))


def _since_1970(values: Any, kind: Kind, per_second: int) -> Any:
    """Convert strings or numbers of seconds or milliseconds."""
    numbers = (_matching(values, kind) if is_string(values.type) else values).cast(pa.float64())
    seconds = np.asarray(numbers) / per_second
    good = (_PLAUSIBLE[0] <= seconds) & (seconds < _PLAUSIBLE[1])
    return pa.array(np.round(np.where(good, seconds, 0) * 1e6).astype(np.int64), mask=~good).view(kind.type)


def _by_parts(values: Any, kind: Kind) -> Any:
    """Convert dates and times whose parts are the groups of the pattern; what does not exist is null."""
    found = pc.extract_regex(values.cast(TEXT), kind.pattern)
    parts = dict(zip((field.name for field in found.type), found.flatten(), strict=True))

    def number(name: str, absent: int = 0) -> Any:
        texts = parts.get(name, pa.nulls(len(found), TEXT))
        return np.asarray(pc.if_else(pc.equal(texts, ""), None, texts).cast(pa.int64()).fill_null(absent))

    month, hour, year = number("month"), number("hour"), number("year", 1970)
    year = year + np.select([year < 69, year < 100], [2000, 1900])  # as in POSIX
    if "name" in parts:
        month = np.asarray(pc.index_in(pc.utf8_lower(parts["name"]), _MONTHS).fill_null(-1)) + 1
    first = (12 * (year - 1970) + np.maximum(month, 1) - 1).astype("datetime64[M]")
    days = first.astype("datetime64[D]").astype(int) + number("day", 1) - 1
    good = np.asarray(found.is_valid()) & (month >= 1) & (month <= 12)
    good &= days < (first + 1).astype("datetime64[D]").astype(int)
    if "half" in parts:
        given, is_pm = (np.asarray(pc.is_in(parts["half"], pa.array([*each]))) for each in ("APap", "Pp"))
        good &= ~given | ((hour >= 1) & (hour <= 12))
        hour = np.where(given, hour % 12 + 12 * is_pm, hour)
    if kind.type == DAY:
        return pa.array(days.astype(np.int32), mask=~good).view(DAY)
    seconds = _PER_DAY * days + 3600 * hour + 60 * number("minute") + number("second")
    if "zone" in parts:
        seconds -= np.array([*map(_offset, parts["zone"].to_pylist())], int)
    return pa.array(seconds * 10**6, mask=~(good & (hour < 24))).view(kind.type)


@cache
def _offset(zone: str | None) -> int:
    """The offset of a zone such as +01:00, GMT or EST in seconds."""
    if zone and zone[0] in "+-":
        return int(f"{zone[0]}1") * (3600 * int(zone[1:3]) + 60 * int(zone[-2:]))
    return 3600 * _HOURS.get(zone or "", 0)


def _by_format(values: Any, kind: Kind) -> Any:
    """Convert each distinct string by a format of strptime."""
    coded = values.cast(TEXT).dictionary_encode()
    try:
        found = [datetime.datetime.strptime(text, kind.pattern) for text in coded.dictionary.to_pylist()]
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
    return pa.array(found, UTC if kind.type == UTC else TIME).cast(kind.type).take(coded.indices)


_ISO, _CLOCK = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}", "[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]{1,6})?)?"
_YEAR, _MONTH, _DAY = "(?P<year>1[0-9]{3}|20[0-9]{2})", "(?P<month>[0-9]{1,2})", "(?P<day>[0-3]?[0-9])"
_SHORT = "(?P<year>1[0-9]{3}|20[0-9]{2}|[0-9]{2})"
_NAME, _WEEKDAY = "(?P<name>[A-Za-z]{3})[a-z]{0,6}[.]?", "[A-Z][a-z]{2}"
_TIME = "(?P<hour>[0-9]{1,2}):(?P<minute>[0-5][0-9])(?::(?P<second>[0-5][0-9]|60))?"
_HALF = f"(?:,? {_TIME}(?: ?(?P<half>[AaPp])[Mm])?)?"
_ZONE = f"(?P<zone>[+-][0-9]{{2}}:?[0-9]{{2}}|GMT|UTC?|Z|{'|'.join(_HOURS)})"
_ORDERS = {  # dots are written between day, month and year, never after the month
    "year first": f"{_YEAR}[/.]{_MONTH}[/.]{_DAY}",
    "month first": f"{_MONTH}[-/]{_DAY}[-/]{_SHORT}",
    "day first": f"{_DAY}[-/.]{_MONTH}[-/.]{_SHORT}",
}
_NAMED = {"day month year": f"{_DAY} {_NAME},? {_YEAR}", "month day, year": f"{_NAME} {_DAY},? {_YEAR}"}
_MAIL = f"(?:{_WEEKDAY},? )?{_DAY} {_NAME} {_YEAR} {_TIME} {_ZONE}(?: [(][^)]*[)])?"
_TWITTER = f"{_WEEKDAY} {_NAME} {_DAY} {_TIME} {_ZONE} {_YEAR}"
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
    **{f"dates ({name})": Kind(DAY, f"^{date}$", _by_parts) for name, date in (_ORDERS | _NAMED).items()},
    **{f"times ({order})": Kind(TIME, f"^{date}{_HALF}$", _by_parts) for order, date in _ORDERS.items()},
    "times (mail)": Kind(UTC, f"^{_MAIL}$", _by_parts),
    "times (Twitter)": Kind(UTC, f"^{_TWITTER}$", _by_parts),
}


def kind_named(name: str) -> Kind:
    """Return one of ``KINDS``, or that of a format of ``datetime.strptime``."""
    if name in KINDS:
        return KINDS[name]
    zoned, timed = "%z" in name, re.search("%[HIMScXfT]", name)
    return Kind(UTC if zoned else TIME if timed else DAY, name, _by_format)


def kind_of_type(of: Any) -> str:
    """Return which of ``KINDS`` a column of an Arrow type holds; "" for strings and other types."""
    types, wide = pa.types, of
    if is_number(of):
        wide = pa.int64() if types.is_integer(of) else pa.float64()
    elif types.is_date(of) or types.is_timestamp(of):
        wide = DAY if types.is_date(of) else UTC if of.tz else TIME
    typed = (name for name, kind in KINDS.items() if kind.read is _by_arrow and kind.type == wide)
    return next(typed, "")


def is_number(of: Any) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of))


def kinds_of_numbers(values: Any) -> list[str]:
    """Return the kinds that all values of an Arrow array of numbers without nulls are."""
    integers = pa.types.is_integer(values.type)
    names = [SECONDS, MILLISECONDS, *[EIGHT_DIGITS] * integers]
    found = [name for name in names if KINDS[name].fits(values)]
    low, high = pc.min_max(values).as_py().values()
    found += ["integers"] * (integers and high < 2**63)
    return found + ["numbers"] * (not integers or -_EXACT < low <= high < _EXACT)


def plain(values: Any) -> Any:
    """Return an Arrow array without dictionary encoding and views, with times of the types that a corpus has."""
    values = values.cast(without_views(values.type))
    values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    if pa.types.is_timestamp(values.type):
        return values.cast(UTC if values.type.tz else TIME, safe=False)
    if pa.types.is_float16(values.type):
        return values.cast(pa.float32())
    return values.cast(DAY) if pa.types.is_date(values.type) else values
