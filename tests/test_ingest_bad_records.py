"""Kinds of bad records, through the command line: named with file and row, or kept aside with their reason.

What every reader must say of bytes that are no text or number, and of files that are cut, is in ``test_readers``.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf.corpus.format import QUARANTINE_NAME, open_corpus, read_manifest
from tests.outcomes import Command, refused
from tests.readers import KEEP_ALL

WORDS = "ant\nbee\ncat\n"


@dataclass(frozen=True)
class Case:
    """A source with one fault: how it is made, what the message says of place and reason, what is left of it."""

    make: Callable[[Path], Path]
    where: str
    reason: str
    row: int | None
    documents: int


def texts(directory: Path, columns: dict[str, object]) -> Path:
    pq.write_table(pa.table(columns), directory / "texts.parquet", row_group_size=2)
    return directory / "texts.parquet"


def null_id(directory: Path) -> Path:
    return texts(directory, {"id": [1, 2, None], "text": ["ant bee", "cat", "ant"]})


def repeated_id(directory: Path) -> Path:
    return texts(directory, {"id": ["a", "b", "a"], "text": ["ant", "bee", "cat"]})


def triples(directory: Path, counts: list[float]) -> Path:
    table = {"document": [1, 2, 3], "word": ["ant", "bee", "cat"], "count": counts}
    pq.write_table(pa.table(table), directory / "triples.parquet")
    return directory / "triples.parquet"


def docword(directory: Path, lines: str) -> Path:
    (directory / "vocab.x.txt").write_text(WORDS)
    path = directory / "docword.x.txt.gz"
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))
    return path


def missing_column(directory: Path) -> Path:
    (directory / "a.csv").write_text("id,text\n1,ant bee\n")
    (directory / "b.csv").write_text("id,body\n2,cat\n")
    return directory


CASES = {
    "null id": Case(null_id, "texts.parquet, row group 1, row 0 from 0", "id is null", 2, 2),
    "duplicate id": Case(repeated_id, "texts.parquet, row group 1, row 0 from 0", "earlier", 2, 2),
    "negative count": Case(
        lambda d: triples(d, [1, -2, 3]), "triples.parquet, row group 0, row 1 from 0", "-2", 1, 2
    ),
    "word not in vocabulary": Case(
        lambda d: docword(d, "2\n3\n3\n1 1 5\n1 4 1\n2 2 2\n"), "docword.x.txt.gz, line 5", "vocabulary", 4, 2
    ),
    "header that lies": Case(
        lambda d: docword(d, "2\n3\n9\n1 1 5\n2 2 2\n"), "docword.x.txt.gz, line 3", "9", 2, 2
    ),
    "CSV with a missing column": Case(missing_column, "b.csv", "text", None, 1),
}


@pytest.mark.parametrize("kind", CASES)
def test_it_is_named_or_goes_to_the_quarantine(kind: str, tmp_path: Path, invoke: Command) -> None:
    case = CASES[kind]
    (tmp_path / "in").mkdir()
    target = tmp_path / "out" / "c"
    named = ["--id", "id"] if kind.endswith(" id") else []
    arguments = ["ingest", case.make(tmp_path / "in"), target, "--preset", "papers", *named, *KEEP_ALL]
    refused(invoke(*arguments).without_progress(), 2, case.where, case.reason, "--on-bad-record quarantine")
    assert not list((tmp_path / "out").glob("*"))
    assert invoke(*arguments, "--on-bad-record", "quarantine").code == 0
    assert open_corpus(target).n_documents == case.documents
    (bad,) = pq.read_table(target / QUARANTINE_NAME).to_pylist()
    assert case.where.split(",")[0] in bad["file"]
    assert bad["row"] == case.row
    assert case.reason in bad["reason"]
    manifest = read_manifest(target)
    lost = [step for step in manifest.dropped if "in quarantine.parquet" in step.reason]
    assert sum(step.documents or step.reason.startswith("1 row") for step in lost) == 1
    assert manifest.settings["documents_read"] == case.documents + sum(step.documents for step in lost)
