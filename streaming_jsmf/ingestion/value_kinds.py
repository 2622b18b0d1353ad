"""Kinds of the values in strings: numbers, dates and times, with their patterns and how they are converted."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.ingestion.sources.values import DAY, TEXT, TIME, UTC, is_number

_PER_DAY = 86_400  # seconds
PLAUSIBLE = (3652 * _PER_DAY, 47_482 * _PER_DAY)  # 1980 to 2099, as seconds since 1970
#: A list, because the first array of Arrow imports pandas.
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_HOURS = {"EDT": -4, "EST": -5, "CDT": -5, "CST": -6, "MDT": -6, "MST": -7, "PDT": -7, "PST": -8}


@dataclass(frozen=True)
class Kind:
    """Values of one kind: their type in the corpus, the pattern of their strings, and how these are converted.

    ``read`` converts an Arrow array of strings that match the pattern, or of numbers that may be dates. It returns
    null, or raises ArrowInvalid, if a value is not of the kind.
    """

    type: Any
    pattern: str
    read: Callable[[Any, Kind], Any]

    @property
    def dated(self) -> bool:
        return bool(pa.types.is_temporal(self.type))

    def others(self, values: Any) -> Any:
        """Return the strings of an Arrow array without nulls that are not of the kind, such as February 30 of dates."""
        alike = pc.match_substring_regex(values, self.pattern or "^")
        if not alike.true_count:
            return values
        given = values.filter(alike)
        return pa.concat_arrays([values.filter(pc.invert(alike)), given.filter(self._is_wrong(given))])

    def _is_wrong(self, given: Any) -> Any:
        try:
            return self.read(given, self).is_null()
        except pa.ArrowInvalid:  # Arrow does not say which value it is
            half = len(given) // 2
            parts = [self._is_wrong(part) for part in (given[:half], given[half:])] if half else [[True]]
            return pa.concat_arrays([pa.array(part) for part in parts])


def _by_arrow(values: Any, kind: Kind) -> Any:
    """Convert strings that Arrow can cast, also those with " UTC" or " +0100" at the end."""
    if kind.type == UTC and is_string(values.type):
        values = pc.replace_substring_regex(pc.replace_substring(values, " UTC", "Z"), " ([+-])", r"\1")
    return values.cast(kind.type)


def _since_1970(values: Any, kind: Kind, per_second: int) -> Any:
    """Convert strings or numbers of seconds or milliseconds."""
    seconds = np.asarray(values.cast(pa.float64())) / per_second
    good = (PLAUSIBLE[0] <= seconds) & (seconds < PLAUSIBLE[1])
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
        month = np.asarray(pc.index_in(pc.utf8_lower(parts["name"]), pa.array(_MONTHS)).fill_null(-1)) + 1
    first = (12 * (year - 1970) + np.maximum(month, 1) - 1).astype("datetime64[M]")
    days = first.astype("datetime64[D]").astype(int) + number("day", 1) - 1
    good = np.asarray(found.is_valid()) & (month >= 1) & (month <= 12)
    good &= days < (first + np.timedelta64(1, "M")).astype("datetime64[D]").astype(int)
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


def _by_format(values: Any, kind: Kind, pattern: str) -> Any:
    """Convert each distinct string by a format of strptime."""
    coded = values.cast(TEXT).dictionary_encode()
    found: list[datetime.datetime | None] = [None] * len(coded.dictionary)
    for place, text in enumerate(coded.dictionary.to_pylist()):
        with suppress(ValueError):
            found[place] = datetime.datetime.strptime(text, pattern)
    return pa.array(found, UTC if kind.type == UTC else TIME).cast(kind.type).take(coded.indices)


_ISO, _CLOCK = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}", "[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]{1,6})?)?"
_YEAR, _MONTH, _DAY = "(?P<year>1[0-9]{3}|20[0-9]{2})", "(?P<month>[0-9]{1,2})", "(?P<day>[0-3]?[0-9])"
_SHORT = "(?P<year>1[0-9]{3}|20[0-9]{2}|[0-9]{2})"
_NAME, _WEEKDAY = "(?P<name>[A-Za-z]{3})[A-Za-z]{0,6}[.]?", "[A-Z][a-z]{2}"
_TIME = "(?P<hour>[0-9]{1,2}):(?P<minute>[0-5][0-9])(?::(?P<second>[0-5][0-9]|60))?"
_HALF = rf"(?:(?:,| at)? {_TIME}(?:[ \x{{A0}}\x{{202F}}]?(?P<half>[AaPp])[.]?[Mm][.]?)?)?"
_ZONE = f"(?P<zone>[+-][0-9]{{2}}:?[0-9]{{2}}|GMT|UTC?|Z|{'|'.join(_HOURS)})"
_ORDERS = {  # dots are written between day, month and year, never after the month
    "year first": f"{_YEAR}[/.]{_MONTH}[/.]{_DAY}",
    "month first": f"{_MONTH}[-/]{_DAY}[-/]{_SHORT}",
    "day first": f"{_DAY}[-/.]{_MONTH}[-/.]{_SHORT}",
}
_LONG_WEEKDAY = "(?:Mon|Tue|Tues|Wed|Wednes|Thu|Thurs|Fri|Sat|Satur|Sun)(?:day)?"
_NAMED = {
    "day month year": f"(?:{_LONG_WEEKDAY},? )?{_DAY}[ -]{_NAME},?[ -]{_SHORT}",
    "month day, year": f"(?:{_LONG_WEEKDAY},? )?{_NAME} {_DAY},? {_YEAR}(?:,? {_LONG_WEEKDAY})?",
    "month year": f"{_NAME}[ -]{_YEAR}",
}
_MAIL = f"(?:{_WEEKDAY},? )?{_DAY} {_NAME} {_YEAR} {_TIME} {_ZONE}(?: [(][^)]*[)])?"
_WHOLE = "^-?(?:0|[1-9][0-9]{0,14})"
_MONTHLY = {"months": f"{_YEAR}-(?P<month>[0-9]{{2}})(?:-(?P<day>[0-9]{{2}}))?"}
SECONDS, MILLISECONDS, EIGHT_DIGITS = "times (seconds)", "times (milliseconds)", "dates (YYYYMMDD)"

#: Kinds of values, in order of preference. Leading zeros and more digits than float64 holds mark an identifier.
KINDS: dict[str, Kind] = {
    SECONDS: Kind(UTC, "^[0-9]{9,10}(?:[.][0-9]{1,6})?$", partial(_since_1970, per_second=1)),
    MILLISECONDS: Kind(UTC, "^[0-9]{12,13}$", partial(_since_1970, per_second=1000)),
    EIGHT_DIGITS: Kind(DAY, r"^(?P<year>(?:1[6-9]|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)$", _by_parts),
    "booleans": Kind(pa.bool_(), "$^", _by_arrow),  # never strings
    "integers": Kind(pa.int64(), "^(?:0|-?[1-9][0-9]{0,17})$", _by_arrow),
    "numbers": Kind(pa.float64(), f"{_WHOLE}(?:[.][0-9]+)?$", _by_arrow),
    "dates": Kind(DAY, f"^{_ISO}$", _by_arrow),
    "times": Kind(TIME, f"^{_ISO}(?:[T ]{_CLOCK})?$", _by_arrow),
    "times in UTC": Kind(UTC, f"^{_ISO}[T ]{_CLOCK}(?:Z| UTC| ?[+-][0-9]{{2}}(?::?[0-9]{{2}})?)$", _by_arrow),
    **{
        f"dates ({name})": Kind(DAY, f"^{date}$", _by_parts)
        for name, date in (_MONTHLY | _ORDERS | _NAMED).items()
    },
    **{
        f"times ({order})": Kind(TIME, f"^{date}{_HALF}$", _by_parts)
        for order, date in (_ORDERS | _NAMED).items()
    },
    "times (mail)": Kind(UTC, f"^{_MAIL}$", _by_parts),
    "times (Twitter)": Kind(UTC, f"^{_WEEKDAY} {_NAME} {_DAY} {_TIME} {_ZONE} {_YEAR}$", _by_parts),
    # Of columns of another corpus only: pandas writes 2.0 beside missing values, and has times instead of dates.
    "whole numbers": Kind(pa.int64(), f"{_WHOLE}(?:[.]0+)?$", lambda v, _: v.cast("double").cast("int64")),
    "whole days": Kind(DAY, f"^{_ISO}[T ]00:00(?::00(?:[.]0+)?)?$", lambda v, _: v.cast(TIME).cast(DAY)),
}


def kind_named(name: str) -> Kind:
    """Return one of ``KINDS``, or that of a format of ``datetime.strptime``."""
    if name in KINDS:
        return KINDS[name]
    zoned, timed = "%z" in name, re.search("%[HIMScXfT]", name)
    return Kind(UTC if zoned else TIME if timed else DAY, "", partial(_by_format, pattern=name))


def kind_of_type(of: Any) -> str:
    """Return which of ``KINDS`` a column of an Arrow type holds; "" for strings and other types."""
    types, wide = pa.types, of
    if is_number(of):
        wide = pa.int64() if types.is_integer(of) else pa.float64()
    elif types.is_date(of) or types.is_timestamp(of):
        wide = DAY if types.is_date(of) else UTC if of.tz else TIME
    return next((name for name, kind in KINDS.items() if kind.read is _by_arrow and kind.type == wide), "")
