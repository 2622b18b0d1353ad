"""Stores that gain and lose corpora, and stores merged."""

from __future__ import annotations

import pickle
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

from pipelines.common.matching import yy_error
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.changes import Changes
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.stages.eigenpairs import ProductReduction
from streaming_jsmf.moments.store import Moments, open_moments, read_store
from tests import reference
from tests.corpora import as_lists, planted, words, write_corpus, write_lists
from tests.stores import SMALL, SYNCHRONOUS, changed, dense, digests, half, partial_names, scanned

COUNTS = planted(900, 60, 4).counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora a and b of other documents, their stores, and the store of a that b was added to."""
    root = tmp_path_factory.mktemp("grow")
    a, b = write_corpus(root / "a", COUNTS[:500]), write_corpus(root / "b", COUNTS[500:], shards=2)
    scanned(a, root / "of-a")
    scanned(b, root / "of-b")
    shutil.copytree(root / "of-a", root / "of-both")
    changed(a, root / "of-both", add=[b])
    assert digests(root / "of-both") != digests(root / "of-a")
    return root


@pytest.fixture
def both(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder / "of-both", tmp_path / "both")


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def require_untouched(store: Path, expected: dict[str, str]) -> None:
    assert not read_store(store).missing_stages
    assert digests(store) == expected
    for name in expected:
        read_store(store).read(name)


@pytest.mark.parametrize(
    ("start", "removed", "added", "end"),
    [("of-both", "a", [], "of-b"), ("of-a", "a", ["b"], "of-b")],
)
def test_added_and_removed_documents_leave_no_trace(
    start: str, removed: str, added: list[str], end: str, folder: Path, tmp_path: Path
) -> None:
    store = shutil.copytree(folder / start, tmp_path / "m")
    moments = changed(folder / "a", store, remove=[folder / removed], add=[folder / name for name in added])
    assert digests(store) == digests(folder / end)
    assert moments.n_documents == 400
    # The last part of a name is random.
    left, expected = ({n.rsplit("-", 1)[0] for n in partial_names(p)} for p in (store, folder / end))
    assert left == expected


@pytest.mark.parametrize(
    "execution",
    [
        Execution("threads", 3),
        *(pytest.param(one, marks=pytest.mark.slow) for one in (SYNCHRONOUS, Execution("processes", 2))),
    ],
    ids=lambda e: e.scheduler,
)
def test_adding_is_merging_on_every_scheduler(execution: Execution, folder: Path, tmp_path: Path) -> None:
    a, b = folder / "a", folder / "b"
    scanned(a, tmp_path / "added", execution=execution)
    changed(a, tmp_path / "added", add=[b], execution=execution)
    assert digests(tmp_path / "added") == digests(folder / "of-both")
    shutil.copytree(folder / "of-a", tmp_path / "merged")
    changed(a, tmp_path / "merged", merge=[folder / "of-b"], execution=execution)
    assert digests(tmp_path / "merged") == digests(folder / "of-both")


def test_a_task_elsewhere_reads_the_basis_of_the_store(folder: Path) -> None:
    store = read_store(folder / "of-a")
    for columns in (slice(None), slice(2, 5)):
        sent = pickle.loads(pickle.dumps(ProductReduction.of(store, "basis", columns)))
        expected = store.read("basis")[:, columns].astype(np.float32)
        np.testing.assert_array_equal(sent.read_basis(), expected)


@pytest.mark.parametrize("change", [{"add": "b"}, {"merge": "of-b"}])
def test_a_change_that_needs_more_memory_is_refused_before_it_begins(
    change: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    store, small = shutil.copytree(folder / "of-a", tmp_path / "m"), Execution("synchronous", memory=1 << 20)
    paths = {name: [folder / source] for name, source in change.items()}
    with pytest.raises(InputError, match=r"MiB and memory allows 1\.00 MiB"):
        changed(folder / "a", store, execution=small, **paths)
    require_untouched(store, digests(folder / "of-a"))


def test_two_corpora_at_once_are_two_one_after_the_other(folder: Path, tmp_path: Path) -> None:
    once, twice = (shutil.copytree(folder / "of-a", tmp_path / name) for name in ("once", "twice"))
    pieces = [write_corpus(tmp_path / f"{i}", COUNTS[i : i + 200], shards=1) for i in (500, 700)]
    changed(folder / "a", once, add=pieces)
    for piece in pieces:
        changed(folder / "a", twice, add=[piece])
    assert digests(once) == digests(twice)


def test_a_shard_counts_once(folder: Path, both: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(folder / "b" / "part-00001.parquet", copy / "renamed.parquet")
    shutil.copy(folder / "b" / "vocab.txt", copy)
    for change, named in (
        ({"add": [folder / "b", copy]}, folder / "b" / "part-00000.parquet"),
        ({"add": [copy]}, copy / "renamed.parquet"),
        ({"merge": [folder / "of-b"]}, folder / "of-b"),
    ):
        with pytest.raises(InputError, match="already") as error:
            changed(folder / "a", both, **change)
        assert str(named) in one_line(error)
    require_untouched(both, digests(folder / "of-both"))


def test_equal_shards_of_one_corpus_both_count_and_empty_ones_do_not_clash(tmp_path: Path) -> None:
    paths = []
    for name, rows in (("a", COUNTS[:100]), ("b", COUNTS[100:200])):
        path = write_corpus(tmp_path / name, rows, shards=1)
        shutil.copy(path / "part-00000.parquet", path / "again.parquet")
        write_lists(path / "empty.parquet", [], [])
        paths.append(path)
    scanned(paths[0], tmp_path / "m", ScanSettings(max_topics=3, partition_nonzeros=500))
    moments = changed(paths[0], tmp_path / "m", add=[paths[1]])
    assert moments.n_documents == 400
    np.testing.assert_array_equal(moments.term_count, 2 * COUNTS[:200].sum(axis=0))


@pytest.fixture(scope="module")
def by_shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus whose third shard fills partitions of its own; the other two share one."""
    root = tmp_path_factory.mktemp("shards")
    path = write_corpus(root / "c", COUNTS[:120], shards=2, row_group_rows=60)
    write_lists(path / "part-00002.parquet", *as_lists(COUNTS[200:500]), row_group_rows=100)
    nonzeros = int((COUNTS[:120] > 0).sum() + (COUNTS[200:500] > 0).sum())
    scanned(path, root / "m", ScanSettings(max_topics=5, partition_nonzeros=-(-nonzeros // 3)))
    first = read_store(root / "m").manifest.partitions[0]
    assert [name for name, _ in first.units] == ["part-00000.parquet", "part-00001.parquet"]
    return root


@pytest.mark.parametrize(
    ("removed", "n_documents"),
    [(["part-00002.parquet"], 120), (["part-00000.parquet", "c/part-00001.parquet"], 300)],
    ids=["alone in its partitions", "all of a partition"],
)
def test_shards_that_share_no_partition_with_others_can_go(
    removed: list[str], n_documents: int, by_shard: Path, tmp_path: Path
) -> None:
    store = shutil.copytree(by_shard / "m", tmp_path / "m")
    names = [by_shard / name if "/" in name else name for name in removed]
    assert changed(by_shard / "c", store, remove=names).n_documents == n_documents
    rest = shutil.copytree(by_shard / "c", tmp_path / "rest")
    for name in removed:
        (rest / Path(name).name).unlink()
    # The store is told from one of the whole corpus.
    left = sorted(path.name for path in rest.glob("*.parquet"))
    assert list(read_store(store).manifest.corpora[0].shards) == left
    if n_documents == 120:
        # Partitions are planned for a whole corpus: here alone they are those of the rest.
        scanned(rest, tmp_path / "never", read_store(store).settings)
        assert digests(store) == digests(tmp_path / "never")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["part-00000.parquet"], "part-00000.parquet shares a partition with part-00001.parquet"),
        (["nowhere"], "nowhere"),
        (["part-00002.parquet", "nowhere"], "nowhere"),
        (["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"], "nothing would be left"),
    ],
    ids=["shared", "unknown", "one unknown", "everything"],
)
def test_what_cannot_be_removed(names: list[str], said: str, by_shard: Path, tmp_path: Path) -> None:
    store = shutil.copytree(by_shard / "m", tmp_path / "m")
    with pytest.raises(InputError) as error:
        changed(by_shard / "c", store, remove=names)
    assert said in one_line(error)
    require_untouched(store, digests(by_shard / "m"))


