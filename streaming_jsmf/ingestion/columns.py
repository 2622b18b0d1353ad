"""Kinds of the values of metadata columns: summaries of what is read, and one type for each column."""

from __future__ import annotations

import datetime
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.config import EXCERPT
from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.errors import option
from streaming_jsmf.ingestion.sources.values import DAY, TEXT, TIME, UTC, as_text, is_number, plain

logger = logging.getLogger(__name__)

#: What R, pandas, SQL and Excel write for a missing value; it is null in columns of numbers and dates.
_MISSING = r". - ? NA <NA> N/A n/a NULL null None NaN nan NaT \N 0000-00-00 #N/A #DIV/0! #NUM! #REF! #VALUE!"
_HEAD, _PER_DAY = 100, 86_400  # values that are tried first; seconds
_EXACT = 10**15  # integers of up to 15 digits are exact in float64
_PLAUSIBLE = (3652 * _PER_DAY, 47_482 * _PER_DAY)  # 1980 to 2099, as seconds since 1970
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
        """Return the strings of an Arrow array without nulls that are not of the kind; all, if one is no date."""
        alike = pc.match_substring_regex(values, self.pattern or "^")
        if not alike.true_count:
            return values
        given = values.filter(alike)
        try:
            wrong = given.filter(self.read(given, self).is_null())
        except pa.ArrowInvalid:  # such as February 30
            return values
        return pa.concat_arrays([values.filter(pc.invert(alike)), wrong])


def _by_arrow(values: Any, kind: Kind) -> Any:
    """Convert strings that Arrow can cast, also those with " UTC" or " +0100" at the end."""
    if kind.type == UTC and is_string(values.type):
        values = pc.replace_substring_regex(pc.replace_substring(values, " UTC", "Z"), " ([+-])", r"\1")
    return values.cast(kind.type)


def _since_1970(values: Any, kind: Kind, per_second: int) -> Any:
    """Convert strings or numbers of seconds or milliseconds."""
    seconds = np.asarray(values.cast(pa.float64())) / per_second
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
    try:
        found = [datetime.datetime.strptime(text, pattern) for text in coded.dictionary.to_pylist()]
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
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


_MOST_OTHERS, _SHARE_OF_OTHERS = 3, 0.1  # distinct strings, and share of the values, that are not of a kind
_SHOWN, _LONGEST = 20, 40  # columns, and characters of a value, in a line

#: Words in names of columns whose numbers may be times, such as created_utc, retrieved_on and reviewTime.
_OF_TIMES = re.compile(
    "(?:^|_)(?:time|date|datetime|timestamp|ts|epoch|utc|at|on|when|created|published|updated|modified|edited|posted|"
    "retrieved|crawled|sent|received|pubdate|unixtime)(?:_|$)"
)

#: By kind that values are, the number of each string that is not of the kind: none, or few and rare ones.
Kinds = Mapping[str, Mapping[str, int]]


class ColumnSummary(NamedTuple):
    """What is known of a column: the ``kinds`` that all its values are, or nearly all.

    ``values`` of them are not missing, ``strings`` of these are strings, and ``documents`` is the number of documents
    that have the column, with or without a value.
    """

    kinds: Kinds
    values: int
    documents: int
    strings: int = 0

    def joined(self, other: ColumnSummary | None) -> ColumnSummary:
        """Return the summary of the values of both."""
        if other is None:
            return self
        both = [kind for kind in self.kinds if kind in other.kinds]
        kinds = {kind: dict(Counter(self.kinds[kind]) + Counter(other.kinds[kind])) for kind in both}
        values, documents, strings = (mine + its for mine, its in zip(self[1:], other[1:], strict=True))
        return ColumnSummary(_likely(kinds, values), values, documents, strings)

    def ordered(self, *, of_all: bool) -> list[str]:
        """Return the kinds that all values are, or the others, in order of preference; a given format comes first."""
        order = [*KINDS]
        kinds = [kind for kind, wrong in self.kinds.items() if of_all is not bool(wrong)]
        return sorted(kinds, key=lambda kind: order.index(kind) if kind in KINDS else -1)


def _likely(kinds: Kinds, n_values: int) -> Kinds:
    """Those of which few strings are not; the first string of all may be one."""
    few = max(1, _SHARE_OF_OTHERS * n_values)
    return {kind: w for kind, w in kinds.items() if len(w) <= _MOST_OTHERS and sum(w.values()) <= few}


def summarize(
    values: Any, date_format: str | None = None, before: ColumnSummary | None = None
) -> ColumnSummary:
    """Return what is known of the values of an Arrow array, and of those ``before``, whose kinds alone are tried."""
    given = plain(values)
    is_text = is_string(given.type)
    given = (_stripped(given) if is_text else given).drop_null()
    formats = [date_format] if date_format and "%" in date_format else []
    names = [*formats, *KINDS] if before is None else [*before.kinds]
    kinds = _kinds_of(given, names) if len(given) else {name: {} for name in names}
    return ColumnSummary(kinds, len(given), len(values), len(given) * is_text).joined(before)


def _stripped(values: Any) -> Any:
    """Strings without white space around them; null for those that say that a value is missing."""
    values = pc.ascii_trim_whitespace(values)
    missing = pc.is_in(values, value_set=pa.array(["", *_MISSING.split()], values.type))
    return pc.if_else(missing, pa.scalar(None, values.type), values)


