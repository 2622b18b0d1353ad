"""``workers`` is the number of tasks at once and of threads, in every function; None stands for one per core."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

import streaming_jsmf as sj
from streaming_jsmf import Execution
from streaming_jsmf.jobs import execution
from streaming_jsmf.linalg import panels
from tests.corpora import planted, write_corpus

CORES, K = 4, 3
TEXTS = [f"ship{i % 5} sail{i % 7} wave{i % 6} harbour{i % 9} anchor{i % 8} storm{i % 6}" for i in range(99)]
COUNTS = planted(300, 60, K, length=40, seed=0).counts


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pools of threads that compute, on a machine of four cores."""
    sizes = list[int]()

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers: int, **options: Any) -> None:
            sizes.append(workers)
            super().__init__(workers, **options)

    monkeypatch.setattr(os, "cpu_count", lambda: CORES)
    monkeypatch.setattr(panels, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(execution, "ThreadPoolExecutor", Pool)
    return sizes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, its moments and a model."""
    root = tmp_path_factory.mktemp("workers")
    write_corpus(root / "c", COUNTS)
    sj.fit(root / "c", root / "m", K, polish=False, scheduler="synchronous")
    return root


def estimated(engine: Any, workers: int | None, **more: Any) -> None:
    model = engine(K, workers=workers, polish_steps=1, **more).fit(COUNTS)
    model.score(COUNTS)
    model.transform(COUNTS)


CALLS: dict[str, Callable[[Path, Path, int | None], Any]] = {
    "ingest": lambda _, out, n: sj.ingest(TEXTS, out / "c", stop_words="none", execution=Execution(workers=n)),
    "scan": lambda root, out, n: sj.scan(root / "c", out / "m", max_topics=K, execution=Execution(workers=n)),
    "infer": lambda root, out, n: sj.infer(root / "m.moments", out / "m", K, workers=n),
    "fit": lambda root, out, n: sj.fit(root / "c", out / "m", K, workers=n),
    "fit, execution": lambda root, out, n: sj.fit(root / "c", out / "m", K, execution=Execution(workers=n)),
    "fit, stod": lambda root, out, n: sj.fit(root / "c", out / "m", K, engine="stod", workers=n),
    "polish": lambda root, out, n: sj.polish(root / "m", root / "c", out / "m", workers=n),
    "transform": lambda root, out, n: sj.transform(root / "m", root / "c", out / "s.parquet", workers=n),
    "evaluate": lambda root, out, n: sj.evaluate(copytree(root / "m", out / "m"), corpus=root / "c", workers=n),
    "choose_k": lambda root, out, n: sj.choose_k(root / "c", [2, K], out=out / "k", workers=n),
    "choose_k, moments": lambda root, out, n: sj.choose_k(root / "m.moments", [2, K], out=out / "k", workers=n),
    "LRJSMF": lambda _, __, n: estimated(sj.LRJSMF, n),
    "STOD": lambda _, __, n: estimated(sj.STOD, n),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_one_worker_is_one_thread(name: str, folder: Path, tmp_path: Path, pools: list[int]) -> None:
    CALLS[name](folder, tmp_path, 1)
    assert {*pools} <= {1}


@pytest.mark.parametrize("name", CALLS)
def test_the_default_is_one_per_core(name: str, folder: Path, tmp_path: Path, pools: list[int]) -> None:
    CALLS[name](folder, tmp_path, None)
    assert max(pools) == CORES


def test_a_synchronous_scheduler_uses_one_thread_throughout(
    folder: Path, tmp_path: Path, pools: list[int]
) -> None:
    sj.fit(folder / "c", tmp_path / "m", K, scheduler="synchronous")
    estimated(sj.LRJSMF, None, scheduler="synchronous")
    assert pools == []


def test_more_workers_than_cores_are_no_more_threads_of_the_inference(
    folder: Path, tmp_path: Path, pools: list[int]
) -> None:
    sj.infer(folder / "m.moments", tmp_path / "m", K, workers=100)
    assert {*pools} == {CORES}
    with pytest.raises(sj.InputError, match="workers is 0; give a whole number of at least 1"):
        sj.infer(folder / "m.moments", tmp_path / "n", K, workers=0)


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_integers_of_numpy_are_integers(kind: Any, folder: Path, tmp_path: Path) -> None:
    moments, how = folder / "m.moments", {"workers": kind(1), "polish": False}
    model = sj.infer(moments, tmp_path / "i", kind(K), workers=kind(1), max_iterations=kind(20))
    assert model.arrays["anchors"].size == K
    assert sj.fit(folder / "c", tmp_path / "f", kind(K), **how).n_topics == K
    assert len(sj.fit(folder / "c", tmp_path / "several", [kind(2), kind(K)], **how).models) == 2
    assert len(sj.choose_k(moments, np.array([2, K], kind), out=tmp_path / "k").models) == 2
    with pytest.raises(sj.InputError, match="a single number of topics"):
        sj.choose_k(moments, kind(K))
    with pytest.raises(sj.InputError, match="the second argument is where the model goes"):
        sj.fit(folder / "c", kind(K))
    with pytest.raises(sj.InputError, match="n_topics is 0; give a whole number"):
        sj.infer(moments, tmp_path / "none", kind(0))
