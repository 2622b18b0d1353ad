"""Requests and bytes of a scan, an inference and the opening of a corpus on S3, counted at the server.

    python -m benchmarks.s3_requests [--documents 20000] [--partitions 11]

Starts moto's server in this process, puts a random corpus into a bucket, with its manifest and as plain Parquet, and
prints for each step the requests by kind, those for each partition, and the bytes moved in both directions. The corpus
has two shards of many small row groups, and metadata that a scan does not read.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

import click
import fsspec
import numpy as np
import pyarrow as pa
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from streaming_jsmf import infer, open_corpus, open_moments, scan
from streaming_jsmf.corpus import footer
from streaming_jsmf.corpus.bags import Bags, Documents
from streaming_jsmf.corpus.shards import ShardLimits
from streaming_jsmf.corpus.write import CorpusWriter

BUCKET = "bucket"


class Counts(Counter[str]):
    """Requests by kind, ``read`` and ``written`` bytes; requests, also by kind, and bytes read for each object."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: Counter[str] = Counter()
        self.kinds: Counter[tuple[str, str]] = Counter()
        self.bytes: Counter[str] = Counter()

    @property
    def requests(self) -> int:
        return self.total() - self["read"] - self["written"]

    def clear(self) -> None:
        super().clear()
        for others in (self.paths, self.kinds, self.bytes):
            others.clear()


@contextmanager
def counting_server() -> Iterator[Counts]:
    """Start moto's server with an empty bucket, and yield its counts; s3fs finds it through the environment."""
    app, counts, lock = DomainDispatcherApplication(create_backend_app), Counts(), threading.Lock()

    def counted(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        lists = environ["REQUEST_METHOD"] == "GET" and "/" not in path.strip("/")
        kind = "LIST" if lists else environ["REQUEST_METHOD"]

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            length = int(dict(headers).get("Content-Length", 0))
            with lock:
                counts[kind] += 1
                read = length if kind in ("GET", "LIST") else 0
                counts["read"] += read
                counts.bytes[path] += read
                counts.kinds[kind, path] += 1
                counts["written"] += int(environ.get("CONTENT_LENGTH") or 0)
                counts.paths[path] += 1
            return respond(status, headers, *rest)

        return app(environ, start)  # type: ignore[no-any-return]

    class Silent(WSGIRequestHandler):
        def log(self, *_: object) -> None: ...

    server = make_server("127.0.0.1", 0, counted, threaded=True, request_handler=Silent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        with patch.dict(os.environ, found):
            # Connections to another server of this process, whose buckets moto keeps.
            fsspec.get_filesystem_class("s3").clear_instance_cache()
            urlopen(Request(f"{found['AWS_ENDPOINT_URL']}/moto-api/reset", method="POST")).close()
            fsspec.filesystem("s3", use_listings_cache=False).mkdir(BUCKET)
            yield counts
    finally:
        server.shutdown()
        thread.join()


def write_corpus(path: Path, documents: int, nonzeros_per_row_group: int, metadata: int = 1000) -> int:
    """Write random documents of 50 of 2,000 words with metadata of so many bytes each; return the nonzeros."""
    rng, words = np.random.default_rng(0), 2000
    starts = np.sort(rng.integers(0, words // 50, (documents, 50)), axis=1)
    ids = (np.arange(50) * (words // 50) + starts).astype(np.int32).ravel()
    counts = rng.poisson(1, ids.size).astype(np.int32) + 1
    notes = pa.array([rng.bytes(metadata // 2).hex() for _ in range(documents)])
    bags = Documents(
        Bags(np.arange(documents + 1) * 50, ids, counts), pa.array(range(documents)), {"note": notes}
    )
    limits = ShardLimits(
        documents_per_shard=-(-documents // 2), nonzeros_per_row_group=nonzeros_per_row_group
    )
    with CorpusWriter(path, [f"w{number:04d}" for number in range(words)], limits) as writer:
        writer.write(bags)
        writer.commit()
    return int(ids.size)


def column_bytes(path: Path) -> int:
    """Compressed bytes of the ids and counts of a corpus."""
    total = 0
    for shard in (path / "documents").glob("*.parquet"):
        with footer.open_parquet(str(shard)) as file:
            leaves = footer.leaf_columns(file.metadata)
            for number in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(number)
                total += sum(group.column(leaves[name]).total_compressed_size for name in ("ids", "counts"))
    return total


KINDS = ("LIST", "GET", "HEAD", "PUT", "POST", "DELETE")


@click.command(help=(__doc__ or "").split("\n\n", maxsplit=1)[0])
@click.option("--documents", default=20_000)
@click.option("--partitions", default=11)
def main(documents: int, partitions: int) -> None:
    with tempfile.TemporaryDirectory() as folder, counting_server() as counts:
        local, url = Path(folder, "corpus"), f"s3://{BUCKET}"
        nonzeros = write_corpus(local, documents, 20_000)
        files = fsspec.filesystem("s3")
        files.put(str(local), f"{url}/corpus", recursive=True)
        files.put(str(local / "documents"), f"{url}/plain/documents", recursive=True)
        files.put(str(local / "vocabulary.parquet"), f"{url}/plain/vocabulary.parquet")
        files.invalidate_cache()
        shards = sum(path.stat().st_size for path in local.glob("documents/*"))
        print(f"2 shards, {shards / 1e6:.2f} MB; ids and counts {column_bytes(local) / 1e6:.2f} MB")
        print(f"{'':12s}", *(f"{kind:>7s}" for kind in KINDS), "  total  /partition  MB read  MB written")
        steps: dict[str, Callable[[], object]] = {
            "open": lambda: open_corpus(f"{url}/corpus"),
            "open plain": lambda: open_corpus(f"{url}/plain"),
            "scan": lambda: scan(
                f"{url}/corpus",
                f"{url}/m.zarr",
                max_topics=20,
                partition_nonzeros=-(-nonzeros // partitions),
            ),
            "infer": lambda: infer(open_moments(f"{url}/m.zarr"), f"{url}/f.zarr", settings=5),
        }
        for name, step in steps.items():
            footer._hashes.clear()
            counts.clear()
            step()
            print(
                f"{name:12s}",
                *(f"{counts[kind]:7d}" for kind in KINDS),
                f"{counts.requests:7d} {counts.requests / partitions:11.1f} "
                f"{counts['read'] / 1e6:8.2f} {counts['written'] / 1e6:11.2f}",
            )


if __name__ == "__main__":
    main()
