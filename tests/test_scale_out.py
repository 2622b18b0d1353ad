"""The simulation of large clusters runs, with costs that it measures or reads, and weighs the real graphs."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.replay import Costs
from benchmarks.scale_out import main

#: Costs of scan 2 with N = 50,000 and K = 50.
SCAN_2 = Costs("scan 2", 50_000, 9e-8, 0.01, 3e-9, 20_000_000, 40_000_000, 1.8, (4.0, 3.6, 1.5))


def simulated(*options: object) -> dict[str, Any]:
    outcome = CliRunner().invoke(main, [*map(str, options)], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    (target,) = (Path(str(value)) for name, value in pairwise(options) if name == "--json")
    found: dict[str, Any] = json.loads(target.read_text())
    return found


def test_known_costs_are_replayed(tmp_path: Path) -> None:
    (tmp_path / "costs.json").write_text(json.dumps({"costs": [asdict(SCAN_2)], "scheduler_seconds": 0.001}))
    found = simulated(
        *("--costs", tmp_path / "costs.json", "--documents", "1e7,1e8", "--workers", "8,64"),
        *("--json", tmp_path / "out.json"),
    )
    rows = found["rows"]
    assert [(row["documents"], row["partitions"], row["workers"]) for row in rows] == [
        *((1e7, 64, 8), (1e7, 64, 64), (1e8, 118, 8), (1e8, 118, 64))
    ]
    assert rows[2]["seconds"] > 3 * rows[3]["seconds"]
    for graph, documents in zip(found["graphs"], (1e7, 1e8), strict=True):
        assert graph["documents"] == documents
        assert graph["tasks"] > graph["partitions"]
        assert graph["sent"] / graph["tasks"] < 500
        assert graph["listed"] > 56 * documents * 75 / 1e6, "the numbers of each row group"


@pytest.mark.campaign
def test_costs_are_measured(tmp_path: Path) -> None:
    small = ("--words", 2000, "--max-topics", 5, "--measured", 5000, "--wide", "")
    found = simulated(*small, "--documents", "1e6", "--workers", 8, "--json", tmp_path / "out.json")
    assert [costs["stage"] for costs in found["costs"]] == ["scan 1, sample", "scan 2", "third moment"]
    assert all(
        costs["seconds_per_nonzero"] > 0 and min(costs["requests"][:2]) > 1 for costs in found["costs"]
    )
    again = simulated(
        *("--costs", tmp_path / "out.json", "--documents", "1e6", "--workers", 8),
        *("--json", tmp_path / "again.json"),
    )
    assert again["rows"] == found["rows"]
