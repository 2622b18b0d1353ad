"""Fetching against a real local server: whole files, broken transfers, wrong hashes, files placed by hand."""

from __future__ import annotations

import gc
import gzip
import hashlib
import os
import signal
import socket
import sys
import threading
import tomllib
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from logging.handlers import BufferingHandler
from pathlib import Path

import pooch
import pytest

from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.fetch import RemoteFile, fetch_files
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


@dataclass
class Site:
    """A server, the answers it knows, and the paths it was asked for."""

    url: str
    answers: dict[str, Answer]
    asked: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        site = self.server.site
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
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.site = Site(f"http://127.0.0.1:{server.server_address[1]}", {})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.site
    server.site.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(directory: Path, *files: RemoteFile, progress=False) -> dict[str, str]:
    return fetch_files(files, directory, page=PAGE, progress=progress)


@contextmanager
def refused(directory: Path, *parts: str):
    """An InputError of one line with all parts in it, and the same files in the directory as before."""
    before = contents(directory)
    with pytest.raises(InputError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700
    for part in parts:
        assert part in message
    assert contents(directory) == before


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def has_bytes(directory: Path) -> bool:
    """Whether some file there is not empty; files may come and go meanwhile."""
    with os.scandir(directory) as entries, suppress(FileNotFoundError):
        return any(entry.stat().st_size for entry in entries)
    return False


def test_a_file_is_downloaded_once_and_verified_afterwards(site, tmp_path):
    site.answers["/data/a.bin"] = Answer()
    file = RemoteFile("a.bin", f"{site.url}/data/a.bin", sha256(BODY))
    assert fetch(tmp_path, file) == {"a.bin": sha256(BODY)}
    assert contents(tmp_path) == {"a.bin": BODY}
    assert fetch(tmp_path, file) == {"a.bin": sha256(BODY)}
    assert site.asked == ["/data/a.bin"]


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
    assert contents(tmp_path) == {"b": b"by hand", "c": b"", "deep/er/a": b"first"}


def test_the_directory_is_made_and_the_file_has_the_usual_rights(site, tmp_path):
    site.answers["/a"] = Answer()
    fetch(tmp_path / "new" / "place", RemoteFile("a", f"{site.url}/a"))
    usual = tmp_path / "usual"
    usual.touch()
    assert (tmp_path / "new" / "place" / "a").stat().st_mode == usual.stat().st_mode


@pytest.mark.parametrize("known", [True, False])
def test_a_transfer_cut_short_leaves_nothing_and_the_file_can_be_placed_by_hand(site, tmp_path, known):
    site.answers["/a.bin"] = Answer(BODY[:1_500_000], length=len(BODY))
    url = f"{site.url}/a.bin"
    file = RemoteFile("a.bin", url, sha256(BODY) if known else None)
    by_hand = f"download {url} (or find it at {PAGE}) and place it at {tmp_path / 'a.bin'}, then run the same"
    with refused(tmp_path, "cannot fetch a.bin", "ended the transfer early", by_hand):
        fetch(tmp_path, file)
    (tmp_path / "a.bin").write_bytes(BODY)
    assert fetch(tmp_path, file) == {"a.bin": sha256(BODY)}


def test_an_http_error_names_status_url_and_place(site, tmp_path):
    url = f"{site.url}/gone.gz"
    with refused(tmp_path, "answers 404", f"download {url} ", PAGE, str(tmp_path / "x" / "gone.gz")):
        fetch(tmp_path, RemoteFile("x/gone.gz", url))


def test_files_fetched_before_a_failure_stay(site, tmp_path):
    site.answers["/a"] = Answer()
    good, bad = RemoteFile("a", f"{site.url}/a"), RemoteFile("b", f"{site.url}/b")
    with pytest.raises(InputError, match="answers 404"):
        fetch(tmp_path, good, bad)
    assert contents(tmp_path) == {"a": BODY}
    site.answers["/b"] = Answer(b"late")
    fetch(tmp_path, good, bad)
    assert site.asked == ["/a", "/b", "/b"]


def test_without_a_server_the_message_is_short(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        host = f"127.0.0.1:{unused.getsockname()[1]}"
        with refused(tmp_path, f"no connection to {host}", "place it at"):
            fetch(tmp_path, RemoteFile("a", f"http://{host}/a", "0" * 64))


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/none/a", "http://", "http://[::1/a"])
def test_urls_that_lead_nowhere(tmp_path, url):
    with refused(tmp_path, "cannot fetch a", f"download {url} "):
        fetch(tmp_path, RemoteFile("a", url))


def test_another_kind_of_url_is_refused(tmp_path):
    with refused(tmp_path, "cannot fetch s3://bucket/a", "only http, https and ftp"):
        fetch(tmp_path, RemoteFile("a", "s3://bucket/a"))


def test_a_download_with_another_hash_is_not_kept(site, tmp_path):
    site.answers["/a"] = Answer(b"tampered")
    with refused(tmp_path, sha256(b"tampered"), sha256(BODY), "correct the URL or the hash"):
        fetch(tmp_path, RemoteFile("a", f"{site.url}/a", sha256(BODY)))


def test_a_file_of_the_user_with_another_hash_is_left_alone(site, tmp_path):
    site.answers |= {"/a": Answer(), "/b": Answer()}
    (tmp_path / "a").write_bytes(b"my own")
    files = [RemoteFile("b", f"{site.url}/b"), RemoteFile("a", f"{site.url}/a", sha256(BODY))]
    with refused(tmp_path, str(tmp_path / "a"), sha256(b"my own")[:12], sha256(BODY)[:12], "move it away"):
        fetch(tmp_path, *files)
    assert site.asked == []  # found out before anything was downloaded


def test_all_files_without_a_url_are_named_before_a_download(site, tmp_path):
    site.answers["/a"] = Answer()
    files = [RemoteFile("a", f"{site.url}/a"), *(RemoteFile(f"part-{i}") for i in range(6))]
    (tmp_path / "part-2").touch()
    listed = ", ".join(str(tmp_path / f"part-{i}") for i in (0, 1, 3, 4))
    with refused(
        tmp_path, f"{listed} and 1 more; find what is missing at {PAGE}", "run the same command again"
    ):
        fetch(tmp_path, *files)
    assert site.asked == []


def test_a_directory_in_place_of_a_file_and_a_file_in_place_of_the_directory(site, tmp_path):
    (tmp_path / "a").mkdir()
    with refused(tmp_path, f"{tmp_path / 'a'} is not a regular file"):
        fetch(tmp_path, RemoteFile("a", f"{site.url}/a"))
    (tmp_path / "file").touch()
    with refused(tmp_path, f"cannot make {tmp_path / 'file'}", "choose another directory"):
        fetch(tmp_path / "file", RemoteFile("a", f"{site.url}/a"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_the_right_to_write(site, tmp_path):
    site.answers["/a"] = Answer()
    tmp_path.chmod(0o500)
    with refused(tmp_path, str(tmp_path), "cannot be written to"):
        fetch(tmp_path, RemoteFile("a", f"{site.url}/a"))
    tmp_path.chmod(0o700)


def test_a_local_file_is_not_copied(tmp_path):
    (tmp_path / "private").write_bytes(BODY)
    with refused(tmp_path, "only http, https and ftp are known", "--files"):
        fetch(tmp_path / "to", RemoteFile("a", (tmp_path / "private").as_uri(), sha256(BODY)))
    assert not (tmp_path / "to").exists()


def test_a_stored_gz_is_not_unpacked_though_the_server_calls_it_an_encoding(site, tmp_path):
    packed = gzip.compress(BODY, mtime=0)
    site.answers["/a.txt.gz?v=1"] = Answer(packed, headers={"Content-Encoding": "gzip"})
    found = fetch(tmp_path, RemoteFile("a.txt.gz", f"{site.url}/a.txt.gz?v=1", sha256(packed)))
    assert found == {"a.txt.gz": sha256(packed)}


def test_nothing_is_printed_but_the_bar(site, tmp_path, capfd):
    site.answers["/a"] = Answer()
    handler = BufferingHandler(100)
    logger = pooch.get_logger()
    logger.addHandler(handler)
    level = logger.level
    try:
        fetch(tmp_path, RemoteFile("a", f"{site.url}/a"))
        assert capfd.readouterr() == ("", "")
        fetch(tmp_path, RemoteFile("b", f"{site.url}/a"), progress=True)
    finally:
        logger.removeHandler(handler)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "100%" in printed.err
    assert handler.buffer == []
    assert logger.level == level


@pytest.mark.parametrize("url", ["{site}/gone", "ftp://127.0.0.1/none/a"])
def test_a_refused_request_leaves_no_connection_open(site, tmp_path, url):
    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with refused(tmp_path, "cannot fetch a"):
            fetch(tmp_path, RemoteFile("a", url.format(site=site.url)))
        gc.collect()
    assert found == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_download_leaves_nothing_under_the_name(site, tmp_path, how):
    site.answers["/a"] = Answer(BODY[:-1], length=len(BODY), hold=True)
    call = f"fetch_files([RemoteFile('a', '{site.url}/a')], Path({str(tmp_path)!r}), page='', progress=False)"
    code = f"from pathlib import Path\nfrom streaming_jsmf.ingestion.readers.fetch import *\n{call}"
    with started([sys.executable, "-c", code]) as child:
        wait_for(child, lambda: has_bytes(tmp_path))
        child.send_signal(how)
        child.wait(PATIENCE)
    assert "a" not in contents(tmp_path)
    if how == signal.SIGINT:
        assert contents(tmp_path) == {}
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
        assert len(digits) == 64
        assert len(set(digits)) > 8  # no placeholder
        assert set(digits) <= set("0123456789abcdef")
