"""What a fit will need, said before it starts: ``plan``, and the disk of a scan and an ingest."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from dask.utils import parse_bytes

import streaming_jsmf as sj
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.interface.plan import Sizes, plan, planned
from streaming_jsmf.jobs.checkpoints import forget_record
from streaming_jsmf.moments.needs import HELD_BYTES, scan_memory
from streaming_jsmf.moments.partition import load_block, load_partitions
from streaming_jsmf.moments.records import DOCUMENTS, SUMS
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.storage import local
from tests.corpora import planted, write_corpus
from tests.outcomes import invoked, refused
from tests.processes import command, ended

NIPS = Path(__file__).parents[1] / "data_specs" / "uci_nips"
#: By how much the disk and the memory of a plan may differ from those of a fit.
DISK, MEMORY = 1.6, 2.5


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", planted(300, 60, 4).counts)


def write_news(path: Path, documents: int) -> Path:
    """Texts of 40,000 words of falling frequency."""
    random = Random(5)
    words = ["".join(random.choices("abcdefghijklmnoprstuvz", k=5 + i % 5)) for i in range(40_000)]
    weights = [1 / (10 + rank) for rank in range(len(words))]
    with path.open("w", encoding="utf-8") as file:
        for number in range(documents):
            text = " ".join(random.choices(words, weights, k=60))
            file.write(json.dumps({"id": number, "text": text}) + "\n")
    return path


class Used:
    """Listener that measures the files below a folder at every event."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.peak = folder, 0

    def __call__(self, _: object) -> None:
        self.peak = max(self.peak, self.now)

    @property
    def now(self) -> int:
        sizes: dict[int, int] = {}
        for path in self.folder.rglob("*"):
            if path.is_file():
                state = path.stat()
                sizes[state.st_ino] = state.st_size  # a link to a file takes no space
        return sum(sizes.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["texts", "corpus"])
def test_a_fit_needs_what_its_plan_says(tmp_path: Path, kind: str) -> None:
    source = write_news(tmp_path / "news.jsonl", 12_000) if kind == "texts" else NIPS
    expected = plan(source, 20, workers=2)
    folder, log = tmp_path / "results", tmp_path / "log.jsonl"
    folder.mkdir()
    used = Used(folder)
    sj.fit(source, folder / "model", 20, workers=2, listener=used)
    in_corpus = 0 if kind == "texts" else expected.sizes.shard_bytes
    assert 1 / DISK < (expected.result_bytes - in_corpus) / used.now < DISK
    assert 1 / DISK < (expected.disk - in_corpus) / used.peak < DISK

    shutil.rmtree(folder)
    run = command("fit", source, folder / "model", "--topics", 20, "--workers", 2, "--log-json", log)
    assert ended(run).code == 0
    lines = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    measured = max(
        line["peak_memory"] for line in lines if line["event"] == "stage_finished" and line["peak_memory"]
    )
    assert 1 / MEMORY < expected.memory / measured < MEMORY


@pytest.mark.slow
def test_sizes_of_a_source_come_from_a_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_news(tmp_path / "news.jsonl", 3000)
    made = sj.ingest(source, tmp_path / "corpus", min_df=3, scheduler="synchronous")
    monkeypatch.setattr("streaming_jsmf.ingestion.sample.SAMPLE_BYTES", 256 << 10)
    found = plan(source, 10, min_df=3).sizes
    assert found.sample_bytes < source.stat().st_size / 3
    assert found.documents == pytest.approx(made.n_documents, rel=0.03)
    assert found.nonzeros == pytest.approx(made.nonzeros, rel=0.35)
    assert found.words == pytest.approx(made.n_words, rel=0.5)
    assert found.shard_bytes == pytest.approx(sum(shard.bytes for shard in made.shards), rel=0.2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "news.jsonl"]


