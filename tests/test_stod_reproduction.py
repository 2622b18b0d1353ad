"""The pipeline that repeats the experiments of STOD's paper: its rows are what it says they are."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner

from streaming_jsmf.corpus import open_corpus
from tests.corpora import write_corpus

SCRIPT = Path(__file__).parent.parent / "pipelines" / "stod_reproduction.py"


@pytest.fixture
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("stod_reproduction", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.slow
def test_a_row_for_each_value(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["--words", "2000", "--topics", "3", "--corpora", "2", "--seed", "4"]
    options = [str(tmp_path), "--values", "300,3000", *settings]
    done = CliRunner().invoke(script.main, options)
    assert done.exit_code == 0, done.output
    # Everything is kept: the second time nothing is simulated.
    monkeypatch.delattr(script, "simulate_lda")
    assert CliRunner().invoke(script.main, options).stdout == done.stdout
    header, rule, *rows = done.stdout.strip().splitlines()
    assert header == "| documents | uniform | STOD |"
    assert rule == "|---:|---:|---:|"
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == ["300", "3,000"]
    few, many = (float(row[2].split()[0]) for row in cells)
    uniform = float(cells[0][1].split()[0])
    assert many < few < uniform
    assert many < 0.1
    assert all("±" in row[2] and row[2].endswith(" s") for row in cells)


def test_errors_are_those_of_matched_topics(script: ModuleType) -> None:
    truth = np.random.default_rng(0).dirichlet(np.ones(8), size=3).T
    assert script.recovery_error(truth[:, [2, 0, 1]], truth) == pytest.approx(0, abs=1e-15)
    # A topic that is not found counts as the uniform one.
    expected = abs(truth[:, 1] - 1 / 8).sum() / 3
    assert script.recovery_error(truth[:, [2, 0]], truth) == pytest.approx(expected)


def test_sampling_sees_the_same_tokens(script: ModuleType, tmp_path: Path) -> None:
    counts = np.array([[2, 0, 1], [0, 0, 0], [0, 3, 0]])
    corpus = open_corpus(write_corpus(tmp_path / "corpus", counts, shards=1))
    assert list(script.documents(corpus)) == [["0", "0", "2"], ["1", "1", "1"]]
