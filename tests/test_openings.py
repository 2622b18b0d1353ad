"""How often files are opened and requested: each is looked at once, read once, and not opened again by the next run."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random

import pytest

import streaming_jsmf as sj
from streaming_jsmf.errors import SettingsMismatchError
from streaming_jsmf.ingestion.formats.delimited import DelimitedFormat
from streaming_jsmf.ingestion.sources.protocol import Unit, limits
from streaming_jsmf.storage.heads import HEAD
from tests.cases import first_cases
from tests.outcomes import invoked
from tests.processes import ended
from tests.test_object_stores import serving

N_TEXTS = 61
HERE = {"scheduler": "synchronous"}

_watched: list[str] = []
_opened: list[str] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _watched and event == "open" and str(arguments[0]).startswith(_watched[0]):
        _opened.append(str(arguments[0]))


sys.addaudithook(_hook)  # it cannot be removed


@contextmanager
def openings(folder: Path) -> Iterator[list[str]]:
    """The paths of the files in a folder that are opened in the block."""
    _opened.clear()
    _watched[:] = [str(folder)]
    try:
        yield _opened
    finally:
        _watched.clear()


def texts(path: Path, n: int = N_TEXTS, words: int = 20) -> Path:
    random = Random(0)
    vocabulary = [f"word{number}" for number in range(2000)]
    rows = "".join(f"d{i},{' '.join(random.choices(vocabulary, k=words))},{1990 + i % 9}\n" for i in range(n))
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"id,text,year\n{rows}")
    return path


@pytest.mark.parametrize("reader", ["text", "lines", "json", "text-files"])
def test_a_small_file_is_opened_twice_and_not_again(tmp_path: Path, reader: str) -> None:
    source = texts(tmp_path / "source" / "texts.csv")
    lines = source.read_text().splitlines()[1:]
    options = {**HERE, "min_df": 1, **({"reader": reader} if reader in ("lines", "text-files") else {})}
    if reader == "lines":
        source = source.rename(source.with_name("texts.txt"))
        source.write_text("\n".join(lines))
    elif reader == "json":
        source = source.rename(source.with_name("texts.jsonl"))
        source.write_text("".join(f'{{"text": "{line}"}}\n' for line in lines))
    elif reader == "text-files":
        source.unlink()
        source = source.parent
        for i, line in enumerate(lines):
            (source / f"{i}.txt").write_text(line)
    n_files = N_TEXTS if reader == "text-files" else 1
    with openings(tmp_path / "source") as opened:
        made = sj.ingest(source, tmp_path / "corpus", **options)
    assert n_files <= len(opened) <= 3 * n_files, opened
    with openings(tmp_path / "source") as opened:
        again = sj.ingest(source, tmp_path / "corpus", **options)
    assert (opened, again.fingerprint) == ([], made.fingerprint)


def test_a_file_that_was_edited_is_seen_although_its_size_and_time_are_as_before(tmp_path: Path) -> None:
    source = texts(tmp_path / "texts.csv")
    made = sj.ingest(source, tmp_path / "corpus", min_df=1, **HERE)
    before = source.stat()
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
    assert sj.ingest(source, tmp_path / "corpus", min_df=1, **HERE).fingerprint == made.fingerprint
    source.write_text(source.read_text().replace("word1", "wordy", 1))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.stat().st_size == before.st_size
    with pytest.raises(SettingsMismatchError, match="was made of other input"):
        sj.ingest(source, tmp_path / "corpus", min_df=1, **HERE)


@pytest.mark.slow
def test_a_run_with_nothing_to_do_does_not_import_numba(tmp_path: Path) -> None:
    source = texts(tmp_path / "texts.csv")
    sj.ingest(source, tmp_path / "corpus", **HERE)
    code = f"""