def test_a_source_without_parts_that_is_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "docword.txt"
    entries = [
        f"{document} {1 + (document + word) % 9} {word}" for document in range(1, 31) for word in (1, 2, 3)
    ]
    source.write_text("\n".join(["30", "9", "90", *entries, ""]), encoding="utf-8")
    (tmp_path / "vocab.txt").write_text("".join(f"word{number}\n" for number in range(9)), encoding="utf-8")
    assert plan(source, 2, reader="docword").sizes.nonzeros == 90
    monkeypatch.setattr("streaming_jsmf.ingestion.sample.SAMPLE_BYTES", 8)
    monkeypatch.setattr("streaming_jsmf.ingestion.sample.WHOLE_BYTES", 16)
    with pytest.raises(InputError, match="no parts that can be read alone; ingest it, and give the corpus"):
        plan(source, 2, reader="docword")


def test_held_documents_take_at_most_a_fifth_more_than_the_corpus(tmp_path: Path) -> None:
    made = sj.scan(NIPS, tmp_path / "m", max_topics=5, partition_nonzeros=200_000, scheduler="synchronous")
    records = [made.checkpoints(SUMS).read_part(key) for key in made.manifest.part_keys]
    sums = sum(
        values.nbytes for part in records for name, values in part.arrays.items() if name not in DOCUMENTS
    )
    parts = sum(path.stat().st_size for path in (tmp_path / "m" / "partials").rglob("*.bin"))
    shards = sum(shard.bytes for shard in open_corpus(NIPS).shards)
    assert len(records) > 1
    assert 0.5 * shards < parts - sums < HELD_BYTES * shards
    # What is read is what a task computes, to the bit.
    partitions = load_partitions(made.manifest, open_corpus(NIPS))
    for part, partition in zip(records, partitions, strict=True):
        block = load_block(partition, made.n_words, "capped")
        assert np.array_equal(part.arrays["sample_values"], block.data)
        assert np.array_equal(part.arrays["sample_words"], block.indices)


def test_the_command_prints_a_table_or_json(corpus: Path) -> None:
    shown = invoked("plan", corpus, "--topics", 4, "--workers", 3)
    assert (shown.code, shown.err) == (0, "")
    assert "300 documents, 60 words" in shown.out
    assert [line.split()[0] for line in shown.out.splitlines()[2:6]] == ["scan", "infer", "polish", "all"]
    assert "4 topics on 3 workers" in shown.out
    found = json.loads(invoked("plan", corpus, "--topics", 4, "--engine", "stod", "--json").out)
    assert [(stage["stage"], stage["passes"]) for stage in found["stages"]] == [("scan", 2), ("infer", 0)]
    assert found["memory"] == max(stage["memory"] for stage in found["stages"])
    refused(invoked("plan", corpus.parent / "none", "--topics", 4), 2, "no such file")


def test_the_memory_of_a_plan_is_that_of_the_check(corpus: Path) -> None:
    opened, settings = open_corpus(corpus), ScanSettings(max_topics=4)
    found = plan(corpus, 4, workers=1)
    from streaming_jsmf.corpus.units import list_units, plan_partitions

    budget = settings.partition_budget(opened.nonzeros, opened.n_words)
    partitions = plan_partitions(list_units(opened), budget)
    assert found.stages[0].memory == scan_memory(opened.n_words, settings, partitions, 1, 1.0)


@pytest.mark.parametrize("more", [{"documents": 10, "nonzeros": 10, "shard_bytes": 10}, {"words": 10}])
def test_a_larger_corpus_needs_no_less(more: dict[str, int]) -> None:
    fields: dict[str, Any] = {
        "documents": 1_000_000,
        "words": 50_000,
        "nonzeros": 80_000_000,
        "shard_bytes": 150_000_000,
        "row_group": 1_000_000,
    }
    larger = {**fields, **{key: fields[key] * times for key, times in more.items()}}
    settings = ScanSettings(max_topics=100)
    small, large = (planned("x", Sizes(**sizes), settings, 4) for sizes in (fields, larger))
    for stage, other in zip(small.stages, large.stages, strict=True):
        assert stage.passes <= other.passes
        assert stage.disk <= other.disk
        assert stage.cpu_seconds <= other.cpu_seconds
    assert small.memory <= large.memory
    assert planned("x", Sizes(**fields), settings, 8).hours < small.hours


