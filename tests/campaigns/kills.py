"""Commands that are killed before one of their last file operations: the cases, and the comparison of results."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.corpora import planted, words, write_corpus
from tests.processes import SOURCE
from tests.stores import rename_words

#: Number of operations at the end of a command that are tried.
LAST = 100

QUIET = ("--scheduler", "synchronous")
SCAN = ("--max-topics", "3", "--partition-nonzeros", "900")
TOPICS = ("--topics", "3", "--anchor-min-df", "2")


@dataclass(frozen=True)
class Case:
    """Commands that prepare the folder, and the command that is killed."""

    name: str
    before: tuple[tuple[str, ...], ...]
    command: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def _scan(*line: str) -> tuple[str, ...]:
    return ("scan", *line, *QUIET)


OF_A = _scan("a", "m", *SCAN)
SAMPLED = (*OF_A, "--sample-share", "0.5")
WITH_THIRD = _scan("a", "m", *SCAN, "--third-moment")
MODEL = ("infer", "m", "model", *TOPICS)
FIT = ("fit", "a", "model", *TOPICS, "--partition-nonzeros", "900", "--steps", "8", *QUIET)

CASES = (
    Case("ingest", (), ("ingest", "texts.jsonl", "corpus", "--min-tokens", "1", *QUIET)),
    Case(
        "simulate",
        (),
        (
            "simulate",
            "corpus",
            "--documents",
            "300",
            "--vocabulary-size",
            "40",
            "--topics",
            "3",
            "--documents-per-shard",
            "100",
            "--seed",
            "1",
            *QUIET,
        ),
    ),
    Case("scan", (), OF_A),
    Case("scan-sample", (), SAMPLED),
    Case("add-sample", (SAMPLED,), _scan("a", "m", "--add", "b")),
    Case("scan-exact", (), (*OF_A, "--exact")),
    Case("scan-third-moment", (), WITH_THIRD),
    Case("third-moment", (OF_A,), WITH_THIRD),
    Case("add", (OF_A,), _scan("a", "m", "--add", "b")),
    Case("add-third-moment", (OF_A,), _scan("a", "m", "--add", "b", "--third-moment")),
    Case("remove", (OF_A, _scan("a", "m", "--add", "b")), _scan("a", "m", "--remove", "b")),
    Case("merge", (OF_A, _scan("b", "of-b", *SCAN)), _scan("a", "m", "--merge", "of-b")),
    Case("unite", (OF_A, _scan("c", "of-c", *SCAN)), _scan("a", "m", "--merge", "of-c")),
    Case(
        "replace",
        (OF_A, _scan("c", "of-c", *SCAN)),
        _scan("a", "m", "--remove", "a", "--add", "b", "--merge", "of-c"),
    ),
    Case("infer", (OF_A,), MODEL),
    Case("infer-overwrite", (OF_A, MODEL), (*MODEL, "--rectify", "palm", "--overwrite")),
    Case("infer-stod", (WITH_THIRD,), ("infer", "m", "model", "--topics", "3", "--engine", "stod")),
    Case("fit", (), FIT),
    Case("fit-texts", (), ("fit", "texts.jsonl", *FIT[2:], "--preset", "papers")),
    Case("fit-several", (), (*FIT, "--topics", "2,3")),
    Case("polish", (OF_A, MODEL), ("polish", "model", "a", "polished", "--steps", "8", *QUIET)),
    Case(
        "polish-overwrite",
        (OF_A, MODEL),
        ("polish", "model", "a", "model", "--steps", "8", "--overwrite", *QUIET),
    ),
    Case(
        "evaluate", (OF_A, MODEL), ("evaluate", "model", "--corpus", "a", "--replicas", "0", "--json", *QUIET)
    ),
    Case("transform-file", (OF_A, MODEL), ("transform", "model", "a", "shares.parquet", *QUIET)),
    Case(
        "transform-texts",
        (("fit", "texts.jsonl", *FIT[2:], "--preset", "papers"),),
        ("transform", "model", "texts.jsonl", "shares", *QUIET),
    ),
    Case("transform-zarr", (OF_A, MODEL), ("transform", "model", "a", "shares.zarr", *QUIET)),
    Case("report", (OF_A, MODEL), ("report", "model", "page.html")),
    Case(
        "report-overwrite",
        (OF_A, MODEL, ("report", "model", "page.html", "--words", "3")),
        ("report", "model", "page.html", "--overwrite"),
    ),
    Case(
        "documents",
        (OF_A, MODEL, ("transform", "model", "a", "shares.parquet", *QUIET)),
        ("documents", "model", "shares.parquet", "--topic", "1", "--out", "answer.parquet"),
    ),
    Case("choose-k", (), ("choose-k", "a", "--out", "chosen", "--topics", "2,3", "--replicas", "1", *QUIET)),
    Case(
        "ingest-overwrite",
        (("ingest", "texts.jsonl", "corpus", *QUIET),),
        ("ingest", "texts.jsonl", "corpus", "--min-tokens", "2", "--overwrite", *QUIET),
    ),
    Case("transform-directory", (OF_A, MODEL), ("transform", "model", "a", "shares", *QUIET)),
    Case(
        "transform-overwrite",
        (OF_A, MODEL, ("transform", "model", "a", "shares", *QUIET)),
        ("transform", "model", "a", "shares", "--top", "2", "--overwrite", *QUIET),
    ),
)


@dataclass(frozen=True)
class Server:
    """Runs commands in forks of one process, always in the same ``folder``, because stores contain absolute paths."""

    process: subprocess.Popen[str]
    base: Path

    @property
    def folder(self) -> Path:
        return self.base / "case"

    @property
    def sources(self) -> set[str]:
        """Names of the files that exist before every case."""
        return {path.name for path in (self.base / "sources").iterdir()}

    @property
    def log(self) -> Path:
        return self.base / "log"

    @property
    def copies(self) -> Path:
        """Copies of the folder, by number of operation."""
        return self.base / "copies"

    @property
    def _operations(self) -> Path:
        return self.base / "operations"

    def run(
        self,
        line: tuple[str, ...],
        kill_at: int | None = None,
        *,
        interrupt_at: int | None = None,
        copy_from: int | None = None,
        here: bool = False,
        finalise: bool = False,
    ) -> int:
        """Exit code of a command; negative if it was killed.

        It is killed before operation ``kill_at``, or interrupted before ``interrupt_at``; the folder is copied before
        each operation from ``copy_from`` on. ``here`` runs it in the server itself, so that later children find
        everything loaded. ``finalise`` finalizes the interpreter and its threads, as a normal process does; otherwise
        the child exits at once.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {
            "command": line,
            "folder": str(self.folder),
            "root": str(self.folder) + "/",
            "kill_at": kill_at,
            "interrupt_at": interrupt_at,
            "copy_from": copy_from,
            "copies": str(self.copies),
            "here": here,
            "finalise": finalise,
            "log": str(self.log),
            "operations": str(self._operations),
        }
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return int(json.loads(self.process.stdout.readline()))

    def done(self, line: tuple[str, ...], copy_from: int | None = None) -> list[str]:
        """Run a command that must succeed, and return its file operations."""
        assert self.run(line, copy_from=copy_from) == 0, self.log.read_text(encoding="utf-8")
        return self._operations.read_text(encoding="utf-8").splitlines()

    def changes(self, line: tuple[str, ...]) -> list[str]:
        """File operations of a command, as it records them and by comparing the folder before and after."""
        before = states(self.folder)
        self.run(line)
        found = [str(path) for path, _ in before ^ states(self.folder)]
        return found + self._operations.read_text(encoding="utf-8").splitlines()

    def place(self, start: Path) -> None:
        for entry in self.folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copytree(start, self.folder, dirs_exist_ok=True)


