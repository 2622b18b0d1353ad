"""Topic shares, tables, reports and whole fits behind URLs: the bytes of a local run, complete or absent."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import streaming_jsmf as sj
from streaming_jsmf import InputError, StoreError
from streaming_jsmf.documents import transform_job
from streaming_jsmf.documents.share_files import open_shares
from streaming_jsmf.storage.paths import is_free, store_path
from streaming_jsmf.topics.store import read_model
from tests.cases import first_cases
from tests.corpora import file_bytes, planted, words
from tests.outcomes import invoked, printed, refused

K, N, M = 4, 60, 240
NAMES = ["s", "s.parquet", "s.zarr", "s.csv"]


@pytest.fixture
def memory() -> Iterator[str]:
    url = f"memory://{uuid.uuid4().hex}"
    fsspec.filesystem("memory").pipe_file(f"{url}/kept", b"")
    yield url
    fsspec.filesystem("memory").rm(url, recursive=True)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    from benchmarks.s3_requests import counting_server

    with counting_server():
        yield "s3://bucket"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    counts = planted(M, N, K, length=40, seed=11).counts
    texts = [" ".join(np.repeat(words(N), row)) for row in counts]
    return pd.DataFrame(
        {"text": texts, "year": 2000 + np.arange(M) % 5, "id": [f"d{row}" for row in range(M)]}
    )


@pytest.fixture(scope="module")
def local(table: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit of these texts, and its shares in every format."""
    folder = tmp_path_factory.mktemp("local")
    fitted(table, folder / "model")
    for name in NAMES:
        printed("transform", folder / "model", folder / "model.corpus", folder / name)
    return folder


def fitted(table: pd.DataFrame, path: str | Path) -> sj.TopicModel:
    given: dict[str, Any] = {
        "text": "text",
        "id": "id",
        "metadata": ["year"],
        "stop_words": "none",
        "max_df": 1.0,
    }
    return sj.fit(table, path, K, min_df=1, steps=4, progress=False, **given)


def bytes_at(place: str | Path, folder: Path) -> dict[str, bytes]:
    """The files of a result, or of one behind a URL, of which nothing else is left."""
    if isinstance(place, str):
        files, inner = fsspec.core.url_to_fs(place, use_listings_cache=False)
        root, name = inner.rsplit("/", 1)
        found = {path.removeprefix(f"{root}/").split("/")[0] for path in files.find(root)}
        assert found == {name}
        folder.mkdir()
        files.get(inner, str(folder / name), recursive=True)
        place = folder / name
    return {"": place.read_bytes()} if place.is_file() else file_bytes(place)


