"""Ratings in half stars: a user is a document, an item a word, and twice the rating its count.

MovieLens is read in this way by Lee, Bindel and Mimno (2015), Joint Stochastic Matrix Factorization.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.config import Delimited, RatingsOptions
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import BadValue, UnreadableError, limits
from streaming_jsmf.ingestion.readers.files import find_beside, open_stream
from streaming_jsmf.ingestion.readers.lines import BYTE_ORDER_MARK
from streaming_jsmf.ingestion.readers.tables import split_line
from streaming_jsmf.ingestion.readers.triples import Keys, TriplesSource, parse_numbers
from streaming_jsmf.ingestion.readers.values import require_columns


class RatingsSource(TriplesSource):
    """Reader "ratings": triples whose counts are twice the ratings. A user's ratings of an item are summed."""

    reader = "ratings"
    options_type = RatingsOptions

    def count_kind(self, kind: Any) -> str:  # noqa: ARG002
        return "int"

    def counts(self, found: Keys) -> Keys:
        best = self.options.max_rating
        with np.errstate(over="ignore"):
            twice = 2 * parse_numbers(found.values)
        # Comparisons with NaN are false.
        good = (twice >= 1) & (twice <= 2 * best) & (twice == np.floor(twice))
        faults = {
            i: f"{found.values[i].as_py()} is not one of 0.5, 1, ... {best:g} (option max_rating)"
            for i in np.flatnonzero(~good).tolist()
        }
        return replace(found, values=np.where(good, twice, 0).astype(np.int32), faults=faults | found.faults)

    def rename_words(self, path: str) -> Callable[[Keys], Keys]:
        """Return a function from items to names, if a file of names is given. Raises InputError if it is invalid."""
        if self.options.names is None:
            return super().rename_words(path)
        where = names_path(path, self.options.names)
        names = read_names(where, self.options)
        items, distinct = pa.array(names.keys(), pa.string()), pa.array(names.values(), pa.string())

        def rename(words: Keys) -> Keys:
            faults = dict(words.faults)
            at = pc.index_in(words.values, value_set=items)
            for i in np.flatnonzero(np.asarray(at.is_null())).tolist():
                faults.setdefault(i, f"{words.values[i].as_py()!r} has no name in {where}")
            return replace(words, values=distinct.take(at).fill_null(""), faults=faults)

        return rename


def names_path(path: str, names: str) -> str:
    """Return the path of the file of names of a file of ratings. Raises InputError if it is missing."""
    found = find_beside(path, [names])
    if found is None:
        raise InputError(f"{path}: there is no file of names {names} beside it; check the option names")
    return found


def read_names(path: str, options: RatingsOptions) -> dict[str, str]:
    """Read distinct names by item, in one pass with the file in memory; shared names become "name (item)".

    Raises InputError if the file cannot be read or exceeds 64 MB, and for the first line that is malformed, empty, or
    gives an item a second name.
    """
    try:
        with open_stream(path) as stream:
            data = stream.read(limits.LARGEST_NAMES + 1)
        if len(data) > limits.LARGEST_NAMES:
            most = limits.LARGEST_NAMES >> 20
            raise UnreadableError(f"names take more than {most} MB; leave out items without ratings")
        names = _names_by_item(data.removeprefix(BYTE_ORDER_MARK).split(b"\n"), options)
    except UnreadableError as error:
        raise InputError(f"{path}: {error}") from error
    while len(uses := Counter(names.values())) < len(names):
        names = {item: f"{name} ({item})" if uses[name] > 1 else name for item, name in names.items()}
    return names


def _names_by_item(lines: Sequence[bytes], options: RatingsOptions) -> dict[str, str]:
    item, name = options.names_item, options.names_name
    layout = Delimited(
        delimiter=options.names_delimiter,
        columns=options.names_columns,
        quoting=options.quoting,
        quotechar=options.quotechar,
    )
    columns: Sequence[str] = layout.columns
    width = 0
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        line = line.removesuffix(b"\r")
        if not line:
            continue
        try:
            fields = split_line(layout, line, options.names_encoding)
            # A name that contains the delimiter makes its line wider than the first one.
            width = width or max(len(fields), len(columns))
            if not columns:
                columns = fields
                continue
            if len(fields) != width:
                raise BadValue(f"{len(fields)} fields, not {width}")
            require_columns([item, name], columns)
            key, value = fields[columns.index(item)], fields[columns.index(name)].strip()
            if not key or not value:
                raise BadValue(f"{name if key else item} is empty")
            if found.setdefault(key, value) != value:
                raise BadValue(f"item {key!r} has another name above")
        except BadValue as error:
            raise UnreadableError(f"line {number}: {error}; correct the line") from error
    if not found:
        raise UnreadableError("it holds no names")
    return found
