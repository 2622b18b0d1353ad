"""Partitions that fit a memory budget: chosen once, recorded, and kept on the next run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming_jsmf import Execution, ScanSettings, open_corpus, scan
from streaming_jsmf.corpus import footer as footer_module
from streaming_jsmf.corpus import format as format_module
from streaming_jsmf.corpus.units import WorkUnit, list_units, plan_partitions
from streaming_jsmf.errors import InputError
from streaming_jsmf.moments import memory as planning
from streaming_jsmf.moments.changes import Changes
from streaming_jsmf.moments.memory import fitting_settings, scan_memory
from tests.corpora import planted, write_corpus

#: A corpus of 300 M nonzeros in row groups of 1 M, as its footers describe it.
UNITS = tuple(WorkUnit(f"part-{i:05d}", 0, 10_000, 1_000_000, f"{i:064x}") for i in range(300))
MIB = 2**20


@pytest.mark.parametrize(
    ("n_words", "memory", "workers"), [(20_000, 610, 2), (100_000, 1060, 2), (20_000, 455, 1)]
)
def test_the_largest_partitions_that_fit_are_chosen(n_words: int, memory: int, workers: int) -> None:
    few = ScanSettings(sample_share=1e-9)
    chosen = fitting_settings(few, n_words, UNITS, Execution("threads", workers, memory * MIB))
    size = chosen.partition_nonzeros
    assert size is not None
    assert size < ScanSettings().partition_budget(300_000_000, n_words)
    needed = [
        scan_memory(n_words, chosen, plan_partitions(UNITS, larger), workers)
        for larger in (size, size + 4_000_000)
    ]
    assert needed[0] <= memory * MIB < needed[1]


def test_documents_that_do_not_fit_are_sampled() -> None:
    nonzeros, n_words, held = 40_000_000, 20_000, []
    units = tuple(replace(unit, rows=400_000, nonzeros=nonzeros // 10) for unit in UNITS[:10])
    for memory in (2000, 900, 700):
        execution = Execution("threads", 1, memory * MIB)
        chosen = fitting_settings(ScanSettings(), n_words, units, execution)
        share = chosen.held_share(400_000 * 10, n_words, nonzeros)
        held.append(share)
        partitions = plan_partitions(units, chosen.partition_budget(nonzeros, n_words))
        assert scan_memory(n_words, chosen, partitions, 1, share) <= memory * MIB
    assert held[0] == 1 > held[1] >= held[2] > 0


def test_memory_to_spare_a_size_of_ones_own_and_no_hope_change_nothing() -> None:
    own = ScanSettings(partition_nonzeros=40_000_000)
    for settings, memory in (
        (ScanSettings(), 64_000),
        (ScanSettings(), None),
        (own, 900),
        (ScanSettings(), 300),
    ):
        execution = Execution("threads", 2, None if memory is None else memory * MIB)
        assert fitting_settings(settings, 100_000, UNITS, execution) == settings


def test_the_chosen_size_is_a_setting_of_the_store_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "PARTITION_STEP", 1000)
    corpus = write_corpus(tmp_path / "c", planted(600, 120, 4, length=60, seed=1).counts, row_group_rows=20)
    nonzeros, settings = open_corpus(corpus).nonzeros, ScanSettings(max_topics=4)

    def budget(size: int) -> int:
        parts = plan_partitions(list_units(open_corpus(corpus)), size)
        return scan_memory(120, settings, parts, 1, 1.0) + 2000 * planning.BYTES_PER_NONZERO

    small, large = (Execution("synchronous", memory=budget(size)) for size in (nonzeros // 4, nonzeros // 2))
    first = scan(corpus, tmp_path / "m", settings, small)
    size = first.settings.partition_nonzeros
    assert size is not None
    assert len(first.manifest.partitions) > 2
    again = scan(corpus, tmp_path / "m", settings, large)
    assert again.digests() == first.digests()
    assert again.settings.partition_nonzeros == size
    more = write_corpus(tmp_path / "more", planted(60, 120, 4, length=60, seed=2).counts)
    grown = scan(corpus, tmp_path / "m", settings, large, changes=Changes(add=[str(more)]))
    assert grown.settings == first.settings
    grown = scan(corpus, tmp_path / "m", settings, large, changes=Changes(remove=[str(more)]))
    assert grown.digests() == first.digests()
    same = scan(corpus, tmp_path / "n", ScanSettings(max_topics=4, partition_nonzeros=size))
    assert same.digests() == first.digests()
    with pytest.raises(InputError, match="partition_nonzeros"):
        scan(corpus, tmp_path / "m", settings)


@pytest.mark.parametrize("budget", ["--memory", None])
def test_a_corpus_in_place_is_hashed_once_and_each_footer_read_once(
    budget: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = planted(300, 60, 4, length=60, seed=1).counts
    corpus = write_corpus(tmp_path / "c", counts, row_group_rows=50, shards=3)
    hashed, opened = Counter[str](), Counter[str]()
    sha256_of, parquet_file = format_module.sha256_of, footer_module.pq.ParquetFile

    def hash_and_count(path: str) -> str:
        hashed[path] += 1
        return sha256_of(path)

    def open_and_count(path: str, **options: Any) -> Any:
        opened[path] += 1
        return parquet_file(path, **options)

    monkeypatch.setattr(format_module, "sha256_of", hash_and_count)
    monkeypatch.setattr(footer_module.hash_of_shard, "__defaults__", (hash_and_count,))
    monkeypatch.setattr(footer_module.pq, "ParquetFile", open_and_count)
    execution = Execution("synchronous", memory=None if budget is None else 4000 * MIB)
    scan(corpus, tmp_path / "m", ScanSettings(max_topics=4), execution)
    assert sorted(hashed.values()) == [1, 1, 1]
    # Once to know the row groups, and once for each to read it.
    read = sum(opened.values())
    assert read == 3 + len(list_units(open_corpus(corpus)))


def test_two_workers_find_an_even_number_of_partitions() -> None:
    for millions, expected in ((3, 1), (8, 1), (9, 2), (17, 4), (33, 6), (500, 64), (9000, 142)):
        budget = ScanSettings().partition_budget(millions * 10**6, 1000)
        assert -(-millions * 10**6 // budget) == expected
    assert ScanSettings().partition_budget(0, 1000) == 8_000_000
    assert ScanSettings(partition_nonzeros=7).partition_budget(21, 10) == 7