def states(folder: Path) -> set[tuple[Path, tuple[int, ...]]]:
    """All files and directories with their metadata, except the access time."""
    return {
        (path, (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
        for path in folder.rglob("*")
        for found in [path.lstat()]
    }


@contextmanager
def server(base: Path) -> Iterator[Server]:
    """Start a server with the sources of all cases in its folder."""
    line = [sys.executable, "-W", "ignore", "-m", "tests.campaigns.kill_server"]
    with subprocess.Popen(
        line, cwd=SOURCE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        made = Server(process, base)
        made.folder.mkdir()
        write_sources(made.folder)
        shutil.copytree(made.folder, base / "sources")
        try:
            yield made
        finally:
            process.stdin.close()  # type: ignore[union-attr]


def write_sources(folder: Path) -> None:
    counts = planted(120, 40, 3, length=30, seed=7).counts
    for name, rows in zip("abc", np.array_split(counts, 3), strict=True):
        write_corpus(folder / name, rows, shards=2, row_group_rows=10)
    rename_words(folder / "c", [f"other{i}" if i % 2 else word for i, word in enumerate(words(40))])
    names = [
        first + second
        for first in "bdfg"
        for second in ("arn", "elk", "ist", "old", "und", "amp", "est", "ilt", "ork", "urf")
    ]
    texts = ({"text": " ".join(names[i] for i in row.nonzero()[0] for _ in range(row[i]))} for row in counts)
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, texts)) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Undisturbed:
    """A prepared case: the folder before the command, its file operations, and the resulting contents."""

    start: Path
    operations: list[str]
    contents: dict[str, str]

    @property
    def first(self) -> int:
        """Number of the first operation that is tried."""
        return max(0, len(self.operations) - LAST)


def undisturbed(case: Case, served: Server) -> Undisturbed:
    """Prepare a case and run its command without a kill; also warms up the server."""
    start = served.base / "starts" / case.name
    served.place(served.base / "sources")
    for line in case.before:
        assert served.run(line, here=True) == 0, served.log.read_text(encoding="utf-8")
    shutil.rmtree(start, ignore_errors=True)
    shutil.copytree(served.folder, start)
    assert served.run(case.command, here=True) == 0, served.log.read_text(encoding="utf-8")
    served.place(start)
    operations = served.done(case.command)
    return Undisturbed(start, operations, contents(served.folder))


def difference(clean: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Names that are missing (-), extra (+) or have different contents (~)."""
    signs = {name: "-" if name not in found else "+" if name not in clean else "~" for name in clean | found}
    return sorted(f"{sign} {name}" for name, sign in signs.items() if clean.get(name) != found.get(name))


#: The part of a name that differs between runs.
_RANDOM = re.compile(r"(?<=-)[0-9a-f]{32}$")

#: Keys of records and metadata that differ between runs, as does the digest of the attributes.
_OF_A_RUN = ("seconds", "peak_memory", "committed", "attempt")


def contents(folder: Path) -> dict[str, str]:
    """Digest of each file, without what differs between runs; directories have an empty one."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        # Names of partial results consist of a key and a random number.
        parts = path.relative_to(folder).parts
        name = "/".join(
            _RANDOM.sub("", part) if number and parts[number - 1] == "partials" else part
            for number, part in enumerate(parts)
        )
        found[name] = "" if path.is_dir() else hashlib.sha256(_stable(path)).hexdigest()
    return found


def _stable(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix != ".json":
        return data
    value = json.loads(data)
    value.get("attributes", {}).pop("sha256", None)
    return json.dumps(_pruned(value), sort_keys=True).encode()


def _pruned(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _pruned(inner) for key, inner in value.items() if key not in _OF_A_RUN}
    return [_pruned(inner) for inner in value] if isinstance(value, list) else value
