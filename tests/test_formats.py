"""Stores of earlier formats, kept in ``tests/data/formats``: each is migrated, or refused with what to do."""

from __future__ import annotations

import tarfile
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.interface.describe import migrate
from streaming_jsmf.moments import migrate as migration
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.store import Moments, open_moments
from streaming_jsmf.topics.store import read_model
from tests.corpora import file_bytes
from tests.outcomes import invoked, refused
from tests.stores import SYNCHRONOUS

FORMATS = Path(__file__).parent / "data" / "formats"
MIGRATED = ("format-3", "format-3-exact", "format-3-sampled", "format-3-halko", "format-4")


def unpacked(folder: Path, *names: str) -> Path:
    for name in names:
        with tarfile.open(FORMATS / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    return folder / names[0]


def require_same(found: Moments, expected: Moments) -> None:
    """The same arrays up to the rounding of another processor, and the same documents."""
    assert found.digests(third_moment=True).keys() == expected.digests(third_moment=True).keys()
    for name in set(found.digests(third_moment=True)) - {"word"}:
        signed = [np.abs(store.read(name)) for store in (found, expected)]
        np.testing.assert_allclose(*signed, rtol=1e-6, atol=1e-9, err_msg=name)
    assert found.words == expected.words
    if found.holds_documents:
        assert np.array_equal(found.sample().toarray(), expected.sample().toarray())


@pytest.mark.parametrize("name", MIGRATED)
def test_a_store_is_migrated_to_what_a_scan_makes(tmp_path: Path, name: str) -> None:
    store, corpus = unpacked(tmp_path, name), unpacked(tmp_path, "corpus")
    version = name[len("format-") :][:1]
    outcome = invoked("infer", store, tmp_path / "m", "--topics", 2)
    told = f"format version {version}, and this release reads 5; streaming-jsmf info {store} --migrate"
    refused(outcome, 2, told)

    done = invoked("info", store, "--migrate", "--verify")
    assert done.code == 0, done.err
    assert "complete and intact" in done.out
    assert f"from format {version} to 5" in done.err
    moments = open_moments(store)
    require_same(moments, scan(corpus, tmp_path / "anew", moments.settings, SYNCHRONOUS))

    before = file_bytes(store)
    assert invoked("info", store, "--migrate").code == 0
    scan(corpus, store, moments.settings, SYNCHRONOUS)  # which finds all stages, and where its corpus is now
    assert {**file_bytes(store), "zarr.json": b""} == {**before, "zarr.json": b""}


def test_topics_of_a_migrated_store_are_those_of_a_scan(tmp_path: Path) -> None:
    store, corpus = unpacked(tmp_path, "format-3"), unpacked(tmp_path, "corpus")
    migrate(store)
    scan(corpus, tmp_path / "anew", open_moments(store).settings, SYNCHRONOUS)
    models = []
    for engine in ("lr-jsmf", "stod"):
        for place in (store, tmp_path / "anew"):
            out = tmp_path / f"{place.name}-{engine}"
            assert invoked("infer", place, out, "--topics", 2, "--engine", engine).code == 0
            models.append(read_model(out).arrays["word_topic"])
    for migrated, anew in (models[:2], models[2:]):
        np.testing.assert_allclose(migrated, anew, rtol=1e-5, atol=1e-8)


def test_a_grown_store_keeps_its_documents_and_the_next_scan_computes_the_rest(tmp_path: Path) -> None:
    unpacked(tmp_path, "format-3-grown")
    store, corpus = tmp_path / "grown.moments", tmp_path / "grown.corpus"
    done = invoked("info", store, "--migrate")
    assert (done.code, "still to do" in done.out) == (0, True)
    assert "the next scan of its corpus completes it: summarizing the documents, " in done.err
    made = scan(corpus, store, execution=SYNCHRONOUS, max_topics=2)
    anew = scan(corpus, tmp_path / "anew", execution=SYNCHRONOUS, max_topics=2)
    assert np.allclose(made.row_sum, anew.row_sum)
    assert made.n_documents == anew.n_documents == 70
    assert np.allclose(made.eigenpairs(2).values, anew.eigenpairs(2).values)


@pytest.mark.parametrize("name", ["format-3", "format-4"])
def test_an_interrupted_migration_is_completed(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, corpus = unpacked(tmp_path, name), unpacked(tmp_path, "corpus")
    for step, number in (("write_record", 1), ("write_record", 3), ("replace_attributes", 0)):
        calls, write = count(), getattr(migration, step)

        def stopped(*given: object, calls: Any = calls, number: int = number, write: Any = write) -> None:
            if next(calls) == number:
                raise KeyboardInterrupt
            write(*given)

        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(migration, step, stopped)
            migrate(store)
    migrate(store)
    moments = open_moments(store)
    require_same(moments, scan(corpus, tmp_path / "anew", moments.settings, SYNCHRONOUS))
    assert not [*(store / "partials").glob("range-*")]


def test_a_damaged_part_is_computed_by_the_next_scan(tmp_path: Path) -> None:
    store, corpus = unpacked(tmp_path, "format-4"), unpacked(tmp_path, "corpus")
    part = sorted((store / "partials").glob("sums-part-*/arrays.bin"))[1]
    part.write_bytes(part.read_bytes()[:-9])
    done = invoked("info", store, "--migrate")
    assert "computes it" in done.err
    assert done.code == 3
    require_same(
        scan(corpus, store, execution=SYNCHRONOUS, max_topics=2, partition_nonzeros=100),
        scan(corpus, tmp_path / "anew", execution=SYNCHRONOUS, max_topics=2, partition_nonzeros=100),
    )


@pytest.mark.parametrize(("version", "corpus"), [(1, "CORPUS"), (2, "/srv/tiny/old-corpus")])
def test_a_store_that_does_not_serve_is_refused_and_can_be_replaced(
    tmp_path: Path, version: int, corpus: str
) -> None:
    old = unpacked(tmp_path, f"format-{version}")
    before = file_bytes(tmp_path)
    for command in (["info", old, "--migrate"], ["info", old], ["infer", old, tmp_path / "m", "--topics", 2]):
        refused(
            invoked(*command),
            2,
            f"format version {version}, and this release reads 5; nothing in it serves",
            f"streaming-jsmf scan {corpus} {old} --overwrite --max-topics 2",
        )
    assert file_bytes(tmp_path) == before
    now = unpacked(tmp_path, "corpus")
    assert invoked("scan", now, old, "--overwrite", "--max-topics", 2).code == 0
    assert open_moments(old).settings.max_topics == 2


def test_a_store_of_several_corpora_is_refused_and_kept(tmp_path: Path) -> None:
    two = unpacked(tmp_path, "format-3-corpora")
    before = file_bytes(tmp_path)
    refused(invoked("info", two, "--migrate"), 2, "holds 2 corpora")
    assert file_bytes(tmp_path) == before


def test_fit_over_older_stores_names_the_versions(tmp_path: Path) -> None:
    for name in ("format-3", "model-1", "corpus"):
        unpacked(tmp_path, name)
    fit = ["fit", tmp_path / "corpus", "--topics", 2]
    outcome = invoked(*fit, tmp_path / "new", "--moments", tmp_path / "format-3")
    refused(outcome, 2, "format version 3, and this release reads 5", "--migrate")
    refused(invoked(*fit, tmp_path / "model-1"), 2, "format version 1, and this release reads 2", "--migrate")


def test_a_model_is_migrated(tmp_path: Path) -> None:
    model, corpus = unpacked(tmp_path, "model-1"), unpacked(tmp_path, "corpus")
    with pytest.raises(InputError, match="format version 1, and this release reads 2"):
        read_model(model)
    assert "complete and intact" in invoked("info", model, "--migrate", "--verify").out
    assert invoked("topics", model).code == 0
    assert invoked("transform", model, corpus, tmp_path / "shares.parquet").code == 0
    assert open_corpus(corpus).n_documents == 60
    before = file_bytes(model)
    migrate(model)
    assert file_bytes(model) == before


def test_a_store_behind_a_url_is_migrated(tmp_path: Path) -> None:
    store, files = unpacked(tmp_path, "format-3"), fsspec.filesystem("memory")
    for path in (path for path in store.rglob("*") if path.is_file()):
        files.pipe_file(f"/formats/{path.relative_to(tmp_path)}", path.read_bytes())
    migrate("memory://formats/format-3")
    migrate(store)
    assert open_moments("memory://formats/format-3").digests() == open_moments(store).digests()
    assert not [name for name in files.find("/formats") if "range" in name or "-fold-" in name]
    files.rm("/formats", recursive=True)


def test_other_things_are_not_migrated(tmp_path: Path) -> None:
    corpus = unpacked(tmp_path, "corpus")
    refused(invoked("info", corpus, "--migrate"), 2, "is a corpus, not a moments store or a model")
