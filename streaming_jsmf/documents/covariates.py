"""Covariates of documents: their columns in topic shares, and a first pass that fixes levels, knots and centers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.documents.formula import Design, Formula
from streaming_jsmf.documents.groups import has_groups
from streaming_jsmf.documents.shares import SharesFile, is_text
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.linalg.least_squares import orthogonalizing
from streaming_jsmf.linalg.typing import Floats, Integers

logger = logging.getLogger(__name__)

#: Documents from which knots, centers and norms are computed: evenly spaced ones if there are more.
SAMPLED = 100_000
#: Most levels of a covariate, and most that are counted.
MOST_LEVELS, MOST_COUNTED = 1_000, 100_000

Values = Mapping[str, NDArray[Any]]


@dataclass
class Covariate:
    """A column with its range, median and levels (with their documents), over documents that have all covariates."""

    name: str
    kind: Any
    coded: bool
    levels: Counter[Any] = field(default_factory=Counter)
    every_level: set[Any] = field(default_factory=set)
    low: float = np.inf
    high: float = -np.inf
    median: float = np.nan
    missing: int = 0

    @property
    def is_text(self) -> bool:
        return is_text(self.kind) or pa.types.is_boolean(self.kind)

    @property
    def has_levels(self) -> bool:
        return self.is_text or self.coded

    @property
    def is_date(self) -> bool:
        return bool(pa.types.is_date(self.kind) or pa.types.is_timestamp(self.kind))

    def values(self, table: Any) -> NDArray[Any]:
        """Its values, one a document: texts, or numbers (of years for dates); None or NaN where it is missing."""
        column = table.column(self.name).combine_chunks()
        if self.is_text:
            texts = column.cast(pa.string())
            texts = pc.if_else(pc.equal(texts, ""), None, texts)
            return np.asarray(texts.to_numpy(zero_copy_only=False), object)
        if self.is_date:
            return decimal_years(column.cast(pa.timestamp("s")).to_numpy(zero_copy_only=False))
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.where(np.isfinite(numbers), numbers, np.nan)

    def add(self, values: NDArray[Any], complete: NDArray[np.bool_]) -> None:
        """Count the levels, and widen the range, of the documents that have all covariates."""
        if self.has_levels:
            known = values[present(values)]
            self.every_level.update(known)
            self.levels.update(values[complete])
            if len(self.every_level) > MOST_COUNTED:
                raise self._too_many(f"more than {MOST_COUNTED:,}", None)
        if not self.is_text and complete.any():
            self.low = min(self.low, float(values[complete].min()))
            self.high = max(self.high, float(values[complete].max()))

    def require_few(self, documents: int) -> None:
        if len(self.levels) > MOST_LEVELS or (len(self.levels) > 20 and 2 * len(self.levels) > documents):
            raise self._too_many(f"{len(self.levels):,}", documents)

    def _too_many(self, levels: str, documents: int | None) -> InputError:
        among = "" if documents is None else f" in {documents:,} documents"
        advice = (
            f"; texts that are numbers or dates become such by ingest with {option.date_format('FORMAT')}"
        )
        return InputError(
            f"column {self.name!r} has {levels} levels{among}, too many to compare; give a column of classes or numbers"
            + advice * is_text(self.kind)
        )

    @property
    def ordered_levels(self) -> list[Any]:
        return sorted(self.levels)

    def as_factor(self, values: NDArray[Any]) -> Any:
        """The values as formulaic takes them: texts with all levels, and whole numbers of ``C`` as integers."""
        import pandas as pd

        if self.is_text:
            return pd.Categorical(values, categories=self.ordered_levels)
        whole = self.coded and all(float(level).is_integer() for level in self.levels)
        return values.astype(np.int64) if whole else values


def present(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are not missing."""
    if values.dtype == object:
        return np.array([value is not None for value in values], bool)
    return np.asarray(~np.isnan(values))


def decimal_years(times: NDArray[Any]) -> Floats:
    """Times as numbers of years: the first of July of 2020 is about 2020.5."""
    years = times.astype("datetime64[Y]")
    start, end = years.astype("datetime64[s]"), (years + 1).astype("datetime64[s]")
    part = (times.astype("datetime64[s]") - start) / (end - start)
    return np.where(np.isnat(times), np.nan, years.astype(np.int64) + 1970 + part)


def _covariate(shares: SharesFile, schema: Any, formula: Formula, name: str) -> Covariate:
    kind = schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    known = is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind)
    known = known or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (known or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_null(kind)):
        raise InputError(
            f"column {name!r} of {shares.path} holds {kind}; covariates are texts, numbers and dates"
        )
    return Covariate(name, pa.string() if pa.types.is_null(kind) else kind, name in formula.coded)