import sys
import threading
from streaming_jsmf.cli.main import run
assert run(["ingest", {str(source)!r}, {str(tmp_path / "corpus")!r}, "--quiet"]) == 0
print("imported:", *{{"numba"}} & sys.modules.keys())
"""
    assert ended([sys.executable, "-c", code]).out.endswith("imported:\n")


def test_options_of_another_run_and_files_of_words_are_compared(tmp_path: Path) -> None:
    source, listed = texts(tmp_path / "texts.csv"), tmp_path / "stop.txt"
    listed.write_text("word1\n")
    sj.ingest(source, tmp_path / "corpus", min_df=1, stop_words=str(listed), **HERE)
    listed.write_text("word2\n")
    with pytest.raises(SettingsMismatchError, match="stop words are others"):
        sj.ingest(source, tmp_path / "corpus", min_df=1, stop_words=str(listed), **HERE)
    with pytest.raises(SettingsMismatchError, match="min_document_frequency"):
        sj.ingest(source, tmp_path / "corpus", min_df=2, stop_words=str(listed), **HERE)


class Requests:
    """The methods, and the first and last bytes, that a server of a folder was asked for."""

    def __init__(self) -> None:
        self.has_ranges = True
        self.methods: list[str] = []
        self.ranges: list[tuple[int, int]] = []

    @property
    def n_bytes(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def clear(self) -> None:
        self.methods.clear()
        self.ranges.clear()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Requests]]:
    """The address of a server of ``tmp_path``, with ranges and ETags, and what it was asked for."""
    requests = Requests()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            requests.methods.append(self.command)
            path = tmp_path / self.path.lstrip("/")
            if not path.is_file():
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = path.read_bytes()
            size, asked = len(data), re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            asked = asked if requests.has_ranges else None
            if asked is not None:
                first, last = int(asked[1]), min(int(asked[2]), size - 1)
                data = data[first : last + 1]
            self.send_response(200 if asked is None else 206)
            if asked is not None:
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{size}"')
            self.end_headers()
            if self.command == "GET":
                requests.ranges.append((0, size - 1) if asked is None else (first, last))
                with suppress(OSError):  # the client has what it needs
                    self.wfile.write(data)

        do_GET = do_HEAD

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as address:
        yield address, requests


def test_a_file_on_a_web_server_is_read_once_and_asked_for_once_by_the_next_run(
    tmp_path: Path, site: tuple[str, Requests]
) -> None:
    address, requests = site
    size = texts(tmp_path / "texts.csv", 9000, 100).stat().st_size
    assert size > 4 * HEAD
    made = sj.ingest(f"{address}/texts.csv", tmp_path / "corpus", **HERE)
    assert requests.methods.count("HEAD") == 2  # of the plan and of the pass
    assert requests.ranges[0] == (0, HEAD - 1)
    read = sorted(requests.ranges[1:])
    assert [first for first, _ in read] == [0, *(last + 1 for _, last in read[:-1])]
    assert requests.n_bytes == HEAD + size
    requests.clear()
    again = sj.ingest(f"{address}/texts.csv", tmp_path / "corpus", **HERE)
    assert (requests.methods, again.fingerprint) == (["HEAD"], made.fingerprint)
    requests.clear()
    texts(tmp_path / "texts.csv", 8000, 100)
    with pytest.raises(SettingsMismatchError, match="was made of other input"):
        sj.ingest(f"{address}/texts.csv", tmp_path / "corpus", **HERE)
    assert requests.n_bytes == HEAD


@pytest.mark.parametrize("suffix", first_cases(["csv", "json"]))
def test_a_web_server_without_ranges(tmp_path: Path, site: tuple[str, Requests], suffix: str) -> None:
    """A document of JSON is also read while planning, beyond the head."""
    address, requests = site
    path = texts(tmp_path / "texts.csv", 9000, 100)
    if suffix == "json":
        rows = [{"text": line.split(",")[1]} for line in path.read_text().splitlines()[1:]]
        path = path.with_suffix(".json")
        path.write_text(json.dumps(rows))
    assert path.stat().st_size > 5 << 20
    requests.has_ranges = False
    made = sj.ingest(f"{address}/{path.name}", tmp_path / "corpus", **HERE)
    assert made.fingerprint == sj.ingest(path, tmp_path / "other", **HERE).fingerprint


def test_an_update_of_unchanged_files_on_a_web_server_reads_none(
    tmp_path: Path, site: tuple[str, Requests]
) -> None:
    address, requests = site
    texts(tmp_path / "texts.csv", 300)
    sj.fit(f"{address}/texts.csv", tmp_path / "model", 3, min_df=1, polish=False, **HERE)
    requests.clear()
    sj.update(tmp_path / "model", f"{address}/texts.csv", **HERE)
    assert {*requests.methods} == {"HEAD"}
    texts(tmp_path / "texts.csv", 310)
    sj.update(tmp_path / "model", f"{address}/texts.csv", **HERE)
    assert sj.TopicModel(tmp_path / "model").corpus.n_documents == 310


def test_the_parts_of_a_file_on_a_web_server_are_read_once_in_each_pass(
    tmp_path: Path, site: tuple[str, Requests], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, requests = site
    size = texts(tmp_path / "texts.csv", 9000, 100).stat().st_size
    monkeypatch.setattr(limits, "UNIT_BYTES", size // 3)
    made = sj.ingest(f"{address}/texts.csv", tmp_path / "corpus", **HERE)
    # One pass finds the parts, and one reads them; a part ends within what is read at once.
    assert requests.n_bytes <= HEAD + 2 * size + 3 * (4 << 20)
    assert made.fingerprint == sj.ingest(tmp_path / "texts.csv", tmp_path / "other", **HERE).fingerprint


def many(folder: Path, n_files: int) -> Path:
    folder.mkdir()
    for i in range(n_files):
        (folder / f"{i}.csv").write_text(f"id,text\n{i},ant bee{i} cat\n")
    return folder


def test_files_are_looked_at_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, together, units = many(tmp_path / "source", 30), threading.Barrier(30), DelimitedFormat.units

    def waiting(form: DelimitedFormat, path: str, options: object) -> list[Unit]:
        together.wait(timeout=60)
        return units(form, path, options)

    monkeypatch.setattr(DelimitedFormat, "units", waiting)
    assert sj.ingest(source, tmp_path / "corpus", min_df=1, **HERE).n_documents == 30


def test_a_long_plan_reports_its_progress(tmp_path: Path) -> None:
    source = many(tmp_path / "source", 70)
    told = invoked("ingest", source, tmp_path / "corpus", "--min-df", "1").err
    assert "looking at the files: 2 of 3 parts" in told
    few = many(tmp_path / "few", 3)
    assert "looking at" not in invoked("ingest", few, tmp_path / "other", "--min-df", "1").err
