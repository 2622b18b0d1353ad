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

from tests.corpora import planted, with_more, write_corpus
from tests.processes import SOURCE

#: Number of operations at the end of a command that are tried.
LAST = 100

#: Verbs without a scheduler.
ALONE = ("infer", "report", "documents")


@dataclass(frozen=True)
class Case:
    """The command line that is killed, and those that prepare the folder."""

    name: str
    line: str
    before: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def command(self) -> tuple[str, ...]:
        return arguments(self.line)


def arguments(line: str, scheduler: str = "synchronous") -> tuple[str, ...]:
    """The arguments of a command line, with two workers of a scheduler if it takes one."""
    verb, *rest = line.split()
    workers = () if verb in ALONE else ("--scheduler", scheduler, "--workers", "2")
    return (verb, *rest, *workers)


OF_A = "scan a m --max-topics 3 --partition-nonzeros 900"
SAMPLED, WITH_THIRD = f"{OF_A} --sample-share 0.5", f"{OF_A} --third-moment"
GROWN, SHRUNK = "scan b m --follow", "scan a m --follow"
MODEL = "infer m model --topics 3 --anchor-min-df 2"
POLISH = "polish model a polished --steps 8"
FIT = "fit a model --topics 3 --anchor-min-df 2 --partition-nonzeros 900 --steps 8"
FIT_TEXTS = FIT.replace("fit a", "fit texts.jsonl") + " --preset papers"
SHARES = "transform model a shares"
TO_FILE = "transform model a shares.parquet"

CASES = (
    Case("ingest", "ingest texts.jsonl corpus --min-tokens 1"),
    Case(
        "ingest-overwrite",
        "ingest texts.jsonl corpus --min-tokens 2 --overwrite",
        ("ingest texts.jsonl corpus",),
    ),
    Case(
        "simulate",
        "simulate corpus --documents 300 --vocabulary-size 40 --topics 3 --documents-per-shard 100 --seed 1",
    ),
    Case("scan", OF_A),
    Case("scan-sample", SAMPLED),
    Case("follow-sample", GROWN, (SAMPLED,)),
    Case("scan-exact", f"{OF_A} --exact"),
    Case("scan-third-moment", WITH_THIRD),
    Case("third-moment", WITH_THIRD, (OF_A,)),
    Case("follow", GROWN, (OF_A,)),
    Case("follow-third-moment", f"{GROWN} --third-moment", (OF_A,)),
    Case("follow-back", SHRUNK, (OF_A, GROWN)),
    Case("infer", MODEL, (OF_A,)),
    Case("infer-overwrite", f"{MODEL} --rectify palm --overwrite", (OF_A, MODEL)),
    Case("infer-stod", "infer m model --topics 3 --engine stod", (WITH_THIRD,)),
    Case("fit", FIT),
    Case("fit-texts", FIT_TEXTS),
    Case("fit-several", f"{FIT} --topics 2,3"),
    Case("polish", POLISH, (OF_A, MODEL)),
    Case("polish-overwrite", "polish model a model --steps 8 --overwrite", (OF_A, MODEL)),
    Case("evaluate", "evaluate model --corpus a --replicas 0 --json", (OF_A, MODEL)),
    Case("transform-file", TO_FILE, (OF_A, MODEL)),
    Case("transform-directory", SHARES, (OF_A, MODEL)),
    Case("transform-overwrite", f"{SHARES} --top 2 --overwrite", (OF_A, MODEL, SHARES)),
    Case("transform-texts", "transform model texts.jsonl shares", (FIT_TEXTS,)),
    Case("transform-zarr", "transform model a shares.zarr", (OF_A, MODEL)),
    Case("report", "report model page.html", (OF_A, MODEL)),
    Case(
        "report-overwrite",
        "report model page.html --overwrite",
        (OF_A, MODEL, "report model page.html --words 3"),
    ),
    Case(
        "documents",
        "documents model shares.parquet --topic 1 --out answer.parquet",
        (OF_A, MODEL, TO_FILE),
    ),
    Case("choose-k", "choose-k a --out chosen --topics 2,3 --replicas 1"),
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
    ) -> int:
        """Exit code of a command; negative if it was killed.

        It is killed before operation ``kill_at``, or interrupted before ``interrupt_at``; the folder is copied before
        each operation from ``copy_from`` on. ``here`` runs it in the server itself, so that later children find
        everything loaded.
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
    first, more, _ = np.array_split(counts, 3)
    a = write_corpus(folder / "a", first, shards=2, row_group_rows=10)
    with_more(a, folder / "b", more, row_group_rows=10)
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
        assert served.run(arguments(line), here=True) == 0, served.log.read_text(encoding="utf-8")
    shutil.rmtree(start, ignore_errors=True)
    shutil.copytree(served.folder, start)
    assert served.run(case.command, here=True) == 0, served.log.read_text(encoding="utf-8")
    served.place(start)
    operations = served.done(case.command)
    return Undisturbed(start, operations, contents(served.folder))


def left_after(case: Case, clean: Undisturbed, served: Server) -> str:
    """Run ``info`` and then the command again; describe what is wrong, empty if nothing is."""
    for place in {name.partition("/")[0] for name in clean.contents} - set(served.sources):
        if changed := served.changes(("info", place)):
            return f"info {place} changed {changed}"
    code = served.run(case.command)
    if code:
        return f"exit code {code}: {served.log.read_text(encoding='utf-8')[-300:]}"
    return ", ".join(difference(clean.contents, contents(served.folder)))


def difference(clean: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Names that are missing (-), extra (+) or have different contents (~)."""
    signs = {name: "-" if name not in found else "+" if name not in clean else "~" for name in clean | found}
    return sorted(f"{sign} {name}" for name, sign in signs.items() if clean.get(name) != found.get(name))


#: The part of a name that differs between runs.
_RANDOM = re.compile(r"(?<=-)[0-9a-f]{32}$")

#: Keys of records and metadata that differ between runs, as does the digest of the attributes.
_OF_A_RUN = ("seconds", "peak_memory", "committed", "attempt", "asked")


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
    for sealed in (value, value.get("attributes", {})):
        sealed.pop("sha256", None)
    return json.dumps(_pruned(value), sort_keys=True).encode()


def _pruned(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _pruned(inner) for key, inner in value.items() if key not in _OF_A_RUN}
    return [_pruned(inner) for inner in value] if isinstance(value, list) else value
