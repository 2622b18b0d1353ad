"""The same bits wherever arrays lie and however work is divided."""

from __future__ import annotations

import csv
import importlib
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_info, threadpool_limits

from streaming_jsmf.cli.main import run
from streaming_jsmf.inference.polish import step_sums
from streaming_jsmf.inference.share_draws import draw_shares
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg.compiled import compiled
from tests.corpora import planted, words, write_corpus
from tests.outcomes import called, described, printed
from tests.processes import PATIENCE, SOURCE, command, ended, finished
from tests.verbs import digests, texts

Array = NDArray[Any]
Call = tuple[Callable[..., Any], tuple[Any, ...]]

PLACEMENTS = 32
N_DOCUMENTS, N_WORDS = 40, 90


def relocated(arguments: Iterable[Any], placement: int) -> tuple[Any, ...]:
    """The same arguments, with the arrays in another order and at other alignments of one piece of memory.

    The first array begins at another multiple of 4 bytes each time. Between two there is nothing, or some numbers, or
    some of a page.
    """
    given = list(arguments)
    random = np.random.default_rng(placement)
    places = [i for i, each in enumerate(given) if isinstance(each, np.ndarray)]
    memory = np.empty(sum(given[i].nbytes + 2**13 for i in places), np.uint8)
    end = 4 * placement
    for i in random.permutation(places):
        array = given[i]
        end += array.itemsize * int(random.integers((1, 64, 500)[placement % 3]))
        end += -(memory.ctypes.data + end) % array.itemsize
        there = np.ndarray(array.shape, array.dtype, memory, end)
        there[...] = array
        there.flags.writeable = array.flags.writeable
        given[i], end = there, end + array.nbytes
    return tuple(given)


def bits(values: Any) -> bytes:
    if isinstance(values, tuple):
        return b"".join(map(bits, values))
    return b"" if values is None else np.ascontiguousarray(values).tobytes()


def outcomes(function: Callable[..., Any], arguments: tuple[Any, ...], placements: int) -> set[bytes]:
    """What the function returns and leaves in its arguments, for each placement of these."""
    found = set()
    for placement in range(placements):
        given = relocated(arguments, placement)
        returned = function(*given)
        found.add(bits(returned) + bits(tuple(each for each in given if isinstance(each, np.ndarray))))
    return found


def _double(*shape: int) -> Array:
    return np.random.default_rng(6).random(shape)


def write_texts(path: Path, counts: NDArray[np.int64]) -> Path:
    """A table of texts with boilerplate, letters outside of ASCII, long words and a repeated document."""
    rng, names = np.random.default_rng(0), words(counts.shape[1])
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["id", "text"])
        for number, row in enumerate((*counts, counts[0])):
            text = " ".join(rng.permutation(np.repeat(names, row)))
            if number % 10 == 0:
                text = f"From: a@b.org\n> see http://x.org {text} Größe incomprehensibly\n-- \nwww.y.org wrote:\n"
            table.writerow([f"document {number}", text])
    return path


def recorded(folder: Path, n_topics: int) -> dict[Dispatcher, list[tuple[Any, ...]]]:
    """Arguments of the first two calls of each compiled function in the commands of a user, and in a draw of topics."""
    calls: dict[Dispatcher, list[tuple[Any, ...]]] = {}
    call = Dispatcher.__call__

    def recording(self: Dispatcher, *arguments: Any) -> Any:
        known = calls.setdefault(self, [])
        if len(known) < 2:
            known.append(tuple(each.copy() if isinstance(each, np.ndarray) else each for each in arguments))
        return call(self, *arguments)

    counts = planted(150, N_WORDS, max(5, n_topics), seed=3).counts
    texts, corpus, moments, model, polished = (folder / name for name in ("t.csv", "c", "m", "f", "p"))
    write_texts(texts, counts)
    topics = ("--topics", n_topics)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "__call__", recording)
        printed("ingest", texts, corpus, "--split", 30, "--phrases", 0.1)
        printed("scan", corpus, moments, "--third-moment", "--max-topics", n_topics)
        printed("infer", moments, model, *topics)
        printed("infer", moments, folder / "s", *topics, "--engine", "stod")
        printed("polish", model, corpus, polished)
        printed("transform", polished, corpus, folder / "shares.parquet")
        printed("evaluate", polished, "--corpus", corpus)
        draw_shares(_double(40, n_topics), np.uint64(1), np.uint64(0), np.uint64(2), np.empty((40, n_topics)))
        prior, keys = np.full(n_topics, 0.1), np.arange(150, dtype=np.uint64)
        step_sums(csr_array(counts), _double(N_WORDS, n_topics), prior, keys=keys)
    return calls


