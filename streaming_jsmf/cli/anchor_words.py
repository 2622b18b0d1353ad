"""The value of ``--anchor-words``: words with commas between, or a file with a line for each topic."""

from __future__ import annotations

from pathlib import Path

import click

from streaming_jsmf.errors import InputError


def anchor_word_groups(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> tuple[tuple[str, ...], ...]:
    """Words of each topic; empty where the option is not given.

    In a file empty lines and lines that begin with # are passed over. A value that is the name of a file is
    taken for one.

    Raises
    ------
    InputError
        If the file cannot be read as UTF-8, or nothing is given.
    """
    if text is None:
        return ()
    path = Path(text)
    if not path.is_file():
        groups = [_words(part) for part in text.split(",")]
        if not all(groups):
            raise InputError(
                f"--anchor-words is {text!r}, which is no file; as a list it lacks a word between two commas"
            )
        return tuple(groups)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--anchor-words {text}: cannot be read as UTF-8 text: {error}") from error
    groups = [_words(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not groups:
        raise InputError(f"--anchor-words {text}: the file has no words; give a line for each topic")
    return tuple(groups)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
