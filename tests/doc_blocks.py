"""The commands and snippets of README and docs, from the text itself, and a folder in which they can be run.

What cannot be run here says so in a comment before its block: ``<!-- not run: why -->``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

_BLOCK = re.compile(
    r"(?:^<!-- (?P<remark>[^>]*) -->\n)?^```(?P<kind>sh|python)\n(?P<text>.*?)^```$", re.M | re.S
)

#: A small corpus carries few topics; nothing else of a line is changed.
_SMALLER = ((r"--topics [\d,]+", "--topics 3"), (r"--max-topics \d+", "--max-topics 5"))

#: Where the result of a verb is among its arguments; it is removed before the command.
RESULT = {
    "ingest": 1, "simulate": 0, "scan": 1, "infer": 1, "fit": 1, "polish": 2, "transform": 2, "report": 1,
}  # fmt: skip

#: With one of these the store is changed, and has to be there.
_CHANGING = ("--add", "--remove", "--merge", "--repair")


@dataclass(frozen=True)
class Block:
    """A fenced block: file, number in it, kind (``sh`` or ``python``), text, and why it is not run, if it is not."""

    page: str
    number: int
    kind: str
    text: str
    not_run: str | None

    @property
    def name(self) -> str:
        return f"{self.page}-{self.number}"

    def commands(self) -> Iterator[list[str]]:
        """The commands of a shell block as lists of words, without comments and what is no command of ours."""
        for line in self.text.replace("\\\n", " ").splitlines():
            for part in line.split("&&"):
                words = shlex.split(part, comments=True)
                if words and Path(words[0]).name == "streaming-jsmf":
                    yield words[1:]


def blocks() -> list[Block]:
    """All shell and Python blocks of README and docs, but for those that ``.ci/run`` runs."""
    found = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for number, match in enumerate(_BLOCK.finditer(path.read_text(encoding="utf-8"))):
            remark = match["remark"] or ""
            if not remark.startswith("command: "):
                why = remark.removeprefix("not run: ") if remark.startswith("not run: ") else None
                found.append(Block(path.name, number, match["kind"], match["text"], why))
    return found


def made_small(words: list[str]) -> list[str]:
    """A command line with few topics and documents."""
    line = shlex.join(words)
    if words[0] == "choose-k":
        return shlex.split(re.sub(r"--topics [\d,]+", "--topics 3,4", line))
    for pattern, instead in _SMALLER:
        line = re.sub(pattern, instead, line)
    return shlex.split(line.replace("--documents 100000", "--documents 300"))


def result_of(words: list[str]) -> str | None:
    """The path that a command makes anew; None if it changes what is there, or makes nothing."""
    verb, *rest = words
    if verb not in RESULT or any(word in _CHANGING for word in rest):
        return None
    arguments, skipped = [], False
    for word, after in zip(rest, [*rest[1:], ""], strict=True):
        if skipped:
            skipped = False
        elif word.startswith("--"):
            skipped = not after.startswith("--") and word not in (
                "--exact",
                "--third-moment",
                "--keep-partitions",
            )
        else:
            arguments.append(word)
    return arguments[RESULT[verb]]
