"""Moments stores that follow a corpus whose shards have changed: the bits of a new scan of the same partitions."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipelines.common.matching import yy_error
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.integrity import require_intact
from streaming_jsmf.moments.manifest import new_manifest
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.stages.eigenpairs import ProductReduction
from streaming_jsmf.moments.stages.sums import SumsReduction
from streaming_jsmf.moments.store import open_moments, read_store
from tests import reference
from tests.cases import first_cases
from tests.corpora import as_lists, planted, words, write_corpus, write_lists
from tests.damage import truncated
from tests.outcomes import invoked, refused
from tests.processes import held, killed
from tests.stores import (
    SMALL,
    SYNCHRONOUS,
    dense,
    digests,
    followed,
    half,
    made_anew,
    partial_names,
    rename_words,
    require_moments,
    scanned,
)

COUNTS = planted(900, 60, 4).counts
#: Each shard of 100 documents, of about 2,200 nonzeros, is a partition.
PLAIN = replace(SMALL, partition_nonzeros=2500)


def write_shard(corpus: Path, number: int) -> None:
    """Write the documents from ``100 number`` on as a shard of the corpus."""
    rows = COUNTS[100 * number :][:100]
    write_lists(corpus / f"part-{number:05d}.parquet", *as_lists(rows), row_group_rows=100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpus a of shards 0 to 4, b of shards 0 to 8, and the store of a and of a that has become b."""
    root = tmp_path_factory.mktemp("grow")
    write_corpus(root / "a", COUNTS[:500], shards=5, row_group_rows=100)
    shutil.copytree(root / "a", root / "b")
    for number in range(5, 9):
        write_shard(root / "b", number)
    scanned(root / "a", root / "of-a", PLAIN)
    followed(root / "b", shutil.copytree(root / "of-a", root / "of-b"))
    assert digests(root / "of-b") != digests(root / "of-a")
    return root