@pytest.fixture(scope="module")
def calls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Dispatcher, list[tuple[Any, ...]]]:
    return recorded(tmp_path_factory.mktemp("calls"), request.param)


def compiled_functions() -> dict[str, Dispatcher]:
    """All of the package, by module and name."""
    found = {}
    for path in sorted(Path(SOURCE, "streaming_jsmf").rglob("*.py")):
        if "compiled import compiled" in path.read_text():
            module = importlib.import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts))
            found |= {
                f"{module.__name__}.{name}": value
                for name, value in vars(module).items()
                if isinstance(value, Dispatcher) and value.__module__ == module.__name__
            }
    return found


def with_callees(function: Dispatcher) -> Iterator[Dispatcher]:
    yield function
    for name in function.py_func.__code__.co_names:
        called = function.py_func.__globals__.get(name)
        if isinstance(called, Dispatcher):
            yield from with_callees(called)


@pytest.mark.parametrize(
    ("calls", "placements"),
    [
        *(pytest.param(n, PLACEMENTS, marks=pytest.mark.slow) for n in (3, 21)),
        *(pytest.param(n, 20 * PLACEMENTS, marks=pytest.mark.campaign) for n in (3, 5, 16, 21)),
    ],
    indirect=["calls"],
)
def test_no_placement_of_its_arguments_changes_the_bits_of_a_kernel(
    calls: dict[Dispatcher, list[tuple[Any, ...]]], placements: int
) -> None:
    placed = {each for kernel in calls for each in with_callees(kernel)}
    found = compiled_functions()
    assert len(found) > 25
    assert not [name for name, function in found.items() if function not in placed]
    for kernel, known in calls.items():
        for arguments in known:
            assert len(outcomes(kernel, arguments, placements)) == 1, kernel.py_func.__name__


def test_fastmath_is_refused() -> None:
    with pytest.raises(ValueError, match="memory addresses"):
        compiled(nogil=True, fastmath={"reassoc"})


# Whole fits

#: As many fits as asked for, each after other allocations, on one thread and on two; prints the digests of the models.
FITS = """
import contextlib, hashlib, io, sys
from pathlib import Path
import numpy as np
import zarr
from streaming_jsmf.cli.main import run

corpus, folder, first, number = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
for fit in range(first, first + number):
    random = np.random.default_rng(fit)
    blocks = [np.empty(int(size), np.uint8) for size in 2.0 ** random.uniform(4, 16, 1000)]
    kept = [block for block in blocks if random.random() < 0.7]
    del blocks
    model = folder / str(fit)
    options = ("--topics", "3,5", "--partition-nonzeros", "3000", "--seed", "1", "--workers", str(1 + fit % 2))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert run(["fit", corpus, str(model), *options]) == 0
    for k in ("k=3", "k=5"):
        arrays = dict(zarr.open_group(model / k, mode="r").arrays())
        content = b"".join(name.encode() + np.asarray(arrays[name][...]).tobytes() for name in sorted(arrays))
        print(k, len(arrays), hashlib.sha256(content).hexdigest())
"""


@pytest.mark.parametrize(
    "fits",
    [pytest.param(1, marks=pytest.mark.slow), pytest.param(10, marks=pytest.mark.campaign)],
)
def test_all_fits_have_one_digest(fits: int, tmp_path: Path) -> None:
    """Kernels compiled on the spot, twice, and read from either cache; one thread and two."""
    corpus = write_corpus(tmp_path / "corpus", planted(600, 120, 5, seed=1).counts)
    found = []
    for turn in range(4):
        cache = tmp_path / f"cache{turn % 2}"
        line = (sys.executable, "-c", FITS, str(corpus), str(tmp_path), str(fits * turn), str(fits))
        ran = ended(line, NUMBA_CACHE_DIR=str(cache))
        assert ran.code == 0, ran.err
        found += ran.out.split("\n")[:-1]
    assert len(found) == 4 * fits * 2
    assert len(set(found)) == 2, "a digest for each number of topics"


