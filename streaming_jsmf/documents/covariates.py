"""Covariates of documents: their columns in topic shares, and a first pass that fixes levels, knots and centers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
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
            return decimal_years(column.cast(pa.timestamp("s"), safe=False).to_numpy(zero_copy_only=False))
        numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.where(np.isfinite(numbers), numbers, np.nan)

    def add(self, values: NDArray[Any], complete: NDArray[np.bool_]) -> None:
        """Count missing values and, of documents that have all covariates, levels; widen the range."""
        self.missing += int((~present(values)).sum())
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
        advice = f"; texts that are numbers or dates become such by ingest with {option.date_format('FORMAT').alone}"
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


def _kinds(shares: SharesFile, names: Sequence[str]) -> dict[str, Any]:
    """The Arrow types of columns, without dictionaries."""
    shares.require_columns(names)
    first = next(iter(shares.tables([*dict.fromkeys(names)])), None)
    if first is None:
        raise InputError(f"{shares.path} has no documents; give shares of some")
    kinds = {field.name: field.type for field in first.schema}
    return {name: kind.value_type if pa.types.is_dictionary(kind) else kind for name, kind in kinds.items()}


def _covariate(shares: SharesFile, kind: Any, formula: Formula, name: str) -> Covariate:
    """A column as a covariate; ``InputError`` for one of lists, bytes and the like."""
    types = pa.types
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    text = is_text(kind) or types.is_boolean(kind) or types.is_null(kind)
    if not (number or text or types.is_date(kind) or types.is_timestamp(kind)):
        raise InputError(
            f"column {name!r} of {shares.path} holds {kind}; covariates are texts, numbers and dates"
        )
    return Covariate(name, pa.string() if types.is_null(kind) else kind, name in formula.coded)


def _read(
    table: Any, columns: Mapping[str, Covariate], cluster: str | None
) -> tuple[Values, NDArray[Any] | None, NDArray[np.bool_]]:
    """The covariates and clusters of the documents of a table, and which documents have all of them."""
    values = {name: one.values(table) for name, one in columns.items()}
    groups = None
    if cluster is not None:
        found = [
            None if value == "" or value != value else value for value in table.column(cluster).to_pylist()
        ]
        groups = np.empty(len(found), object)
        groups[:] = found
    complete = [present(own) for own in (*values.values(), *([] if groups is None else [groups]))]
    return values, groups, np.logical_and.reduce(complete)


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
        formula = Formula.read(text, shares.columns, str(shares.path))
        kinds = _kinds(shares, [*formula.columns, *([] if cluster is None else [cluster])])
        columns = {name: _covariate(shares, kinds[name], formula, name) for name in formula.columns}
        if cluster and not has_groups(kinds[cluster]):
            raise InputError(f"column {cluster!r} of {shares.path} makes no clusters; give texts or numbers")
        clusters: dict[Any, int] = {}
        sample, documents, unclustered = _Sample(), 0, 0
        for table in shares.tables([*kinds]):
            values, groups, complete = _read(table, columns, cluster)
            for name, one in columns.items():
                one.add(values[name], complete)
            if groups is not None:
                unclustered += int((~present(groups)).sum())
                for value in groups[complete]:
                    clusters.setdefault(value, len(clusters))
            sample.add(values, complete, columns)
            documents += table.num_rows
        missing = {name: one.missing for name, one in columns.items()}
        _report(columns, missing | ({cluster: unclustered} if cluster else {}), documents, sample.n_documents)
        if not sample.n_documents:
            raise InputError(f"{shares.path}: no document has all covariates of {text!r}; leave some out")
        for one in columns.values():
            one.require_few(sample.n_documents)
            if not one.is_text:
                one.median = float(np.median(sample.values[one.name]))
        design, rows = Design.of(formula, sample.whole(columns))
        if not len(rows):
            raise InputError(f"the formula {text!r} is infinite or no number in all documents")
        return cls(columns, design, orthogonalizing(rows), cluster, clusters)

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        return [*dict.fromkeys([*self.columns, *([self.cluster] if self.cluster else [])])]

    def rows(self, table: Any) -> tuple[NDArray[np.intp], Floats, Integers | None, int]:
        """Documents of a table with all covariates, their rows of the design, and clusters; how many are infinite."""
        values, groups, complete = _read(table, self.columns, self.cluster)
        chosen = np.flatnonzero(complete)
        if not chosen.size:
            return chosen, np.zeros((0, len(self.design.terms))), None, 0
        rows, finite = self.design.matrix(
            {name: one.as_factor(values[name][chosen]) for name, one in self.columns.items()}
        )
        codes = None
        if groups is not None:
            codes = np.array([self.clusters[value] for value in groups[chosen[finite]]], np.int64)
        return chosen[finite], rows[finite], codes, int((~finite).sum())


def _report(
    columns: Mapping[str, Covariate], missing: Mapping[str, int], documents: int, complete: int
) -> None:
    """Count the documents without covariates or clusters, and name levels that only such documents have."""
    for name, number in missing.items():
        if number:
            logger.warning(
                "effects: documents without %s, which are left out: %s of %s",
                name,
                f"{number:,}",
                f"{documents:,}",
            )
    if sum(map(bool, missing.values())) > 1:
        left_out = f"{documents - complete:,}"
        logger.warning(
            "effects: documents without one or more of these: %s of %s", left_out, f"{documents:,}"
        )
    for one in columns.values():
        if gone := sorted(map(str, one.every_level - {*one.levels})):
            logger.warning(
                "effects: levels of %s that only documents without other covariates have, left out: %s",
                one.name,
                ", ".join(gone[:9]) + ", ..." * (len(gone) > 9),
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
