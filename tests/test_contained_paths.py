"""Files named in specs and stores: they lie below their directory, and are regular files of bounded size."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf import InputError, documents_of_topic, ingest
from streaming_jsmf.documents.share_files import ABOUT_NAME
from streaming_jsmf.documents.shares import About, ShareTotals
from streaming_jsmf.ingestion.ingest import IngestRequest
from streaming_jsmf.ingestion.readers.base import limits
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, read_record, write_record
from tests.outcomes import Command, refused

SPEC = """
name = "t"
title = "T"
reader = "{reader}"
[source]
url = "https://example.org"
licence = "CC0"
attribution = "nobody"
[source.files]
"{file}" = {{}}
[read]
{read}
[curation]
stop_words = "{stop_words}"
min_tokens = 1
min_distinct_words = 1
"""
DOCWORD = "2\n3\n4\n1 1 2\n1 2 1\n2 2 1\n2 3 5\n"
RATINGS = "user,item,rating\n1,a,3\n1,b,4\n2,a,5\n"
NAMES = "item,name\na,ant\nb,bee\nc,cat\n"
WORDS = "ant\nbee\ncat\n"
NAMED = {"stop_words": "stop.txt", "file": "docword.t.txt", "vocabulary": "vocab.t.txt", "names": "names.csv"}


def _ingested(folder: Path, named: str, place: str) -> None:
    """Ingest a sound source whose spec has the name ``place`` where ``named`` says."""
    at = {**NAMED, named: place}
    reader, read = "docword", f'vocabulary = "{at["vocabulary"]}"'
    if named == "names":
        reader, read, at["file"] = "ratings", f'names = "{at["names"]}"', "ratings.csv"
    spec = folder / "spec" / "t.toml"
    spec.write_text(SPEC.format(reader=reader, read=read, **at))
    ingest(spec, folder / "corpus", IngestRequest(files=folder / "files"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A spec's directory, that of its files, and another one with the same files."""
    for name in ("spec", "files", "elsewhere"):
        (tmp_path / name).mkdir()
    held = {"docword.t.txt": DOCWORD, "vocab.t.txt": WORDS, "ratings.csv": RATINGS, "names.csv": NAMES}
    for name, text in held.items():
        (tmp_path / "files" / name).write_text(text)
        (tmp_path / "elsewhere" / name).write_text(text)
    for name in ("spec", "elsewhere"):
        (tmp_path / name / "stop.txt").write_text("the\n")
    return tmp_path


NAMED_FIELDS = pytest.mark.parametrize("named", NAMED)


def _linked(path: Path, elsewhere: Path) -> None:
    path.unlink()
    path.symlink_to(elsewhere)


@NAMED_FIELDS
def test_what_a_spec_names_is_read_below_its_directory(folder: Path, named: str) -> None:
    home = folder / ("spec" if named == "stop_words" else "files")
    (home / "deep").mkdir()
    name = NAMED[named]
    if named == "file":  # its word list lies beside it
        (home / "deep" / NAMED["vocabulary"]).write_text(WORDS)
    (home / name).rename(home / "deep" / name)
    (home / "link").symlink_to("deep")
    _ingested(folder, named, f"link/{name}")
    assert (folder / "corpus" / "manifest.json").exists()


