"""What an ingest does before it reads: CPU and wall-clock seconds, and requests, for a number of files.

    python -m benchmarks.ingest_planning [--files 250 --files 1000] [--kind csv] [--latency 30] [--tree CHECKOUT]

The files, of 20 texts each, are in a folder (``--latency 0``) or in a bucket of moto's server in this process, which
answers each request after so many milliseconds. The ingest runs in a process of its own, to the start of the pass that
reads the source, and with ``--whole`` to its end. With ``--tree``, another version of the package does the same, in
turns.
"""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.s3_requests import BUCKET, Counts, counting_server

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


@contextmanager
def written(kind: str, n_files: int, folder: Path, counts: Counts | None) -> Iterator[str]:
    """Write the files to a folder, or to the bucket, and yield their place."""
    suffix = "txt" if kind == "text-files" else kind
    name = f"{kind}-{n_files}"
    place = folder / name
    place.mkdir()
    for number in range(n_files):
        (place / f"{number:06d}.{suffix}").write_bytes(content(kind, number))
    if counts is None:
        yield str(place)
        return
    fsspec.filesystem("s3", use_listings_cache=False).put(f"{place}/", f"{BUCKET}/{name}/", recursive=True)
    yield f"s3://{BUCKET}/{name}"


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


def row(which: str, kind: str, n_files: int, found: dict[str, Any], counts: Counts | None) -> str:
    """A line of the table."""
    requests = [f"{counts[name] / n_files:9.2f}" for name in ("LIST", "HEAD", "GET")] if counts else []
    numbers = (f"{found['wall']:8.1f}", f"{found['cpu']:8.1f}", f"{1000 * found['cpu'] / n_files:8.2f}")
    return " ".join([f"{which:6s} {kind:10s} {n_files:8,d}", *numbers, f"{found['peak']:8,d}", *requests])


@click.command(help=(__doc__ or "").split("\n\n", maxsplit=1)[0])
@click.option("--files", default=(250, 1000), multiple=True)
@click.option("--kind", "kinds", default=KINDS, multiple=True, type=click.Choice(KINDS))
@click.option("--latency", default=30.0, help="Milliseconds of each request; 0 reads a local folder.")
@click.option("--whole", is_flag=True, help="Measure the whole ingest.")
@click.option("--tree", type=click.Path(path_type=Path, exists=True), help="Checkout of another version.")
def main(
    files: tuple[int, ...], kinds: tuple[str, ...], latency: float, whole: bool, tree: Path | None
) -> None:
    trees = {"this": Path(__file__).resolve().parents[1]}
    if tree is not None:
        trees["other"] = tree.resolve()
    print(
        "tree   kind          files   wall s    CPU s ms/file  peak MiB"
        + "     LIST      HEAD       GET" * (latency > 0)
    )
    server = counting_server(lambda: time.sleep(latency / 1000)) if latency else nullcontext()
    with tempfile.TemporaryDirectory() as folder, server as counts:
        for kind in kinds:
            for n_files in files:
                with written(kind, n_files, Path(folder), counts) as source:
                    for which, path in trees.items():
                        if counts is not None:
                            counts.clear()
                        print(
                            row(which, kind, n_files, measured(path, source, kind, whole=whole), counts),
                            flush=True,
                        )


if __name__ == "__main__":
    main()
