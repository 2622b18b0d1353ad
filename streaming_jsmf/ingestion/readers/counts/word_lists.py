"""Files of counts that share one vocabulary, and the word lists that lie beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from streaming_jsmf.corpus.vocabulary import TEXT_NAMES, VOCABULARY_NAME, read_vocabulary
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import Unit
from streaming_jsmf.ingestion.readers.streams import DamagedError, size_of
from streaming_jsmf.storage.paths import is_file, is_url, join, normalise

WORD_LISTS = (*TEXT_NAMES, VOCABULARY_NAME)


@dataclass(frozen=True)
class CountFiles(ABC):
    """Files of counts with one vocabulary. Subclasses add their ``options``.

    Attributes
    ----------
    files
        Absolute local paths or URLs.
    """

    files: tuple[str, ...]

    @abstractmethod
    def words_of(self, path: str) -> tuple[str, ...]:
        """The words of one file. Reads its word list."""

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The words of all files. Reads every word list once.

        Raises
        ------
        InputError
            If there is no file, a word list is missing or no vocabulary, or files differ in their words.
        """
        if not self.files:
            raise InputError("there are no files of counts to read; give at least one")
        first, words = self.files[0], self.words_of(self.files[0])
        for path in self.files[1:]:
            others = self.words_of(path)
            if others != words:
                pairs = enumerate(zip(words, others, strict=False))
                at = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(words), len(others)))
                raise InputError(
                    f"{path} has other words than {first}, from word {at} (from 0) on; files that are read "
                    "together must share one vocabulary: read them apart"
                )
        return words

    def first_row(self, unit: Unit) -> int:
        """Number, within its file, of the unit's first record."""
        return unit.start

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the words, which each task reads for itself: tasks stay small.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


def word_list(path: str, wanted: str | None, beside: Sequence[str] = WORD_LISTS) -> str:
    """Path of the word list of a file: ``wanted``, relative to the file, or the first of the names beside it.

    Raises
    ------
    InputError
        If there is none.
    """
    folder = path.rsplit("/", 1)[0] if is_url(path) else str(Path(path).parent)
    if wanted is None:
        candidates = [join(folder, name) for name in beside]
    elif is_url(wanted) or Path(wanted).expanduser().is_absolute():
        candidates = [normalise(wanted)]
    else:
        candidates = [join(folder, wanted)]
    found = next((candidate for candidate in candidates if is_file(candidate)), None)
    if found is None:
        names = wanted or " or ".join(beside)
        raise InputError(f"{path} has no word list ({names}); set the option vocabulary to its path")
    return found


def read_words(path: str) -> tuple[str, ...]:
    """The words of a word list. Reads it once; see ``read_vocabulary`` for the errors."""
    return read_vocabulary(path)[0].words


def whole_file(path: str) -> Unit:
    """A file as one unit. Raises InputError if it is missing or cannot be reached."""
    try:
        return Unit(path, size=size_of(path))
    except DamagedError as error:
        raise InputError(f"{path}: {error}") from error