@dataclass(frozen=True)
class Covariates:
    """Covariates of the documents of topic shares, after a pass over their columns.

    ``change`` makes the columns of ``design`` orthogonal; ``clusters`` number the values of the column ``cluster``.
    """

    columns: Mapping[str, Covariate]
    design: Design
    change: Floats
    cluster: str | None
    clusters: Mapping[Any, int]

    @classmethod
    def read(cls, shares: SharesFile, text: str, cluster: str | None) -> Covariates:
        """Read a formula, and fix its design by the documents; one pass over the columns that it names."""
        known = [*shares.columns]
        formula = Formula.read(text, known, str(shares.path))
        if cluster is not None and cluster not in known:
            raise InputError(f"{shares.path} has no column {cluster!r}; it has {', '.join(known)}")
        names = [*dict.fromkeys([*formula.columns, *([cluster] if cluster else [])])]
        columns: dict[str, Covariate] = {}
        groups: Counter[Any] = Counter()
        sample, documents = _Sample(), 0
        for table in shares.tables(names):
            columns = columns or {
                name: _covariate(shares, table.schema, formula, name) for name in formula.columns
            }
            values = {name: one.values(table) for name, one in columns.items()}
            complete = np.logical_and.reduce([present(one) for one in values.values()])
            if cluster is not None:
                own = table.column(cluster).combine_chunks()
                if not has_groups(own.type):
                    raise InputError(
                        f"column {cluster!r} of {shares.path} makes no clusters; give texts or numbers"
                    )
                complete &= np.asarray(own.is_valid())
                groups.update(own.filter(pa.array(complete)).to_pylist())
            for name, one in columns.items():
                one.missing += int((~present(values[name])).sum())
                one.add(values[name], complete)
            sample.add(values, complete, columns)
            documents += table.num_rows
        _report(columns, documents, documents - sample.n_documents)
        if not sample.n_documents:
            raise InputError(f"{shares.path}: no document has all covariates of {text!r}; leave some out")
        for one in columns.values():
            one.require_few(sample.n_documents)
            if not one.is_text:
                one.median = float(np.median(sample.values[one.name]))
        made, rows = Design.of(formula, sample.whole(columns))
        if not len(rows):
            raise InputError(f"the formula {text!r} is infinite or no number in all documents")
        return cls(
            columns, made, orthogonalizing(rows), cluster, {value: i for i, value in enumerate(groups)}
        )

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        return [*dict.fromkeys([*self.columns, *([self.cluster] if self.cluster else [])])]

    def rows(self, table: Any) -> tuple[NDArray[np.intp], Floats, Integers | None, int]:
        """Documents of a table with all covariates, their rows of the design, and clusters; how many are infinite."""
        values = {name: one.values(table) for name, one in self.columns.items()}
        complete = np.logical_and.reduce([present(one) for one in values.values()])
        if self.cluster is not None:
            complete &= np.asarray(table.column(self.cluster).combine_chunks().is_valid())
        chosen = np.flatnonzero(complete)
        if not chosen.size:
            return chosen, np.zeros((0, len(self.design.terms))), None, 0
        rows, finite = self.design.matrix(
            {name: one.as_factor(values[name][chosen]) for name, one in self.columns.items()}
        )
        codes = None
        if self.cluster is not None:
            of_rows = table.column(self.cluster).take(pa.array(chosen[finite])).to_pylist()
            codes = np.array([self.clusters[value] for value in of_rows], np.int64)
        return chosen[finite], rows[finite], codes, int((~finite).sum())


def _report(columns: Mapping[str, Covariate], documents: int, left_out: int) -> None:
    """Count the documents without covariates, and name levels that only such documents have."""
    for one in columns.values():
        if one.missing:
            logger.warning(
                "effects: documents without %s, which are left out: %s of %s",
                one.name,
                f"{one.missing:,}",
                f"{documents:,}",
            )
        if gone := sorted(map(str, one.every_level - {*one.levels})):
            logger.warning(
                "effects: levels of %s that only documents without other covariates have, left out: %s",
                one.name,
                ", ".join(gone[:9]) + ", ..." * (len(gone) > 9),
            )
    if left_out and left_out > max((one.missing for one in columns.values()), default=0):
        logger.warning(
            "effects: documents without one or more of these, left out: %s of %s",
            f"{left_out:,}",
            f"{documents:,}",
        )


@dataclass
class _Sample:
    """Evenly spaced documents that have all covariates, and the first with each level and each extreme value."""

    values: dict[str, NDArray[Any]] = field(default_factory=dict)
    notable: dict[tuple[str, Any], dict[str, Any]] = field(default_factory=dict)
    step: int = 1
    n_documents: int = 0

    def add(self, values: Values, complete: NDArray[np.bool_], columns: Mapping[str, Covariate]) -> None:
        rows = np.flatnonzero(complete)
        numbers = np.arange(self.n_documents, self.n_documents + rows.size)
        self.n_documents += rows.size
        for one in columns.values() if rows.size else ():
            self._note(values, rows, one)
        for name, own in values.items():
            before = self.values.get(name, own[:0])
            self.values[name] = np.concatenate([before, own[rows[numbers % self.step == 0]]])
        while min(map(len, self.values.values())) > SAMPLED:
            self.step *= 2
            self.values = {name: own[::2] for name, own in self.values.items()}

    def _note(self, values: Values, rows: NDArray[np.intp], covariate: Covariate) -> None:
        name, own = covariate.name, values[covariate.name]
        if covariate.has_levels:
            found, first = np.unique(
                own[rows].astype(str) if covariate.is_text else own[rows], return_index=True
            )
            for level, row in zip(found.tolist(), rows[first], strict=True):
                if (name, level) not in self.notable:
                    self.notable[name, level] = {other: one[row] for other, one in values.items()}
            return
        for key, row in (("low", rows[own[rows].argmin()]), ("high", rows[own[rows].argmax()])):
            known = self.notable.get((name, key))
            if known is None or (own[row] < known[name] if key == "low" else own[row] > known[name]):
                self.notable[name, key] = {other: one[row] for other, one in values.items()}

    def whole(self, columns: Mapping[str, Covariate]) -> dict[str, Any]:
        """The values of the documents as formulaic takes them."""
        added = [*self.notable.values()] if self.step > 1 else []
        return {
            name: one.as_factor(
                np.append(self.values[name], np.array([row[name] for row in added], self.values[name].dtype))
            )
            for name, one in columns.items()
        }
