"""Stores behind URLs: the same arrays as on the disk, committed without a rename, finished after any interruption."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from scipy.sparse import csr_array
from upath import UPath

import streaming_jsmf as sj
from streaming_jsmf import ScanSettings, corpus_from_matrix, open_moments, scan
from streaming_jsmf.corpus import CorpusWriter, footer, open_corpus
from streaming_jsmf.corpus.bags import Bags, Documents
from streaming_jsmf.corpus.shards import ShardLimits
from streaming_jsmf.corpus.units import iter_blocks, list_units, read_block
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.ingestion.in_memory import located
from streaming_jsmf.ingestion.readers import text_files
from streaming_jsmf.ingestion.sources.listing import list_files
from streaming_jsmf.jobs import run as jobs_run
from streaming_jsmf.jobs.checkpoints import Checkpoints
from streaming_jsmf.storage.paths import (
    StorePath,
    child_names,
    exists,
    file_names,
    file_size,
    is_file,
    is_free,
    read_bytes,
    state_of,
    store_path,
)
from streaming_jsmf.storage.tables import read_range, write_merged
from streaming_jsmf.topics.store import open_model, read_model
from tests.cases import first_cases
from tests.corpora import Planted, planted, with_more, words, write_corpus
from tests.outcomes import described, invoked, printed, refused
from tests.processes import command, finished, started, wait_for, wait_until

SETTINGS = ("--max-topics", "5", "--partition-nonzeros", "6000")
CHANGED = (*SETTINGS, "--scheduler", "synchronous")


@pytest.fixture
def memory() -> Iterator[str]:
    """A URL of a directory that nobody else uses."""
    url = f"memory://{uuid.uuid4().hex}"
    yield url
    with suppress(FileNotFoundError):
        fsspec.filesystem("memory").rm(url, recursive=True)


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """What a server that speaks S3 was asked; it is found through the environment, as users have it."""
    pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    from benchmarks.s3_requests import counting_server

    with counting_server() as counts:
        yield counts


@pytest.fixture(scope="module")
def s3(counts: Counter[str]) -> str:
    """A bucket of this server."""
    del counts
    return "s3://bucket"


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def http() -> Iterator[tuple[str, dict[str, str]]]:
    """A URL, and the headers that its server answers besides the length of three bytes."""
    headers: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(200)
            for name, value in {"Content-Length": "3", **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as server:
        yield f"{server}/a", headers


def test_a_server_that_fails_or_refuses_does_not_say_that_nothing_is_there(tmp_path: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(int(self.path.split("/")[1]))
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as server:
        missing = f"{server}/404/a"
        assert not exists(missing)
        assert not is_file(missing)
        assert is_free(store_path(missing))
        refused(invoked("ingest", missing, tmp_path / "c"), 2, "no such file or directory")
        refused(invoked("topics", missing), 2, "no such file or directory")
        assert file_names(f"{server}/404") == []
        for code in (401, 403, 500, 503):
            for ask in (exists, is_file, file_names):
                with pytest.raises(StoreError, match=f"the object store failed .*{code}"):
                    ask(f"{server}/{code}/a")
            with pytest.raises(InputError, match=f"does not respond .*{code}"):
                store_path(f"{server}/{code}/a")
            refused(invoked("ingest", f"{server}/{code}/a", tmp_path / "c"), 3, "store failed", str(code))
    with pytest.raises(StoreError, match=r"the object store failed .*Cannot connect"):
        exists(f"{server}/404/a")


@pytest.fixture(scope="module")
def local(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Moments and a model on the disk, to compare with."""
    root = tmp_path_factory.mktemp("local")
    printed("scan", corpus_path, root / "m.zarr", *SETTINGS)
    printed("infer", root / "m.zarr", root / "f.zarr", "--topics", "5")
    return root


def names_below(place: str | Path) -> list[str]:
    """All files or objects, without the random ends of attempts."""
    if isinstance(place, Path):
        found = [str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()]
    else:
        path = UPath(place, use_listings_cache=False)
        root = path.path.rstrip("/") + "/"
        found = [str(name).removeprefix(root) for name in path.fs.find(path.path)]
    return sorted(re.sub(r"-[0-9a-f]{32}/", "/", name) for name in found)


