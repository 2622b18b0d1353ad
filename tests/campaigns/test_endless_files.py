"""Named pipes, sockets and devices at every place where ``ingest`` opens a file of the user: one line, and no hang."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_jsmf import Execution, ingest
from tests.campaigns.attack import ODD, Campaign, campaign
from tests.corpora import planted, write_corpus
from tests.outcomes import Command
from tests.readers import BY_NAME, FORMATS, documents
from tests.sources import put

READ = ("--quiet", "--scheduler", "synchronous", "--min-df", "1", "--max-df", "100%")


def link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("_pipe"))  # hidden, so that only the link is listed
    path.symlink_to(path.with_name("_pipe"))


KINDS = {**ODD, "link": link_to_pipe}

#: Why a file is not read.
ENDLESS = ", not a regular file"

#: Why a spec refuses a link to a device.
OUTSIDE = "is a link to a file outside"

#: A case: its name, the file that is replaced, and the command.
Case = tuple[str, Path, tuple[object, ...]]


def of_sources(root: Path) -> Iterator[Case]:
    """Each file of each format, given directly or in a folder, with the reader named or guessed; and one file more."""
    for kind in FORMATS:
        for codec in {"", ".gz"} & set(kind.codecs):
            folder = root / f"{kind.name}{codec}"
            source = kind.write(folder, documents(), codec)
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            for file in files:
                for given in {source, folder}:
                    yield f"{kind.name}{codec}, {file.name} of {given.name}", file, (given, *kind.arguments())
            yield f"{kind.name}{codec}, guessed", kind.file_at(source), (source,)
            if not kind.takes_folder:
                more = folder / f"u{''.join(kind.file_at(source).suffixes)}"
                yield f"{kind.name}{codec}, one more", more, (folder, *kind.arguments())


def of_archives(root: Path) -> Iterator[Case]:
    for name in ("a.zip", "a.csv.zip", "a.tar", "a.tar.gz", "a.tgz"):
        yield name, put(root / name, b""), (root / name,)
    archive = put(root / "b.zip", b"")
    yield "member", archive, (archive, "--member", "a.csv")
    yield "chain", archive, (f"zip://a.csv::{archive}", "--reader", "text")
    yield "in a folder", put(root / "in" / "a.csv.zip", b""), (root / "in", "--reader", "text")


def of_options(root: Path) -> Iterator[Case]:
    source = BY_NAME["text-csv"].write(root / "texts", documents())
    for option in ("--stop-words", "--vocabulary", "--phrases"):
        yield option, put(root / "list.txt", b"word01\n"), (source, option, root / "list.txt")
    parquet = put(root / "list.parquet", b"")
    yield "--vocabulary in Parquet", parquet, (source, "--vocabulary", parquet)
    write_corpus(root / "plain", planted(60, 20, 2).counts)
    ingest(root / "plain", root / "corpus", execution=Execution("synchronous"), preset="papers", min_tokens=0)
    for name in ("corpus", "plain"):
        corpus = root / name
        for file in sorted(path for path in corpus.rglob("*") if path.is_file()):
            yield f"{name}, {file.name}", file, (source, "--vocabulary", corpus)
            yield f"{name}, {file.name} as the source", file, (corpus,)
    rated = BY_NAME["ratings"].write(root / "rated", documents())
    names = put(root / "rated" / "names.csv", b"item,name\n")
    yield "names", names, (rated, "--reader", "ratings", "--names", "names.csv")
    beside = BY_NAME["npz"].write(root / "npz", documents())
    words = put(root / "npz" / "w.txt", b"")
    yield "word list", words, (beside, "--word-list", "w.txt")


SPEC = """
name = "x"
title = "x"
reader = "text"
[source]
url = "https://example.org"
licence = "x"
attribution = "x"
files = { "t.csv" = {} }
[curation]
stop_words = "stop.txt"
"""


def of_specs(root: Path) -> Iterator[Case]:
    BY_NAME["text-csv"].write(root, documents())
    spec, stop = put(root / "x.toml", SPEC), put(root / "stop.txt", b"word01\n")
    for file in (spec, stop, root / "t.csv"):
        yield f"spec, {file.name}", file, (spec, "--files", root)


PLACES = {"sources": of_sources, "archives": of_archives, "options": of_options, "specs": of_specs}


def attack(tried: Campaign, root: Path, case: Case, kind: str) -> None:
    """Replace the file, run the command, and put the file back."""
    name, file, arguments = case
    kept = root / "kept"
    if file.exists():
        file.rename(kept)
    KINDS[kind](file)
    said = tried(f"{name}: {kind}", "ingest", *arguments[:1], root / "made", *arguments[1:], *READ)
    if said is not None and (said.code not in (2, 3) or not (ENDLESS in said.err or OUTSIDE in said.err)):
        tried.fail(f"{name}: {kind}", f"exit code {said.code}: {said.err}")
    if (root / "made").exists() or (root / "made.partial").exists():
        tried.fail(f"{name}: {kind}", "something is left")
        shutil.rmtree(root / "made", ignore_errors=True)
    file.unlink()
    file.with_name("_pipe").unlink(missing_ok=True)
    if kept.exists():
        kept.rename(file)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_endless_files_are_not_read(place: str, kind: str, tmp_path: Path, invoke: Command) -> None:
    with campaign(invoke) as tried:
        for case in PLACES[place](tmp_path / "in"):
            attack(tried, tmp_path, case, kind)
