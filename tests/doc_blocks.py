"""Commands and Python snippets in README and docs.

A block that cannot be run follows the comment ``<!-- not run: why -->``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from streaming_jsmf.cli.main import cli

ROOT = Path(__file__).parent.parent

_BLOCK = re.compile(
    r"(?:^<!-- (?P<remark>[^>]*) -->\n)?^```(?P<kind>sh|python)\n(?P<text>.*?)^```$", re.M | re.S
)

#: Position of the result in the arguments of a verb; it is removed before the command runs.
_RESULT = {
    "ingest": 1, "simulate": 0, "scan": 1, "infer": 1, "fit": 1, "polish": 2, "transform": 2, "report": 1,
}  # fmt: skip

#: Pages whose commands read the files of ``tests.doc_files``, and not those of ``tests.test_docs``.
REAL_FILES = ("recipes.md", "languages.md")

#: A page whose blocks run one after another.
FIRST_DAY = "first_day.md"


@dataclass(frozen=True)
class Block:
    """A fenced ``sh`` or ``python`` block; ``not_run`` is the reason if it is not run."""

    name: str
    kind: str
    text: str
    not_run: str | None

    def commands(self) -> Iterator[list[str]]:
        """The words of each ``streaming-jsmf`` command in a shell block, without comments."""
        for line in self.text.replace("\\\n", " ").splitlines():
            for part in line.split("&&"):
                words = shlex.split(part, comments=True)
                if words and Path(words[0]).name == "streaming-jsmf":
                    yield words[1:]


def blocks() -> list[Block]:
    """All shell and Python blocks of README and docs, except those that ``.ci/run`` runs."""
    found = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for number, match in enumerate(_BLOCK.finditer(path.read_text(encoding="utf-8"))):
            remark = match["remark"] or ""
            if not remark.startswith("command: "):
                why = remark.removeprefix("not run: ") if remark.startswith("not run: ") else None
                found.append(Block(f"{path.name}-{number}", match["kind"], match["text"], why))
    return found


def outputs_of(page: str) -> list[str]:
    """The lines of the ``text`` blocks of a page, with single spaces."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    shown = re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S)
    return [" ".join(line.split()) for line in "".join(shown).splitlines()]


def context(words: list[str]) -> click.Context:
    """Parse a command; raises ``click.UsageError`` if it is invalid."""
    verb, *arguments = [word.strip("[]") for word in words if word != "..."]
    return cli.commands[verb].make_context(verb, arguments)


def smaller(words: list[str]) -> list[str]:
    line = shlex.join(words).replace("--documents 100000", "--documents 300")
    line = re.sub(r"--topics [\d,]+", "--topics 3,4" if words[0] == "choose-k" else "--topics 3", line)
    return shlex.split(re.sub(r"--max-topics \d+", "--max-topics 5", line))


def result_of(words: list[str]) -> str | None:
    """Path that a command creates; None if it changes a store or creates nothing."""
    if words[0] not in _RESULT or "--follow" in words:
        return None
    parsed = context(words)
    arguments = [each for each in parsed.command.params if isinstance(each, click.Argument)]
    return str(parsed.params[str(arguments[_RESULT[words[0]]].name)])
