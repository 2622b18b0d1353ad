"""Ctrl-C and SIGTERM end a command within seconds, in one line, and leave nothing that the next command trips over."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import dask
import pytest

from streaming_jsmf.jobs.execution import Execution
from tests.interrupted import FORCED, ORDERLY, SIGNALS, after_the_end, while_nobody_reads
from tests.processes import ended

WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated"}
LOCK = ".store.lock.json"


def test_a_signal_ends_a_command_whatever_it_meets(tmp_path: Path) -> None:
    done = ended([sys.executable, "-m", "tests.interrupted", str(tmp_path)])
    found = json.loads(done.out)
    for number in SIGNALS:
        line = f"{WORDS[number.name]}; run the same command again to go on from what is committed"
        expected = (128 + number, line, "interrupted", line)
        for moment in ORDERLY:
            lines = ("", *expected[2:]) if moment is while_nobody_reads else expected[1:]
            assert found[f"{moment.__name__}-{number.name}"] == [expected[0], *lines, []]
        for moment in FORCED:
            # The lock tells the next command that there is something to clear.
            assert found[f"{moment.__name__}-{number.name}"] == [*expected, [LOCK]]
        assert found[f"{after_the_end.__name__}-{number.name}"] == [0, "", "done", None, []]


def note_blocked(file: Path) -> None:
    file.write_text(repr(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())))


@pytest.mark.parametrize("scheduler", ["processes", pytest.param("cluster", marks=pytest.mark.slow)])
def test_workers_leave_ctrl_c_to_the_command_from_their_first_moment_on(
    scheduler: str, tmp_path: Path
) -> None:
    """They are started with it blocked: what they do at it themselves would come too late for their imports."""
    with Execution(scheduler, workers=1).executor() as executor:
        executor.compute(dask.delayed(note_blocked)(tmp_path / "blocked"))
    assert (tmp_path / "blocked").read_text() == "True"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
