"""Fetching against a real local server: whole files, broken transfers, wrong hashes, files placed by hand."""

from __future__ import annotations

import gc
import gzip
import hashlib
import os
import re
import signal
import socket
import sys
import threading
import tomllib
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.spec import FileEntry, fetch_files
from tests.corpora import file_bytes
from tests.processes import PATIENCE, started, wait_for

PAGE = "https://example.org/the-set"
BODY = bytes(range(256)) * 12_000  # more than one piece of a download
SPECS = sorted((Path(__file__).parent.parent / "data_specs").glob("*.toml"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Answer:
    """What the server sends for a path: its length and headers may be lies."""

    body: bytes = BODY
    length: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    hold: bool = False  # keep the connection open after the body


class Site(ThreadingHTTPServer):
    """A server, the answers it knows, and the paths it was asked for."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.released = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        site = self.server
        site.asked.append(self.path)
        answer = site.answers.get(self.path)
        if answer is None:
            self.send_error(404)
            return
        self.send_response(200)
        length = len(answer.body) if answer.length is None else answer.length
        self.send_header("Content-Length", str(length))
        for key, value in answer.headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(answer.body)
        self.wfile.flush()
        if answer.hold:
            site.released.wait(PATIENCE)

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    server = Site()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class RemoteFile:
    name: str
    url: str | None = None
    sha256: str | None = None


def fetch(directory: Path, *files: RemoteFile, progress=False) -> dict[str, str]:
    entries = {file.name: FileEntry(url=file.url, sha256=file.sha256) for file in files}
    return fetch_files(entries, directory, page=PAGE, progress=progress)


def refused(directory: Path, *parts: str, files: Sequence[RemoteFile], into: Path | None = None) -> None:
    """Require an error of one line with all parts in it, and no change to the files of the directory."""
    before = file_bytes(directory)
    with pytest.raises(InputError) as caught:
        fetch(into or directory, *files)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700
    for part in parts:
        assert part in message
    assert file_bytes(directory) == before


def has_bytes(directory: Path) -> bool:
    """Whether some file there is not empty; files may come and go meanwhile."""
    with os.scandir(directory) as entries, suppress(FileNotFoundError):
        return any(entry.stat().st_size for entry in entries)
    return False


def test_a_file_is_downloaded_once_and_has_the_usual_rights(site, tmp_path):
    site.answers["/data/a.bin"] = Answer()
    folder = tmp_path / "new" / "place"
    file = RemoteFile("a.bin", f"{site.url}/data/a.bin", sha256(BODY))
    for _ in range(2):
        assert fetch(folder, file) == {"a.bin": sha256(BODY)}
        assert file_bytes(folder) == {"a.bin": BODY}
    assert site.asked == ["/data/a.bin"]
    (tmp_path / "usual").touch()
    assert (folder / "a.bin").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_an_unknown_hash_is_found_and_the_order_of_the_files_kept(site, tmp_path):
    site.answers |= {"/a": Answer(b"first"), "/c": Answer(b"")}
    (tmp_path / "b").write_bytes(b"by hand")
    files = [RemoteFile("c", f"{site.url}/c"), RemoteFile("b"), RemoteFile("deep/er/a", f"{site.url}/a")]
    found = fetch(tmp_path, *files)
    assert list(found.items()) == [
        ("c", sha256(b"")),
        ("b", sha256(b"by hand")),
        ("deep/er/a", sha256(b"first")),
    ]
    assert file_bytes(tmp_path) == {"b": b"by hand", "c": b"", "deep/er/a": b"first"}


@pytest.mark.parametrize("known", [True, False])
def test_a_transfer_cut_short_leaves_nothing_and_the_file_can_be_placed_by_hand(site, tmp_path, known):
    site.answers["/a.bin"] = Answer(BODY[:1_500_000], length=len(BODY))
    file = RemoteFile("a.bin", f"{site.url}/a.bin", sha256(BODY) if known else None)
    refused(tmp_path, "a.bin", "early", file.url, PAGE, str(tmp_path / "a.bin"), files=[file])
    (tmp_path / "a.bin").write_bytes(BODY)
    assert fetch(tmp_path, file) == {"a.bin": sha256(BODY)}


def test_a_missing_file_is_named_with_its_place_and_those_before_it_stay(site, tmp_path):
    site.answers["/a"] = Answer()
    files = [RemoteFile("a", f"{site.url}/a"), RemoteFile("x/b", f"{site.url}/b")]
    fetch(tmp_path, files[0])
    (tmp_path / "a").unlink()
    with pytest.raises(InputError) as caught:
        fetch(tmp_path, *files)
    assert all(
        part in str(caught.value) for part in ("404", f" {site.url}/b ", PAGE, str(tmp_path / "x" / "b"))
    )
    assert file_bytes(tmp_path) == {"a": BODY}
    site.answers["/b"] = Answer(b"late")
    fetch(tmp_path, *files)
    assert site.asked == ["/a", "/a", "/b", "/b"]


def test_a_server_that_refuses_connections_is_named(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening
        host = f"127.0.0.1:{unused.getsockname()[1]}"
        refused(tmp_path, host, str(tmp_path / "a"), files=[RemoteFile("a", f"http://{host}/a", "0" * 64)])


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        *((url, (f" {url} ",)) for url in ("http://", "http://[::1/a")),
        ("s3://bucket/a", ("s3://bucket/a", "http and https")),
        ("file://{folder}/private", ("http and https", "(files)")),
    ],
)
def test_urls_that_cannot_be_fetched_are_named(tmp_path, url, parts):
    (tmp_path / "private").write_bytes(BODY)
    file = RemoteFile("a", url.format(folder=tmp_path), sha256(BODY))
    refused(tmp_path, "cannot fetch", *parts, files=[file])


def test_files_with_another_hash_are_not_kept_or_left_alone(site, tmp_path):
    site.answers |= {"/a": Answer(b"tampered"), "/b": Answer()}
    files = [RemoteFile("b", f"{site.url}/b"), RemoteFile("a", f"{site.url}/a", sha256(BODY))]
    refused(tmp_path, sha256(b"tampered"), sha256(BODY), files=files[1:])
    site.asked.clear()
    (tmp_path / "a").write_bytes(b"my own")
    hashes = (sha256(b"my own")[:12], sha256(BODY)[:12])
    refused(tmp_path, str(tmp_path / "a"), *hashes, "move it away", files=files)
    assert site.asked == []  # found out before anything was downloaded


def test_all_files_without_a_url_are_named_before_a_download(site, tmp_path):
    site.answers["/a"] = Answer()
    files = [RemoteFile("a", f"{site.url}/a"), *(RemoteFile(f"part-{i}") for i in range(6))]
    (tmp_path / "part-2").touch()
    listed = ", ".join(str(tmp_path / f"part-{i}") for i in (0, 1, 3, 4))
    refused(tmp_path, f"{listed} and 1 more", PAGE, files=files)
    assert site.asked == []


def test_a_directory_in_place_of_a_file_and_a_file_in_place_of_the_directory(site, tmp_path):
    files = [RemoteFile("a", f"{site.url}/a")]
    (tmp_path / "a").mkdir()
    refused(tmp_path, str(tmp_path / "a"), "not a regular file", files=files)
    (tmp_path / "file").touch()
    refused(tmp_path, str(tmp_path / "file"), "directory", files=files, into=tmp_path / "file")


def test_a_stored_gz_is_not_unpacked_though_the_server_calls_it_an_encoding(site, tmp_path):
    packed = gzip.compress(BODY, mtime=0)
    site.answers["/a.txt.gz?v=1"] = Answer(packed, headers={"Content-Encoding": "gzip"})
    found = fetch(tmp_path, RemoteFile("a.txt.gz", f"{site.url}/a.txt.gz?v=1", sha256(packed)))
    assert found == {"a.txt.gz": sha256(packed)}


def test_a_refused_request_leaves_no_connection_open(site, tmp_path):
    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        refused(tmp_path, "cannot fetch a", files=[RemoteFile("a", f"{site.url}/gone")])
        gc.collect()
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_download_leaves_nothing_under_the_name(site, tmp_path, how):
    site.answers["/a"] = Answer(BODY[:-1], length=len(BODY), hold=True)
    entry = f"{{'a': FileEntry(url='{site.url}/a')}}"
    call = f"fetch_files({entry}, Path({str(tmp_path)!r}), page='', progress=False)"
    code = f"from pathlib import Path\nfrom streaming_jsmf.ingestion.spec import *\n{call}"
    with started([sys.executable, "-c", code]) as child:
        wait_for(child, lambda: has_bytes(tmp_path))
        child.send_signal(how)
        child.wait(PATIENCE)
    assert "a" not in file_bytes(tmp_path)
    if how == signal.SIGINT:
        assert file_bytes(tmp_path) == {}
    site.answers["/a"] = Answer()
    assert fetch(tmp_path, RemoteFile("a", f"{site.url}/a")) == {"a": sha256(BODY)}


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_shipped_specs_say_where_the_data_is_from_and_invent_no_hash(spec):
    raw = tomllib.loads(spec.read_text(encoding="utf-8"))
    assert raw["name"] == spec.stem
    source = raw["source"]
    assert source["url"].startswith(("https://", "http://"))
    assert source["licence"]
    assert source["licence"].split(" (")[0] in source["attribution"]
    for name, entry in source.get("files", {}).items():
        assert not name.startswith("/")
        assert set(entry) <= {"url", "sha256"}
        assert entry.get("url", "https://").startswith("https://")
        digits = entry.get("sha256", "0123456789abcdef" * 4)
        assert re.fullmatch("[0-9a-f]{64}", digits)
        assert len(set(digits)) > 8  # no placeholder
