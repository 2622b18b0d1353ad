"""Ratings in half stars: a user is a document, an item a word, and twice the rating its count.

As Lee, Bindel and Mimno (2015) read MovieLens for the Joint Stochastic Matrix Factorization.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, Unit
from streaming_jsmf.ingestion.readers.lines import BYTE_ORDER_MARK
from streaming_jsmf.ingestion.readers.parquet import is_parquet
from streaming_jsmf.ingestion.readers.records import BadValue, require
from streaming_jsmf.ingestion.readers.streams import UnreadableError, open_stream
from streaming_jsmf.ingestion.readers.tables.rows import Delimited, TableBatch, read_table
from streaming_jsmf.ingestion.readers.tables.shuffle import Coded, Triples, write_buckets
from streaming_jsmf.ingestion.readers.tables.triples import (
    Counted,
    Keys,
    Kind,
    TableSource,
    as_numbers,
    checked,
    document_keys,
    parquet_kind,
    word_keys,
)
from streaming_jsmf.storage.paths import exists, is_url


class RatingsOptions(Delimited):
    """What the columns are called, and where the items have their names.

    Attributes
    ----------
    user, item, rating
        Columns; users and items are strings or integers.
    max_rating
        Best rating; ratings are 0.5, 1, ... up to it.
    integer_ids
        Whether users become int64 document ids; False keeps strings. Parquet keeps the type of its column.
    names
        Delimited file with the names of items: its path beside the ratings; in an archive also from its root.
        None uses the items as words.
    names_item, names_name
        Its columns.
    names_delimiter, names_header, names_columns
        Its layout, as for the ratings.
    names_encoding
        Its encoding.
    """

    user: str = "user"
    item: str = "item"
    rating: str = "rating"
    max_rating: float = Field(5, gt=0, le=1_000_000, multiple_of=0.5)
    integer_ids: bool = True
    names: str | None = None
    names_item: str = "item"
    names_name: str = "name"
    names_delimiter: str = ","
    names_header: bool = True
    names_columns: tuple[str, ...] = ()
    names_encoding: str = "utf-8"

    @model_validator(mode="after")
    def _names_can_be_read(self) -> Self:
        try:
            "".encode(self.names_encoding)
        except LookupError as error:
            raise ValueError(f"names_encoding {self.names_encoding} is not known") from error
        if self.names is not None and self.names_header == bool(self.names_columns):
            raise ValueError(
                "names_columns names the fields of a file of names without a header, such as item,name; give it with "
                "names_header=false, and only then"
            )
        return self

    def names_layout(self) -> Delimited:
        """Layout of the file of names."""
        return Delimited(
            delimiter=self.names_delimiter,
            header=self.names_header,
            columns=self.names_columns,
            quote=self.quote,
        )


@dataclass(frozen=True)
class RatingsSource(TableSource):
    """Reader "ratings": documents come together by ``scatter`` and ``gather`` (see ``shuffle``).

    Two passes over the rows, one of the files. An item that a user rated twice counts with both ratings.
    """

    options: RatingsOptions

    reader: ClassVar[str] = "ratings"

    def scatter(self, unit: Unit, bad: BadRecords, target: Path, n_buckets: int) -> None:
        """Read one unit and write its rows to ``target``. One pass, about a million rows and all names in memory.

        Raises
        ------
        InputError
            Under "fail" for the first bad record; always for names that cannot be read.
        """
        names = self._names(unit.path)
        write_buckets(self._triples(unit, names, bad), target, n_buckets)

    def _kind(self, path: str) -> Kind | None:
        if is_parquet(path):
            kind = parquet_kind(path, self.options.user, None)
            return kind and Kind(kind.documents, "int")
        return Kind("int64" if self.options.integer_ids else "string", "int")

    def _names(self, path: str) -> ItemNames | None:
        if self.options.names is None:
            return None
        options, where = self.options, names_path(path, self.options.names)
        return read_names(
            where, options.names_layout(), options.names_item, options.names_name, options.names_encoding
        )

    def _triples(self, unit: Unit, names: ItemNames | None, bad: BadRecords) -> Iterator[Triples]:
        options = self.options
        as_integers = options.integer_ids and not is_parquet(unit.path)
        try:
            for batch in read_table(unit, [options.user, options.item, options.rating], options, bad):
                users = document_keys(batch.columns[options.user], options.user, as_integers)
                items = word_keys(batch.columns[options.item], options.item)
                named = items if names is None else names.apply(items)
                yield checked(batch, users, named, self._half_stars(batch), bad)
        except UnreadableError as error:
            bad.refuse(None, str(error))

    def _half_stars(self, batch: TableBatch) -> Counted:
        name, best = self.options.rating, self.options.max_rating
        numbers = as_numbers(batch.columns[name], name)
        twice = 2 * numbers.values
        # Comparisons with NaN are false.
        good = (twice >= 1) & (twice <= 2 * best) & (twice == np.floor(twice))

        def explain(i: int) -> str:
            text = numbers.text(i)
            if not text:
                return f"{name} is empty"
            return f"{name} {text} is not one of 0.5, 1, ... {best:g} (option max_rating)"

        return Counted(np.where(good, twice, 0).astype(np.int32), good, explain)


@dataclass(frozen=True, eq=False)
class ItemNames:
    """Arrow strings ``items`` and, for each, its ``names``, all distinct; ``path`` for messages."""

    path: str
    items: Any
    names: Any

    def apply(self, items: Keys) -> Keys:
        """Names in place of items; an item without a name becomes a fault."""
        values, faults = items.coded.values, dict(items.faults)
        at = pc.index_in(values, value_set=self.items)
        for i in np.flatnonzero(np.asarray(at.is_null())).tolist():
            faults.setdefault(i, f"{values[i].as_py()!r} has no name in {self.path}")
        names = self.names.take(at).fill_null("")
        return Keys(Coded(items.coded.codes, names), items.name, faults)


def names_path(path: str, names: str) -> str:
    """Path of the names: as it is if absolute or a URL, beside the ratings, or from the root of their archive.

    Raises
    ------
    InputError
        If there is no such file.
    """
    inner, *archive = path.split("::")
    folder = inner.rpartition("/")[0]
    candidates = [names] if is_url(names) or Path(names).is_absolute() else [f"{folder}/{names}"]
    if archive and candidates != [names]:
        candidates.append(f"{inner.partition('://')[0]}://{names}")
        candidates = ["::".join([candidate, *archive]) for candidate in candidates]
    for candidate in candidates:
        if exists(candidate):
            return candidate
    raise InputError(f"there is no file of names at {' or '.join(candidates)}; check the option names")


def read_names(path: str, layout: Delimited, item: str, name: str, encoding: str) -> ItemNames:
    """Names of items; names that several items share become "name (item)". Reads the file whole, once.

    Raises
    ------
    InputError
        For a file that cannot be read or is above 64 MB, and for the first line that is wrong, empty, or gives an
        item a second name.
    """
    try:
        with open_stream(path) as stream:
            data = stream.read(limits.LARGEST_NAMES + 1)
        if len(data) > limits.LARGEST_NAMES:
            most = limits.LARGEST_NAMES >> 20
            raise UnreadableError(f"names take more than {most} MB; leave out items without ratings")
        found = _names_by_item(data.removeprefix(BYTE_ORDER_MARK).split(b"\n"), layout, item, name, encoding)
    except UnreadableError as error:
        raise InputError(f"{path}: {error}") from error
    distinct = _distinct(found)
    return ItemNames(path, pa.array(distinct.keys(), pa.string()), pa.array(distinct.values(), pa.string()))


def _names_by_item(
    lines: Sequence[bytes], layout: Delimited, item: str, name: str, encoding: str
) -> dict[str, str]:
    columns: Sequence[str] = layout.columns
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        line = line.removesuffix(b"\r")
        if not line:
            continue
        try:
            fields = layout.split(line, encoding)
            if not columns:
                columns = fields
                continue
            if len(fields) != len(columns):
                raise BadValue(f"{len(fields)} fields, not {len(columns)}")
            require([item, name], columns)
            key, value = fields[columns.index(item)], fields[columns.index(name)].strip()
            if not key or not value:
                raise BadValue(f"{name if key else item} is empty")
            if found.setdefault(key, value) != value:
                raise BadValue(f"item {key!r} has another name above")
        except BadValue as error:
            raise UnreadableError(f"line {number}: {error}; mend the line") from error
    if not found:
        raise UnreadableError("it holds no names")
    return found


def _distinct(names: dict[str, str]) -> dict[str, str]:
    """Names that are all different."""
    while True:
        uses = Counter(names.values())
        if len(uses) == len(names):
            return names
        names = {item: f"{name} ({item})" if uses[name] > 1 else name for item, name in names.items()}
