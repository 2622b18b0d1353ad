"""Whatever is damaged in a store is named by ``scan`` and made again by ``scan --repair``, and only that."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming_jsmf.cli.main import run
from streaming_jsmf.moments.stages.projection import ProjectionReduction
from streaming_jsmf.moments.stages.range import RangeReduction
from tests.cases import each_once
from tests.corpora import planted, write_lists
from tests.damage import ALL, SOME, Damage, emptied, truncated
from tests.stores import digests

SETTINGS = ("--max-topics", "5", "--partition-nonzeros", "1000", "--scheduler", "synchronous")

#: Partitions that are computed before the disk is full.
COMPUTED = 5


def write_words(directory: Path, counts: np.ndarray[Any, Any], names: list[str], shards: int = 1) -> Path:
    directory.mkdir(parents=True)
    for number, rows in enumerate(np.array_split(counts, shards)):
        ids = [np.flatnonzero(row).tolist() for row in rows]
        held = [row[chosen].tolist() for row, chosen in zip(rows, ids, strict=True)]
        write_lists(directory / f"part-{number:05d}.parquet", ids, held, row_group_rows=25)
    (directory / "vocab.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(300, 60, 5, length=40, seed=3).counts
    return write_words(tmp_path_factory.mktemp("repair") / "corpus", counts, [f"w{i}" for i in range(60)], 2)


@pytest.fixture(scope="module")
def made(corpus: Path) -> dict[str, Path]:
    """Stores to be copied: one that keeps its partitions, one that does not, and one in the middle of each scan."""
    stores = {name: corpus.parent / name for name in ("plain", "kept", "range", "projection")}
    assert run(["scan", str(corpus), str(stores["plain"]), *SETTINGS]) == 0
    assert run(["scan", str(corpus), str(stores["kept"]), *SETTINGS, "--keep-partitions"]) == 0
    for name, stage in (("range", RangeReduction), ("projection", ProjectionReduction)):
        _fail_after(
            stage, COMPUTED, lambda name=name: run(["scan", str(corpus), str(stores[name]), *SETTINGS])
        )  # type: ignore[misc]
    return stores


def _fail_after(stage: type[Any], number: int, command: Callable[[], int]) -> None:
    """Run a scan that ends when some partitions are computed, and all but the last are folded: the disk is full."""
    fold, done = stage.fold, []

    def failing(self: Any, folded: Any, partial: Any) -> Any:
        done.append(partial)
        if len(done) >= number:
            raise OSError(28, "No space left on device")
        return fold(self, folded, partial)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "fold", failing)
        assert command() == 2


@pytest.fixture
def copy(made: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(made[name], tmp_path / name))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def called(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return called


Call = Callable[..., tuple[int, str, str]]


def require_intact(store: Path, reference: Path, call: Call) -> None:
    """All there is in a store is read, and is what the reference has."""
    code, out, err = call("info", store, "--json")
    assert code == 0, err
    shown = json.loads(out)
    assert shown["complete"]
    assert shown["digests"] == digests(reference)


def computed(log: str) -> dict[str, int]:
    """How many partitions each stage computed."""
    return {
        stage: len(re.findall(rf"^{stage}: partition \d+ committed", log, re.M))
        for stage in ("range", "projection")
    }


def mended(
    store: Path,
    part: Path,
    corpus: Path,
    call: Call,
    reference: Path,
    *,
    told: bool = True,
    scan: bool = True,
) -> str:
    """Require that a scan names the damaged part and --repair restores the bits; return what it logged."""
    code, _, error = call("scan", corpus, store, *SETTINGS) if scan else (3, "", "")
    if scan and told:
        assert code == 3, error
        assert str(part) in error.splitlines()[-1]
        assert f"mend it with streaming-jsmf scan CORPUS {store} --repair" in error.splitlines()[-1]
    code, _, log = call("scan", corpus, store, "--repair", "--scheduler", "synchronous")
    assert code == 0, log
    require_intact(store, reference, call)
    assert [path.name for path in (store / "partials").iterdir()] != []
    assert list(store.parent.rglob(".*")) == []
    return log


def n_partitions(store: Path) -> int:
    return len(json.loads((store / "zarr.json").read_text())["attributes"]["manifest"]["partitions"])


NONE = {"range": 0, "projection": 0}


def test_a_sound_store_is_left_as_it_is(corpus: Path, copy: Callable[[str], Path], call: Call) -> None:
    store = copy("kept")
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    code, _, log = call("scan", corpus, store, "--repair")
    assert (code, log) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("array", "damage"), each_once(["word", "row_sum", "factor", "basis", "projection"], SOME)
)
def test_a_chunk_of_a_final_array(
    array: str, damage: Damage, corpus: Path, copy: Callable[[str], Path], call: Call, made: dict[str, Path]
) -> None:
    store = copy("plain")
    damage(next(path for path in (store / array / "c").rglob("*") if path.is_file()))
    log = mended(store, store / array, corpus, call, made["plain"])
    # The projection alone is made of the corpus; the others lie in the last fold.
    assert computed(log) == {"range": 0, "projection": n_partitions(store) * (array == "projection")}
    assert sum(line.startswith("repair: ") for line in log.splitlines()) == 1


@pytest.mark.parametrize(
    ("array", "damage"), each_once(["word", "diagonal", "basis", "projection"], [emptied, Path.unlink])
)
def test_the_metadata_of_a_final_array(
    array: str, damage: Damage, corpus: Path, copy: Callable[[str], Path], call: Call, made: dict[str, Path]
) -> None:
    store = copy("plain")
    damage(store / array / "zarr.json")
    log = mended(store, store / array, corpus, call, made["plain"])
    assert computed(log)["range"] == 0


@pytest.mark.parametrize(("record", "damage"), each_once(["range", "basis", "projection", "words"], ALL))
def test_the_record_of_a_finished_stage(
    record: str, damage: Damage, corpus: Path, copy: Callable[[str], Path], call: Call, made: dict[str, Path]
) -> None:
    store = copy("plain")
    damage(store / "records" / record / "zarr.json")
    # A stage without a record is one that was not finished: a scan finishes it. The words are there from the start.
    told = damage is not Path.unlink or record == "words"
    log = mended(store, store / "records" / record, corpus, call, made["plain"], told=told)
    assert computed(log)["range"] == 0
    assert computed(log)["projection"] == (n_partitions(store) if record == "projection" and told else 0)


def attempt_of(store: Path, record: Path) -> Path:
    attempt = json.loads((record / "zarr.json").read_text())["attributes"]["attempt"]
    return store / "partials" / (attempt or "never written")


def only(paths: Any) -> Path:
    (path,) = paths
    return Path(path)


PARTS = [
    *(("chunk", damage) for damage in SOME),
    ("metadata", truncated),
    *(("record", damage) for damage in ALL),
]


@pytest.mark.parametrize(("part", "store_name"), each_once(PARTS, ["plain", "kept"]))
def test_the_merged_factor(
    part: tuple[str, Damage], store_name: str, corpus: Path, copy: Callable[[str], Path], call: Call,
    made: dict[str, Path],
) -> None:  # fmt: skip
    (what, damage), store = part, copy(store_name)
    attempt = only((store / "partials").glob("range-fold-*"))
    place = {
        "chunk": attempt / "factor" / "c" / "0" / "0",
        "metadata": attempt / "factor" / "zarr.json",
        "record": only((store / "records").glob("range-fold-*/zarr.json")),
    }[what]
    damage(place)
    named = (
        store if (what, damage) == ("record", Path.unlink) else place.parent if what != "chunk" else attempt
    )
    log = mended(store, named, corpus, call, made[store_name])
    again = n_partitions(store) if store_name == "plain" else 0
    assert computed(log) == {"range": again, "projection": 0}
    told = "scan 1 is repeated for all partitions" if again else "the kept parts are folded again"
    assert told in log


@pytest.mark.parametrize(("damage", "what"), each_once(SOME, ["chunk", "record"]))
def test_a_kept_part(
    what: str, damage: Damage, corpus: Path, copy: Callable[[str], Path], call: Call, made: dict[str, Path]
) -> None:
    store = copy("kept")
    manifest = json.loads((store / "zarr.json").read_text())["attributes"]["manifest"]
    records = {path.name: path for path in (store / "records").glob("range-part-*")}
    assert len(records) == len(manifest["partitions"])
    record = records[sorted(records)[3]]
    before = {name: (path / "zarr.json").read_bytes() for name, path in records.items()}
    attempt = attempt_of(store, record)
    damage(attempt / "factor" / "c" / "0" / "0" if what == "chunk" else record / "zarr.json")
    named = store if (what, damage) == ("record", Path.unlink) else attempt if what == "chunk" else record
    log = mended(store, named, corpus, call, made["kept"])
    assert computed(log) == NONE
    assert len(re.findall(r"^repair: partitions computed again: \d+$", log, re.M)) == 1
    after = {name: (path / "zarr.json").read_bytes() for name, path in records.items()}
    assert {name for name in after if after[name] != before[name]} == {record.name}
    was, now = (json.loads(text[record.name])["attributes"] for text in (before, after))
    assert (now["arrays"], now["scalars"]) == (was["arrays"], was["scalars"])


@pytest.mark.parametrize(
    ("kind", "stage", "what", "damage"),
    each_once(
        ["fold", "unfolded part", "folded part"],
        ["range", "projection"],
        ["record", "chunk"],
        [truncated, Path.unlink],
    ),
)
def test_results_on_their_way_into_a_fold(
    stage: str, kind: str, what: str, damage: Damage, corpus: Path, copy: Callable[[str], Path], call: Call,
    made: dict[str, Path],
) -> None:  # fmt: skip
    store = copy(stage)
    parts = sorted((store / "records").glob(f"{stage}-part-*"))
    unfolded = [record for record in parts if attempt_of(store, record).exists()]
    assert 0 < len(unfolded) < len(parts) == COMPUTED
    record = {
        "fold": only((store / "records").glob(f"{stage}-fold-*")),
        "unfolded part": unfolded[0],
        "folded part": next(record for record in parts if record not in unfolded),
    }[kind]
    if (kind, what) == ("folded part", "chunk"):
        assert not attempt_of(store, record).exists(), "of a part that is folded the record alone is left"
        return
    damage(next(attempt_of(store, record).rglob("c/0/0")) if what == "chunk" else record / "zarr.json")
    other = shutil.copytree(store, store.parent / "other")
    code, _, error = call("scan", corpus, other, *SETTINGS)
    # A part without a record is one that was not computed.
    assert code == (0 if "part" in kind and (what, damage) == ("record", Path.unlink) else 3), error
    assert code == 0 or f"mend it with streaming-jsmf scan CORPUS {other} --repair" in error.splitlines()[-1]
    log = mended(store, store, corpus, call, made["plain"], scan=False)
    missing = n_partitions(store) - COMPUTED
    lost = {"fold": COMPUTED - len(unfolded), "unfolded part": 1, "folded part": 0}[kind]
    assert computed(log)[stage] == missing + lost


@pytest.mark.parametrize("place", ["partials", "records"])
def test_the_metadata_of_a_group(
    place: str, corpus: Path, copy: Callable[[str], Path], call: Call, made: dict[str, Path]
) -> None:
    store = copy("plain")
    truncated(store / place / "zarr.json")
    assert computed(mended(store, store / place, corpus, call, made["plain"])) == NONE


@pytest.mark.parametrize("damage", ALL)
def test_a_damaged_root_is_refused(
    damage: Damage, corpus: Path, copy: Callable[[str], Path], call: Call
) -> None:
    store = copy("plain")
    damage(store / "zarr.json")
    for more in ((), ("--repair",)):
        code, _, error = call("scan", corpus, store, *SETTINGS, *more)
        assert code == 3
        assert error.count("\n") == 1
        assert str(store / "zarr.json") in error
    assert (store / "factor").exists()


def test_nothing_to_repair(corpus: Path, tmp_path: Path, call: Call) -> None:
    code, _, error = call("scan", corpus, tmp_path / "m", "--repair")
    assert (code, error.count("\n")) == (2, 1)
    assert "no moments store is here" in error
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def merged(corpus: Path) -> dict[str, Path]:
    """A store over the words of two corpora, and those corpora."""
    counts = planted(200, 60, 5, length=40, seed=4).counts
    second = write_words(
        corpus.parent / "second", counts, [f"w{i}" for i in range(59, -1, -2)] + [f"v{i}" for i in range(30)]
    )
    stores = [corpus.parent / "merge-1", corpus.parent / "merge-2"]
    for source, store in zip((corpus, second), stores, strict=True):
        assert run(["scan", str(source), str(store), *SETTINGS]) == 0
    assert (
        run(["scan", str(corpus), str(stores[0]), "--merge", str(stores[1]), "--scheduler", "synchronous"])
        == 0
    )
    return {"store": stores[0], "corpus": corpus, "second": second}


def test_words_of_a_merged_store(merged: dict[str, Path], tmp_path: Path, call: Call) -> None:
    store = Path(shutil.copytree(merged["store"], tmp_path / "m"))
    columns = only(store.glob("columns-*"))
    for place in (store / "word", columns):
        Path.unlink(next(path for path in (place / "c").rglob("*") if path.is_file()))
        log = mended(store, place, merged["corpus"], call, merged["store"])
        assert computed(log) == NONE


def test_a_factor_from_another_store_is_not_lost_in_a_repair(
    merged: dict[str, Path], tmp_path: Path, call: Call
) -> None:
    store = Path(shutil.copytree(merged["store"], tmp_path / "m"))
    attempt = only((store / "partials").glob("range-fold-*"))
    truncated(attempt / "factor" / "c" / "0" / "0")
    before = sorted(store.rglob("*"))
    code, _, error = call("scan", merged["corpus"], store, "--repair")
    assert code == 3
    assert "merge its sources again" in error
    assert sorted(store.rglob("*")) == before
    assert call("infer", store, tmp_path / "model", "--topics", "3", "--anchor-min-df", "2")[0] == 0