def require_same_models(one: str | Path, other: str | Path) -> None:
    first, second = read_model(one), read_model(other)
    assert first.arrays.keys() == second.arrays.keys()
    for name, values in first.arrays.items():
        np.testing.assert_array_equal(values, second.arrays[name], err_msg=name)


def require_same_moments(one: object, other: object) -> None:
    assert described(one)["digests"] == described(other)["digests"]


@pytest.mark.parametrize("scheduler", first_cases(["threads", "synchronous"]))
def test_a_store_in_memory_equals_one_on_the_disk(
    scheduler: str, memory: str, corpus_path: Path, local: Path
) -> None:
    moments, model = f"{memory}/m.zarr", f"{memory}/f.zarr"
    printed("scan", corpus_path, moments, *SETTINGS, "--scheduler", scheduler)
    printed("infer", moments, model, "--topics", "5")
    printed("topics", model)
    require_same_moments(moments, local / "m.zarr")
    assert described(model)["topics"] == 5
    require_same_models(model, local / "f.zarr")
    assert names_below(moments) == names_below(local / "m.zarr")
    assert names_below(model) == names_below(local / "f.zarr")
    assert open_model(model)["word_topic"].sel(topic=0).shape == (120,)


def test_fit_behind_a_url(memory: str, corpus_path: Path) -> None:
    fit = ("fit", corpus_path, f"{memory}/models", "--topics", "3,5", "--steps", "4", *SETTINGS[2:])
    printed(*fit)
    fsspec.filesystem("memory").rm(f"{memory}/models/k=3", recursive=True)
    printed(*fit)
    shown = described(f"{memory}/models")
    assert [Path(model["path"]).name for model in shown["models"]] == ["k=3", "k=5"]
    listed = re.findall("model: .*/(.*)", printed("topics", f"{memory}/models"))
    assert listed == ["k=3", "k=5"]
    assert described(f"{memory}/models.moments")["complete"]


@pytest.mark.parametrize(
    "scheduler",
    [
        pytest.param("processes", marks=pytest.mark.slow),
        pytest.param("threads", marks=pytest.mark.campaign),
    ],
)
def test_a_scan_on_s3_is_killed_and_resumes(
    scheduler: str, s3: str, corpus_path: Path, tmp_path: Path
) -> None:
    moments, model = f"{s3}/{scheduler}/m.zarr", f"{s3}/{scheduler}/f.zarr"
    reference = tmp_path / "m"
    printed("scan", corpus_path, reference, *SETTINGS)
    printed("infer", reference, tmp_path / "f", "--topics", "5")
    line = command("scan", corpus_path, moments, *SETTINGS, "--scheduler", scheduler, "--workers", "2")
    records = UPath(moments, use_listings_cache=False) / "records"
    with started(line) as process:
        wait_for(process, lambda: any("/sums-part-" in name for name in records.fs.find(records.path)))
        # The workers too: they would go on and commit their partitions.
        os.killpg(process.pid, signal.SIGKILL)
    left = described(moments)
    assert not left["complete"]
    assert 1 <= left["sums_partitions_done"] < left["partitions"]
    log = finished(command("scan", corpus_path, moments, *SETTINGS, "--scheduler", "threads"))
    assert re.search(r"^[a-z ]+: [1-3] of 4 partitions were finished by an earlier run", log, re.M)
    assert "Unclosed" not in log
    require_same_moments(moments, reference)
    assert names_below(moments) == names_below(reference)
    printed("infer", moments, model, "--topics", "5")
    require_same_models(model, tmp_path / "f")


@pytest.mark.slow
def test_requests_for_a_partition(s3: str, counts: Any, corpus_path: Path) -> None:
    found = []
    for nonzeros in (12_000, 5000):
        store = f"{s3}/{uuid.uuid4().hex}"
        counts.clear()
        scan(corpus_path, store, max_topics=5, partition_nonzeros=nonzeros, scheduler="synchronous")
        found.append((len(open_moments(store).manifest.partitions), counts.requests, counts["LIST"]))
    (few, before, listed), (many, after, listed_then) = found
    assert many >= 2 * few
    assert (after - before) / (many - few) <= 26
    assert listed == listed_then <= 25, "tasks list nothing, and nobody polls"


