"""Whatever is damaged in a store is named by ``info`` and made again by the same ``scan``."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streaming_jsmf.cli.main import run
from streaming_jsmf.jobs.checkpoints import PACKED
from streaming_jsmf.jobs.order import FAN_IN
from streaming_jsmf.moments.stages.eigenpairs import ProductReduction
from streaming_jsmf.moments.stages.sums import SumsReduction
from tests.cases import each_once
from tests.corpora import planted, write_corpus
from tests.damage import ALL, SOME, Damage, emptied, truncated
from tests.outcomes import Command, Outcome, refused
from tests.stores import digests

SETTINGS = ("--max-topics", "5", "--partition-nonzeros", "500", "--scheduler", "synchronous")

#: Partitions that are folded before the disk is full: those of the first group.
FOLDED = FAN_IN


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts, names = planted(300, 60, 5, length=40, seed=3).counts, [f"w{i}" for i in range(60)]
    path = tmp_path_factory.mktemp("repair") / "corpus"
    return write_corpus(path, counts, shards=2, row_group_rows=25, names=names)


@pytest.fixture(scope="module")
def made(corpus: Path) -> dict[str, Path]:
    """Stores to be copied: one that is complete, and one in the middle of each scan."""
    stores = {name: corpus.parent / name for name in ("plain", "sums", "projection")}

    def scan(name: str) -> int:
        return run(["scan", str(corpus), str(stores[name]), *SETTINGS])

    assert scan("plain") == 0
    for name, stage in (("sums", SumsReduction), ("projection", ProductReduction)):
        with disk_full_after(stage, FOLDED + 1):
            assert scan(name) == 2
    return stores


@contextmanager
def disk_full_after(stage: type[Any], number: int) -> Iterator[None]:
    """End a scan in the fold of a number of partitions, those before it being folded."""
    fold, done = stage.fold, []

    def failing(self: Any, folded: Any, partial: Any) -> Any:
        done.append(partial)
        if len(done) >= number:
            raise OSError(28, "No space left on device")
        return fold(self, folded, partial)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "fold", failing)
        yield


def computed(log: str) -> dict[str, int]:
    """How many partitions each stage computed."""
    return {
        stage: len(re.findall(rf"^{stage}: partition \d+ committed", log, re.M))
        for stage in ("sums", "projection")
    }


def n_partitions(store: Path) -> int:
    return len(json.loads((store / "zarr.json").read_text())["attributes"]["manifest"]["partitions"])


@dataclass
class Bench:
    """A corpus, stores of it that are damaged by the tests, and a place for them."""

    corpus: Path
    made: dict[str, Path]
    place: Path
    invoke: Command

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.made[name], self.place / name))

    def scan(self, store: Path, *options: str) -> Outcome:
        return self.invoke("scan", self.corpus, store, "--verbose", "--scheduler", "synchronous", *options)

    def mended(self, store: Path, part: Path, reference: Path, *, told: bool = True) -> str:
        """Require that info names the damaged part and a scan restores the bits; return what it logged."""
        if told:
            refused(self.invoke("info", store, "--verify"), 3, str(part), f"scan CORPUS {store}")
        repaired = self.scan(store, *SETTINGS)
        assert repaired.code == 0, repaired.err
        assert "repair: " in repaired.err or not told
        # All there is in the store is read.
        shown = self.invoke("info", store, "--json")
        assert shown.code == 0, shown.err
        assert json.loads(shown.out)["complete"]
        assert json.loads(shown.out)["digests"] == digests(reference)
        assert [*(store / "partials").iterdir()] != []
        assert [*store.parent.rglob(".*")] == []
        return repaired.err


@pytest.fixture
def bench(corpus: Path, made: dict[str, Path], tmp_path: Path, invoke: Command) -> Bench:
    return Bench(corpus, made, tmp_path, invoke)


def mtimes(store: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}


def test_a_sound_store_is_left_as_it_is(bench: Bench) -> None:
    store = bench.copy("plain")
    before = mtimes(store)
    outcome = bench.scan(store, *SETTINGS)
    assert (outcome.code, outcome.err) == (0, "")
    assert mtimes(store) == before


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        *each_once(["word/c", "row_sum/c", "eigenvectors/c", "basis/c", "projection/c"], SOME),
        *each_once(["word", "diagonal", "basis", "projection"], [emptied, Path.unlink]),
        *each_once(["records/sums", "records/projection", "records/words"], ALL),
        *each_once(["partials", "records"], [truncated]),
    ],
)
def test_a_damaged_file_of_a_finished_store(part: str, damage: Damage, bench: Bench) -> None:
    store = bench.copy("plain")
    chunks = [path for path in (store / part).rglob("*") if path.is_file()] if part.endswith("/c") else []
    damage(chunks[0] if chunks else store / part / "zarr.json")
    # A stage without a record is one that was not finished: a scan finishes it. The words are there from the start.
    told = damage is not Path.unlink or not part.startswith("records/") or part == "records/words"
    if not told:
        assert bench.scan(store, *SETTINGS).code == 0
    log = bench.mended(store, store / part.removesuffix("/c"), bench.made["plain"], told=told)
    # The documents are held, so that sums and basis are computed without the corpus; the same basis has the same C Q.
    again = told and part.split("/")[-2 if chunks else -1] in ("projection", "eigenvectors")
    assert computed(log) == {"sums": 0, "projection": again * n_partitions(store)}
    assert not chunks or sum(line.startswith("repair: ") for line in log.splitlines()) == 1


def attempt_of(store: Path, record: Path) -> Path:
    attempt = json.loads((record / "zarr.json").read_text())["attributes"]["attempt"]
    return store / "partials" / (attempt or "never written")


def only(paths: Any) -> Path:
    (path,) = paths
    return Path(path)


@pytest.mark.parametrize(("damage", "what"), each_once(SOME, ["chunk", "record"]))
def test_a_kept_part(what: str, damage: Damage, bench: Bench) -> None:
    store = bench.copy("plain")
    records = {path.name: path for path in (store / "records").glob("sums-part-*")}
    assert len(records) == n_partitions(store)
    record = records[sorted(records)[3]]
    before = {name: (path / "zarr.json").read_bytes() for name, path in records.items()}
    attempt = attempt_of(store, record)
    damage(attempt / PACKED if what == "chunk" else record / "zarr.json")
    named = store if (what, damage) == ("record", Path.unlink) else attempt if what == "chunk" else record
    log = bench.mended(store, named, bench.made["plain"])
    assert computed(log) == {"sums": 1, "projection": 0}
    after = {name: (path / "zarr.json").read_bytes() for name, path in records.items()}
    assert {name for name in after if after[name] != before[name]} == {record.name}
    was, now = (json.loads(text[record.name])["attributes"] for text in (before, after))
    assert (now["arrays"], now["scalars"]) == (was["arrays"], was["scalars"])


@pytest.mark.parametrize(
    ("kind", "what", "damage"),
    each_once(
        ["fold", "unfolded part", "folded part"],
        ["record", "chunk"],
        [truncated, Path.unlink],
    ),
)
def test_results_on_their_way_into_a_fold(kind: str, what: str, damage: Damage, bench: Bench) -> None:
    store = bench.copy("projection")
    parts = sorted((store / "records").glob("projection-part-*"))
    unfolded = [record for record in parts if attempt_of(store, record).exists()]
    assert 0 < len(unfolded) == len(parts) - FOLDED
    record = {
        "fold": only((store / "records").glob("projection-fold-*")),
        "unfolded part": unfolded[0],
        "folded part": next(record for record in parts if record not in unfolded),
    }[kind]
    if (kind, what) == ("folded part", "chunk"):
        assert not attempt_of(store, record).exists(), "of a part that is folded the record alone is left"
        return
    damage(attempt_of(store, record) / PACKED if what == "chunk" else record / "zarr.json")
    log = bench.mended(store, store, bench.made["plain"], told=False)
    # A part without a record is one that was not computed; of one that is folded only the history is lost.
    missing = what == "record" and damage is Path.unlink and kind != "fold"
    kept = len(parts) - (kind == "unfolded part") if missing else 0
    assert computed(log)["projection"] == n_partitions(store) - kept


@pytest.mark.parametrize("damage", SOME)
def test_documents_of_an_unfinished_scan(damage: Damage, bench: Bench) -> None:
    store = bench.copy("sums")
    for attempt in sorted((store / "partials").glob("sums-part-*"))[:2]:
        damage(attempt / PACKED)
    bench.mended(store, store, bench.made["plain"], told=False)


def test_a_damaged_store_whose_corpus_moved(bench: Bench) -> None:
    store, here, there = (bench.place / name for name in ("m", "here", "there"))
    shutil.copytree(bench.corpus, here)
    assert bench.invoke("scan", here, store, *SETTINGS).code == 0
    here.rename(there)
    truncated(store / "records" / "sums" / "zarr.json")
    shutil.rmtree(store / "word")
    outcome = bench.invoke("scan", there, store, *SETTINGS)
    assert outcome.code == 0, outcome.err
    assert digests(store) == digests(bench.made["plain"])


@pytest.mark.parametrize("damage", ALL)
def test_a_damaged_root_is_refused(damage: Damage, bench: Bench) -> None:
    store = bench.copy("plain")
    damage(store / "zarr.json")
    refused(bench.scan(store, *SETTINGS), 3, str(store / "zarr.json"))
    assert (store / "basis").exists()
