"""The contract of all stages, and of one that the package does not have, in every kind of store.

The results are those of the documents, whatever the corpus was before, and whatever was interrupted or damaged.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pipelines.common.matching import yy_error
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.units import Partition, iter_blocks, list_units, plan_partitions
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.jobs.checkpoints import PACKED, PartialResult
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments import needs, records
from streaming_jsmf.moments.integrity import require_intact
from streaming_jsmf.moments.needs import Pass, scan_memory
from streaming_jsmf.moments.records import Records
from streaming_jsmf.moments.stages import STAGES
from streaming_jsmf.moments.stages.base import Scan, Stage
from streaming_jsmf.moments.stages.eigenpairs import HeldPart
from streaming_jsmf.moments.store import Moments, read_store
from streaming_jsmf.storage.arrays import Variable
from tests import reference
from tests.cases import each_once
from tests.corpora import as_lists, planted, with_more, write_corpus, write_lists
from tests.damage import SOME, Damage
from tests.stores import (
    SMALL,
    SYNCHRONOUS,
    dense,
    digests,
    followed,
    half,
    made_anew,
    partial_names,
    require_moments,
    scanned,
)

#: Classes of lengths; the seed of the stores that have the stage.
CLASSES, SEED = 8, 7


@dataclass(frozen=True)
class LengthReduction:
    """Tokens of each word in documents of 1, 2 to 3, 4 to 7, ... tokens."""

    n_words: int

    def compute(self, partition: Partition) -> PartialResult:
        counts = np.zeros((self.n_words, CLASSES), dtype=np.int64)
        for block in iter_blocks(partition.units, self.n_words):
            documents = np.repeat(length_class(block.sum(axis=1)), np.diff(block.indptr))
            np.add.at(counts, (block.indices, documents), block.data.astype(np.int64))
        return PartialResult({"length_count": counts})

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        before = 0 if folded is None else folded.arrays["length_count"]
        return PartialResult({"length_count": before + partial.arrays["length_count"]})


class LengthStage(Stage):
    """How often each word occurs in short and in long documents; in the stores of its kind."""

    name = "length"
    variables: ClassVar = {"length_count": Variable(("word", "length"), "tokens by length of the document")}

    def scans(self, store: Records) -> Sequence[Scan]:
        return ((LengthReduction(store.n_words), store.order_with(self.name)),)

    def final(self, store: Records, folded: Iterator[PartialResult]) -> PartialResult:
        del store
        (total,) = folded
        return PartialResult(total.arrays)


def length_class(lengths: NDArray[Any]) -> NDArray[np.int64]:
    return np.minimum(np.log2(np.maximum(lengths, 1)).astype(np.int64), CLASSES - 1)


def length_counts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    classes = length_class(counts.sum(axis=1))
    return np.stack([counts[classes == c].sum(axis=0) for c in range(CLASSES)], axis=1)


PLAIN = replace(SMALL, partition_nonzeros=2000)

#: Settings of each kind of store, and the error of its eigenpairs.
KINDS = {
    "whole": (replace(PLAIN, third_moment=True), 1e-4),
    "halko": (replace(PLAIN, range_finder="halko"), 0.1),
    "exact": (replace(PLAIN, exact=True, third_moment=True), 1e-4),
    "sample": (replace(PLAIN, sample_share=0.4, third_moment=True), 0.05),
    "another stage": (replace(PLAIN, seed=SEED), 1e-4),
}
COUNTS = planted(500, 60, 5, length=30, seed=8).counts


@pytest.fixture(scope="module", autouse=True)
def another_stage() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScanSettings, "has_lengths", property(lambda self: self.seed == SEED), raising=False)
        patch.setitem(records.STAGES, "length", "has_lengths")
        patch.setitem(STAGES, "length", LengthStage())
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora a, and b with two more shards; the stores of a are made when they are asked for (``made``)."""
    root = tmp_path_factory.mktemp("stages")
    a = write_corpus(root / "a", COUNTS[:300], row_group_rows=40)
    with_more(a, root / "b", COUNTS[300:], row_group_rows=40)
    return root


def made(kind: str, folder: Path) -> Path:
    store = folder / kind
    if not store.exists():
        scanned(folder / "a", store, KINDS[kind][0])
    return store


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made(kind, folder), tmp_path / "m"))


