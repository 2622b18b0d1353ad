"""A stage that the package does not have: a module of its own and an entry of the registry make it whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.units import Partition, list_units, plan_partitions
from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments import stages
from streaming_jsmf.moments.integrity import require_intact
from streaming_jsmf.moments.memory import scan_memory
from streaming_jsmf.moments.partition import iter_counts
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.stages.base import SumStage, Variable
from tests.corpora import planted, words, write_corpus
from tests.stores import SMALL, changed, digests, rename_words, scanned

CLASSES = 8
SETTINGS = replace(SMALL, partition_nonzeros=2000)


@dataclass(frozen=True)
class LengthReduction:
    """Tokens of each word in documents of 1, 2 to 3, 4 to 7, ... tokens."""

    n_words: int
    name: str = "length"

    def compute(self, partition: Partition) -> PartialResult:
        counts = np.zeros((self.n_words, CLASSES), dtype=np.int64)
        for block in iter_counts(partition, self.n_words):
            documents = np.repeat(length_class(block.sum(axis=1)), np.diff(block.indptr))
            np.add.at(counts, (block.indices, documents), block.data.astype(np.int64))
        return PartialResult({"length_count": counts})

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        before = 0 if folded is None else folded.arrays["length_count"]
        return PartialResult({"length_count": before + partial.arrays["length_count"]})


class LengthStage(SumStage):
    """How often each word occurs in short and in long documents."""

    name = "length"
    variables: ClassVar = {"length_count": Variable(("word", "length"), "tokens by length of the document")}

    def reduction(self, store: Moments) -> LengthReduction:
        return LengthReduction(store.n_words)

    def final(self, store: Moments, folded: Iterator[PartialResult]) -> PartialResult:
        del store
        (total,) = folded
        return PartialResult(total.arrays)

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        del settings
        return 3 * 8 * n_words * CLASSES


def length_class(lengths: NDArray[Any]) -> NDArray[np.int64]:
    return np.minimum(np.log2(np.maximum(lengths, 1)).astype(np.int64), CLASSES - 1)


COUNTS = planted(300, 50, 3, seed=5).counts


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", COUNTS, row_group_rows=25)


@pytest.fixture
def with_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "STAGES", (*stages.STAGES, LengthStage()))


def expected(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    classes = length_class(counts.sum(axis=1))
    return np.stack([counts[classes == c].sum(axis=0) for c in range(CLASSES)], axis=1)


@pytest.mark.usefixtures("with_length")
def test_it_is_scanned_described_and_goes_on_where_it_was_cut_off(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, seen = LengthReduction.compute, []

    def failing(reduction: LengthReduction, partition: Partition) -> PartialResult:
        seen.append(partition.index)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return compute(reduction, partition)

    monkeypatch.setattr(LengthReduction, "compute", failing)
    with pytest.raises(KeyboardInterrupt):
        scanned(corpus, tmp_path / "m", SETTINGS)
    store = scan(corpus, tmp_path / "m", SETTINGS, Execution(workers=2), keep_partitions=True)
    assert len(seen) == len(store.manifest.partitions) + 1
    found = store.read("length_count")
    np.testing.assert_array_equal(found, expected(COUNTS))
    assert (found.sum(axis=0) > 0).sum() > 1
    assert store.outcome("length")["history"][2]["rows"] > 0  # type: ignore[index]


def test_a_store_of_before_gets_it_and_keeps_its_other_bits(
    corpus: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    scanned(corpus, tmp_path / "m", SETTINGS)
    before = digests(tmp_path / "m")
    request.getfixturevalue("with_length")
    store = scanned(corpus, tmp_path / "m", SETTINGS)
    assert digests(tmp_path / "m").items() > before.items()
    np.testing.assert_array_equal(store.read("length_count"), expected(COUNTS))


@pytest.mark.usefixtures("with_length")
def test_it_is_checked_and_mended(corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = scanned(corpus, tmp_path / "m", SETTINGS)
    before = digests(tmp_path / "m")
    chunk = tmp_path / "m" / "length_count" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-8] + b"\xff" * 8)
    with pytest.raises(StoreError, match="length_count"):
        require_intact(store)
    scanned(corpus, tmp_path / "m", SETTINGS)
    assert "length_count" in caplog.text
    assert digests(tmp_path / "m") == before
    require_intact(store)


@pytest.mark.usefixtures("with_length")
def test_it_follows_a_store_that_grows_by_other_words(corpus: Path, tmp_path: Path) -> None:
    more = planted(200, 40, 3, seed=6).counts
    other = rename_words(write_corpus(tmp_path / "other", more, row_group_rows=25), words(50)[49:9:-1])
    scanned(corpus, tmp_path / "m", SETTINGS)
    scanned(other, tmp_path / "n", SETTINGS)
    store = changed(corpus, tmp_path / "m", merge=[tmp_path / "n"])
    both = expected(COUNTS)
    both[49:9:-1] += expected(more)
    np.testing.assert_array_equal(store.read("length_count"), both)


@pytest.mark.usefixtures("with_length")
def test_its_memory_is_planned(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(SETTINGS, max_topics=1)
    partitions = plan_partitions(list_units(open_corpus(corpus)), 2000)
    without = scan_memory(50, settings, partitions, 1)
    most = stages.STAGES[0].task_memory(50, settings)
    monkeypatch.setattr(LengthStage, "task_memory", lambda *_: most + 12_345_678)
    assert scan_memory(50, settings, partitions, 1) == without + 12_345_678
