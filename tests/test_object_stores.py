"""Stores behind URLs: the same arrays as on the disk, committed without a rename, finished after any interruption."""

from __future__ import annotations

import logging
import os
import re
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from upath import UPath

from streaming_jsmf.cli.main import run
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.checkpoints import Checkpoints
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.storage.paths import child_names, store_path
from streaming_jsmf.topics.store import open_model, read_model
from tests.corpora import Planted, planted, words, write_corpus
from tests.outcomes import described
from tests.processes import command, finished, started, wait_for

SETTINGS = ("--max-topics", "5", "--partition-nonzeros", "6000")

#: A server of the tests takes its time: four partitions, one scan.
FEW = ("--max-topics", "5", "--partition-nonzeros", "6000", "--scans", "1")
CHANGED = (*FEW, "--keep-partitions", "--scheduler", "synchronous")


@pytest.fixture
def memory() -> Iterator[str]:
    """A URL of a directory that nobody else uses."""
    url = f"memory://{uuid.uuid4().hex}"
    yield url
    fsspec.filesystem("memory").rm(url, recursive=True)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A bucket of a server that speaks S3, found through the environment, as users have it."""
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3", use_listings_cache=False).mkdir("bucket")
        yield "s3://bucket"
    server.stop()


@pytest.fixture(scope="module")
def local(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Moments and a model on the disk, to compare with."""
    root = tmp_path_factory.mktemp("local")
    assert run(["scan", str(corpus_path), str(root / "m.zarr"), *SETTINGS]) == 0
    assert run(["infer", str(root / "m.zarr"), str(root / "f.zarr"), "--topics", "5"]) == 0
    return root