@NAMED_FIELDS
@pytest.mark.parametrize(
    "way", ["parent", "absolute", "home", "link", "folder", "device", "pipe", "directory", "large"]
)
def test_what_a_spec_names_does_not_leave_its_directory(
    folder: Path, named: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, name = folder / ("spec" if named == "stop_words" else "files"), NAMED[named]
    monkeypatch.setenv("HOME", str(folder / "elsewhere"))
    monkeypatch.setattr(limits, "LARGEST_NAMES", 100)
    place, path = name, home / name
    if way == "parent":
        place = f"../elsewhere/{name}"
    elif way == "absolute":
        place = str(folder / "elsewhere" / name)
    elif way == "home":
        place = f"~/{name}"
    elif way == "link":
        _linked(path, folder / "elsewhere" / name)
    elif way == "folder":
        (home / "deep").symlink_to(folder / "elsewhere")
        place = f"deep/{name}"
    elif way == "device":
        _linked(path, Path("/dev/null"))
    elif way == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif way == "directory":
        path.unlink()
        path.mkdir()
    elif named == "file":
        pytest.skip("files of documents are read in pieces")
    else:
        path.write_text(path.read_text() + "\n" * 100)
    reason = "(leaves|is a link to a file outside|not a regular file|and 100 are allowed)"
    with pytest.raises(InputError, match=reason) as refused:
        _ingested(folder, named, place)
    assert "\n" not in str(refused.value)
    assert not list(folder.glob("corpus*"))


def test_a_part_outside_the_directory_of_shares_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shares"
    folder.mkdir()
    pq.write_table(pa.table({"document_id": [1], "topic_shares": [[1.0]]}), tmp_path / "other.parquet")
    parts = {"../other.parquet": {"documents": 1, "sha256": ""}}
    about = About("", "", "", 1, None, ShareTotals()).fields(columns=["document_id"], parts=parts)
    (folder / ABOUT_NAME).write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"'\.\./other\.parquet' leaves this directory"):
        documents_of_topic(tmp_path / "model", folder, 0)


def test_a_record_removes_nothing_outside_of_its_store(tmp_path: Path) -> None:
    """A fold removes the one before, whose arrays are where its record says."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "zarr.json").write_text("{}")
    (tmp_path / "mine").mkdir()
    checkpoints = Checkpoints(tmp_path / "store", "range", "make it again")
    checkpoints.commit_fold("a", PartialResult({"sum": np.ones(3)}))
    record = read_record(checkpoints.store, "range-fold-a", "") or {}
    write_record(checkpoints.store, "range-fold-a", {**record, "attempt": "../../mine"})
    with pytest.raises(InputError, match=r"'\.\./\.\./mine' leaves this directory"):
        checkpoints.commit_fold("b", PartialResult({"sum": np.ones(3)}), folds=["a"])
    assert (tmp_path / "mine").is_dir()


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("c/manifest.json", ("info", "c")),
        ("c/vocabulary.parquet", ("scan", "c", "n")),
        ("c/documents/part-00000.parquet", ("scan", "c", "n")),
        ("m/zarr.json", ("infer", "m", "f", "--topics", "2")),
        ("m/word/zarr.json", ("infer", "m", "f", "--topics", "2")),
        ("m/word/c/0", ("infer", "m", "f", "--topics", "2")),  # read by Zarr
    ],
)
@pytest.mark.parametrize("odd", ["fifo", "device"])
def test_a_fifo_or_device_in_a_store_is_not_read(
    file: str, line: tuple[str, ...], odd: str, tmp_path: Path, invoke: Command
) -> None:
    sizes = ("--documents", "40", "--vocabulary-size", "30", "--topics", "3", "--workers", "1")
    assert invoke("simulate", tmp_path / "c", *sizes).code == 0
    assert invoke("scan", tmp_path / "c", tmp_path / "m", "--max-topics", "2", "--workers", "1").code == 0
    place = tmp_path / file
    place.unlink()
    if odd == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    given = [tmp_path / part if part in ("c", "m", "n", "f") else part for part in line]
    refused(invoke(*given).without_progress(), 3, f"{place} is a ", "not a regular file")


@pytest.mark.parametrize("name", ["_shares.json", "part-00000.parquet"])
def test_a_fifo_in_shares_is_not_read(name: str, tmp_path: Path, invoke: Command) -> None:
    os.mkfifo(tmp_path / "fifo")
    refused(invoke("info", tmp_path / "fifo"), 3, f"{tmp_path}/fifo is a named pipe, not a regular file")
    parts = {"part-00000.parquet": {"documents": 1, "sha256": ""}}
    about = About("", "", "", 1, None, ShareTotals()).fields(columns=["document_id"], parts=parts)
    (tmp_path / ABOUT_NAME).write_text(json.dumps(about))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    refused(invoke("documents", tmp_path / "model", tmp_path), 3, f"{tmp_path / name} is a named pipe")
