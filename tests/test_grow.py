"""Stores that gain and lose corpora: the bits of having been scanned so from the start."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.reader import open_moments
from streaming_jsmf.moments.scan_verb import Changes, scan
from streaming_jsmf.moments.store import read_store
from tests.cases import each_once
from tests.corpora import as_lists, planted, words, write_corpus, write_lists
from tests.stores import SYNCHRONOUS, changed, digests, partial_names, rename_words, scanned

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


@pytest.fixture
def of_a(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder / "of-a", tmp_path / "of-a")


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def require_untouched(store: Path, expected: dict[str, str]) -> None:
    assert not read_store(store).missing_stages
    assert digests(store) == expected
    for name in expected:
        read_store(store).read(name)


def test_what_was_added_and_removed_was_never_there(folder: Path, both: Path) -> None:
    moments = changed(folder / "a", both, remove=[folder / "b"])
    assert digests(both) == digests(folder / "of-a")
    assert moments.n_documents == 500
    # The last part of a name is random.
    left, expected = ({n.rsplit("-", 1)[0] for n in partial_names(p)} for p in (both, folder / "of-a"))
    assert left == expected


def test_the_first_corpus_may_leave_and_the_other_stays(folder: Path, both: Path) -> None:
    changed(folder / "a", both, remove=[folder / "a"])
    assert digests(both) == digests(folder / "of-b")


def test_remove_and_add_at_once(folder: Path, of_a: Path) -> None:
    changed(folder / "a", of_a, remove=[folder / "a"], add=[folder / "b"])
    assert digests(of_a) == digests(folder / "of-b")


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


def test_adding_without_kept_partitions_gives_the_same_bits(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "m"
    scanned(folder / "a", store, keep=False)
    assert digests(store) == digests(folder / "of-a")
    changed(folder / "a", store, add=[folder / "b"])
    assert digests(store) == digests(folder / "of-both")
    assert len(partial_names(store)) == 1
    with pytest.raises(InputError, match="does not keep its partitions"):
        changed(folder / "a", store, remove=[folder / "b"])
    require_untouched(store, digests(folder / "of-both"))


def test_two_corpora_at_once_are_two_one_after_the_other(folder: Path, tmp_path: Path) -> None:
    pieces = [
        write_corpus(tmp_path / str(i), rows, shards=1) for i, rows in enumerate(np.split(COUNTS[500:], 2))
    ]
    for name in ("once", "twice"):
        shutil.copytree(folder / "of-a", tmp_path / name)
    changed(folder / "a", tmp_path / "once", add=pieces)
    for piece in pieces:
        changed(folder / "a", tmp_path / "twice", add=[piece])
    assert digests(tmp_path / "once") == digests(tmp_path / "twice")


def test_a_shard_counts_once(folder: Path, both: Path, tmp_path: Path) -> None:
    expected = digests(both)
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(folder / "b" / "part-00001.parquet", copy / "renamed.parquet")
    shutil.copy(folder / "b" / "vocab.txt", copy)
    for path, name in ((folder / "b", "part-00000.parquet"), (copy, "renamed.parquet")):
        with pytest.raises(InputError, match="is in the store already") as error:
            changed(folder / "a", both, add=[path])
        assert str(path / name) in one_line(error)
    with pytest.raises(InputError, match=r"is in .* already") as error:
        changed(folder / "a", both, merge=[folder / "of-b"])
    assert str(folder / "of-b") in one_line(error)
    require_untouched(both, expected)


def test_equal_shards_of_one_corpus_both_count_and_empty_ones_do_not_clash(tmp_path: Path) -> None:
    paths = []
    for name, rows in (("a", COUNTS[:100]), ("b", COUNTS[100:200])):
        path = write_corpus(tmp_path / name, rows, shards=1)
        shutil.copy(path / "part-00000.parquet", path / "again.parquet")
        write_lists(path / "empty.parquet", [], [])
        paths.append(path)
    scanned(paths[0], tmp_path / "m", ScanSettings(max_topics=3, partition_nonzeros=500), keep=False)
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


def test_a_shard_that_fills_its_partitions_can_go(by_shard: Path, tmp_path: Path) -> None:
    store = shutil.copytree(by_shard / "m", tmp_path / "m")
    rest = write_corpus(tmp_path / "rest", COUNTS[:120], shards=2, row_group_rows=60)
    budget = read_store(store).settings
    moments = changed(by_shard / "c", store, remove=["part-00002.parquet"])
    assert moments.n_documents == 120
    scanned(rest, tmp_path / "never", budget)
    assert digests(store) == digests(tmp_path / "never")
    # The store is told from one of the whole corpus.
    assert list(read_store(store).manifest.corpora[0].shards) == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["part-00000.parquet"], "part-00000.parquet shares a partition with part-00001.parquet"),
        (["nowhere"], "nowhere is not in the store"),
        (["part-00002.parquet", "nowhere"], "nowhere is not in the store"),
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


def test_both_shards_of_a_partition_can_go_together(by_shard: Path, tmp_path: Path) -> None:
    store = shutil.copytree(by_shard / "m", tmp_path / "m")
    moments = changed(
        by_shard / "c", store, remove=["part-00000.parquet", by_shard / "c" / "part-00001.parquet"]
    )
    assert moments.n_documents == 300


def test_a_shard_name_of_two_corpora_needs_its_path(folder: Path, both: Path) -> None:
    with pytest.raises(InputError, match=r"part-00000\.parquet could be any of") as error:
        changed(folder / "a", both, remove=["part-00000.parquet"])
    for corpus in ("a", "b"):
        assert str(folder / corpus / "part-00000.parquet") in one_line(error)


BAD = {"record": InputError, "truncated": StoreError}


@pytest.mark.parametrize(("kind", "keep"), each_once(list(BAD), [True, False]))
def test_a_bad_corpus_leaves_the_store_as_it_was(kind: str, keep: bool, folder: Path, tmp_path: Path) -> None:
    store, bad = tmp_path / "m", shutil.copytree(folder / "b", tmp_path / "bad")
    scanned(folder / "a", store, keep=keep)
    last = sorted(bad.glob("*.parquet"))[-1]
    if kind == "record":
        ids, counts = as_lists(COUNTS[700:])
        counts[-1][0] = -3
        write_lists(last, ids, counts)
        refused = pytest.raises(InputError, match="-3")
    else:
        # A page in the middle: the footer is whole, so that the damage is met by a task.
        data = bytearray(last.read_bytes())
        data[len(data) // 2 : len(data) // 2 + 40] = b"\xff" * 40
        last.write_bytes(bytes(data))
        refused = pytest.raises((InputError, StoreError), match=last.name)
    before = partial_names(store)
    with refused as error:
        changed(folder / "a", store, add=[bad])
    one_line(error)
    require_untouched(store, digests(folder / "of-a"))
    assert read_store(store).manifest.corpora == read_store(folder / "of-a").manifest.corpora
    assert partial_names(store) == before
    changed(folder / "a", store, add=[folder / "b"])
    assert digests(store) == digests(folder / "of-both")


def test_words_in_another_order_are_other_words(folder: Path, both: Path, tmp_path: Path) -> None:
    other = rename_words(write_corpus(tmp_path / "c", COUNTS[:50]), words(60)[::-1])
    with pytest.raises(InputError, match=r"has other words than .* --merge") as error:
        changed(folder / "a", both, add=[other])
    assert str(other) in one_line(error)


def test_a_changed_store_is_that_of_its_own_corpora_and_settings(
    folder: Path, both: Path, tmp_path: Path
) -> None:
    other = write_corpus(tmp_path / "c", COUNTS[:50])
    with pytest.raises(SettingsMismatchError, match="was not made of"):
        changed(other, both, remove=[folder / "b"])
    with pytest.raises(SettingsMismatchError, match="settings of its own"):
        scan(folder / "a", both, ScanSettings(seed=1), SYNCHRONOUS, changes=Changes(add=[str(other)]))
    scanned(folder / "a", tmp_path / "m", keep=False)
    with pytest.raises(SettingsMismatchError, match="without --keep-partitions"):
        scan(
            folder / "a",
            tmp_path / "m",
            None,
            SYNCHRONOUS,
            keep_partitions=True,
            changes=Changes(add=[str(other)]),
        )
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


@pytest.fixture
def left(moved: Path, tmp_path: Path) -> Path:
    """A copy of its store."""
    return shutil.copytree(moved / "m", tmp_path / "m")


def test_a_corpus_that_moved_is_named_and_the_store_stays(folder: Path, moved: Path, left: Path) -> None:
    with pytest.raises(InputError, match="put it back") as error:
        changed(folder / "a", left, add=[folder / "b"])
    assert str(moved / "here") in one_line(error)
    require_untouched(left, digests(folder / "of-a"))


def test_a_store_follows_its_corpus(folder: Path, moved: Path, left: Path) -> None:
    scanned(moved / "there", left)
    changed(moved / "there", left, add=[folder / "b"])
    assert digests(left) == digests(folder / "of-both")


def test_an_unfinished_scan_of_a_corpus_that_moved_is_not_thrown_away(
    folder: Path, moved: Path, left: Path
) -> None:
    shutil.rmtree(left / "records" / "projection")
    with pytest.raises(StoreError, match="missing projection"):
        open_moments(left)
    scanned(moved / "there", left)
    assert digests(left) == digests(folder / "of-a")


def test_a_removal_that_leaves_no_pair_of_words_is_refused(tmp_path: Path) -> None:
    good, poor = (
        write_corpus(tmp_path / "good", COUNTS[:50]),
        write_corpus(tmp_path / "poor", np.eye(60, dtype=int)),
    )
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
