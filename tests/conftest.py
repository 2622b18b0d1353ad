"""Shared fixtures and hypothesis profiles."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from streaming_jsmf.cli.main import run
from tests.corpora import Planted, planted, write_corpus
from tests.outcomes import Command, Outcome

# Matrices here are tiny: BLAS threads would only wait for each other. What real processes do is tested in them.
threadpool_limits(limits=1, user_api="blas")

# A background shell starts its commands deaf to interrupts, and their children inherit it: tests interrupt theirs.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A process that is killed loses nothing of what it has written, flushed or not; a power cut is not among the tests.
os.fsync = lambda _: None

# Hundreds of processes are started here, and three workers rewrite the assertions of every module: where no bytecode is
# stored, each of them compiles all of it again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Stores are many small files. On a disk each of them waits for the journal, and longer if others write there too: the
# tests then take twice the time. What must be on a disk, such as a file that is larger than memory, is not among them.
MEMORY, ENOUGH = Path("/dev/shm"), 4 << 30
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

settings.register_profile(
    "quick", max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile("quick")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half more than the cores, for ``-n auto``: tests wait for processes, servers and the browser."""
    return 3 * (os.cpu_count() or 1) // 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give tests that share what is expensive to one worker, for ``--dist loadgroup``.

    The marker of pytest-xdist 3.8 for this changes ids of tests, which pytest 9.2 does not let it change.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler


def group_of(test: str) -> str:
    """All tests of the lab, because they share its hosts; those of a case of kills; any other test alone."""
    module, _, name = test.partition("::")
    if module.endswith("test_lab.py"):
        return module
    return f"{module}::{name.partition('[')[2]}" if module.endswith("test_kill_sweep.py") else test


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection, which would take half of the time: they live until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session")
def documents() -> Planted:
    """600 documents of 5 separable topics over 120 words."""
    return planted(600, 120, 5, seed=1)


@pytest.fixture(scope="session")
def corpus_path(documents: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents on disk: 3 shards of 4 row groups."""
    return write_corpus(tmp_path_factory.mktemp("corpora") / "planted", documents.counts)


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command line in this process."""

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call
