"""The reader of record batches that a function of the user yields."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from streaming_jsmf.config import ReaderName
from streaming_jsmf.ingestion.formats.functions import FunctionFormat
from streaming_jsmf.ingestion.readers.record_files import TextSource
from streaming_jsmf.ingestion.sources.protocol import Format
from streaming_jsmf.ingestion.users_code import users_function


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