def test_a_shard_name_of_two_corpora_needs_its_path(folder: Path, both: Path) -> None:
    with pytest.raises(InputError, match=r"part-00000\.parquet") as error:
        changed(folder / "a", both, remove=["part-00000.parquet"])
    for corpus in ("a", "b"):
        assert str(folder / corpus / "part-00000.parquet") in one_line(error)


def test_a_changed_store_is_that_of_its_own_corpora_and_settings(
    folder: Path, both: Path, tmp_path: Path
) -> None:
    other = write_corpus(tmp_path / "c", COUNTS[:50], names=words(60)[::-1])
    with pytest.raises(InputError, match="merge") as error:
        changed(folder / "a", both, add=[other])
    assert str(other) in one_line(error)
    with pytest.raises(SettingsMismatchError, match=re.escape(str(other))):
        changed(other, both, remove=[folder / "b"])
    changes = Changes(add=[str(other)])
    with pytest.raises(SettingsMismatchError, match=re.escape(str(both))):
        scan(folder / "a", both, ScanSettings(seed=1), SYNCHRONOUS, changes=changes)
    require_untouched(both, digests(folder / "of-both"))


def test_a_scan_of_one_corpus_says_what_else_the_store_holds(
    folder: Path, both: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scanned(folder / "a", both)
    assert f"{both} holds more than {folder / 'a'}: {folder / 'b'}" in caplog.text


@pytest.fixture(scope="module")
def moved(folder: Path) -> Path:
    """A copy of corpus a, ``here`` when it was scanned into m with its partitions kept, and ``there`` now."""
    root = folder / "moved"
    corpus = shutil.copytree(folder / "a", root / "here")
    scanned(corpus, root / "m")
    corpus.rename(root / "there")
    return root


def test_a_corpus_that_moved_is_named_and_the_store_stays(folder: Path, moved: Path, tmp_path: Path) -> None:
    store = shutil.copytree(moved / "m", tmp_path / "m")
    with pytest.raises(InputError, match=re.escape(str(moved / "here"))) as error:
        changed(folder / "a", store, add=[folder / "b"])
    one_line(error)
    require_untouched(store, digests(folder / "of-a"))


@pytest.mark.parametrize("unfinished", [False, True])
def test_a_store_follows_its_corpus(unfinished: bool, folder: Path, moved: Path, tmp_path: Path) -> None:
    store = shutil.copytree(moved / "m", tmp_path / "m")
    if unfinished:
        shutil.rmtree(store / "records" / "projection")
        with pytest.raises(StoreError, match="missing projection"):
            open_moments(store)
    scanned(moved / "there", store)
    assert digests(store) == digests(folder / "of-a")
    changed(moved / "there", store, add=[folder / "b"])
    assert digests(store) == digests(folder / "of-both")


def test_a_removal_that_leaves_no_pair_of_words_is_refused(tmp_path: Path) -> None:
    good = write_corpus(tmp_path / "good", COUNTS[:50])
    poor = write_corpus(tmp_path / "poor", np.eye(60, dtype=int))
    scanned(good, tmp_path / "m")
    changed(good, tmp_path / "m", add=[poor])
    expected = digests(tmp_path / "m")
    with pytest.raises(InputError, match="two tokens"):
        changed(good, tmp_path / "m", remove=[good])
    require_untouched(tmp_path / "m", expected)


# -- Stores merged: words matched by string, sums exact, eigenpairs near those of all documents together --


#: Rows and columns of COUNTS that each corpus has: words shared, missing, and in another order.
ROWS = {"a": slice(0, 400), "b": slice(400, 650), "c": slice(650, 900)}
COLUMNS = {"a": np.arange(40), "b": np.r_[20:50][::-1], "c": np.r_[45:60, 0:25]}


def counts_of(name: str) -> NDArray[np.int64]:
    return COUNTS[ROWS[name]][:, COLUMNS[name]]


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora a, b and c, a store of each, and the store of a with b merged into it."""
    root, names = tmp_path_factory.mktemp("merge"), np.array(words(60))
    for name, columns in COLUMNS.items():
        write_corpus(root / name, counts_of(name), names=names[columns])
        scanned(root / name, root / f"of-{name}")
    changed(root / "a", shutil.copytree(root / "of-a", root / "of-ab"), merge=[root / "of-b"])
    return root


@pytest.fixture
def merged(apart: Path, tmp_path: Path) -> Path:
    return shutil.copytree(apart / "of-ab", tmp_path / "merged")


@pytest.fixture
def store(apart: Path, tmp_path: Path) -> Path:
    return shutil.copytree(apart / "of-a", tmp_path / "m")


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


def test_words_are_matched_by_string_and_missing_ones_are_zero(apart: Path, tmp_path: Path) -> None:
    moments = open_moments(apart / "of-ab")
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
    apart: Path, store: Path, merged: Path, tmp_path: Path
) -> None:
    changed(apart / "a", store, merge=[apart / "of-b", apart / "of-c"])
    moments = changed(apart / "b", merged, merge=[apart / "of-c"])
    require_moments_of(moments, joint(moments, "a", "b", "c"), bound=1e-4)
    assert digests(store) == digests(merged)
    # Corpora of other numbers of words lie in one store, which stays readable as a whole.
    assert xr.open_zarr(str(merged), consolidated=False)["word"].size == 60
    right, other = (shutil.copytree(apart / f"of-{name}", tmp_path / name) for name in "ba")
    changed(apart / "b", right, merge=[apart / "of-c"])
    moments = changed(apart / "a", other, merge=[right])
    require_moments_of(moments, joint(moments, "a", "b", "c"), bound=1e-4)


def test_words_that_begin_with_those_of_the_store(apart: Path, store: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "more", COUNTS[400:], names=words(60))
    scanned(tmp_path / "more", tmp_path / "of-more")
    moments = changed(apart / "a", store, merge=[tmp_path / "of-more"])
    wide = np.zeros((400, 60), np.int64)
    wide[:, :40] = counts_of("a")
    require_moments_of(moments, np.vstack([wide, COUNTS[400:]]), bound=1e-4)


def test_a_merged_store_can_grow(apart: Path, merged: Path, tmp_path: Path) -> None:
    before = open_moments(merged)
    more = np.random.default_rng(3).poisson(0.4, size=(200, 50))
    path = write_corpus(tmp_path / "more", more, names=before.words)
    counts = np.vstack([joint(before, "a", "b"), more])
    require_moments_of(changed(apart / "a", merged, add=[path]), counts, bound=1e-4)


def test_what_a_merged_store_refuses(apart: Path, merged: Path, tmp_path: Path) -> None:
    overlapping = write_corpus(tmp_path / "overlapping", counts_of("c")[:, :40])
    shutil.copy(apart / "a" / "part-00001.parquet", overlapping / "mine.parquet")
    scanned(overlapping, tmp_path / "of-overlapping")
    scanned(apart / "c", tmp_path / "uniform", replace(SMALL, document_weights="uniform"))
    for wish, said in (
        ({"add": [apart / "b"]}, f"{apart}/b .*merge=|merge=.*{apart}/b"),
        ({"add": [apart / "c"]}, f"{apart}/c .*merge=|merge=.*{apart}/c"),
        ({"merge": [apart / "of-b", apart / "of-b"]}, "already"),
        ({"merge": [merged]}, "already"),
        ({"merge": [tmp_path / "of-overlapping"]}, r"mine\.parquet"),
        ({"merge": [tmp_path / "uniform"]}, "document_weights: .*'capped', .*'uniform'"),
    ):
        with pytest.raises(InputError, match=said):
            changed(apart / "a", merged, **wish)
    assert digests(merged) == digests(apart / "of-ab")


def test_sketches_are_neither_merged_nor_taken_apart(apart: Path, tmp_path: Path) -> None:
    halko = replace(SMALL, range_finder="halko")
    for name in "ab":
        scanned(apart / name, tmp_path / name, halko)
    expected = digests(tmp_path / "a")
    for wish in ({"merge": [tmp_path / "b"]}, {"remove": [apart / "a"]}):
        with pytest.raises(InputError, match="sketch"):
            changed(apart / "a", tmp_path / "a", **wish)
    assert digests(tmp_path / "a") == expected


@pytest.mark.parametrize("which", ["first", "second"])
def test_an_incomplete_store_is_refused(which: str, apart: Path, store: Path, tmp_path: Path) -> None:
    second = shutil.copytree(apart / "of-b", tmp_path / "second")
    unfinished = store if which == "first" else second
    shutil.rmtree(unfinished / "records" / "projection")
    with pytest.raises(StoreError, match=f"{re.escape(str(unfinished))}.*projection"):
        changed(apart / "a", store, merge=[second])


def test_a_sample_of_a_corpus_that_moved_is_not_merged_but_all_documents_are(
    apart: Path, tmp_path: Path
) -> None:
    for share in (0.5, 1.0):
        settings, place = replace(SMALL, sample_share=share), tmp_path / f"{share}"
        corpus = shutil.copytree(apart / "b", place / "here")
        scanned(apart / "a", place / "m", settings)
        scanned(corpus, place / "second", settings)
        expected = digests(place / "m")
        corpus.rename(place / "there")
        if share < 1:
            with pytest.raises(InputError, match=re.escape(str(corpus))):
                changed(apart / "a", place / "m", merge=[place / "second"])
            assert digests(place / "m") == expected
        else:
            moments = changed(apart / "a", place / "m", merge=[place / "second"])
            require_moments_of(moments, joint(moments, "a", "b"), bound=1e-5)
