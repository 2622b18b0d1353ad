"""The pipeline that follows topics from period to period: chains, and where they are cut."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.corpora import planted, write_corpus

SCRIPT = Path(__file__).parent.parent / "pipelines" / "topics_over_time.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_a_chain_is_cut_where_the_next_topic_is_another_subject(script: dict[str, Any]) -> None:
    period, eye = script["Period"], np.eye(6)
    # One subject stays and moves to another column, one drifts, one is replaced by a stranger.
    first = period("a", eye[:, [0, 1, 2]], np.array([0.2, 0.5, 0.3]))
    second = period(
        "b", np.column_stack([0.6 * eye[1] + 0.4 * eye[3], eye[0], eye[5]]), np.array([0.6, 0.3, 0.1])
    )
    chains = script["chains_of"]([first, second])
    told = [[(link.period.name, link.topic, link.step) for link in chain] for chain in chains]
    assert told == [
        [("a", 1, None), ("b", 0, pytest.approx(0.8))],
        [("a", 2, None)],
        [("a", 0, None), ("b", 1, 0.0)],
        [("b", 2, None)],
    ]
    assert [len(chain) for chain in script["chains_of"]([first, second], 2.0)] == [2, 2, 2]
    assert [len(chain) for chain in script["chains_of"]([first, second], 0.5)] == [1, 1, 2, 1, 1]


@pytest.mark.parametrize("label", ["{}-07-01", None])
def test_every_topic_of_every_period_is_in_one_chain(
    script: dict[str, Any], tmp_path: Path, label: str | None
) -> None:
    corpus = write_corpus(tmp_path / "corpus", planted(900, 60, 3, length=60, seed=1).counts, shards=3)
    for number, shard in enumerate(sorted(corpus.glob("*.parquet"))):
        table = pq.read_table(shard)
        # Numbers, or texts as CSV files have them.
        year = 1990 + 10 * number
        labels = pa.array([year if label is None else label.format(year)] * len(table))
        pq.write_table(
            table.append_column("year", labels).append_column("word", pa.array(["x"] * len(table))), shard
        )
    done = CliRunner().invoke(script["main"], [str(corpus), str(tmp_path / "out"), "--topics", "3"])
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if ".." in line]
    assert sorted(line.split()[0] for line in lines) == sorted(3 * ["1990..1999", "2000..2009", "2010..2019"])
    assert sum(line.startswith("chain") for line in done.stdout.splitlines()) == 3, (
        "the topics stay what they are"
    )
    assert all(line.count(", ") == script["LISTED"] - 1 for line in lines)
    other = [str(corpus), str(tmp_path / "other"), "--by", "word", "--topics", "3"]
    refused = CliRunner().invoke(script["main"], other)
    assert refused.exit_code == 1
    assert "years and ISO dates, not of values such as 'x'" in refused.output