@pytest.fixture
def remote(s3: str, counts: Any, tmp_path: Path) -> tuple[str, Path]:
    """A plain corpus of two shards with metadata, its bytes on the disk, and none of it known to this process."""
    from benchmarks.s3_requests import write_corpus as written

    place = f"{s3}/{uuid.uuid4().hex}"
    written(tmp_path / "c", 2000, 5000)
    (tmp_path / "c" / "manifest.json").unlink()
    fsspec.filesystem("s3", use_listings_cache=False).put(str(tmp_path / "c"), place, recursive=True)
    footer._hashes.clear()
    counts.clear()
    return place, tmp_path / "c"


def test_a_corpus_is_opened_by_its_manifest_and_one_listing(s3: str, counts: Any) -> None:
    found, bags = [], Bags.of_matrix(csr_array(np.eye(70, 9, dtype=np.int32)))
    for n_shards in (1, 7):
        place = f"{s3}/{uuid.uuid4().hex}"
        with CorpusWriter(place, words(9), ShardLimits(documents_per_shard=70 // n_shards)) as writer:
            writer.write(Documents(bags, pa.array(range(70))))
            writer.commit()
        counts.clear()
        corpus = open_corpus(place)
        assert len(corpus.shards) == n_shards
        assert not [path for path in counts.paths if path.endswith(".parquet") and "/documents/" in path]
        found.append(counts.requests)
    assert found[0] == found[1] <= 7
    # The listing tells the same state as a request for the status, so that a shard is hashed once.
    units = [replace(unit, hashed=True) for unit in list_units(corpus)]
    footer._hashes.clear()
    for _ in iter_blocks(units, corpus.n_words):
        pass
    assert not footer._hashes


def test_a_plain_shard_is_opened_in_three_requests_and_hashed_once(
    remote: tuple[str, Path], counts: Any
) -> None:
    place, local = remote
    corpus = open_corpus(place)
    paths = {shard.name: corpus.shard_path(shard).removeprefix("s3:/") for shard in corpus.shards}
    assert all(1 <= counts.paths[path] <= 3 for path in paths.values())
    shards = sum((local / name).stat().st_size for name in paths)
    assert counts["read"] < 1.1 * shards
    # Another process knows from the state of a shard that its hash was compared.
    units = list_units(corpus)
    footer._hashes.clear()
    for unit in units[:2]:
        counts.clear()
        read_block(unit, corpus.n_words)
        assert (counts["HEAD"], counts["LIST"], counts["GET"] <= 3) == (1, 0, True)
        assert counts["read"] < shards / 5
    # A shard that has changed since is hashed again.
    first = corpus.shard_path(corpus.shards[0])
    files = fsspec.filesystem("s3", use_listings_cache=False)
    files.pipe_file(first, files.cat_file(corpus.shard_path(corpus.shards[1])))
    with pytest.raises(StoreError, match="has sha256"):
        read_block(list_units(corpus)[0], corpus.n_words)


@pytest.mark.slow
def test_each_shard_is_hashed_by_one_of_all_workers(
    s3: str, counts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two passes read at most 1.2 times the columns that they use, and each shard once for its hash."""
    from benchmarks.s3_requests import column_bytes
    from benchmarks.s3_requests import write_corpus as written

    place = f"{s3}/{uuid.uuid4().hex}"
    written(tmp_path / "c", 60_000, 300_000, metadata=20)
    fsspec.filesystem("s3", use_listings_cache=False).put(str(tmp_path / "c"), f"{place}/c", recursive=True)

    def alone(task: Callable[..., str]) -> Callable[..., str]:
        def in_a_process_of_its_own(*arguments: Any) -> str:
            with patch.dict(footer._hashes, clear=True):
                return task(*arguments)

        return in_a_process_of_its_own

    for name in ("commit_part", "run_check"):
        monkeypatch.setattr(jobs_run, name, alone(getattr(jobs_run, name)))
    footer._hashes.clear()
    opened = open_corpus(f"{place}/c")
    counts.clear()
    settings = ScanSettings(max_topics=2, partition_nonzeros=1_000_000, sample_share=0.2)
    found = scan(opened, f"{place}/m", settings, scheduler="synchronous")
    assert len(found.manifest.partitions) == 3  # of two shards
    local = sorted((tmp_path / "c" / "documents").glob("*"))
    read = sum(counts.bytes[f"/{place.removeprefix('s3://')}/c/documents/{path.name}"] for path in local)
    passes = 2 + bool(found.array_digest("directions").shape[1])
    assert read <= 1.2 * passes * column_bytes(tmp_path / "c") + sum(path.stat().st_size for path in local)


def test_a_listing_is_never_a_cached_one(s3: str) -> None:
    other = fsspec.filesystem("s3", use_listings_cache=False)
    other.pipe_file("bucket/seen/records/sums-part-a/zarr.json", b"{}")
    store = store_path(f"{s3}/seen")
    assert isinstance(store, UPath)
    checkpoints = Checkpoints(store, "sums", "make it again")
    assert (checkpoints.committed().parts, checkpoints.has("part", "b")) == ({"a"}, False)
    other.pipe_file("bucket/seen/records/sums-part-b/zarr.json", b"{}")
    assert (checkpoints.committed().parts, checkpoints.has("part", "b")) == ({"a", "b"}, True)
    assert child_names(store / "records") == ["sums-part-a", "sums-part-b"]
    other.rm_file("bucket/seen/records/sums-part-a/zarr.json")
    assert child_names(store / "records") == ["sums-part-b"]
    assert (checkpoints.committed().parts, checkpoints.has("part", "a")) == ({"b"}, False)
    # A path of the user's own that caches, too.
    assert Checkpoints(store_path(UPath(f"{s3}/seen")), "sums", "make it again").committed().parts == {"b"}


@pytest.mark.parametrize("scheme", ["file", "memory", "s3", "chain"])
def test_the_state_of_a_file_changes_with_its_contents(
    scheme: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = tmp_path / "a"
    local = {"file": str(place), "chain": f"simplecache::file://{place}"}
    root = request.getfixturevalue("s3") if scheme == "s3" else "memory:/"
    url = local.get(scheme, f"{root}/{uuid.uuid4().hex}/a")
    files, inner = fsspec.core.url_to_fs(f"file://{place}" if scheme in local else url)
    other = type(files)(skip_instance_cache=True)
    other.pipe_file(inner, b"abc")
    files.ls(files._parent(inner))  # a listing that fsspec may keep
    first = state_of(url)
    assert first is not None
    assert (first[0], state_of(url), json.loads(json.dumps(first))) == (3, first, [*first])
    # Times of files are those of ticks of the system, some milliseconds apart.
    wait_until(lambda: other.pipe_file(inner, b"xyz") or state_of(url) != first, "another state")
    other.pipe_file(inner, b"abcd")
    assert (state_of(url) or ())[0] == 4
    other.rm_file(inner)
    with pytest.raises(FileNotFoundError):
        state_of(url)


def test_sources_and_corpora_are_never_listed_from_a_cache(s3: str) -> None:
    other, place = fsspec.filesystem("s3", use_listings_cache=False), f"{s3}/{uuid.uuid4().hex}"
    other.pipe({f"{place}/a.txt": b"abc", f"{place}/sub/a.txt": b"abc"})
    for number, name in enumerate(("b.txt", "sub/b.txt")):
        assert len(list_files(place)) == len(list_files(f"{place}/**/*.txt")) == 2 + number
        assert (exists(f"{place}/{name}"), is_file(f"{place}/{name}")) == (False, False)
        other.pipe(f"{place}/{name}", b"abc")
        assert (exists(f"{place}/{name}"), is_file(f"{place}/{name}")) == (True, True)
    assert file_names(place) == ["a.txt", "b.txt"]
    other.pipe(f"{place}/a.txt", b"abcdef")
    assert file_size(f"{place}/a.txt") == 6


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.csv.gz", "a.parquet"])
def test_texts_behind_a_url_are_read_as_on_a_disk(s3: str, name: str, tmp_path: Path) -> None:
    table = pd.DataFrame({"text": [f"cat sat on mat {'dog' * (i % 3)} red{i % 5}" for i in range(80)]})
    write = {
        "jsonl": partial(pd.DataFrame.to_json, orient="records", lines=True),
        "parquet": pd.DataFrame.to_parquet,
    }
    write.get(name.split(".")[1], partial(pd.DataFrame.to_csv, index=False))(table, tmp_path / name)
    place = f"{s3}/{uuid.uuid4().hex}/{name}"
    fsspec.filesystem("s3", use_listings_cache=False).put(str(tmp_path / name), place)
    settings: Any = {"min_df": 1, "duplicates": "keep"}
    local, remote = (
        sj.ingest(source, tmp_path / f"c{number}", **settings)
        for number, source in enumerate((tmp_path / name, place))
    )
    assert local.n_documents == remote.n_documents >= 80
    assert local.vocabulary().words == remote.vocabulary().words


def test_the_state_of_a_file_behind_http(http: tuple[str, dict[str, str]]) -> None:
    url, headers = http
    assert state_of(url) is None
    headers["Last-Modified"] = "Thu, 01 Jan 2026 00:00:00 GMT"
    assert state_of(url) == (3, headers["Last-Modified"])
    headers["ETag"] = '"1"'
    assert state_of(url) == (3, '"1"')


@pytest.mark.parametrize("known", [True, False])
def test_a_shard_replaced_behind_its_url_is_read_again(
    known: bool, memory: str, corpus_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.setattr(footer, "state_of", lambda _: None)
    files, place = fsspec.filesystem("memory"), f"{memory}/c"
    files.put(str(corpus_path), place, recursive=True)
    first, second, _ = sorted(files.glob(f"{place}/*.parquet"))
    before = open_corpus(place).fingerprint
    whole = files.cat_file(second)
    files.pipe_file(second, files.cat_file(first))
    assert open_corpus(place).fingerprint != before
    files.pipe_file(second, whole)
    # Workers that have seen the damaged shard accept the intact one.
    assert open_corpus(place).fingerprint == before


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://missing/m.zarr", "s3://missing/m.zarr: cannot be written"),
        ("s3://bucket", "names only a bucket"),
        ("nosuch://bucket/m.zarr", "cannot be opened"),
        ("simplecache::s3://bucket/m.zarr", "chain"),
    ],
)
@pytest.mark.usefixtures("s3")
def test_a_url_that_cannot_hold_a_store(url: str, said: str, corpus_path: Path) -> None:
    refused(invoked("scan", corpus_path, url, *SETTINGS), 2, said)


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("info", "exists"):
        monkeypatch.setattr(MemoryFileSystem, name, Mock(side_effect=ConnectionError("no route")))
    with pytest.raises(InputError, match=r"^memory://x/m: .*\(no route\); check"):
        store_path("memory://x/m")


Dying = Callable[[float], None]


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Dying:
    """Set after how many writes the object store stops: it then neither writes nor deletes, as after a kill."""
    left = np.inf

    def failing(name: str, cost: int) -> Callable[..., Any]:
        alive = getattr(MemoryFileSystem, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= cost if options.get("mode", "wb") == "wb" else 0
            if left < 0 and options.get("mode", "wb") == "wb":
                raise ConnectionError("gone")
            return alive(self, *arguments, **options)

        return call

    for name, cost in (("rm", 0), ("rm_file", 0), ("_open", 1)):
        monkeypatch.setattr(MemoryFileSystem, name, failing(name, cost))

    def set_left(writes: float) -> None:
        nonlocal left
        left = writes

    return set_left


#: In the marking, the words, the records, the root, and on through the stages.
@pytest.mark.parametrize(
    "writes", [4, 30, *(pytest.param(number, marks=pytest.mark.slow) for number in (0, 1, 6, 40))]
)
def test_a_scan_whose_object_store_stops_is_finished_by_the_same_command(
    writes: int, memory: str, dying: Dying, corpus_path: Path, local: Path
) -> None:
    moments = f"{memory}/m.zarr"
    scan = ("scan", corpus_path, moments, *SETTINGS, "--workers", "2")
    dying(writes)
    failed = invoked(*scan).without_progress()
    [line] = [line for line in failed.err.splitlines() if line.startswith("error: ")]
    assert (failed.code, moments.removeprefix("memory://") in line, "gone" in line) == (3, True, True)
    dying(np.inf)
    printed(*scan)
    require_same_moments(moments, local / "m.zarr")
    assert names_below(moments) == names_below(local / "m.zarr")


@pytest.mark.parametrize("writes", first_cases([20, 0, 1]))
def test_a_partly_written_model_is_not_a_model(writes: int, memory: str, dying: Dying, local: Path) -> None:
    model = f"{memory}/f.zarr"
    infer = ("infer", local / "m.zarr", model, "--topics", "5")
    dying(writes)
    refused(invoked(*infer).without_progress(), 3)
    dying(np.inf)
    there = "an unfinished result, not a model" if writes else "no such file or directory"
    refused(invoked("topics", model), 2, there)
    printed(*infer)
    require_same_models(model, local / "f.zarr")
    printed(*infer)
    # The new model needs a few more writes: the old one is gone, and the same command makes it again.
    dying(writes + 2)
    refused(invoked(*infer[:-1], "4", "--overwrite").without_progress(), 3)
    dying(np.inf)
    printed(*infer, "--overwrite")
    require_same_models(model, local / "f.zarr")
    assert names_below(model) == names_below(local / "f.zarr")


def test_files_of_others_are_left_alone(memory: str, corpus_path: Path, local: Path) -> None:
    place = f"{memory}/m.zarr"
    fsspec.filesystem("memory").pipe_file(f"{place}/thesis.tex", b"years")
    refused(invoked("scan", corpus_path, place), 2, place, "moments store")
    infer = ("infer", local / "m.zarr", place, "--topics", "5")
    refused(invoked(*infer), 2, place, "is a folder, not a model, and is not replaced")
    refused(invoked(*infer, "--overwrite"), 2, place, "is a folder, not a model")
    assert names_below(memory) == ["m.zarr/thesis.tex"]


def test_a_bad_corpus_leaves_nothing(memory: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", np.eye(40, 30, dtype=np.int64))
    refused(invoked("scan", corpus, f"{memory}/m.zarr").without_progress(), 2, "two tokens")
    assert names_below(memory) == []
    fsspec.filesystem("memory").pipe_file(f"{memory}/kept", b"")


@pytest.fixture
def parts(documents: Planted, tmp_path: Path) -> tuple[str, str]:
    """A corpus, and the same with more documents."""
    one = write_corpus(tmp_path / "one", documents.counts[:200], shards=1)
    return str(one), str(with_more(one, tmp_path / "two", planted(200, 120, 5, seed=2).counts, shards=1))


@pytest.mark.slow
def test_stores_follow_behind_urls(memory: str, parts: tuple[str, str], tmp_path: Path) -> None:
    one, two = parts
    for root in (memory, str(tmp_path)):
        for name in ("grown", "single"):
            printed("scan", one, f"{root}/{name}", *CHANGED)
        printed("scan", two, f"{root}/grown", "--follow")
    for name in ("grown", "single"):
        require_same_moments(f"{memory}/{name}", tmp_path / name)
    printed("scan", one, f"{memory}/grown", "--follow")
    require_same_moments(f"{memory}/grown", f"{memory}/single")


# -- results of tasks that write files ------------------------------------------------------------------------------


@pytest.fixture(params=["disk", "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> StorePath:
    if request.param == "disk":
        return tmp_path / "t"
    return store_path(f"{request.getfixturevalue('memory')}/t")


def contents(place: StorePath) -> dict[str, bytes]:
    """All files or objects next to a target, which is always the only one."""
    if isinstance(place, Path):
        paths = [path for path in place.parent.rglob("*") if path.is_file()]
        return {path.relative_to(place.parent).as_posix(): path.read_bytes() for path in paths}
    root = place.parent.path.rstrip("/") + "/"
    return {name.removeprefix(root): place.fs.cat_file(name) for name in place.fs.find(root)}


# -- corpora ----------------------------------------------------------------------------------------------------------

#: Repeated ids and contents, a bad record, and words in no kept document.
RECORDS = [
    *(
        {"id": f"d{i}", "text": f"olive oil {'grape' if i % 3 else 'vine'} wine word{i % 7}"}
        for i in range(60)
    ),
    {"id": "d3", "text": "repeated olive oil"},
    {"id": "d4", "text": "repeated olive oil"},
    {"id": "copy", "text": "olive oil grape wine word1"},
    {"id": "bad", "text": 3},
    {"id": "alone", "text": "solitude"},
]
INGEST = (
    "--on-bad-record",
    "quarantine",
    "--duplicates",
    "drop",
    "--min-df",
    "2",
    "--max-df",
    "100%",
    "--quiet",
)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of texts, and the corpus of them on the disk."""
    root = tmp_path_factory.mktemp("texts")
    (root / "in").mkdir()
    for name, some in (("a", RECORDS[:40]), ("b", RECORDS[40:])):
        (root / "in" / f"{name}.jsonl").write_text("\n".join(map(json.dumps, some)))
    printed("ingest", root / "in", root / "corpus", *INGEST)
    return root


def require_same_corpora(url: str, local: Path) -> None:
    place = store_path(url)
    assert not isinstance(place, Path)
    found = {name.removeprefix("c/"): data for name, data in contents(place).items()}
    paths = [path for path in local.rglob("*") if path.is_file()]
    assert found == {f"{path.relative_to(local)}": path.read_bytes() for path in paths}


def test_a_corpus_behind_a_url_has_the_bytes_of_a_local_one(
    memory: str, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = f"{memory}/c"
    monkeypatch.setattr("streaming_jsmf.corpus.ranges.RANGE_BYTES", 500)
    printed("ingest", texts / "in", target, *INGEST, "--scheduler", "threads", "--workers", "2")
    require_same_corpora(target, texts / "corpus")
    assert "intact" in invoked("ingest", texts / "in", target, *INGEST[:-1]).err
    other = ("ingest", texts / "in", target, *INGEST, "--min-df", "3")
    refused(invoked(*other), 2, "exists already")
    files = fsspec.filesystem("memory")
    files.pipe_file(f"{target}/documents/thesis.txt", b"mine")
    refused(invoked(*other, "--overwrite"), 2, "thesis.txt", "move it away")
    files.rm_file(f"{target}/documents/thesis.txt")
    printed(*other, "--overwrite")
    assert open_corpus(target).fingerprint != open_corpus(texts / "corpus").fingerprint
    printed("ingest", texts / "in", target, *INGEST, "--overwrite")
    require_same_corpora(target, texts / "corpus")


@pytest.mark.parametrize("damage", ["shard", "vocabulary", "unfinished"])
def test_a_damaged_or_unfinished_corpus_behind_a_url_is_made_again(
    damage: str, memory: str, texts: Path
) -> None:
    target, files = f"{memory}/c", fsspec.filesystem("memory")
    ingested = ("ingest", texts / "in", target, *INGEST)
    printed(*ingested)
    name = {"shard": "documents/part-00000", "vocabulary": "vocabulary", "unfinished": "vocabulary"}[damage]
    data = files.cat_file(f"{target}/{name}.parquet")
    files.pipe_file(f"{target}/{name}.parquet", data[:40] + bytes([data[40] ^ 1]) + data[41:])
    if damage == "unfinished":
        files.pipe_file(f"{target}/.unfinished", b"")
        files.rm_file(f"{target}/manifest.json")
        refused(invoked("scan", target, f"{memory}/m", *SETTINGS), 3, "not finished")
    printed(*ingested)
    require_same_corpora(target, texts / "corpus")


def test_an_ingest_to_a_url_goes_on_after_an_interruption(
    memory: str, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = f"{memory}/c"
    with monkeypatch.context() as patch:
        patch.setattr("streaming_jsmf.ingestion.steps.write_quarantine", Mock(side_effect=KeyboardInterrupt))
        assert invoked("ingest", texts / "in", target, *INGEST).code == 130
    assert is_free(store_path(target))
    for step in ("first_pass.read_group", "second_pass.write_piece"):
        monkeypatch.setattr(f"streaming_jsmf.ingestion.{step}", Mock(side_effect=AssertionError))
    printed("ingest", texts / "in", target, *INGEST)
    require_same_corpora(target, texts / "corpus")


def test_a_simulated_corpus_and_one_of_a_matrix_are_written_to_urls(memory: str, tmp_path: Path) -> None:
    sizes = ("--documents", "300", "--vocabulary-size", "40", "--topics", "3", "--mean-length", "9")
    printed("simulate", tmp_path / "c", *sizes)
    printed("simulate", f"{memory}/c", *sizes)
    require_same_corpora(f"{memory}/c", tmp_path / "c")
    fsspec.filesystem("memory").rm(f"{memory}/c", recursive=True)
    counts = planted(30, 9, 3).counts
    local = corpus_from_matrix(counts, words(9), tmp_path / "m")
    for _ in range(2):
        assert corpus_from_matrix(counts, words(9), f"{memory}/c").fingerprint == local.fingerprint
    require_same_corpora(f"{memory}/c", tmp_path / "m")
    with pytest.raises(InputError, match="exists already"):
        corpus_from_matrix(counts[:20], words(9), f"{memory}/c")
    require_same_corpora(f"{memory}/c", tmp_path / "m")


def test_data_in_memory_are_next_to_the_target_for_other_machines(target: StorePath) -> None:
    with located(["a b", "c d"], target) as location:
        place = location.path.rpartition("/")[0].rpartition("/")[0]
        assert store_path(place) == target.parent
        assert read_bytes(location.path)[:4] == b"PAR1"
    assert not exists(location.path)
    assert not contents(target)


@pytest.mark.parametrize(
    "scheduler",
    [
        pytest.param("cluster", marks=pytest.mark.slow),
        pytest.param("processes", marks=pytest.mark.campaign),
    ],
)
def test_an_ingest_on_s3_is_killed_and_resumes(scheduler: str, s3: str, texts: Path) -> None:
    root = f"{s3}/{uuid.uuid4().hex}"
    files = fsspec.filesystem("s3", use_listings_cache=False)
    files.put(str(texts / "in"), f"{root}/in", recursive=True)
    settings = (*INGEST[:-1], "--scheduler", scheduler, "--workers", "2")
    line = command("ingest", f"{root}/in", f"{root}/out/c", *settings)
    with started(line) as process:
        wait_for(process, lambda: any("/read-part-" in name for name in files.find(f"{root}/out")))
        os.killpg(process.pid, signal.SIGKILL)
    assert not files.exists(f"{root}/out/c/manifest.json")
    assert "by an earlier run" in finished(line)
    found = open_corpus(f"{root}/out/c")
    assert found.fingerprint == open_corpus(texts / "corpus").fingerprint
    assert {name.split("/")[3] for name in files.find(f"{root}/out")} == {"c"}


@pytest.mark.parametrize("kind", first_cases(["parquet", "csv", "txt"]))
def test_a_source_is_planned_from_one_listing_and_one_request_for_each_file(
    s3: str, counts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(text_files, "UNIT_FILES", 9)
    place, n = f"{s3}/{uuid.uuid4().hex}", 20
    texts = [" ".join(words(30)[i % 7 :: 7] * 3) + f" own{i}" for i in range(n)]
    for i, text in enumerate(texts):
        local = tmp_path / f"{i}.{kind}"
        if kind == "parquet":
            pd.DataFrame({"text": [text]}).to_parquet(local)
        else:
            local.write_text(f"id,text\n{i},{text}\n" if kind == "csv" else text)
        fsspec.filesystem("s3", use_listings_cache=False).put_file(str(local), f"{place}/{local.name}")
    counts.clear()
    ingested = sj.ingest(place, tmp_path / "c" / "remote", min_df=1, scheduler="synchronous")
    # One to plan, then one for the status and one to read it.
    assert counts["GET"] <= 2 * n + 5
    assert counts["HEAD"] <= n + 5
    assert counts["LIST"] <= 4, "tasks list nothing"
    shutil.rmtree(tmp_path / "c")
    assert sj.ingest(tmp_path, tmp_path.with_suffix(".c"), min_df=1).fingerprint == ingested.fingerprint


def test_a_range_of_an_object_takes_two_requests(s3: str, counts: Any, tmp_path: Path) -> None:
    """One for its end, where the places of the ranges are."""
    numbers = np.arange(200_000)
    write_merged(tmp_path / "rows", [(pa.table({"n": numbers}), numbers // 100)], 2000)
    url = f"{s3}/{uuid.uuid4().hex}"
    fsspec.filesystem("s3", use_listings_cache=False).put_file(str(tmp_path / "rows"), url)
    path = store_path(url)
    counts.clear()
    found = read_range(path, 77)
    assert found.column("n").to_pylist() == [*range(7700, 7800)]
    assert (counts["GET"], counts["HEAD"], counts["LIST"]) == (2, 1, 0)