# -- The scheduler and the number of workers change the time of a scan, never a bit of its store --


#: Factors wide enough for BLAS to use several threads if it may: with small matrices it never does.
SETTINGS = ("--max-topics", "40", "--partition-nonzeros", "9000", "--third-moment")

#: Scans in processes and on clusters are in the default run elsewhere, threads below.
EXECUTIONS = [("synchronous", 1), ("threads", 3), ("processes", 1), ("processes", 2), ("cluster", 2)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(1600, 1000, 20, length=60, seed=11).counts
    return write_corpus(tmp_path_factory.mktemp("bits") / "corpus", counts, row_group_rows=20)


@pytest.fixture(scope="module")
def reference(corpus: Path) -> Path:
    path = corpus.parent / "reference"
    assert run(["scan", str(corpus), str(path), *SETTINGS, "--scheduler", "synchronous"]) == 0
    return path


@pytest.mark.slow
def test_the_reference_is_worth_comparing_with(reference: Path, corpus: Path, tmp_path: Path) -> None:
    shown = described(reference)
    assert shown["complete"]
    assert shown["partitions"] > 7, "more partitions than the widest window of unfolded ones"
    other = ["scan", str(corpus), str(tmp_path / "m"), *SETTINGS, "--seed", "1", "--scheduler", "synchronous"]
    assert run(other) == 0
    digests = described(tmp_path / "m")["digests"]
    same = {name for name, digest in digests.items() if digest == shown["digests"][name]}
    sums = {"word", "row_sum", "diagonal", "term_count", "document_frequency", "word_mean"}
    # All documents are held, so there are no directions.
    assert same == {*sums, "directions", "refinement"}


def scan_in_a_process(corpus: Path, store: Path, *options: str, **environment: str) -> None:
    """Scan as a user does: a fresh interpreter, with an importable main module for the workers."""
    finished(command("scan", corpus, store, *SETTINGS, *options), **environment)


@pytest.mark.slow
@pytest.mark.parametrize(("scheduler", "workers"), EXECUTIONS)
def test_the_scheduler_changes_no_bit(
    scheduler: str,
    workers: int,
    corpus: Path,
    reference: Path,
    tmp_path: Path,
) -> None:
    scan_in_a_process(corpus, tmp_path / "m", "--scheduler", scheduler, "--workers", str(workers))
    assert described(tmp_path / "m")["digests"] == described(reference)["digests"]


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
def test_the_environment_of_blas_changes_no_bit(corpus: Path, reference: Path, tmp_path: Path) -> None:
    # The scheduler is left out: one worker for each core, on threads.
    variables = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    scan_in_a_process(corpus, tmp_path / "m", **dict.fromkeys(variables, "3"))
    assert described(tmp_path / "m")["digests"] == described(reference)["digests"]


# -- Every verb with any memory, number of workers and scheduler: the same result, or a refusal with what would fit --


#: Small limits, so that a small corpus is divided and sampled as a large one, and takes memory as a large one.
SMALL_LIMITS = {
    "config.scan.SMALLEST_PARTITION": 2000,
    "config.scan.LARGEST_PARTITION": 4000,
    "config.scan.NONZEROS_PER_WORD": 5,
    "config.scan.NONZEROS_PER_ENTRY": 0,
    "config.scan.HELD_NONZEROS": 8000,
    "config.scan.SAMPLED_DOCUMENTS": 300,
    "inference.polish.SAMPLE_NONZEROS": 4000,
    "inference.polish.DRAWN_DOCUMENTS": 100,
    "moments.needs.BYTES_PER_NONZERO": 8000,
    "moments.needs.held_bytes": lambda share, nonzeros: int(16_000 * (share or 0) * nonzeros),
}

CHAIN = """
ingest {}/texts {}/corpus --min-df 1 --max-df 1.0 --tokens-per-shard 4000
scan {}/corpus {}/m.zarr --max-topics 6 --third-moment
scan {}/corpus {}/halko.zarr --max-topics 6 --range halko
infer {}/m.zarr {}/f.zarr --topics 6 |
infer {}/m.zarr {}/stod --topics 5 --engine stod |
polish {}/f.zarr {}/corpus {}/p.zarr --steps 3
evaluate {}/p.zarr --corpus {}/corpus --json
evaluate {}/f.zarr --replicas 2 --json
transform {}/p.zarr {}/corpus {}/shares.parquet
over-time {}/p.zarr {}/shares.parquet --by date:year --corpus {}/corpus --out {}/over-time.csv |
choose-k {}/corpus --topics 4,6 --out {}/chosen --replicas 1 --json
fit {}/texts {}/grown --topics 5 --min-df 1 --max-df 1.0
update {}/grown {}/texts
simulate {}/simulated --documents 200 --vocabulary-size 60 --topics 3 --documents-per-shard 100
""".strip().splitlines()

LEFT = ("corpus", "m.zarr", "halko.zarr", "f.zarr", "stod", "p.zarr", "shares.parquet", "over-time.csv")
LEFT += ("chosen/k=4", "chosen/k=6", "grown", "grown.corpus", "simulated")


@contextmanager
def small_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL_LIMITS.items():
            patch.setattr(f"streaming_jsmf.{name}", value)
        yield


def chain(place: Path, options: Callable[[], list[str]]) -> tuple[dict[str, Any], int]:
    """Digests of what all verbs print and leave below a place, and how many were refused at first."""
    texts(place / "texts")
    shown, refused = {}, 0
    with small_limits():
        for line in CHAIN:
            own = options()
            if line.endswith("|"):  # it runs here
                own = own[own.index("--workers") :][:2] if line.startswith("infer") and own else []
            called_with = [part.replace("{}", str(place)) for part in line.removesuffix("|").split()]
            if line.startswith("update"):
                again = (place / "texts/part-1.jsonl").read_text().replace('"d1-', '"d9-')
                (place / "texts/part-9.jsonl").write_text(again)
                (place / "texts/part-0.jsonl").unlink()
            outcome = called(*called_with, *own)
            while outcome.code:
                refused += 1
                assert outcome.code == 2
                assert "--memory" in own, outcome.err
                found = re.search(
                    r"about .*iB and --memory allows .*iB; use (?:(--workers \d+)(?:,| or) )?.*(--memory \d+MiB)\n",
                    outcome.err,
                )
                assert found is not None, outcome.err
                outcome = called(*called_with, *own, *(found[1] or found[2]).split())
            if own:  # it is there, so that nothing takes memory
                least = () if "--memory" not in own else ("--memory", "1MiB")
                for again in ((*least, "--workers", "1"), ()):
                    outcome = called(*called_with, *again)
                    assert outcome.code == 0, outcome.err
            if "--json" in line:
                shown[line] = outcome.out.replace(str(place), "PLACE")
    return {**shown, **digests(str(place), LEFT)}, refused


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return chain(tmp_path_factory.mktemp("usual"), list)[0]


@pytest.mark.parametrize(
    ("draw", "schedulers"),
    [
        pytest.param(0, ("threads", "synchronous"), marks=pytest.mark.slow),
        *(
            pytest.param(draw, ("threads", "synchronous", "processes", "cluster"), marks=pytest.mark.campaign)
            for draw in (2, 3)
        ),
    ],
)
def test_no_result_depends_on_how_it_is_run(
    draw: int, schedulers: Sequence[str], usual: dict[str, Any], tmp_path: Path
) -> None:
    random = Random(draw)

    def options() -> list[str]:
        mib = int(2 ** random.uniform(8, 10.5))
        workers = str(random.randint(1, 3))
        return ["--memory", f"{mib}MiB", "--workers", workers, "--scheduler", random.choice(schedulers)]

    found, refused = chain(tmp_path, options)
    assert refused
    assert found == usual