def require_oracle(moments: Moments, counts: NDArray[np.int64], bound: float) -> None:
    c = dense(counts)
    np.testing.assert_allclose(moments.row_sum, c.sum(axis=1), atol=1e-15)
    np.testing.assert_array_equal(moments.document_frequency, (counts > 0).sum(axis=0))
    expected = reference.truncated_eig(c, 5)
    assert yy_error(half(moments, 5), expected.vectors * np.sqrt(expected.values)) < bound
    names = moments.stage_names
    if "cooccurrence" in names:
        np.testing.assert_allclose(moments.cooccurrence(), c, atol=2e-7 * c.max())
    if "projection" in names:
        basis, product = moments.read("basis"), moments.read("projection")
        np.testing.assert_allclose(product, c @ basis, atol=1e-6 * np.abs(product).max())
    if "refinement" in names:
        directions, product = moments.read("directions"), moments.read("refinement")
        assert (directions.shape[1] > 0) == (moments.manifest.sample_share != 1)
        np.testing.assert_allclose(directions.T @ moments.read("basis"), 0, atol=1e-9)
        np.testing.assert_allclose(product, c @ directions, atol=1e-6 * np.abs(product).max(initial=0))
    if "third_moment" in names:
        require_moments(moments, counts)
    if "length" in names:
        np.testing.assert_array_equal(moments.read("length_count"), length_counts(counts))


def test_every_stage_has_a_kind_of_store(folder: Path) -> None:
    found = {stage for kind in KINDS for stage in read_store(made(kind, folder)).stage_names}
    assert found == STAGES.keys() == records.STAGES.keys()


def test_what_a_store_holds_while_it_follows_its_corpus(
    kind: str, store: Path, folder: Path, tmp_path: Path
) -> None:
    bound = KINDS[kind][1]
    require_oracle(read_store(store), COUNTS[:300], bound)
    for number, (corpus, counts) in enumerate((("b", COUNTS), ("a", COUNTS[:300]))):
        require_oracle(followed(folder / corpus, store), counts, bound)
        require_intact(read_store(store))
        made_anew(folder / corpus, store, tmp_path / f"{number}")
        assert digests(store) == digests(tmp_path / f"{number}")
        # The last part of a name is random.
        left, anew = (
            {name.rsplit("-", 1)[0] for name in partial_names(path, "")}
            for path in (store, tmp_path / f"{number}")
        )
        assert left == anew


@pytest.mark.parametrize(
    "execution",
    [Execution("threads", 3), pytest.param(Execution("processes", 2), marks=pytest.mark.slow)],
    ids=lambda execution: execution.scheduler,
)
def test_the_scheduler_changes_no_bit(execution: Execution, kind: str, folder: Path, tmp_path: Path) -> None:
    if (kind, execution.scheduler) == ("another stage", "processes"):
        pytest.skip("other processes do not have the stage")
    scanned(folder / "a", tmp_path / "n", KINDS[kind][0], execution=execution)
    assert digests(tmp_path / "n") == digests(made(kind, folder))


def scans(kind: str) -> list[str]:
    """The stages of a kind of store that read the corpora."""
    third = ["third_moment"] if KINDS[kind][0].third_moment else []
    second = {
        "halko": [],
        "exact": ["cooccurrence"],
        "sample": ["projection", "refinement"],
        "another stage": ["projection", "length"],
    }
    return ["sums", *second.get(kind, ["projection"]), *third]


INTERRUPTED = [
    # By default the last scan of each kind of store, and all of a first scan of the one with the most stages.
    pytest.param(
        kind,
        stage,
        follow,
        marks=pytest.mark.slow if follow or (kind != "sample" and stage != scans(kind)[-1]) else (),
    )
    for kind in KINDS
    for stage in scans(kind)
    for follow in (False, True)
]