@pytest.fixture
def corpus(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder / "a", tmp_path / "c"))


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder / "of-a", tmp_path / "m"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The contents of the partitions that pass 1 reads from now on."""
    compute, contents = SumsReduction.compute, list[str]()

    def reading(self: SumsReduction, partition: Any) -> Any:
        contents.append(partition.content)
        return compute(self, partition)

    monkeypatch.setattr(SumsReduction, "compute", reading)
    return contents


def require_untouched(store: Path, expected: Path) -> None:
    assert read_store(store).manifest == read_store(expected).manifest
    assert digests(store) == digests(expected)
    assert partial_names(store, "") == partial_names(expected, "")
    require_intact(read_store(store))


def contents(store: Path) -> set[str]:
    return set(read_store(store).manifest.contents)


def documents(*shards: int) -> NDArray[np.int64]:
    return np.vstack([COUNTS[100 * number :][:100] for number in shards])


def removed(corpus: Path) -> NDArray[np.int64]:
    (corpus / "part-00001.parquet").unlink()
    return documents(0, 2, 3, 4)


def added(corpus: Path) -> NDArray[np.int64]:
    write_shard(corpus, 5)
    write_shard(corpus, 6)
    return documents(*range(7))


def replaced(corpus: Path) -> NDArray[np.int64]:
    write_shard(corpus, 7)
    (corpus / "part-00007.parquet").rename(corpus / "part-00002.parquet")
    return documents(0, 1, 7, 3, 4)


def renamed(corpus: Path) -> NDArray[np.int64]:
    (corpus / "part-00000.parquet").rename(corpus / "zero.parquet")
    return documents(*range(5))


def copied(corpus: Path) -> NDArray[np.int64]:
    """A shard counts as often as it is there; one without documents changes nothing."""
    shutil.copy(corpus / "part-00003.parquet", corpus / "again.parquet")
    write_lists(corpus / "empty.parquet", [], [])
    return documents(*range(5), 3)


@pytest.mark.parametrize(
    ("change", "read_again"),
    first_cases([(removed, 0), (added, 2), (replaced, 1), (renamed, 0), (copied, 1)], 3),
)
def test_a_store_becomes_what_a_new_scan_of_its_partitions_gives(
    change: Callable[[Path], NDArray[np.int64]],
    read_again: int,
    corpus: Path,
    store: Path,
    tmp_path: Path,
    read: list[str],
) -> None:
    known, counts = contents(store), change(corpus)
    moments = followed(corpus, store)
    assert len(read) == read_again
    assert set(read) == {name.partition(" repeat")[0] for name in contents(store) - known}
    kept = counts[counts.sum(axis=1) >= 2]
    assert moments.n_documents == len(kept)
    np.testing.assert_array_equal(moments.term_count, kept.sum(axis=0))
    expected = reference.truncated_eig(dense(counts), 4)
    assert yy_error(half(moments, 4), expected.vectors * np.sqrt(expected.values)) < 1e-5
    made_anew(corpus, store, tmp_path / "anew")
    assert digests(store) == digests(tmp_path / "anew")
    read.clear()
    followed(corpus, store)
    scanned(corpus, store, PLAIN)
    assert read == [], "it has followed"


def test_a_corpus_that_is_as_it_was_leaves_no_trace_of_what_it_was_meanwhile(
    folder: Path, store: Path
) -> None:
    followed(folder / "b", store)
    followed(folder / "a", store)
    assert digests(store) == digests(folder / "of-a")
    left, expected = ({n.rsplit("-", 1)[0] for n in partial_names(p, "")} for p in (store, folder / "of-a"))
    assert left == expected


@pytest.mark.parametrize(
    "execution",
    [
        Execution("threads", 3),
        *(pytest.param(one, marks=pytest.mark.slow) for one in (SYNCHRONOUS, Execution("processes", 2))),
    ],
    ids=lambda e: e.scheduler,
)
def test_the_scheduler_changes_no_bit(execution: Execution, folder: Path, store: Path) -> None:
    followed(folder / "b", store, execution=execution)
    assert digests(store) == digests(folder / "of-b")


def test_a_task_elsewhere_reads_the_basis_of_the_store(folder: Path) -> None:
    store = read_store(folder / "of-a")
    for columns in (slice(None), slice(2, 5)):
        sent = pickle.loads(pickle.dumps(ProductReduction.of(store, "basis", columns)))
        expected = store.read("basis")[:, columns].astype(np.float32)
        np.testing.assert_array_equal(sent.read_basis(), expected)


def test_small_partitions_are_planned_again(corpus: Path, tmp_path: Path, read: list[str]) -> None:
    (corpus / "part-00004.parquet").unlink()
    scanned(corpus, tmp_path / "m", replace(PLAIN, partition_nonzeros=9000))
    for number, shards in ((5, [[0, 1], [2, 3], [5]]), (6, [[0, 1], [2, 3], [5, 6]])):
        write_shard(corpus, number)
        read.clear()
        partitions = followed(corpus, tmp_path / "m").manifest.partitions
        assert [each.units for each in partitions] == [
            tuple((f"part-{shard:05d}.parquet", 0) for shard in units) for units in shards
        ]
        assert read == [partitions[-1].content]


def test_a_corpus_that_has_outgrown_its_sample_is_planned_anew(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_jsmf.config.scan.HELD_NONZEROS", 10_000)
    monkeypatch.setattr("streaming_jsmf.config.scan.SAMPLED_DOCUMENTS", 150)
    assert scanned(corpus, tmp_path / "m", PLAIN).manifest.sample_share == pytest.approx(150 / 500)
    (corpus / "part-00000.parquet").unlink()
    write_shard(corpus, 5)
    write_shard(corpus, 6)
    moments = followed(corpus, tmp_path / "m")
    assert moments.manifest.sample_share == pytest.approx(150 / 500)
    for number in (3, 4, 5):
        (corpus / f"part-{number:05d}.parquet").unlink()
    for number in (0, 7, 8):
        write_shard(corpus, number)
    monkeypatch.setattr("streaming_jsmf.config.scan.SAMPLED_DOCUMENTS", 60)
    moments = followed(corpus, tmp_path / "m")
    assert moments.manifest == new_manifest(open_corpus(corpus), PLAIN)
    assert moments.manifest.sample_share == pytest.approx(60 / 600)
    assert moments.n_documents == 600


def test_all_documents_of_a_corpus_in_its_place_can_be_others(corpus: Path, tmp_path: Path) -> None:
    scanned(corpus, tmp_path / "m", PLAIN)
    shutil.rmtree(corpus)
    write_corpus(corpus, COUNTS[500:], shards=2)
    followed(corpus, tmp_path / "m")
    scanned(corpus, tmp_path / "anew", PLAIN)
    assert digests(tmp_path / "m") == digests(tmp_path / "anew")


def test_a_corpus_that_has_moved_is_the_same(
    folder: Path, corpus: Path, store: Path, read: list[str]
) -> None:
    # Its shards have other names in the same order.
    for shard in corpus.glob("*.parquet"):
        shard.rename(corpus / f"here-{shard.name}")
    scanned(corpus, store, PLAIN)
    assert read_store(store).manifest.corpus.path == str(corpus)
    assert digests(store) == digests(folder / "of-a")
    # What has to be read again is found.
    require_moments(scanned(corpus, store, replace(PLAIN, third_moment=True)), COUNTS[:500])
    assert read == []


OTHERS: dict[str, tuple[Callable[[Path], Any], dict[str, Any], str]] = {
    "words": (lambda c: rename_words(c, words(60)[::-1]), {}, "has other words than"),
    "documents": (lambda c: [shutil.rmtree(c), write_corpus(c, COUNTS[500:])], {}, "corpus"),
    "settings": (lambda _: None, {"seed": 1}, "seed"),
    "topics": (lambda _: None, {"max_topics": 9}, "max_topics|max-topics"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_store_follows_no_other_corpus_and_keeps_its_settings(
    other: str, folder: Path, corpus: Path, store: Path
) -> None:
    change, options, said = OTHERS[other]
    change(corpus)
    with pytest.raises(SettingsMismatchError, match=said) as error:
        followed(corpus, store, **options)
    assert re.search(f"{re.escape(str(store))}.*overwrite=True", str(error.value))
    assert "\n" not in str(error.value)
    require_untouched(store, folder / "of-a")


def test_it_follows_only_if_it_is_told_to(folder: Path, store: Path) -> None:
    given = ("--max-topics", 5, "--partition-nonzeros", 2500)
    refused(
        invoked("scan", folder / "b", store, *given), 2, str(store), "--follow, since its corpus has changed"
    )
    require_untouched(store, folder / "of-a")
    # Its settings need not be repeated.
    assert invoked("scan", folder / "b", store, "--follow").code == 0
    assert digests(store) == digests(folder / "of-b")


def test_without_a_store_it_is_made(folder: Path, tmp_path: Path) -> None:
    scan(folder / "a", tmp_path / "m", PLAIN, SYNCHRONOUS, follow=True)
    assert digests(tmp_path / "m") == digests(folder / "of-a")


def test_the_third_moment_is_kept_and_can_be_added(
    folder: Path, store: Path, tmp_path: Path, read: list[str]
) -> None:
    moments = followed(folder / "b", store, third_moment=True)
    require_moments(moments, COUNTS)
    assert len(read) == 4
    require_moments(followed(folder / "a", store), COUNTS[:500])
    scanned(folder / "a", tmp_path / "anew", replace(PLAIN, third_moment=True))
    assert digests(store) == digests(tmp_path / "anew")


def without_end(corpus: Path) -> None:
    truncated(corpus / "part-00002.parquet")


def without_pairs(corpus: Path) -> None:
    shutil.rmtree(corpus)
    write_corpus(corpus, np.eye(60, dtype=int))


@pytest.mark.parametrize(("change", "said"), [(without_end, "part-00002"), (without_pairs, "two tokens")])
def test_a_bad_corpus_leaves_the_store_as_it_was(
    change: Callable[[Path], None], said: str, corpus: Path, tmp_path: Path
) -> None:
    scanned(corpus, tmp_path / "m", PLAIN)
    before = shutil.copytree(tmp_path / "m", tmp_path / "before")
    change(corpus)
    with pytest.raises((InputError, StoreError), match=said) as error:
        followed(corpus, tmp_path / "m")
    assert "\n" not in str(error.value)
    require_untouched(tmp_path / "m", before)


def test_too_little_memory_is_refused_before_it_begins(folder: Path, store: Path) -> None:
    with pytest.raises(InputError, match=r"MiB and memory allows 1\.00 MiB"):
        followed(folder / "b", store, execution=Execution("synchronous", memory=1 << 20))
    require_untouched(store, folder / "of-a")


@pytest.mark.slow
def test_a_killed_command_leaves_the_store_of_before_and_resumes(
    folder: Path, store: Path, read: list[str]
) -> None:
    follow = ("scan", folder / "b", store, "--follow", "--scheduler", "synchronous")
    with killed(held(7, *follow), lambda: len(read_store(store).checkpoints("sums").committed().parts) == 7):
        assert digests(store) == digests(folder / "of-a")
        require_intact(open_moments(store))
    followed(folder / "b", store)
    assert len(read) == 2, "two of four were read before"
    assert digests(store) == digests(folder / "of-b")


@pytest.mark.parametrize(
    "damaged", ["partials/sums-part-*/arrays.bin", "basis/zarr.json", "records/sums/zarr.json"]
)
def test_what_is_damaged_is_repaired_first(damaged: str, folder: Path, store: Path) -> None:
    truncated(sorted(store.glob(damaged))[0])
    followed(folder / "b", store)
    assert digests(store) == digests(folder / "of-b")
    require_intact(read_store(store))


@pytest.mark.parametrize("old", ["add", "remove", "merge", "rebase", "changes"])
def test_what_changed_a_store_before_says_what_does_now(old: str, folder: Path, store: Path) -> None:
    said = "was removed; a moments store belongs to one corpus"
    with pytest.raises(TypeError, match=f"{old}= {said}.*follow=True"):
        scan(folder / "a", store, **{old: [folder / "b"]})
    if old != "changes":
        given = () if old == "rebase" else (folder / "b",)
        refused(invoked("scan", folder / "a", store, f"--{old}", *given), 2, f"--{old} {said}", "--follow")
    require_untouched(store, folder / "of-a")