def test_disk_is_said_and_compared_before_a_scan_and_an_ingest(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = write_news(tmp_path / "news.jsonl", 200)
    monkeypatch.setattr(local, "MUCH", 0)
    scan = ["scan", corpus, tmp_path / "m", "--max-topics", 4]
    ingest = ["ingest", texts, tmp_path / "c"]
    for line, what in ((scan, "the scan"), (ingest, "the ingest")):
        assert f"{what} needs about" in (first := invoked(*line)).err.splitlines()[0], first.err
        assert "are free" in first.err
        assert "needs about" not in invoked(*line).err  # there is nothing to do
    monkeypatch.setattr(local.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    for line, place in ((scan, tmp_path / "m2"), (ingest, tmp_path / "c2")):
        line[2] = place
        refused(invoked(*line), 2, f"{place}: the ", "and 1 B are free there; free some, or give a path on")
        assert not place.exists()


def test_disk_of_what_is_left_and_of_an_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan that goes on needs what it has not written, and an update room beside the corpus and the moments."""
    (tmp_path / "news").mkdir()
    write_news(tmp_path / "news" / "a.jsonl", 200)
    fit = ["fit", tmp_path / "news", tmp_path / "m", "--topics", 4]
    assert invoked(*fit).code == 0
    scan = ["scan", tmp_path / "m.corpus", tmp_path / "m.moments", "--max-topics", 4]
    monkeypatch.setattr(local, "MUCH", -(2**40))
    whole = said(invoked(*scan[:2], tmp_path / "other", *scan[3:]).err)
    store = read_store(tmp_path / "m.moments")
    forget_record(store.path, store.record_names[-1])
    with monkeypatch.context() as full:
        full.setattr(local.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
        refused(invoked(*scan), 2, "m.moments: the scan needs about", "and 1 B are free there")
    left = invoked(*scan)
    assert left.code == 0
    assert said(left.err) < whole / 2
    write_news(tmp_path / "news" / "b.jsonl", 50)
    monkeypatch.setattr(local.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    update = invoked("update", tmp_path / "m", tmp_path / "news")
    refused(update, 2, "m.corpus: the update needs about", "and 1 B are free there")


def said(err: str) -> int:
    """The bytes that a scan says to need."""
    [needed] = re.findall(r"the scan needs about (.+) on disk", err)
    return parse_bytes(needed)


#: Bytes of text, words, topics and workers of the table in docs/sizing.md.
EXAMPLES = (
    (10**9, 30_000, 50, 4),
    (10**10, 50_000, 100, 8),
    (10**11, 100_000, 100, 32),
    (10**12, 100_000, 200, 256),
    (10**13, 200_000, 200, 1000),
    (10**13, 1_000_000, 500, 1000),
)


def sizing_row(text: int, words: int, topics: int, workers: int) -> str:
    """A row of the table, with the sizes that the page states for a byte of text."""
    documents, nonzeros = text // 1300, text // 18
    sizes = Sizes(
        documents,
        words,
        nonzeros,
        2 * nonzeros,
        1_000_000,
        text,
        ingest_disk=text,
        ingest_seconds=text / 25e6,
    )
    settings = ScanSettings(max_topics=topics)
    alone, found = (planned("x", sizes, settings, n, min(n, 8)) for n in (1, workers))
    figures = (
        found.cpu_seconds / 3600,
        found.hours,
        alone.memory / 1e9,
        found.disk / 1e9,
        found.result_bytes / 1e9,
    )
    shown = [f"{text // 10**9:,}", f"{documents / 1e6:,.1f}", f"{words:,}", f"{topics}", f"{workers:,}"]
    return f"| {' | '.join([*shown, *map(rounded, figures)])} |"


def rounded(number: float) -> str:
    """Two digits."""
    return f"{float(f'{number:.2g}'):,.{max(0, 1 - math.floor(math.log10(number)))}f}"


def test_the_table_of_sizes_is_what_plan_says() -> None:
    page = (Path(__file__).parents[1] / "docs" / "sizing.md").read_text(encoding="utf-8")
    for example in EXAMPLES:
        assert sizing_row(*example) in page, sizing_row(*example)


if __name__ == "__main__":
    print("\n".join(sizing_row(*example) for example in EXAMPLES))
