"""What an ingest does before it reads: CPU and wall-clock seconds, and requests, for a number of files.

    python -m benchmarks.ingest_planning [--files 250 --files 1000] [--kind csv] [--latency 30] [--tree CHECKOUT]

The files, of 20 texts each, are in a folder (``--latency 0``) or in a bucket of a small server in another process,
which answers each request after so many milliseconds and counts it. The ingest runs in a process of its own, to the
start of the pass that reads the source, and with ``--whole`` to its end. With ``--tree``, another version of it
does the same, in turns.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from urllib.request import urlopen

import click
import pyarrow as pa
import pyarrow.parquet as pq

#: Runs in the tree that is measured.
INGEST = """
import json, resource, sys, time
source, target, whole, reader = sys.argv[1:]
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.jobs.execution import Execution
import streaming_jsmf.ingestion.steps

def used():
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in times)

def report():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"wall": time.perf_counter() - began[0], "cpu": used() - began[1], "peak": peak}), flush=True)

def stop(event):
    if whole != "whole" and getattr(event, "stage", "") == "read":
        report()
        raise SystemExit

began = time.perf_counter(), used()
request = IngestRequest(reader=reader or None, curation={"min_document_frequency": 1})
ingest(source, target, request, Execution("threads", 2), stop)
report()
"""

KINDS = ("csv", "parquet", "text-files")
REQUESTS = ("LIST", "HEAD", "GET")
_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


def content(kind: str, number: int) -> bytes:
    """A file of 20 texts of 30 of 3,000 words, or one of these texts."""
    generator = random.Random(number)
    texts = [" ".join(f"word{generator.randrange(3000)}" for _ in range(30)) for _ in range(20)]
    if kind == "text-files":
        return texts[0].encode()
    rows = [(f"{number}-{i}", text) for i, text in enumerate(texts)]
    if kind == "csv":
        return "".join(f"{key},{text}\n" for key, text in [("id", "text"), *rows]).encode()
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [key for key, _ in rows], "text": texts}), sink)
    return sink.getvalue()


def written(kind: str, n_files: int, folder: Path) -> str:
    """Write the files to a folder, and return its name."""
    suffix, name = "txt" if kind == "text-files" else kind, f"{kind}-{n_files}"
    (folder / name).mkdir()
    for number in range(n_files):
        (folder / name / f"{number:06d}.{suffix}").write_bytes(content(kind, number))
    return name


class Bucket(asyncio.Protocol):
    """A connection to a server of the folders of files in ``root``, as prefixes of a bucket: what reading takes."""

    def __init__(self, root: Path, latency: float, counts: Counter[str]) -> None:
        self._root, self._latency, self._counts = root, latency, counts

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:  # requests have no body, and come one at a time
        method, target, headers = re.match(rb"(\w+) (\S+) [^\n]*(.*)", data, re.DOTALL).groups()  # type: ignore[union-attr]
        url = urlsplit(target.decode())
        if url.path == "/counts":
            answer = self._answer("200 OK", json.dumps(self._counts).encode())
            self._counts.clear()
            self._transport.write(answer)
            return
        key, asked = unquote(url.path).strip("/").partition("/")[2], dict(parse_qsl(url.query))
        self._counts["LIST" if not key else method.decode()] += 1
        answer = self._file(key, headers, with_data=method == b"GET") if key else self._listing(asked)
        asyncio.get_running_loop().call_later(self._latency, self._transport.write, answer)

    def _answer(self, status: str, data: bytes, more: str = "", size: int | None = None) -> bytes:
        length = len(data) if size is None else size
        return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{more}\r\n".encode() + data

    def _file(self, key: str, headers: bytes, *, with_data: bool) -> bytes:
        path = self._root / key
        if not path.is_file():
            return self._answer("404 Not Found", b"")
        data = path.read_bytes()
        state = f'ETag: "{len(data)}"\r\nLast-Modified: {_DATE}\r\nAccept-Ranges: bytes\r\n'
        if not with_data:
            return self._answer("200 OK", b"", state, len(data))
        if asked := re.search(rb"(?i)range: bytes=(\d+)-(\d+)", headers):
            first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
            state += f"Content-Range: bytes {first}-{last}/{len(data)}\r\n"
            return self._answer("206 Partial Content", data[first : last + 1], state)
        return self._answer("200 OK", data, state)

    def _listing(self, asked: Mapping[str, str]) -> bytes:
        prefix = asked.get("prefix", "")
        folder = self._root / prefix
        files = sorted(folder.iterdir()) if prefix.endswith("/") and folder.is_dir() else []
        keys = "".join(
            f"<Contents><Key>{prefix}{file.name}</Key><LastModified>2026-01-01T00:00:00Z</LastModified>"
            f"<ETag>&quot;{size}&quot;</ETag><Size>{size}</Size></Contents>"
            for file, size in ((file, file.stat().st_size) for file in files)
        )
        listed = f"<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>"
        return self._answer("200 OK", listed.encode(), "Content-Type: application/xml\r\n")


def serve(folder: str, latency: float) -> None:
    """Serve a folder until the process is ended; prints the port."""

    async def run() -> None:
        counts, loop = Counter[str](), asyncio.get_running_loop()
        server = await loop.create_server(lambda: Bucket(Path(folder), latency, counts), "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def serving(folder: Path, latency: float) -> Iterator[str]:
    """The address of a server of a folder, which s3fs finds through the environment."""
    code = f"from benchmarks.ingest_planning import serve; serve({str(folder)!r}, {latency})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = f"http://127.0.0.1:{int(process.stdout.readline())}"
        keys = {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        os.environ |= {**keys, "AWS_ENDPOINT_URL": address}
        try:
            yield address
        finally:
            process.terminate()


def measured(tree: Path, source: str, kind: str, *, whole: bool) -> dict[str, Any]:
    """Seconds and peak memory (MiB) of the ingest of a tree."""
    with tempfile.TemporaryDirectory() as folder:
        reader = kind if kind == "text-files" else ""
        line = [sys.executable, "-c", INGEST, source, f"{folder}/corpus", "whole" if whole else "", reader]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        done = subprocess.run(line, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{tree}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(
    which: str, kind: str, n_files: int, found: Mapping[str, Any], counts: Mapping[str, int] | None
) -> str:
    """A line of the table."""
    requests = [f"{counts.get(name, 0) / n_files:9.3f}" for name in REQUESTS] if counts is not None else []
    numbers = (f"{found['wall']:8.1f}", f"{found['cpu']:8.1f}", f"{1000 * found['cpu'] / n_files:8.2f}")
    return " ".join([f"{which:6s} {kind:10s} {n_files:8,d}", *numbers, f"{found['peak']:9,d}", *requests])


@click.command(help=(__doc__ or "").split("\n\n", maxsplit=1)[0])
@click.option("--files", default=(250, 1000), multiple=True)
@click.option("--kind", "kinds", default=KINDS, multiple=True, type=click.Choice(KINDS))
@click.option("--latency", default=30.0, help="Milliseconds of each request; 0 reads a local folder.")
@click.option("--whole", is_flag=True, help="Measure the whole ingest.")
@click.option("--tree", type=click.Path(path_type=Path, exists=True), help="Checkout of another version.")
def main(files: Sequence[int], kinds: Sequence[str], latency: float, whole: bool, tree: Path | None) -> None:
    trees = {"this": Path(__file__).resolve().parents[1]} | (
        {} if tree is None else {"other": tree.resolve()}
    )
    print(
        "tree   kind          files   wall s    CPU s  ms/file  peak MiB",
        *(f"{name:>9s}" for name in REQUESTS),
    )
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        address = stack.enter_context(serving(folder, latency / 1000)) if latency else None
        for kind in kinds:
            for n_files in files:
                place = written(kind, n_files, folder)
                source = str(folder / place) if address is None else f"s3://bucket/{place}"
                for which, path in trees.items():
                    found, counts = measured(path, source, kind, whole=whole), None
                    if address is not None:
                        with urlopen(f"{address}/counts") as answer:
                            counts = json.load(answer)
                    print(row(which, kind, n_files, found, counts), flush=True)


if __name__ == "__main__":
    main()
