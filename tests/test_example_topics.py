"""The pipeline that sets topics of both engines side by side: matched ones, by their words."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.corpora import planted, write_corpus

SCRIPT = Path(__file__).parent.parent / "pipelines" / "example_topics.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_both_engines_side_by_side(script: dict[str, Any], tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", planted(800, 60, 3, length=60, seed=1).counts)
    done = CliRunner().invoke(
        script["main"], [str(corpus), str(tmp_path / "out"), "--topics", "3", "--shown", "2"]
    )
    assert done.exit_code == 0, done.output
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    assert [row[:2] for row in rows] == [[n, name] for n in "12" for name in ("STOD", "LR-JSMF")]
    for tensor, anchored in zip(rows[::2], rows[1::2], strict=True):
        assert len(tensor[2].split()) == script["LISTED"]
        assert len({*tensor[2].split()} & {*anchored[2].split()}) >= 6
        assert float(anchored[3]) < 0.5


def test_columns_are_in_the_order_of_the_first(script: dict[str, Any]) -> None:
    first = np.random.default_rng(0).dirichlet(np.ones(9), size=4).T
    order = np.array([2, 0, 3, 1])
    other = script["beside"]("other", first[:, order], order[:, None], first)
    assert other.listed.ravel().tolist() == [0, 1, 2, 3]
    assert np.array_equal(other.distances, np.zeros(4))
