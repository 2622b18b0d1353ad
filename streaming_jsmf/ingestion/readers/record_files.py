"""The readers of records and lines: files of Parquet, Arrow, JSON, delimited text and sheets, and users' functions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from streaming_jsmf.config import ReaderName, TextOptions
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.formats.csv_layout import CsvLayout
from streaming_jsmf.ingestion.formats.delimited import DELIMITED
from streaming_jsmf.ingestion.formats.functions import FunctionFormat
from streaming_jsmf.ingestion.formats.json_records import JSON, JsonLayout
from streaming_jsmf.ingestion.formats.lines import LINES
from streaming_jsmf.ingestion.readers.probe import FORMATS, format_of, is_parquet
from streaming_jsmf.ingestion.sources.adapter import RecordFiles, TextReader
from streaming_jsmf.ingestion.sources.listing import names_in_folders
from streaming_jsmf.ingestion.sources.protocol import Format, Unit, UnreadableError
from streaming_jsmf.ingestion.sources.streams import bare_suffix, of_first_readable, size_of
from streaming_jsmf.ingestion.sources.values import id_name, require_columns
from streaming_jsmf.ingestion.tokens.stop_words import NONE
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.ingestion.users_code import users_function
from streaming_jsmf.storage.objects import of_each_file

logger = logging.getLogger(__name__)

#: Formats by what is found out about a file.
_OF_LAYOUTS: dict[type, Format] = {CsvLayout: DELIMITED, JsonLayout: JSON}


class LineSource(RecordFiles, TextReader):
    """Reader "lines": each line of a file that is not blank is a document without an id."""

    reader = "lines"
    patterns = ("*.txt", "*.text")

    def format(self, path: str) -> Format:  # noqa: ARG002
        return LINES


@dataclass(frozen=True)
class TextSource(RecordFiles, TextReader):
    """Reader "text": each record of a Parquet, JSON or delimited file is a document.

    The first file that can be read names the columns of the text and the id, which all files must have. Names of
    folders such as year=1999 are metadata, too, and so are channels of Slack.
    """

    reader: ClassVar[ReaderName] = "text"
    patterns = tuple(f"*{suffix}" for suffix in FORMATS)

    #: The columns of the first file that has those that are asked for.
    names: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def open(cls, root: str, files: tuple[str, ...], options: TextOptions, tokenizer: Tokenizer) -> Self:
        """Find the columns. Raises InputError if no file has them, with the reason for the first file."""
        if len(set(options.text)) < len(options.text):
            raise InputError(
                f"{option.text(','.join(options.text))} names a column twice; name each column once"
            )
        if options.id in options.text:
            raise InputError(
                f"the column {options.id!r} cannot hold both the texts and the ids; give {option.id} another"
            )
        opened = cls(root, files, options, tokenizer)
        return replace(opened, names=tuple(opened._first_names()))

    def format(self, path: str) -> Format:
        found = format_of(path) or (None if self.options.delimiter is None else DELIMITED)
        if found is None:
            raise UnreadableError(
                f"its suffix is {bare_suffix(path)!r}, and it holds neither JSON, Parquet nor surely a table; lines "
                f"are read with {option.reader('lines')}, and delimited files with "
                f"{option.delimiter('CHARACTER')}; other formats must be converted to one of these"
            )
        return found

    def format_of(self, unit: Unit) -> Format:
        # The file is not opened if its layout was found.
        return _OF_LAYOUTS.get(type(unit.layout)) or self.format(unit.path)

    @property
    def contents(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.options.text
        return found

    @property
    def id_was_named(self) -> bool:
        return self.options.id not in (None, NONE)

    @property
    def id_column(self) -> str | None:
        if self.options.id == NONE:
            return None
        return self.options.id or id_name([name for name in self.names if name not in self.contents])

    def _first_names(self) -> list[str]:
        asked = () if self.options.metadata == "all" else self.options.metadata
        if asked:
            of_folders = {name for path in self.files for name in self.of_path(path)}
            asked = [name for name in asked if name not in of_folders]

        def names_of(path: str) -> list[str]:
            names = self.format(path).names(path, self.options)
            require_columns([*self.required, *asked], names)
            return names

        hint = f"give a file of texts, and name the column with {option.text('NAME')}"
        if self.id_was_named:
            hint += f", and that of the ids with {option.id('NAME')}"
        return of_first_readable(self.files, names_of, hint)

    def units(self) -> Sequence[Unit]:
        """As of ``Reader``, without empty files of lines beside others, such as parts that Spark writes."""
        with suppress(UnreadableError):
            sizes = of_each_file(size_of, self.files)
            filled = tuple(
                path for path, size in zip(self.files, sizes, strict=True) if size or is_parquet(path)
            )
            if 0 < len(filled) < len(self.files):
                logger.warning("%d of %d files are empty", len(self.files) - len(filled), len(self.files))
                return replace(self, files=filled).units()
        return super().units()

    @property
    def required(self) -> Sequence[str]:
        return [*self.contents, *([self.options.id] if self.id_was_named else [])]

    @property
    def wanted(self) -> Collection[str] | None:
        if self.options.metadata == "all":
            return None
        return {*self.required, *filter(None, [self.id_column]), *self.options.metadata}

    def of_path(self, path: str) -> Mapping[str, str | None]:
        return names_in_folders(self.root, path)


class FunctionSource(TextSource):
    """Reader "function": the record batches that a function of the user yields for each file.

    Its code is part of the identity of a corpus. A corpus does not load it: name it again to update.
    """

    reader: ClassVar[ReaderName] = "function"
    patterns = ("*",)

    @cached_property
    def _form(self) -> FunctionFormat:
        name = str(self.options.function)
        return FunctionFormat(users_function(name, "the reader"), name)

    def format(self, path: str) -> Format:  # noqa: ARG002
        return self._form

    def __reduce__(self) -> tuple[Any, ...]:
        # A function may not be picklable, and is found by its name.
        return type(self), (self.root, self.files, self.options, self.tokenizer)
