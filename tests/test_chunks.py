"""Uncompressed local chunks written without Zarr are those that Zarr writes; folds in memory are handed out once."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_jsmf.errors import StoreError
from streaming_jsmf.storage import arrays
from streaming_jsmf.storage.arrays import read_array, write_array

DTYPES = ("float64", "float32", "int64", "int32", "bool")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 256)


def files_of(array: Path) -> dict[str, bytes]:
    """The files of the chunks of an array."""
    files = (path for path in (array / "c").rglob("*") if path.is_file())
    return {str(file.relative_to(array)): file.read_bytes() for file in files}


@pytest.mark.usefixtures("small_chunks")
@given(st.lists(st.integers(0, 40), min_size=1, max_size=2), st.sampled_from(DTYPES), st.booleans())
@settings(deadline=None, max_examples=25)
def test_zarr_reads_what_is_written_and_the_other_way_round(
    shape: list[int], dtype: str, turned: bool
) -> None:
    values = (np.arange(np.prod(shape)).reshape(shape) % 7).astype(dtype)
    values = values.T if turned else values
    with tempfile.TemporaryDirectory() as folder:
        place, names = Path(folder), ("a", "b")[: values.ndim]
        digest = write_array(place, "ours", values, names)
        read = zarr.open_array(str(place / "ours"), mode="r")
        np.testing.assert_array_equal(read[...], values)
        again = zarr.create_array(
            str(place / "zarr"), shape=values.shape, dtype=dtype, chunks=read.chunks, compressors=None
        )
        again[...] = values
        for name in ("ours", "zarr"):
            found = read_array(place, name, digest)
            assert found.dtype == values.dtype
            np.testing.assert_array_equal(found, values)
        ours, of_zarr = files_of(place / "ours"), files_of(place / "zarr")
        # Zarr omits chunks of zeros by default.
        assert of_zarr.items() <= ours.items()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("size", [0, 100, 300])
def test_a_chunk_of_another_size_is_damaged(size: int, tmp_path: Path) -> None:
    digest = write_array(tmp_path, "a", np.arange(100.0), ["x"])
    chunk = tmp_path / "a" / "c" / "1"
    chunk.write_bytes(chunk.read_bytes()[:size].ljust(size, b"x"))
    with pytest.raises(StoreError, match="damaged"):
        read_array(tmp_path, "a", digest)


@pytest.mark.usefixtures("small_chunks")
def test_a_missing_or_altered_chunk_differs_from_its_digest(tmp_path: Path) -> None:
    digest = write_array(tmp_path, "a", np.arange(100.0), ["x"])
    chunk = tmp_path / "a" / "c" / "1"
    content = chunk.read_bytes()
    chunk.write_bytes(content[::-1])
    with pytest.raises(StoreError, match="digest"):
        read_array(tmp_path, "a", digest)
    chunk.unlink()
    with pytest.raises(StoreError, match="digest"):
        read_array(tmp_path, "a", digest)


@pytest.mark.parametrize("size", [10**30, 0])
def test_a_chunk_size_that_no_array_can_have_is_damage(size: int, tmp_path: Path) -> None:
    digest = write_array(tmp_path, "a", np.arange(100.0), ["x"])
    metadata = tmp_path / "a" / "zarr.json"
    described = json.loads(metadata.read_text(encoding="utf-8"))
    described["chunk_grid"]["configuration"]["chunk_shape"] = [size]
    metadata.write_text(json.dumps(described), encoding="utf-8")
    with pytest.raises(StoreError, match="damaged"):
        read_array(tmp_path, "a", digest)
