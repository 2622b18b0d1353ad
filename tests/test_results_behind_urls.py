"""Topic shares, tables, reports and whole fits behind URLs: the bytes of a local run, complete or absent."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest

import streaming_jsmf as sj
from streaming_jsmf import InputError
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.documents import transform_job
from streaming_jsmf.documents.share_files import open_shares
from streaming_jsmf.documents.transform_job import PartContext, write_part
from streaming_jsmf.storage.paths import store_path
from tests.corpora import file_bytes, planted, words
from tests.outcomes import invoked, printed, refused

K, N, M = 4, 60, 240
NAMES = ["s", "s.parquet", "s.zarr", "s.csv"]


@pytest.fixture
def memory() -> Iterator[str]:
    url = f"memory://{uuid.uuid4().hex}"
    fsspec.filesystem("memory").makedirs(url)
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


@pytest.mark.parametrize("scheme", ["memory", "s3"])
@pytest.mark.parametrize("name", NAMES)
def test_shares_have_the_bytes_of_local_ones(
    name: str, scheme: str, local: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root = request.getfixturevalue("memory" if scheme == "memory" else "bucket")
    out = f"{root}/{uuid.uuid4().hex}/{name}"
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


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_transform_goes_on(
    name: str, memory: str, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transform_job, "PARTITION_NONZEROS", 1000)
    out, done = f"{memory}/{name}", list[int]()

    def dying(context: PartContext, part: tuple[Partition, int]) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(part[0].index)
        return write_part(context, part)

    def transform() -> None:
        sj.transform(local / "model", local / "model.corpus", out, scheduler="synchronous")

    monkeypatch.setattr(transform_job, "write_part", dying)
    with pytest.raises(KeyboardInterrupt):
        transform()
    with pytest.raises(InputError):
        open_shares(store_path(out))
    first, second = done
    fsspec.filesystem("memory").pipe_file(f"{out}.partial/parts/part-{second:05d}.parquet", b"a crash")
    done.clear()
    monkeypatch.setattr(
        transform_job, "write_part", lambda c, part: (done.append(part[0].index), write_part(c, part))[1]
    )
    transform()
    assert (second in done, first in done) == (True, False)
    whole = tmp_path / name
    sj.transform(local / "model", local / "model.corpus", whole, scheduler="synchronous")
    assert bytes_at(out, tmp_path / "a") == bytes_at(whole, tmp_path)
