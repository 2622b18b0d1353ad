"""Mean topic shares of groups of documents, by the values of a metadata column or by periods of time."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
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
#: Maximum number of groups times topics, since their sums are in memory.
MOST_SUMS = 20_000_000
#: Maximum length of a metadata value that is shown.
MOST_CHARACTERS = 300
#: Longest part of a word that is left out at the end of an excerpt; some languages have no spaces between words.
LONGEST_PART = 30
#: Standard errors on each side of a mean in an interval of 95 %.
NORMAL = 1.96


def short_text(value: Any) -> str:
    """A metadata value in one line, cut to ``MOST_CHARACTERS``; empty for None. Midnight is the date, 2.0 is 2."""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    if isinstance(value, float) and _is_exact(value):
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
    ``errors`` (G, K) their standard errors, NaN for a single document.
    """

    column: str
    values: tuple[Any, ...]
    documents: Integers
    shares: Floats
    errors: Floats
    kind: Any = field(default_factory=pa.null)

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
        return tuple("not known" if value is None else short_text(value) for value in self.values)

    @property
    def ordered(self) -> bool:
        """Whether a line may connect the values: times, or at least three numbers, because 0 and 1 are classes."""
        values = self.known.values
        fewest = 3 if any(isinstance(value, int | float) for value in values) else 2
        return len(values) >= fewest and all(map(is_time, values))

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
        if self.column:
            repeated = [value for value in self.values for _ in range(n_topics)]
            columns = {free_name(self.column, columns): pa.array(repeated, self.kind), **columns}
        return pa.table(columns)


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
        """Read ``COLUMN`` or ``COLUMN:PERIOD``; see ``by_group``."""
        column, _, period = by.rpartition(":")
        if not column or period not in PERIODS or by in shares.columns:
            if by not in shares.columns and column in shares.columns:
                raise InputError(f"{by!r} names no period; those of dates are {', '.join(PERIODS)}")
            column, period = by, ""
        if column not in shares.columns:
            within = (
                f"; a value within objects of JSON is a column if it is read with {option.metadata(column)}"
            )
            raise InputError(
                f"{shares.path} has no column {column!r}; it has {', '.join(shares.columns)}{within * ('.' in column)}"
            )
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

    def rows(self, table: Any) -> Iterator[tuple[Any, Integers]]:
        """Yield the value of each group in a table (null and NaN as None), and the rows of its documents in order."""
        values = table.column(self.column).combine_chunks()
        values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        values = _periods(values, self.period) if self.period else values
        coded = values.dictionary_encode(null_encoding="encode")
        codes, names = np.asarray(coded.indices), coded.dictionary.to_pylist()
        order = np.argsort(codes, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            if rows.size:
                yield names[codes[rows[0]]], rows


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


def by_group(shares: SharesFile, by: str | None) -> Groups:
    """Return mean topic shares of the documents with each value of a metadata column; None: of all documents.

    One pass. ``COLUMN:year``, ``:quarter``, ``:month`` and ``:day`` make periods of typed dates and of texts that start
    with a year, month and day. A column of typed dates, or of texts with one of the names ``TIMES``, is grouped by year
    by default. Raises ``InputError`` if there is no such column, it has too many values, or periods are of other
    values; ``StoreError`` if the shares are damaged.
    """
    grouping = None if by is None else Grouping.of(shares, by)
    documents: dict[Any, int] = {}
    sums: dict[Any, Floats] = {}
    for theta, table in shares.dense([] if grouping is None else [grouping.column]):
        for value, rows in [(None, slice(None))] if grouping is None else grouping.rows(table):
            own = theta[rows]
            documents[value] = documents.get(value, 0) + len(own)
            total = sums.setdefault(value, np.zeros((2, theta.shape[1])))
            total += own.sum(axis=0), np.square(own).sum(axis=0)
            if grouping is not None and len(sums) * theta.shape[1] > MOST_SUMS:
                raise InputError(
                    f"{shares.path}: column {grouping.name!r} has more than {len(sums) - 1:,} values; give one that "
                    "makes groups of documents"
                )
    values = [*sorted(value for value in sums if value is not None), *[None] * (None in sums)]
    sizes = np.array([documents[value] for value in values], dtype=np.int64)
    means, squares = np.stack([sums[value] for value in values], axis=1) / sizes[:, None]
    errors = np.sqrt(np.maximum(squares - means**2, 0.0) / np.maximum(sizes - 1, 1)[:, None])
    errors[sizes < 2] = np.nan
    if grouping is None:
        return Groups("", tuple(values), sizes, means, errors)
    kind = grouping.kind
    # Whole numbers beside missing ones, such as years, are floating-point numbers in pandas.
    if pa.types.is_floating(kind) and all(value is None or _is_exact(value) for value in values):
        values, kind = [value if value is None else int(value) for value in values], pa.int64()
    return Groups(grouping.name, tuple(values), sizes, means, errors, kind)


def _is_exact(value: float) -> bool:
    """Whether a value is a whole number that a float64 holds exactly."""
    return value.is_integer() and abs(value) < 2**53
