"""The scheduler and the number of workers change the time of a scan, never a bit of its store."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from streaming_jsmf.cli.main import run
from streaming_jsmf.jobs.blas import single_blas_thread
from tests.corpora import planted, write_corpus
from tests.outcomes import described
from tests.processes import PATIENCE, command, finished

#: Factors wide enough for BLAS to use several threads if it may: with small matrices it never does.
SETTINGS = ("--max-topics", "40", "--partition-nonzeros", "9000", "--third-moment")

#: Clusters over TCP are in the default run elsewhere, threads below.
EXECUTIONS = [
    ("processes", 2),
    *(
        pytest.param(scheduler, workers, marks=pytest.mark.slow)
        for scheduler, numbers in (
            ("synchronous", (1,)),
            ("threads", (1, 2, 3)),
            ("processes", (1,)),
            ("cluster", (1, 2, 3)),
        )
        for workers in numbers
    ),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(1600, 1000, 20, length=60, seed=11).counts
    return write_corpus(tmp_path_factory.mktemp("bits") / "corpus", counts, row_group_rows=20)


@pytest.fixture(scope="module")
def reference(corpus: Path) -> Path:
    path = corpus.parent / "reference"
    assert run(["scan", str(corpus), str(path), *SETTINGS, "--scheduler", "synchronous"]) == 0
    return path


def test_the_reference_is_worth_comparing_with(
    reference: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = described(reference, capsys)
    assert shown["complete"]
    assert shown["partitions"] > 7, "more partitions than the widest window of unfolded ones"
    other = ["scan", str(corpus), str(tmp_path / "m"), *SETTINGS, "--seed", "1", "--scheduler", "synchronous"]
    assert run(other) == 0
    digests = described(tmp_path / "m", capsys)["digests"]
    same = {name for name, digest in digests.items() if digest == shown["digests"][name]}
    sums = {"word", "row_sum", "diagonal", "term_count", "document_frequency", "word_mean"}
    # All documents are held, so there are no directions.
    assert same == {*sums, "directions", "refinement"}


def scan_in_a_process(corpus: Path, store: Path, *options: str, **environment: str) -> None:
    """Scan as a user does: a fresh interpreter, with an importable main module for the workers."""
    finished(command("scan", corpus, store, *SETTINGS, *options), **environment)


@pytest.mark.parametrize(("scheduler", "workers"), EXECUTIONS)
def test_the_scheduler_changes_no_bit(
    scheduler: str,
    workers: int,
    corpus: Path,
    reference: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scan_in_a_process(corpus, tmp_path / "m", "--scheduler", scheduler, "--workers", str(workers))
    assert described(tmp_path / "m", capsys)["digests"] == described(reference, capsys)["digests"]


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def limited() -> set[int]:
    with single_blas_thread():
        return blas_threads()


# Since 3.8 threadpoolctl obeys only the first thread that ever set a limit, for as long as that thread lives; for
# all others setting and restoring do nothing. BLAS with several threads changes the bits from run to run.
def test_blas_has_one_thread_in_whatever_thread_asks_first() -> None:
    with threadpool_limits(2, user_api="blas"):
        assert blas_threads() == {2}, "the test needs a BLAS whose threads can be set"
        with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
            for pool in (first, second, first):
                assert pool.submit(limited).result() == {1}
                assert limited() == {1}
                assert blas_threads() == {2}, "restored"


def test_blas_has_one_thread_until_the_last_task_is_out() -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with single_blas_thread():
            entered.set()
            leave.wait(timeout=PATIENCE)

    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        try:
            assert entered.wait(timeout=PATIENCE)
            assert limited() == {1}
            assert blas_threads() == {1}, "one task has left, another is at work"
        finally:
            leave.set()
        holding.result()
        assert blas_threads() == {2}


def test_the_limit_of_blas_belongs_to_the_user_again_afterwards() -> None:
    with threadpool_limits(2, user_api="blas"):
        assert limited() == {1}
    with threadpool_limits(1, user_api="blas"):
        assert blas_threads() == {1}
        assert limited() == {1}
        assert blas_threads() == {1}
    with threadpool_limits(2, user_api="blas"):
        assert blas_threads() == {2}


@pytest.mark.slow
def test_the_environment_of_blas_changes_no_bit(
    corpus: Path, reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The scheduler is left out: one worker for each core, on threads.
    variables = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    scan_in_a_process(corpus, tmp_path / "m", **dict.fromkeys(variables, "3"))
    assert described(tmp_path / "m", capsys)["digests"] == described(reference, capsys)["digests"]
