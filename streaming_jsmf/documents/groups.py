"""Mean topic shares of groups of documents, by the values of a metadata column or by periods of time."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.config import EXCERPT_CHARACTERS
from streaming_jsmf.corpus.metadata import free_name
from streaming_jsmf.documents.shares import SharesFile, is_text
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.linalg.typing import Floats, Integers

#: Columns of a table of groups.
DOCUMENTS, TOPIC, LABEL, SHARE, ERROR = "documents", "topic", "label", "share", "standard_error"
#: Names of columns that contain times regardless of their type, in order of preference.
TIMES = ("year", "date", "time", "timestamp", "published", "created")
#: Periods of dates, and how many of year, month and day they need.
PERIODS = {"year": 1, "quarter": 2, "month": 2, "day": 3}
#: The start of a text with a date, from the year on, and the time after it; what is missing is empty.
_TIME = r"(?:[T ](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?)?"
_DAY = r"(?:[-/.](?P<day>[0-9]{1,9})" + _TIME + ")?"
_DATE = r"^(?P<year>[0-9]{4})(?:-Q(?P<quarter>[1-4])|[-/.](?P<month>[0-9]{1,2})" + _DAY + r")?(?:[^0-9]|$)"
#: Maximum length of a metadata value that is shown.
MOST_CHARACTERS = 300
#: Longest part of a word that is left out at the end of an excerpt; some languages have no spaces between words.
LONGEST_PART = 30
#: Standard errors on each side of a mean in an interval of 95 %.
NORMAL = 1.96
#: Groups of fewer documents are marked, and have the wider intervals of Student's t.
FEW = 30
#: What tables and pictures say about the mark.
FEW_NOTE = f"fewer than {FEW} documents"


def short_text(value: Any) -> str:
    """A metadata value in one line, cut to ``MOST_CHARACTERS``; empty for None. Midnight is the date, 2.0 is 2."""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    if isinstance(value, float) and is_exact(value):
        value = int(value)
    text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def excerpt_text(value: Any) -> str:
    """The beginning of a text in one line; dots stand for a word that the excerpt may have cut."""
    text = short_text(value)
    if len(text) < EXCERPT_CHARACTERS - 1 or not text[-1].isalnum():
        return text
    whole, _, part = text.rpartition(" ")
    return f"{whole} ..." if len(part) < LONGEST_PART else f"{text}..."


@dataclass(frozen=True)
class Groups:
    """Mean topic shares of G groups of documents.

    ``column`` is that of the ``values`` (G,), such as ``year of date``, in ascending order with the null group last; it
    is empty for a single group of all documents. ``documents`` (G,) are the sizes, ``shares`` (G, K) the means, and
    ``errors`` (G, K) their standard errors, NaN for a single document. ``within`` are the values that the documents of
    all groups have in further columns: names, values and types.
    """

    column: str
    values: tuple[Any, ...]
    documents: Integers
    shares: Floats
    errors: Floats
    kind: Any = field(default_factory=pa.null)
    within: tuple[tuple[str, Any, Any], ...] = ()

    @property
    def known(self) -> Groups:
        """The groups without that of the documents that have no value."""
        n = len(self.values) - (None in self.values)
        return replace(
            self,
            values=self.values[:n],
            documents=self.documents[:n],
            shares=self.shares[:n],
            errors=self.errors[:n],
        )

    @property
    def unknown(self) -> int:
        """The number of documents without a value."""
        return int(self.documents[len(self.known.values) :].sum())

    @property
    def names(self) -> tuple[str, ...]:
        """The values as texts."""
        return tuple(map(_name, self.values))

    @property
    def title(self) -> str:
        """The values in further columns, such as ``party: Labour``; empty without such columns."""
        return ", ".join(f"{name}: {_name(value)}" for name, value, _ in self.within)

    @property
    def outer(self) -> str:
        """The values in further columns alone, such as ``Labour``."""
        return ", ".join(_name(value) for _, value, _ in self.within)

    @property
    def columns(self) -> str:
        """The names of all columns, such as ``party and year``."""
        return " and ".join([*(name for name, *_ in self.within), self.column])

    @property
    def is_few(self) -> Any:
        """Whether each group has few documents, (G,)."""
        return self.documents < FEW

    @property
    def spreads(self) -> Floats:
        """Standard errors on each side of a mean in an interval of 95 %, (G,): 1.96, or more for few documents."""
        from scipy.special import stdtrit

        return np.where(self.is_few, stdtrit(np.maximum(self.documents - 1, 1), 0.975), NORMAL)

    @property
    def intervals(self) -> tuple[Floats, Floats]:
        """Ends of the intervals of 95 % of the means, (G, K) each; NaN for single documents."""
        half = self.spreads[:, None] * self.errors
        return np.maximum(self.shares - half, 0.0), np.minimum(self.shares + half, 1.0)

    @property
    def ordered(self) -> bool:
        """Whether a line may connect the values."""
        return are_times(self.known.values)

    @property
    def drawn(self) -> Groups:
        """The groups in charts: periods without the documents that have no date, or all groups."""
        return self.known if self.ordered else self

    @cached_property
    def thirds(self) -> Floats:
        """Weights (2, G) of the groups in means over the documents of the first, and of the last third of the groups.

        Fewer than three groups count as one each.
        """
        third = max(1, len(self.documents) // 3)
        weights: Floats = np.zeros((2, len(self.documents)))
        weights[0, :third], weights[1, -third:] = self.documents[:third], self.documents[-third:]
        weights /= weights.sum(axis=1, keepdims=True)
        return weights

    @cached_property
    def change(self) -> tuple[Floats, Floats]:
        """Changes of the mean shares (K,) from the first to the last third of the groups, and their standard errors.

        A group of one document has the mean standard deviation of the others. NaN for a single group, or without any
        error.
        """
        if len(self.shares) < 2:
            return np.full(self.shares.shape[1], np.nan), np.full(self.shares.shape[1], np.nan)
        first, last = self.thirds
        weight = self.documents.astype(float)[:, None]
        variance = weight * np.square(self.errors)
        known = np.where(np.isnan(variance), 0.0, weight)
        with np.errstate(invalid="ignore", divide="ignore"):
            pooled = (known * np.nan_to_num(variance)).sum(axis=0) / known.sum(axis=0)
        variance = np.where(np.isnan(variance), pooled, variance) / weight
        return (last - first) @ self.shares, np.sqrt(np.square(last - first) @ variance)

    def risen_and_fallen(self, number: int) -> tuple[list[int], list[int]]:
        """The topics whose mean shares rose most, and those whose shares fell most, as positions from 0."""
        change = self.change[0]
        order = np.argsort(-change, kind="stable").tolist()
        risen = [topic for topic in order if change[topic] > 0]
        fallen = [topic for topic in reversed(order) if change[topic] < 0]
        return risen[:number], fallen[:number]

    def table(self, topics: Sequence[int], labels: Sequence[str]) -> Any:
        """An Arrow table with a row per group and topic; ``topics`` are the numbers of the K topics.

        A column with the name of a result gets another name.
        """
        n_topics, n_groups = len(topics), len(self.values)
        errors = self.errors.ravel()
        columns = {
            DOCUMENTS: pa.array(np.repeat(self.documents, n_topics)),
            TOPIC: pa.array(np.tile(np.array(topics, dtype=np.int64), n_groups)),
            LABEL: pa.array([*labels] * n_groups, pa.string()),
            SHARE: pa.array(self.shares.ravel()),
            ERROR: pa.array(errors, mask=np.isnan(errors)),
        }
        own: dict[str, Any] = {}
        for name, value, kind in self.within:
            own[free_name(name, [*columns, *own])] = pa.array([value] * n_topics * n_groups, kind)
        if self.column:
            repeated = [value for value in self.values for _ in range(n_topics)]
            own[free_name(self.column, [*columns, *own])] = pa.array(repeated, self.kind)
        return pa.table({**own, **columns})


def values_of(series: Sequence[Groups]) -> list[Any]:
    """The values that occur in any of these groups, in ascending order with None last."""
    found = {value for groups in series for value in groups.values}
    return [*sorted(found - {None}), *({None} & found)]


def _name(value: Any) -> str:
    return "not known" if value is None else short_text(value)


def are_times(values: Collection[Any], fewest: int = 0) -> bool:
    """Whether all values are times: at least three numbers, because 0 and 1 are classes, or two others."""
    fewest = fewest or (3 if any(isinstance(value, int | float) for value in values) else 2)
    return len(values) >= fewest and all(map(is_time, values))


def is_time(value: Any) -> bool:
    """Whether a value of a column is a number, a time, or a text such as 1999, 1999-Q4, 1999-W52 or 1999-12-31."""
    if isinstance(value, bool | int | float | datetime.date):
        return not isinstance(value, bool)
    is_period = re.fullmatch(r"[0-9]{4}(-Q[1-4]|-W[0-9]{2}|-[0-9]{2}(-[0-9]{2})?)?", str(value))
    return is_period is not None and not _periods(pa.array([str(value)]), "year").null_count


def _are_years(values: Any) -> bool:
    """Whether values are integers of four digits."""
    if not pa.types.is_integer(values.type) or not len(values):
        return False
    low, high = pc.min_max(values).as_py().values()
    return bool(1000 <= low <= high <= 9999)


def _nested_name(kind: Any) -> str:
    """What a type that has no groups holds."""
    types = pa.types
    names = ((types.is_map, "mappings"), (types.is_struct, "objects"), (types.is_nested, "lists"))
    return next((name for is_of, name in names if is_of(kind)), str(kind))


def has_groups(kind: Any) -> bool:
    """Whether values of an Arrow type form groups; lists, mappings, bytes and extension types do not."""
    types = pa.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return not (types.is_nested(kind) or binary or isinstance(kind, pa.BaseExtensionType))


@dataclass(frozen=True)
class Grouping:
    """Groups of documents by the values of a ``column`` of Arrow type ``kind``, or by a period of its dates."""

    column: str
    kind: Any
    period: str = ""

    @classmethod
    def of(cls, shares: SharesFile, by: str) -> Grouping:
        """Read ``COLUMN`` or ``COLUMN:PERIOD``; see ``count_cells``."""
        column, _, period = by.rpartition(":")
        if not column or period not in PERIODS or by in shares.columns:
            if by not in shares.columns and column in shares.columns:
                raise InputError(f"{by!r} names no period; those of dates are {', '.join(PERIODS)}")
            column, period = by, ""
        within = f"; a value within objects of JSON is a column if it is read with {option.metadata(column)}"
        commas = "; a name with a comma is quoted" * any("," in name for name in shares.columns)
        shares.require_columns([column], within * ("." in column) + commas)
        first = next(iter(shares.tables([column])), None)
        if first is None:
            return cls(column, pa.null())
        kind = first.schema.field(column).type
        if not has_groups(kind):
            raise InputError(
                f"column {column!r} of {shares.path} holds {_nested_name(kind)}; groups are made of texts, numbers and "
                "dates"
            )
        text, known = is_text(kind), first.column(0).drop_null()
        dated = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        wanted = period or ("year" if dated or (text and column.lower() in TIMES[1:]) else "")
        if not wanted or (wanted == "year" and _are_years(known)):
            return cls(column, kind)
        if (text or dated) and not (len(known) and _periods(known, wanted).null_count == len(known)):
            return cls(column, pa.string(), wanted)
        if not period:
            return cls(column, kind)
        held = repr(known[0].as_py()) if text or (len(known) and not dated) else kind
        raise InputError(
            f"column {column!r} holds {held}; {period}s are made of dates: ingest the texts again with "
            f"{option.date_format('FORMAT').alone}, such as %d.%m.%Y for 31.12.1999, or leave out :{period}"
        )

    @property
    def name(self) -> str:
        """Name of the column of the groups."""
        return f"{self.period} of {self.column}" if self.period else self.column

    @property
    def is_dated(self) -> bool:
        """Whether these are periods of dates, or the column has a name of times."""
        return bool(self.period) or self.column.lower() in TIMES

    def coded(self, table: Any) -> tuple[Integers, list[Any]]:
        """For each row of a table the position of its value in a list of values; null and NaN are None."""
        values = table.column(self.column).combine_chunks()
        values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        values = _periods(values, self.period) if self.period else values
        coded = values.dictionary_encode(null_encoding="encode")
        return np.asarray(coded.indices), coded.dictionary.to_pylist()


def _periods(values: Any, unit: str) -> Any:
    """The period of each date of an array, such as 1999, 1999-Q4, 1999-12 or 1999-12-31; null for other values."""
    # A month or day that is 0 is not known. Dates and times that do not exist, such as 1999-02-30, are no dates.
    found = pc.extract_regex(values.cast(pa.string()), _DATE)
    year, quarter, month, day, hour, minute, second = (
        np.asarray(pc.if_else(pc.equal(part, ""), "0", part).cast(pa.int64()).fill_null(0))
        for part in found.flatten()
    )
    if unit == "quarter":
        month = np.maximum(month, 3 * quarter - 2)
    first = (12 * (year - 1970) + np.maximum(month, 1) - 1).astype("datetime64[M]")
    length = (
        (first + np.timedelta64(1, "M")).astype("datetime64[D]") - first.astype("datetime64[D]")
    ).astype(np.int64)
    # Seconds may be leap seconds.
    known = (month <= 12) & (day <= length) & (hour < 24) & (minute < 60) & (second <= 60)
    known &= np.all([year, month, day][: PERIODS[unit]], axis=0)
    if unit == "quarter":
        texts = [_padded(year, 4), pc.binary_join_element_wise("Q", _padded((month + 2) // 3, 1), "")]
    else:
        texts = [_padded(year, 4), _padded(month, 2), _padded(day, 2)][: PERIODS[unit]]
    return pc.if_else(known, pc.binary_join_element_wise(*texts, "-"), None)


def _padded(numbers: Integers, width: int) -> Any:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")


def is_exact(value: float) -> bool:
    """Whether a value is a whole number that a float64 holds exactly."""
    return value.is_integer() and abs(value) < 2**53
