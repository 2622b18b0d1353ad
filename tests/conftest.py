"""Shared fixtures and hypothesis profiles."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from tests.corpora import Planted, planted, write_corpus

# Matrices here are tiny: BLAS threads would only wait for each other. What real processes do is tested in them.
threadpool_limits(limits=1, user_api="blas")

# A background shell starts its commands deaf to interrupts, and their children inherit it: tests interrupt theirs.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "quick", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile("quick")


@pytest.fixture(scope="session")
def documents() -> Planted:
    """600 documents of 5 separable topics over 120 words."""
    return planted(600, 120, 5, seed=1)


@pytest.fixture(scope="session")
def corpus_path(documents: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents on disk: 3 shards of 4 row groups."""
    return write_corpus(tmp_path_factory.mktemp("corpora") / "planted", documents.counts)
