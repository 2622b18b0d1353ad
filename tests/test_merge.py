"""Stores merged: words matched by string, sums exact, eigenpairs near those of all documents together."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.store import Moments, open_moments
from tests import reference
from tests.corpora import planted, words, write_corpus
from tests.stores import SMALL, changed, dense, digests, half, scanned

ALL = planted(900, 60, 4).counts
#: Rows and columns of ALL that each corpus has: words shared, missing, and in another order.
ROWS = {"a": slice(0, 400), "b": slice(400, 650), "c": slice(650, 900)}
COLUMNS = {"a": np.arange(40), "b": np.r_[20:50][::-1], "c": np.r_[45:60, 0:25]}


def counts_of(name: str) -> NDArray[np.int64]:
    return ALL[ROWS[name]][:, COLUMNS[name]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora a, b and c, a store of each, and the store of a with b merged into it."""
    root, names = tmp_path_factory.mktemp("merge"), np.array(words(60))
    for name, columns in COLUMNS.items():
        write_corpus(root / name, counts_of(name), names=names[columns])
        scanned(root / name, root / f"of-{name}")
    changed(root / "a", shutil.copytree(root / "of-a", root / "of-ab"), merge=[root / "of-b"])
    return root


@pytest.fixture
def merged(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder / "of-ab", tmp_path / "merged")


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder / "of-a", tmp_path / "m")


def joint(moments: Moments, *names: str) -> NDArray[np.int64]:
    """All documents of the corpora over the words of a store, dense, made without the store's arrays."""
    places = {word: i for i, word in enumerate(moments.words)}
    rows = []
    for name in names:
        wide = np.zeros((counts_of(name).shape[0], len(places)), dtype=np.int64)
        wide[:, [places[words(60)[column]] for column in COLUMNS[name]]] = counts_of(name)
        rows.append(wide)
    return np.vstack(rows)


def require_moments_of(moments: Moments, counts: NDArray[np.int64], *, bound: float) -> None:
    exact, kept = dense(counts), counts[counts.sum(axis=1) >= 2]
    np.testing.assert_allclose(moments.row_sum, exact.sum(axis=1), atol=1e-15)
    np.testing.assert_array_equal(moments.term_count, kept.sum(axis=0))
    np.testing.assert_array_equal(moments.document_frequency, (kept > 0).sum(axis=0))
    n, w = kept.sum(axis=1), np.minimum(kept.sum(axis=1), 200)
    np.testing.assert_allclose(moments.diagonal, (w / (n * (n - 1))) @ kept / w.sum(), atol=1e-15)
    expected = reference.truncated_eig(exact, 4)
    assert yy_error(half(moments, 4), expected.vectors * np.sqrt(expected.values)) < bound


def test_words_are_matched_by_string_and_missing_ones_are_zero(folder: Path, tmp_path: Path) -> None:
    moments = open_moments(folder / "of-ab")
    assert moments.words == tuple(words(50)[i] for i in (*range(40), *range(49, 39, -1)))
    counts = joint(moments, "a", "b")
    assert not counts[:400, 40:].any()
    require_moments_of(moments, counts, bound=1e-5)
    rows = moments.cooccurrence_rows(np.arange(50))
    np.testing.assert_allclose(rows, dense(counts), atol=3e-6 * dense(counts).max())
    # The factor is wider than all ranks: nothing is lost in merging.
    together = write_corpus(tmp_path / "all", counts, names=moments.words)
    assert yy_error(half(moments, 4), half(scanned(together, tmp_path / "of-all"), 4)) < 1e-5


@pytest.mark.slow
def test_a_chain_in_one_command_or_two_or_from_the_other_side(
    folder: Path, store: Path, merged: Path, tmp_path: Path
) -> None:
    changed(folder / "a", store, merge=[folder / "of-b", folder / "of-c"])
    moments = changed(folder / "b", merged, merge=[folder / "of-c"])
    require_moments_of(moments, joint(moments, "a", "b", "c"), bound=1e-4)
    assert digests(store) == digests(merged)
    # Corpora of other numbers of words lie in one store, which stays readable as a whole.
    assert xr.open_zarr(str(merged), consolidated=False)["word"].size == 60
    right, other = (shutil.copytree(folder / f"of-{name}", tmp_path / name) for name in "ba")
    changed(folder / "b", right, merge=[folder / "of-c"])
    moments = changed(folder / "a", other, merge=[right])
    require_moments_of(moments, joint(moments, "a", "b", "c"), bound=1e-4)


