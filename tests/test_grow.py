"""Stores that gain and lose corpora: the bits of having been scanned so from the start."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.changes import Changes
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.store import open_moments, read_store
from tests.corpora import as_lists, planted, words, write_corpus, write_lists
from tests.stores import SYNCHRONOUS, changed, digests, partial_names, scanned

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


def test_a_corpus_without_manifest_is_hashed_once_a_scan(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streaming_jsmf.moments import partition

    opened: list[str] = []
    monkeypatch.setattr(partition, "open_corpus", lambda path: opened.append(path) or open_corpus(path))
    scanned(folder / "a", tmp_path / "m")
    assert opened == []
    changed(folder / "a", tmp_path / "m", add=[folder / "b"])
    assert set(opened) == {str(folder / "a")}