def _kinds_of(values: Any, names: Sequence[str]) -> Kinds:
    """Those of ``names`` that all, or nearly all, values of an Arrow array without nulls are."""
    if is_string(values.type):
        head = _kinds_of_strings(values[:_HEAD], names)
        return _kinds_of_strings(values, [*head]) if head and len(values) > _HEAD else head
    if is_number(values.type):
        possible = {*_kinds_of_numbers(values)}
    else:
        wider = (DAY, TIME) if values.type == DAY else (values.type,)
        possible = {name for name in names if kind_named(name).type in wider}
        if values.type == TIME and pc.all(pc.equal(values, pc.floor_temporal(values, unit="day"))).as_py():
            possible.add("whole days")
    return {name: {} for name in names if name in possible}


def _kinds_of_strings(values: Any, names: Sequence[str]) -> Kinds:
    distinct, counts = values.value_counts().flatten()
    found: dict[str, Mapping[str, int]] = {}
    for name in names:
        others = kind_named(name).others(distinct)
        if len(others) <= _MOST_OTHERS:
            numbers = counts.take(pc.index_in(others, value_set=distinct)).to_pylist()
            found[name] = dict(zip(others.to_pylist(), numbers, strict=True))
    return _likely(found, len(values))


def _kinds_of_numbers(values: Any) -> Iterator[str]:
    """The kinds that all numbers of an Arrow array are."""
    integers = pa.types.is_integer(values.type)
    low, high = pc.min_max(values).as_py().values()
    if integers or pc.all(pc.is_finite(values)).as_py():
        for name, per_second in ((SECONDS, 1), (MILLISECONDS, 1000)):
            if _PLAUSIBLE[0] * per_second <= low and high < _PLAUSIBLE[1] * per_second:
                yield name
    if integers and low >= 10**7 and not KINDS[EIGHT_DIGITS].read(values, KINDS[EIGHT_DIGITS]).null_count:
        yield EIGHT_DIGITS
    if integers and high < 2**63:
        yield "integers"
    exact = -_EXACT < low <= high < _EXACT
    if exact or not integers:
        yield "numbers"
    if exact and pc.all(pc.equal(values, pc.round(values))).as_py():
        yield "whole numbers"


def choose_types(
    summaries: Mapping[str, ColumnSummary],
    known: Mapping[str, str] | None = None,
    date_format: str | None = None,
) -> tuple[dict[str, str], str, list[str]]:
    """Return the kind of each column, "" for strings, a line on what was read, and lines on what may be wrong.

    ``known`` has the kinds of the columns of another corpus; one whose values have another type stays strings, with a
    warning. ``date_format`` is "day-first", "month-first", "none" or a format of ``datetime.strptime``.
    """
    known, chosen, notes, lines = known or {}, {}, list[str](), list[str]()
    for name, summary in summaries.items():
        of_all = summary.ordered(of_all=True)
        kinds = [kind for kind in of_all if _allowed(name, kind, summary, date_format)]
        if name in known:
            wanted = kind_of_type(kind_named(known[name]).type) if known[name] else ""
            same = [kind for kind in of_all if wanted == kind_of_type(kind_named(kind).type)]
            kinds = [known[name]] if known[name] in same else [kind for kind in kinds if kind in same] or same
            if wanted and not kinds:
                text = "%s: not all values are %s, as in the corpus of the vocabulary; they stay strings"
                logger.warning(text, name, wanted)
        elif name == EXCERPT or not summary.values:
            kinds = []
        chosen[name] = kind = kinds[0] if kinds else ""
        if kind and (read := summary.values if _is_read(summary, kind) else summary.strings):
            note = f"{name}: {read:,} values read as {_described(kind, kinds)}"
            (lines if _is_ambiguous(kind, kinds) else notes).append(note)
        elif summary.values and not of_all and name not in known and len(lines) < _SHOWN:
            lines += _near(name, summary, date_format)
    more = [f"{len(notes) - _SHOWN} more columns"] if len(notes) > _SHOWN else []
    if date_format and "%" in date_format and date_format not in chosen.values():
        lines.append(f"no column has only dates as in {option.date_format(date_format)}")
    return chosen, "; ".join([*notes[:_SHOWN], *more]), lines


def _near(name: str, summary: ColumnSummary, date_format: str | None) -> list[str]:
    """A line on the few values because of which a column stays strings."""
    for kind in summary.ordered(of_all=False):
        wrong, n_wrong = summary.kinds[kind], sum(summary.kinds[kind].values())
        if 2 * n_wrong < summary.values and _allowed(name, kind, summary, date_format):
            others = ", ".join(f"{text[:_LONGEST]!r} ({times:,})" for text, times in sorted(wrong.items()))
            good = f"{summary.values - n_wrong:,} of {summary.values:,} values are {kind}"
            return [f"{name}: strings, because only {good}, not {others}"]
    return []


def _is_read(summary: ColumnSummary, kind: str) -> bool:
    """Whether dates of a kind would be made of strings or numbers."""
    return kind_named(kind).dated and (summary.strings > 0 or "numbers" in summary.kinds)


def _is_ambiguous(kind: str, kinds: Sequence[str]) -> bool:
    """Whether dates with the month first might have the day first."""
    other = kind.replace("month first", "day first")
    return other != kind and other in kinds


def _described(kind: str, kinds: Sequence[str]) -> str:
    if _is_ambiguous(kind, kinds):
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

    Missing values, such as "" and "NA" among numbers, are null. Raises ArrowInvalid if a value is not of the kind.
    """
    values = plain(values)
    if not kind:
        return as_text(values)
    wanted = kind_named(kind)
    if is_string(values.type):
        values = _stripped(values)
    elif not (wanted.dated and is_number(values.type)):
        return values.cast(wanted.type)
    found = wanted.read(values, wanted)
    if found.null_count > values.null_count:
        raise pa.ArrowInvalid(f"not all values are {kind}")
    return found