@pytest.mark.parametrize("scheme", ["memory", pytest.param("s3", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", first_cases(NAMES, 2))
def test_shares_have_the_bytes_of_local_ones(
    name: str, scheme: str, local: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root = request.getfixturevalue("memory" if scheme == "memory" else "bucket")
    out = f"{root}/x-{uuid.uuid4().hex}/{name}"
    line = ("transform", local / "model", local / "model.corpus", out)
    printed(*line)
    assert bytes_at(out, tmp_path / "a") == bytes_at(local / name, tmp_path)
    if name != "s.csv":
        assert open_shares(store_path(out)).about == open_shares(local / name).about
    with pytest.MonkeyPatch.context() as patch:
        if name != "s.csv":
            patch.setattr(transform_job, "write_part", None)
        printed(*line)
    refused(invoked(*line, "--top", 1).without_progress(), 2, out)
    printed(*line, "--top", 1, "--overwrite")
    printed("transform", *line[1:3], tmp_path / name, "--top", 1)
    assert bytes_at(out, tmp_path / "b") == bytes_at(tmp_path / name, tmp_path)


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], float]]:
    """Set after how many writes the object store neither writes nor deletes, as after a kill."""
    left = np.inf

    def failing(name: str) -> Callable[..., Any]:
        alive = getattr(MemoryFileSystem, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            nonlocal left
            writes = name == "cp_file" or (
                name == "_open" and "w" in str(options.get("mode", arguments[1:2]))
            )
            left -= writes
            if left < 0 and (writes or name != "_open"):
                raise ConnectionError("gone")
            return alive(self, *arguments, **options)

        return call

    for name in ("rm", "rm_file", "_open", "cp_file"):
        monkeypatch.setattr(MemoryFileSystem, name, failing(name))

    def set_left(writes: float) -> float:
        nonlocal left
        left, before = writes, left
        return before

    return set_left


@pytest.mark.parametrize("overwrite", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", first_cases(["s.parquet", "s", "s.zarr"]))
def test_readers_see_whole_shares_or_none(
    name: str, overwrite: bool, memory: str, local: Path, tmp_path: Path, stops: Callable[[float], float]
) -> None:
    def transform(place: str | Path, top: int | None, **options: Any) -> None:
        sj.transform(
            local / "model", local / "model.corpus", place, top=top, scheduler="synchronous", **options
        )

    transform(tmp_path / name, 2)
    stops(1e6)
    transform(f"{memory}/counted/{name}", 2)
    writes = int(1e6 - stops(np.inf))
    for left in range(writes - 9, writes):
        out = f"{memory}/{left}/{name}"
        if overwrite:
            transform(out, 1)
        stops(left)
        with suppress(StoreError):  # that of the removal of the workspace does not matter
            transform(out, 2, overwrite=overwrite)
        stops(np.inf)
        with suppress(InputError):
            found = open_shares(store_path(out))
            assert found.about.top in ((1, 2) if overwrite else (2,))
            assert sum(table.num_rows for table in found.tables(found.columns)) == M
        transform(out, 2, overwrite=overwrite)
        assert bytes_at(out, tmp_path / str(left)) == bytes_at(tmp_path / name, tmp_path)


@pytest.mark.parametrize(
    "name", ["s.parquet", *(pytest.param(each, marks=pytest.mark.slow) for each in ("s", "s.zarr"))]
)
def test_answers_are_those_of_local_shares(name: str, memory: str, local: Path) -> None:
    files = fsspec.filesystem("memory")
    for each in ("model", name, "model.corpus"):
        files.put(str(local / each), f"{memory}/{each}", recursive=True)
    model, shares, corpus = (f"{memory}/{each}" for each in ("model", name, "model.corpus"))
    for line in (
        ("documents", "{model}", "{shares}", "--topic", 1, "--number", 3),
        ("documents", "{model}", "{shares}", "--by", "year", "--json"),
        ("documents", "{model}", "{shares}", "--outliers", "{corpus}", "--number", 2),
        ("over-time", "{model}", "{shares}", "--by", "year", "--corpus", "{corpus}"),
        ("effects", "{model}", "{shares}", "--formula", "year"),
        ("info", "{shares}", "--verify", "--json"),
    ):
        near, far = (
            printed(*(str(word).format(model=m, shares=s, corpus=c) for word in line))
            for m, s, c in (
                (local / "model", local / name, local / "model.corpus"),
                (model, shares, corpus),
            )
        )
        assert far == near
    printed("report", local / "model", local / f"{name}.html", "--shares", local / name, "--by", "year")
    printed("report", model, f"{memory}/topics.html", "--shares", shares, "--by", "year")
    page = files.cat_file(f"{memory}/topics.html").decode()
    assert page.replace(memory, str(local)) == (local / f"{name}.html").read_text()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_are_written_to_urls(suffix: str, memory: str, local: Path, tmp_path: Path) -> None:
    files, out = fsspec.filesystem("memory"), f"{memory}/out.{suffix}"
    line = ("documents", local / "model", local / "s", "--by", "year", "--out")
    printed(*line, out)
    printed(*line, tmp_path / f"out.{suffix}")
    assert files.cat_file(out) == (tmp_path / f"out.{suffix}").read_bytes()
    refused(invoked(*line, out, "--topic", 1), 2, out)
    printed(*line, out, "--topic", 1, "--overwrite")
    files.pipe_file(out, b"a diary")
    refused(invoked(*line, out, "--topic", 1, "--overwrite"), 2, out)
    assert files.cat_file(out) == b"a diary"


def test_shares_of_the_corpus_of_a_model_are_kept_beside_it(memory: str, local: Path) -> None:
    files = fsspec.filesystem("memory")
    for each in ("model", "model.corpus"):
        files.put(str(local / each), f"{memory}/{each}", recursive=True)
    far, near = sj.TopicModel(f"{memory}/model"), sj.TopicModel(local / "model")
    assert (far.corpus or near).fingerprint == (near.corpus or far).fingerprint
    pd.testing.assert_frame_equal(far.documents(topic=0), near.documents(topic=0))
    assert files.cat_file(f"{memory}/model.shares.parquet") == (local / "s.parquet").read_bytes()
    pd.testing.assert_frame_equal(far.over_time("year"), near.over_time("year"))


def same_models(one: str | Path, other: str | Path) -> None:
    first, second = read_model(one), read_model(other)
    assert first.arrays.keys() == second.arrays.keys()
    for name, values in first.arrays.items():
        np.testing.assert_array_equal(values, second.arrays[name], err_msg=name)


@pytest.mark.parametrize("scheme", ["memory", pytest.param("s3", marks=pytest.mark.slow)])
def test_texts_are_fitted_to_a_url(
    scheme: str, table: pd.DataFrame, local: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue("memory" if scheme == "memory" else "bucket")
    place = f"{root}/x-{uuid.uuid4().hex}/model"
    far = fitted(table, place)
    near = sj.TopicModel(local / "model")
    same_models(place, local / "model")
    assert (far.corpus or near).fingerprint == (near.corpus or far).fingerprint
    pd.testing.assert_frame_equal(far.documents(topic=0), near.documents(topic=0))
    texts = pd.DataFrame({"text": table["text"][:20]})
    pd.testing.assert_frame_equal(far.transform(texts, text="text"), near.transform(texts, text="text"))
    committed = read_model(place, ()).provenance["committed"]
    fitted(table, place)
    assert read_model(place, ()).provenance["committed"] == committed
    table.to_csv(tmp_path / "t.csv", index=False)
    line = ("--text", "text", "--id", "id", "--metadata", "year", "--overwrite")
    printed("transform", place, tmp_path / "t.csv", f"{place}-s", *line)
    printed("transform", local / "model", tmp_path / "t.csv", tmp_path / "s", *line)
    assert open_shares(store_path(f"{place}-s")).about == open_shares(tmp_path / "s").about
    assert is_free(store_path(f"{place}-s.corpus"))


@pytest.mark.slow
def test_estimators_keep_batches_and_scratch_behind_a_url(memory: str, tmp_path: Path) -> None:
    counts = planted(M, N, K, length=40, seed=11).counts
    found = []
    for place in (memory, str(tmp_path)):
        grown = sj.LRJSMF(K, store=f"{place}/grown", scheduler="synchronous")
        for rows in (counts[:120], counts[120:]):
            grown.partial_fit(rows)
        whole = sj.LRJSMF(K, scratch=place, polish_steps=2, scheduler="synchronous").fit(counts)
        found.append((grown.components_, whole.components_))
        again = sj.LRJSMF(K, store=f"{place}/grown", scheduler="synchronous")
        with pytest.raises(InputError):
            again.partial_fit(counts)
    for far, near in zip(*found, strict=True):
        np.testing.assert_array_equal(far, near)
    left = {name.split("/")[2] for name in fsspec.filesystem("memory").find(memory)}
    assert left == {"kept", "grown", "grown.rows"}