@pytest.mark.parametrize(
    "execution",
    [Execution("threads", 3), pytest.param(Execution("processes", 2), marks=pytest.mark.slow)],
    ids=lambda e: e.scheduler,
)
def test_the_bits_of_a_merge_do_not_depend_on_the_scheduler(
    execution: Execution, folder: Path, store: Path
) -> None:
    changed(folder / "a", store, merge=[folder / "of-b"], execution=execution)
    assert digests(store) == digests(folder / "of-ab")


def test_words_that_begin_with_those_of_the_store(folder: Path, store: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "more", ALL[400:], names=words(60))
    scanned(tmp_path / "more", tmp_path / "of-more")
    moments = changed(folder / "a", store, merge=[tmp_path / "of-more"])
    wide = np.zeros((400, 60), np.int64)
    wide[:, :40] = counts_of("a")
    require_moments_of(moments, np.vstack([wide, ALL[400:]]), bound=1e-4)


def test_a_merged_store_can_grow(folder: Path, merged: Path, tmp_path: Path) -> None:
    before = open_moments(merged)
    more = np.random.default_rng(3).poisson(0.4, size=(200, 50))
    path = write_corpus(tmp_path / "more", more, names=before.words)
    counts = np.vstack([joint(before, "a", "b"), more])
    require_moments_of(changed(folder / "a", merged, add=[path]), counts, bound=1e-4)


def test_what_a_merged_store_refuses(folder: Path, merged: Path, tmp_path: Path) -> None:
    overlapping = write_corpus(tmp_path / "overlapping", counts_of("c")[:, :40])
    shutil.copy(folder / "a" / "part-00001.parquet", overlapping / "mine.parquet")
    scanned(overlapping, tmp_path / "of-overlapping")
    scanned(folder / "c", tmp_path / "uniform", replace(SMALL, document_weights="uniform"))
    for wish, said in (
        ({"add": [folder / "b"]}, f"{folder}/b .*merge=|merge=.*{folder}/b"),
        ({"add": [folder / "c"]}, f"{folder}/c .*merge=|merge=.*{folder}/c"),
        ({"merge": [folder / "of-b", folder / "of-b"]}, "already"),
        ({"merge": [merged]}, "already"),
        ({"merge": [tmp_path / "of-overlapping"]}, r"mine\.parquet"),
        ({"merge": [tmp_path / "uniform"]}, "document_weights: .*'capped', .*'uniform'"),
    ):
        with pytest.raises(InputError, match=said):
            changed(folder / "a", merged, **wish)
    assert digests(merged) == digests(folder / "of-ab")


def test_sketches_are_neither_merged_nor_taken_apart(folder: Path, tmp_path: Path) -> None:
    halko = replace(SMALL, range_finder="halko")
    for name in "ab":
        scanned(folder / name, tmp_path / name, halko)
    expected = digests(tmp_path / "a")
    for wish in ({"merge": [tmp_path / "b"]}, {"remove": [folder / "a"]}):
        with pytest.raises(InputError, match="sketch"):
            changed(folder / "a", tmp_path / "a", **wish)
    assert digests(tmp_path / "a") == expected


@pytest.mark.parametrize("which", ["first", "second"])
def test_an_incomplete_store_is_refused(which: str, folder: Path, store: Path, tmp_path: Path) -> None:
    second = shutil.copytree(folder / "of-b", tmp_path / "second")
    unfinished = store if which == "first" else second
    shutil.rmtree(unfinished / "records" / "projection")
    with pytest.raises(StoreError, match=f"{re.escape(str(unfinished))}.*projection"):
        changed(folder / "a", store, merge=[second])


def test_a_sample_of_a_corpus_that_moved_is_not_merged_but_all_documents_are(
    folder: Path, tmp_path: Path
) -> None:
    for share in (0.5, 1.0):
        settings, place = replace(SMALL, sample_share=share), tmp_path / f"{share}"
        corpus = shutil.copytree(folder / "b", place / "here")
        scanned(folder / "a", place / "m", settings)
        scanned(corpus, place / "second", settings)
        expected = digests(place / "m")
        corpus.rename(place / "there")
        if share < 1:
            with pytest.raises(InputError, match=re.escape(str(corpus))):
                changed(folder / "a", place / "m", merge=[place / "second"])
            assert digests(place / "m") == expected
        else:
            moments = changed(folder / "a", place / "m", merge=[place / "second"])
            require_moments_of(moments, joint(moments, "a", "b"), bound=1e-5)
