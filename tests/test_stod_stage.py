"""The third moment in a store: what it holds, and that it is added, resumed, mended and kept up like the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streaming_jsmf import STOD
from streaming_jsmf.config import InferSettings, ScanSettings, StodSettings
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.linalg.tensor import unpacked
from streaming_jsmf.moments.memory import scan_memory
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.run import commit
from streaming_jsmf.moments.store import open_moments, read_store
from streaming_jsmf.topics.infer import InferPlan
from tests.corpora import planted, write_corpus
from tests.outcomes import Command, refused
from tests.stores import SMALL, require_moments, scanned

PLAIN = replace(SMALL, partition_nonzeros=2000)
THIRD = replace(PLAIN, third_moment=True)
COUNTS = planted(500, 60, 4, length=30).counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus a, a store of it without and one with the third moment, and a corpus b of other documents."""
    root = tmp_path_factory.mktemp("third")
    write_corpus(root / "a", COUNTS[:300])
    write_corpus(root / "b", COUNTS[300:], shards=2)
    scanned(root / "a", root / "without", PLAIN)
    scanned(root / "a", root / "with", THIRD)
    return root


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(folder / name, tmp_path / name))


def test_a_store_holds_the_moments_of_its_documents(tmp_path: Path) -> None:
    # Short documents too, one pass over the data, other partitions and weights.
    counts = planted(200, 60, 4, length=4, seed=5).counts
    assert (counts.sum(axis=1) < 3).sum() > 20
    settings = ScanSettings(
        max_topics=5, partition_nonzeros=300, document_weights="uniform", third_moment=True
    )
    store = scanned(write_corpus(tmp_path / "short", counts), tmp_path / "m", settings)
    assert len(store.manifest.partitions) > 1
    require_moments(store, counts)
    assert store.outcome("third_moment")["scalars"]["n_documents"] == (counts.sum(axis=1) >= 3).sum()  # type: ignore[index]


def test_models_depend_on_what_they_are_made_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the third moment only models of the tensor engine; on ENN's version all that it has rectified."""
    stores = [open_moments(folder / name) for name in ("with", "without")]
    cases = [
        (InferSettings(4), True),
        (InferSettings(4, rectify="none"), False),
        (StodSettings(4), True),
        (StodSettings(4, alpha0=1.0), False),
    ]

    def fingerprints(settings: InferSettings | StodSettings) -> list[str]:
        return [InferPlan(store, settings, 1).fingerprint for store in stores]

    before = [fingerprints(settings) for settings, _ in cases]
    assert [one == other for one, other in before] == [True, True, False, False]
    monkeypatch.setattr("streaming_jsmf.topics.infer.ENN_ALGORITHM", 100)
    for (settings, depends), old in zip(cases, before, strict=True):
        assert (fingerprints(settings)[0] != old[0]) is depends


def test_another_basis_makes_it_stale(folder: Path, copy: Callable[[str], Path]) -> None:
    # Such as one that another processor computes in a repair.
    path = copy("with")
    store = read_store(path)
    turned = {"basis": -store.read("basis"), "basis_eigenvalues": store.read("basis_eigenvalues")}
    commit(store, "basis", PartialResult(turned))
    later = ("projection", "directions", "refinement", "eigenpairs", "third_moment")
    assert read_store(path).missing_stages == later
    require_moments(scanned(folder / "a", path, THIRD), COUNTS[:300])


def test_partitions_change_the_moments_by_rounding_only(folder: Path, tmp_path: Path) -> None:
    # The basis is another one, so what is compared does not hang on it: moments in words.
    found = []
    for nonzeros in (1000, 10**6):
        settings = replace(THIRD, max_topics=60, partition_nonzeros=nonzeros)
        read = scanned(folder / "a", tmp_path / f"m{nonzeros}", settings).tensor_moments()
        q = read.basis
        # A word occurs in no document.
        assert q.shape == (60, 59)
        third = np.einsum("ijk,xi,yj,zk->xyz", unpacked(read.moments.third, 59), q, q, q, optimize=True)
        found.append((read.moments.pair_projection @ q.T, third))
    for one, other in zip(*found, strict=True):
        assert np.linalg.norm(one - other) < 3e-6 * np.linalg.norm(other)


def test_the_memory_of_the_pass_is_planned(folder: Path) -> None:
    partitions = load_partitions(read_store(folder / "with").manifest, folder / "with")
    workers = len(partitions)
    assert workers > 2, "with one or two the basis takes more than they"
    settings = ScanSettings(max_topics=100, third_moment=True)
    without = scan_memory(100_000, replace(settings, third_moment=False), partitions, workers)
    with_it = scan_memory(100_000, settings, partitions, workers)
    # Two sums of 100,000 x 200 in float64 and float32, and the basis, take more than three factors in float32.
    assert with_it - without > workers * (32 * 200 - 12 * 400) * 100_000


def test_documents_too_short_for_triples(tmp_path: Path, invoke: Command) -> None:
    said = "no document has 3 tokens or more"
    counts = np.random.default_rng(0).multinomial(2, np.full(30, 1 / 30), size=200)
    corpus, store, model = write_corpus(tmp_path / "pairs", counts), tmp_path / "m", tmp_path / "model"
    options = ("--max-topics", "2", "--third-moment", "--scheduler", "synchronous")
    outcome = invoke("scan", corpus, store, *options)
    assert outcome.code == 0
    assert said in outcome.err
    inferred = invoke("infer", store, model, "--topics", "2", "--engine", "stod")
    refused(inferred, 2, said, "--engine lr-jsmf")
    assert not model.exists()
    assert invoke("info", store, "--json").code == 0
    with pytest.raises(ValueError, match=said) as caught:
        STOD(2, workers=1).fit(counts)
    assert "\n" not in str(caught.value)
