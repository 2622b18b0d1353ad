"""Kinds of the values of metadata columns: summaries of what is read, and one type for each column."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.config import EXCERPT
from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.errors import option
from streaming_jsmf.ingestion.sources.values import DAY, TIME, as_text, is_number, plain
from streaming_jsmf.ingestion.value_kinds import (
    EIGHT_DIGITS,
    KINDS,
    MILLISECONDS,
    PLAUSIBLE,
    SECONDS,
    kind_named,
    kind_of_type,
)

logger = logging.getLogger(__name__)

#: What R, pandas, SQL and Excel write for a missing value; it is null in columns of numbers and dates.
_MISSING = r". - ? NA <NA> N/A n/a NULL null None NaN nan NaT \N 0000-00-00 #N/A #DIV/0! #NUM! #REF! #VALUE!"
_HEAD = 100  # values that are tried first
_EXACT = 10**15  # integers of up to 15 digits are exact in float64
_MOST_OTHERS, _SHARE_OF_OTHERS = 3, 0.1  # distinct strings, and share of the values, that are not of a kind
_SHOWN, _LONGEST = 20, 40  # columns, and characters of a value, in a line

#: Words in names of columns whose numbers may be times, such as created_utc, retrieved_on and reviewTime.
_OF_TIMES = re.compile(
    "(?:^|_)(?:time|date|datetime|timestamp|ts|epoch|utc|at|on|when|created|published|updated|modified|edited|posted|"
    "retrieved|crawled|sent|received|pubdate|unixtime)(?:_|$)"
)

#: By kind that values are, the number of each string that is not of the kind: none, or few and rare ones.
Kinds = Mapping[str, Mapping[str, int]]

#: By kind of dates, the number of strings that are of the kind and of none before it, and the first; "": of no kind.
Forms = Mapping[str, tuple[int, str]]

#: Kinds of dates that are no numbers.
_FORMS = tuple(
    name for name, kind in KINDS.items() if kind.dated and name not in (SECONDS, MILLISECONDS, EIGHT_DIGITS)
)
_ANY_FORM = "|".join(re.sub(r"\?P<\w+>", "", KINDS[name].pattern) for name in _FORMS)


class ColumnSummary(NamedTuple):
    """What is known of a column: the ``kinds`` that all its values are, or nearly all.

    ``values`` of them are not missing, ``strings`` of these are strings, and ``documents`` is the number of documents
    that have the column, with or without a value. ``forms`` are the dates among the strings.
    """

    kinds: Kinds
    values: int
    documents: int
    strings: int = 0
    forms: Forms = MappingProxyType({})

    def joined(self, other: ColumnSummary | None) -> ColumnSummary:
        """Return the summary of the values of both."""
        if other is None:
            return self
        both = [kind for kind in self.kinds if kind in other.kinds]
        kinds = {kind: dict(Counter(self.kinds[kind]) + Counter(other.kinds[kind])) for kind in both}
        values, documents, strings = (mine + its for mine, its in zip(self[1:4], other[1:4], strict=True))
        forms = dict(other.forms)
        for kind, (number, first) in self.forms.items():
            before, example = forms.get(kind, (0, first))
            forms[kind] = before + number, example
        return ColumnSummary(_likely(kinds, values), values, documents, strings, forms)

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
    counted = is_text and len(given) and date_format != "none"
    forms = _forms_of(given, kinds, [*formats, *_FORMS]) if counted else {}
    return ColumnSummary(kinds, len(given), len(values), len(given) * is_text, forms).joined(before)


def _forms_of(values: Any, kinds: Kinds, names: Sequence[str]) -> Forms:
    """How many of the strings are dates, by their kinds; the most frequent kind comes first, without those after it."""
    whole = {"": (len(values), values[0].as_py())}
    if fit := next((name for name, wrong in kinds.items() if not wrong and kind_named(name).dated), ""):
        return {fit: whole[""]}
    if names[0] in _FORMS and not pc.any(pc.match_substring_regex(values[:_HEAD], _ANY_FORM)).as_py():
        return whole
    distinct, counts = values.value_counts().flatten()
    forms, left = {}, distinct
    while len(left):
        others = {name: kind_named(name).others(left) for name in names}
        names = [name for name in names if len(others[name]) < len(left)]
        if not names:
            break
        name = min(names, key=lambda name: len(others[name]))
        of_kind = left.filter(pc.invert(pc.is_in(left, others[name])))
        forms[name] = pc.sum(counts.take(pc.index_in(of_kind, distinct))).as_py(), of_kind[0].as_py()
        left = others[name]
    if len(left):
        forms[""] = pc.sum(counts.take(pc.index_in(left, distinct))).as_py(), left[0].as_py()
    return forms


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
            if PLAUSIBLE[0] * per_second <= low and high < PLAUSIBLE[1] * per_second:
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
                lines += _mixed(name, summary)
        elif name == EXCERPT or not summary.values:
            kinds = []
        chosen[name] = kind = kinds[0] if kinds else ""
        if kind and (read := summary.values if _is_read(summary, kind) else summary.strings):
            note = f"{name}: {read:,} values read as {_described(kind, kinds)}"
            (lines if _is_ambiguous(kind, kinds) else notes).append(note)
        elif summary.values and not of_all and name not in known and len(lines) < _SHOWN:
            lines += _near(name, summary, date_format) or _mixed(name, summary)
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


def _mixed(name: str, summary: ColumnSummary) -> list[str]:
    """A line on the dates and other values of a column that stays strings; empty unless most are dates."""
    found = dict(summary.forms)
    others, example = found.pop("", (0, ""))
    dates, forms = sum(number for number, _ in found.values()), dict[str, tuple[int, str]]()
    for kind, (number, first) in sorted(found.items(), key=lambda each: -each[1][0]):
        # The same dates may be of another kind beside the other values of another batch.
        alike = (each for each in forms if not len(kind_named(each).others(pa.array([first]))))
        kind = next(alike, kind)
        before, example_of = forms.get(kind, (0, first))
        forms[kind] = before + number, example_of
    if 2 * dates <= summary.values:
        return []
    ways = ", ".join(f"{number:,} such as {first[:_LONGEST]!r}" for number, first in forms.values())
    none = f", and {others:,} are not, such as {example[:_LONGEST]!r}" if others else ""
    return [
        f"{name}: strings, because {dates:,} of {summary.values:,} values are dates, {ways}{none}; write dates in one "
        "form, such as 1999-12-31, and leave missing ones empty"
    ]


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