def refused(command: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that must end with this code."""
    capsys.readouterr()
    assert run(command) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


def names_below(place: str) -> list[str]:
    """All objects, attempts without their random ends."""
    path = UPath(place, use_listings_cache=False)
    root = path.path.rstrip("/") + "/"
    found = [str(name).removeprefix(root) for name in path.fs.find(path.path)]
    return sorted(re.sub(r"-[0-9a-f]{32}/", "/", name) for name in found)


def files_below(directory: Path) -> list[str]:
    found = [str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()]
    return sorted(re.sub(r"-[0-9a-f]{32}/", "/", name) for name in found)


def require_same_models(one: str | Path, other: str | Path) -> None:
    first, second = read_model(one), read_model(other)
    assert first.arrays.keys() == second.arrays.keys()
    for name, values in first.arrays.items():
        np.testing.assert_array_equal(values, second.arrays[name], err_msg=name)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_a_store_in_memory_is_that_of_the_disk(
    scheduler: str, memory: str, corpus_path: Path, local: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moments, model = f"{memory}/m.zarr", f"{memory}/f.zarr"
    assert run(["scan", str(corpus_path), moments, *SETTINGS, "--scheduler", scheduler]) == 0
    assert run(["infer", moments, model, "--topics", "5"]) == 0
    assert run(["topics", model]) == 0
    assert described(moments, capsys)["digests"] == described(local / "m.zarr", capsys)["digests"]
    assert described(model, capsys)["topics"] == 5
    require_same_models(model, local / "f.zarr")
    assert names_below(moments) == files_below(local / "m.zarr")
    assert names_below(model) == files_below(local / "f.zarr")
    assert open_model(model)["word_topic"].sel(topic=0).shape == (120,)


def test_fit_behind_a_url(memory: str, corpus_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit = ["fit", str(corpus_path), f"{memory}/models", "--topics", "3,5", *SETTINGS[2:]]
    assert run(fit) == 0
    fsspec.filesystem("memory").rm(f"{memory}/models/k=3", recursive=True)
    assert run(fit) == 0, "the model that is there is kept"
    shown = described(f"{memory}/models", capsys)
    assert [Path(model["path"]).name for model in shown["models"]] == ["k=3", "k=5"]
    assert run(["topics", f"{memory}/models"]) == 0
    assert [
        line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines() if "model: " in line
    ] == ["k=3", "k=5"]
    assert described(f"{memory}/models.moments", capsys)["complete"]


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_scan_on_s3_is_killed_and_goes_on(
    scheduler: str, s3: str, corpus_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moments, model = f"{s3}/{scheduler}/m.zarr", f"{s3}/{scheduler}/f.zarr"
    reference = tmp_path / "m"
    assert run(["scan", str(corpus_path), str(reference), *FEW]) == 0
    assert run(["infer", str(reference), str(tmp_path / "f"), "--topics", "5"]) == 0
    line = command("scan", corpus_path, moments, *FEW, "--scheduler", scheduler, "--workers", "2")
    records = UPath(moments, use_listings_cache=False) / "records"

    def parts() -> int:
        return sum("/range-part-" in name for name in records.fs.find(records.path))

    with started(line) as process:
        wait_for(process, lambda: parts() >= 1)
        # The workers too: they would go on and commit what they have in hand.
        os.killpg(process.pid, signal.SIGKILL)
    left = described(moments, capsys)
    assert not left["complete"]
    assert 1 <= left["range_partitions_done"] < left["partitions"]
    log = finished(command("scan", corpus_path, moments, *FEW, "--scheduler", "threads"))
    assert re.search(r"^range: [1-3] of 4 partitions were committed by an earlier run", log, re.M)
    assert "Unclosed" not in log
    assert described(moments, capsys)["digests"] == described(reference, capsys)["digests"]
    assert names_below(moments) == files_below(reference)
    assert run(["infer", moments, model, "--topics", "5"]) == 0
    require_same_models(model, tmp_path / "f")


def test_a_listing_is_never_a_cached_one(s3: str) -> None:
    other = fsspec.filesystem("s3", use_listings_cache=False)
    other.pipe_file("bucket/seen/records/range-part-a/zarr.json", b"{}")
    store = store_path(f"{s3}/seen")
    assert isinstance(store, UPath)
    checkpoints = Checkpoints(store, "range", "make it again")
    assert (checkpoints.parts(), checkpoints.is_committed("b")) == ({"a"}, False)
    other.pipe_file("bucket/seen/records/range-part-b/zarr.json", b"{}")
    assert (checkpoints.parts(), checkpoints.is_committed("b")) == ({"a", "b"}, True)
    assert child_names(store / "records") == ["range-part-a", "range-part-b"]
    other.rm_file("bucket/seen/records/range-part-a/zarr.json")
    assert child_names(store / "records") == ["range-part-b"]
    assert (checkpoints.parts(), checkpoints.is_committed("a")) == ({"b"}, False)
    # A path of the user's own that caches, too.
    assert Checkpoints(store_path(UPath(f"{s3}/seen")), "range", "make it again").parts() == {"b"}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://missing/m.zarr", "s3://missing/m.zarr: cannot be written"),
        ("s3://bucket", "names no more than a bucket"),
        ("nosuch://bucket/m.zarr", "cannot be opened"),
        ("simplecache::s3://bucket/m.zarr", "chain"),
    ],
)
def test_a_url_that_cannot_hold_a_store(
    url: str, said: str, s3: str, corpus_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert s3
    assert said in refused(["scan", str(corpus_path), url, *SETTINGS], 2, capsys)


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route")

    monkeypatch.setattr(MemoryFileSystem, "info", dead)
    monkeypatch.setattr(MemoryFileSystem, "exists", dead)
    with pytest.raises(InputError, match=r"^memory://x/m: does not answer \(no route\); check"):
        store_path("memory://x/m")


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Sets after how many writes the object store stops: neither writing nor deleting any more, as after a kill."""
    left: list[int | None] = [None]
    write = MemoryFileSystem.pipe_file

    def spent() -> bool:
        if left[0] is None:
            return False
        left[0] -= 1
        return left[0] < 0

    def pipe_file(self: Any, *arguments: Any, **options: Any) -> Any:
        if spent():
            raise ConnectionError("gone")
        return write(self, *arguments, **options)

    for name in ("rm", "rm_file"):
        alive = getattr(MemoryFileSystem, name)

        def remove(self: Any, *arguments: Any, alive: Any = alive, **options: Any) -> Any:
            if left[0] is not None and left[0] < 0:
                raise ConnectionError("gone")
            return alive(self, *arguments, **options)

        monkeypatch.setattr(MemoryFileSystem, name, remove)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)

    def set_left(writes: int | None) -> None:
        left[0] = writes

    return set_left