@pytest.mark.parametrize(("kind", "stage", "follow"), INTERRUPTED)
def test_an_interrupted_stage_resumes(
    kind: str, stage: str, follow: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, whole, settings = tmp_path / "m", made(kind, folder), KINDS[kind][0]

    def command(path: Path, execution: Execution = SYNCHRONOUS) -> None:
        if follow:
            followed(folder / "b", path, execution=execution)
        else:
            scanned(folder / "a", path, settings, execution=execution)

    if follow:
        shutil.copytree(whole, store)
        whole = Path(shutil.copytree(whole, tmp_path / "whole"))
        command(whole)
    [(first, _), *_] = STAGES[stage].scans(read_store(whole))
    reduction, done, limit = type(first), list[str](), [1 if follow else 2]
    compute, by = reduction.compute, getattr(first, "basis_name", "")

    def failing(self: Any, partition: Partition | HeldPart) -> PartialResult:
        if getattr(self, "basis_name", "") != by:
            # Scans with the basis and with the directions have one reduction.
            return compute(self, partition)
        if len(done) == limit[0]:
            raise OSError("no space left")
        done.append(partition.key if isinstance(partition, HeldPart) else partition.content)
        return compute(self, partition)

    monkeypatch.setattr(reduction, "compute", failing)
    with pytest.raises(OSError, match="no space left"):
        command(store)
    missing = read_store(store).missing_stages
    if follow and stage == "sums":
        # It is still the store of before.
        assert (missing, digests(store)) == ((), digests(made(kind, folder)))
        missing = read_store(store).stage_names
    assert stage in missing
    made_before = [name for name in read_store(store).stage_names if name not in missing]
    paths = [store / "records" / name / "zarr.json" for name in made_before]
    finished = {path: path.read_bytes() for path in paths}
    limit[0] = -1
    with pytest.raises(InputError, match="memory"):
        command(store, Execution("synchronous", memory=10**6))
    command(store)
    assert len(done) > 1
    assert len(set(done)) == len(done), "computed again"
    assert {path: path.read_bytes() for path in finished} == finished, "committed again"
    assert digests(store) == digests(whole)
    require_intact(read_store(store))


@pytest.mark.parametrize(
    ("kind", "bad"), each_once(["exact", "sample", "another stage"], ["record", "truncated"])
)
def test_a_bad_corpus_leaves_the_store_as_it_was(bad: str, kind: str, folder: Path, tmp_path: Path) -> None:
    store, (settings, bound) = tmp_path / "m", KINDS[kind]
    scanned(folder / "a", store, settings)
    before, manifest, names = digests(store), read_store(store).manifest, partial_names(store, "")
    last = sorted(shutil.copytree(folder / "b", tmp_path / "bad").glob("*.parquet"))[-1]
    if bad == "record":
        ids, counts = as_lists(COUNTS[400:])
        counts[-1][0] = -3
        write_lists(last, ids, counts)
    else:
        # A page in the middle: the footer is whole, so that the damage is met by a task.
        data = bytearray(last.read_bytes())
        data[len(data) // 2 : len(data) // 2 + 40] = b"\xff" * 40
        last.write_bytes(bytes(data))
    with pytest.raises(
        (InputError, StoreError), match=f"{last.name}.*{'-3' if bad == 'record' else ''}"
    ) as error:
        followed(last.parent, store)
    assert "\n" not in str(error.value)
    assert digests(store) == before
    assert read_store(store).manifest == manifest
    assert partial_names(store, "") == names
    require_intact(read_store(store))
    require_oracle(followed(folder / "b", store), COUNTS, bound)


DAMAGED = [
    *each_once(["whole"], ["word_mean", "pair_projection", "third_moment"], SOME),
    *each_once(["halko"], ["sketch"], SOME),
    *each_once(["exact"], ["cooccurrence", "third_moment"], SOME),
    *each_once(
        ["sample"],
        [
            "partials/sums-part-*",
            "basis",
            "projection",
            "directions",
            "refinement",
            "eigenvectors",
        ],
        SOME,
    ),
    *each_once(["another stage"], ["length_count"], SOME),
    ("sample", "records/third_moment", Path.unlink),
]


@pytest.mark.parametrize(("kind", "part", "damage"), DAMAGED)
def test_damaged_parts_are_named_and_recomputed(
    kind: str, part: str, damage: Damage, store: Path, folder: Path
) -> None:
    before = digests(store)
    inside = (
        "zarr.json" if part.startswith("records") else PACKED if part.startswith("partials") else "c/**/*"
    )
    files = store.glob(f"{part}/{inside}")
    damage(next(path for path in files if path.is_file()))
    if part != "records/third_moment":
        # A stage without a record is one that was not finished.
        with pytest.raises(StoreError, match=part.split("*")[0]):
            require_intact(read_store(store))
    scanned(folder / "a", store, KINDS[kind][0])
    assert digests(store) == before
    require_intact(read_store(store))


@pytest.mark.parametrize("kind", [name for name, (settings, _) in KINDS.items() if settings.third_moment])
def test_the_third_moment_is_added_in_one_pass(
    kind: str, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = KINDS[kind][0]
    scanned(folder / "a", tmp_path / "m", replace(settings, third_moment=False))
    before = digests(tmp_path / "m")
    caplog.clear()
    scanned(folder / "a", tmp_path / "m", settings)
    assert digests(tmp_path / "m") == digests(made(kind, folder))
    assert digests(tmp_path / "m").items() > before.items()
    assert not re.search("(sums|projection|cooccurrence): partition", caplog.text), "one pass"


def test_its_memory_is_planned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(KINDS["another stage"][0], max_topics=1)
    partitions = plan_partitions(list_units(open_corpus(folder / "a")), 2000)
    known = needs.passes(50, settings)
    assert known.keys() | {"length"} == STAGES.keys()
    sizes = []
    for most in (10**8, 10**8 + 12_345_678):
        monkeypatch.setattr(needs, "passes", lambda *_, most=most: {**known, "length": Pass(most)})
        sizes.append(scan_memory(50, settings, partitions, 1))
    assert sizes[1] == sizes[0] + 12_345_678
