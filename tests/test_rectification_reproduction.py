"""The pipeline that compares the rectifications, on a small corpus: all rows, and the same ones from what it kept."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.corpora import planted, write_corpus
from tests.processes import ended

ROOT = Path(__file__).parent.parent


def table(corpus: Path, out: Path) -> list[list[str]]:
    command = [sys.executable, str(ROOT / "pipelines" / "reproduction.py"), str(corpus), str(out)]
    command += ["--topics", "3,4", "--iterations", "30", "--threads", "1"]
    done = ended(command, folder=ROOT)
    assert done.code == 0, done.err
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.out.splitlines() if "|" in line]


@pytest.mark.slow
def test_enn_is_beside_alternating_projections(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", planted(1500, 80, 4, length=80, seed=2).counts)
    rows = table(corpus, tmp_path / "out")
    names = rows[0]
    lines = [dict(zip(names, row, strict=True)) for row in rows[2:]]
    assert len(lines) == 2 * 7
    for k in ("3", "4"):
        of_k = {line["method"]: line for line in lines if line["K"] == k}
        first, enn = of_k["AP + AW"], of_k["ENN + LAW"]
        assert (first["anchors shared"], float(first["mean L1"])) == (k, 0.0)
        assert float(enn["Y Y' off"]) < 0.01
        assert float(enn["mean L1"]) < 0.1
        # Another choice of anchors, on the same Y.
        assert float(of_k["ENN + SoftClique"]["Y Y' off"]) == float(enn["Y Y' off"])
        # Bare AW is what rectification is for; a table in which it looks alike compares nothing.
        assert float(of_k["no rectification, AW"]["mean L1"]) > float(enn["mean L1"])
        assert np.isfinite(
            [float(value) for line in of_k.values() for name, value in line.items() if name != "method"]
        ).all()
    (tmp_path / "out" / "k=4-0.npz").unlink()
    again = table(corpus, tmp_path / "out")
    place = names.index("seconds")
    for before, after in zip(rows[2:], again[2:], strict=True):
        assert before[:place] == after[:place]