#: In the marking, the words, the records, the root, and on through the stages.
@pytest.mark.parametrize(
    "writes", [4, 30, *(pytest.param(number, marks=pytest.mark.slow) for number in (0, 1, 6, 97))]
)
def test_a_scan_whose_object_store_stops_is_finished_by_the_same_command(
    writes: int,
    memory: str,
    dying: Callable[[int | None], None],
    corpus_path: Path,
    local: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    moments = f"{memory}/m.zarr"
    scan = ["scan", str(corpus_path), moments, *SETTINGS, "--workers", "2"]
    dying(writes)
    line = refused(scan, 3, capsys)
    assert moments.removeprefix("memory://") in line
    assert "gone" in line
    dying(None)
    assert run(scan) == 0
    assert described(moments, capsys)["digests"] == described(local / "m.zarr", capsys)["digests"]
    assert names_below(moments) == files_below(local / "m.zarr")


@pytest.mark.parametrize("writes", [0, 1, 20])
def test_a_model_whose_writing_stops_is_no_model(
    writes: int,
    memory: str,
    dying: Callable[[int | None], None],
    local: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = f"{memory}/f.zarr"
    infer = ["infer", str(local / "m.zarr"), model, "--topics", "5"]
    dying(writes)
    refused(infer, 3, capsys)
    dying(None)
    assert "no model is here" in refused(["topics", model], 2, capsys)
    assert run(infer) == 0
    require_same_models(model, local / "f.zarr")
    refused(infer, 2, capsys)
    # The new one needs a few writes more than there are: the old one is gone, and the same infer makes it again.
    dying(writes + 2)
    refused([*infer, "--overwrite"], 3, capsys)
    dying(None)
    assert run([*infer, "--overwrite"]) == 0
    require_same_models(model, local / "f.zarr")
    assert names_below(model) == files_below(local / "f.zarr")


def test_what_others_put_there_is_left_alone(
    memory: str, corpus_path: Path, local: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fsspec.filesystem("memory").pipe_file(f"{memory}/m.zarr/thesis.tex", b"years")
    assert "not a moments store" in refused(["scan", str(corpus_path), f"{memory}/m.zarr"], 2, capsys)
    infer = ["infer", str(local / "m.zarr"), f"{memory}/m.zarr", "--topics", "5"]
    assert "exists already" in refused(infer, 2, capsys)
    assert "no model is here" in refused([*infer, "--overwrite"], 2, capsys)
    assert names_below(memory) == ["m.zarr/thesis.tex"]


def test_a_damaged_chunk_is_named(memory: str, corpus_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moments, files = f"{memory}/m.zarr", fsspec.filesystem("memory")
    assert run(["scan", str(corpus_path), moments, *SETTINGS]) == 0
    chunk = f"{moments}/factor/c/0/0"
    whole = files.cat_file(chunk)
    files.pipe_file(chunk, whole[:-7])
    assert "m.zarr/factor/c/0/0: chunk is truncated" in refused(["info", moments], 3, capsys)
    files.pipe_file(chunk, whole[:-4] + b"\1\2\3\4")
    assert "m.zarr/factor: values differ" in refused(["info", moments], 3, capsys)
    files.rm(chunk)
    assert "m.zarr/factor: values differ" in refused(["info", moments], 3, capsys)
    files.pipe_file(f"{moments}/records/range/zarr.json", b'{"attributes": {')
    assert "records/range/zarr.json: record is damaged" in refused(["info", moments], 3, capsys)


def test_a_bad_corpus_leaves_nothing(memory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lonely = np.eye(40, 30, dtype=np.int64)
    corpus = write_corpus(tmp_path / "c", lonely)
    assert "two tokens" in refused(["scan", str(corpus), f"{memory}/m.zarr"], 2, capsys)
    assert names_below(memory) == []
    fsspec.filesystem("memory").pipe_file(f"{memory}/kept", b"")


@pytest.mark.slow
def test_stores_grow_shrink_and_merge_behind_urls(
    memory: str, documents: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = planted(200, 120, 5, seed=2).counts
    one = str(write_corpus(tmp_path / "one", documents.counts[:200], shards=1))
    two = str(write_corpus(tmp_path / "two", more, shards=1))
    for root in (memory, str(tmp_path)):
        assert run(["scan", one, f"{root}/grown", *CHANGED]) == 0
        assert run(["scan", one, f"{root}/grown", "--add", two]) == 0
        assert run(["scan", two, f"{root}/merged", *CHANGED]) == 0
        assert run(["scan", one, f"{root}/single", *CHANGED]) == 0
        assert run(["scan", two, f"{root}/merged", "--merge", f"{root}/single"]) == 0
    for name in ("grown", "merged", "single"):
        assert (
            described(f"{memory}/{name}", capsys)["digests"] == described(tmp_path / name, capsys)["digests"]
        )
    assert run(["scan", one, f"{memory}/grown", "--remove", two]) == 0
    grown, single = described(f"{memory}/grown", capsys), described(f"{memory}/single", capsys)
    assert grown["digests"] == single["digests"]


@pytest.mark.slow
def test_stores_with_other_words_are_not_merged_behind_a_url(
    memory: str, documents: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_corpus(tmp_path / "one", documents.counts[:200], shards=1)
    two = write_corpus(tmp_path / "two", documents.counts[200:400], shards=1)
    (two / "vocab.txt").write_text("\n".join(["other", *words(120)[1:]]) + "\n", encoding="utf-8")
    assert run(["scan", str(one), f"{memory}/m", *SETTINGS]) == 0
    assert run(["scan", str(two), f"{memory}/n", *SETTINGS]) == 0
    before = read_store(store_path(f"{memory}/m")).digests()
    merge = ["scan", str(one), f"{memory}/m", "--merge", f"{memory}/n"]
    assert "merge them in a local directory" in refused(merge, 2, capsys)
    assert read_store(store_path(f"{memory}/m")).digests() == before
