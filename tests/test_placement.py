"""Where arrays lie in memory changes no bit: of a compiled function, of a library's, of a whole fit."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.inference import cvb0, gibbs, perplexity
from streaming_jsmf.ingestion import repeats
from streaming_jsmf.ingestion.readers import csv_scan
from streaming_jsmf.ingestion.tokens import boilerplate, split, tokenizer
from streaming_jsmf.linalg import csr, document_tensor, lanes, simplex, tensor
from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.rectification import enn
from tests.corpora import planted, write_corpus
from tests.processes import SOURCE, ended

Array = NDArray[Any]
Call = tuple[Callable[..., Any], tuple[Any, ...]]

PLACEMENTS = 64
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


# Arguments of each kernel for n topics, of the types with which the package calls it


def _single(*shape: int) -> Array:
    return np.random.default_rng(5).random(shape, np.float32)


def _double(*shape: int) -> Array:
    return np.random.default_rng(6).random(shape)


def _counts(dtype: Any = np.float32) -> tuple[Array, Array, Array]:
    """CSR buffers of documents x words."""
    counts = csr_array(planted(N_DOCUMENTS, N_WORDS, 5, seed=3).counts)
    return counts.indptr, counts.indices, counts.data.astype(dtype)


def _by_word() -> tuple[Array, Array, Array]:
    """The same as ``document_tensor.sort_by_word`` leaves them."""
    counts = csr_array(planted(N_DOCUMENTS, N_WORDS, 5, seed=3).counts).tocsc()
    return counts.indptr[1:].astype(np.int64), counts.indices, counts.data.astype(np.float32)


def _read_only(*arrays: Array) -> tuple[Array, ...]:
    for array in arrays:
        array.flags.writeable = False
    return arrays


def _zeros(*shapes: Any, dtype: Any = np.float64) -> tuple[Array, ...]:
    return tuple(np.zeros(shape, dtype) for shape in shapes)


def _padded(n: int) -> tuple[Array, Array]:
    """Topics and prior of whole cache lines."""
    topics, prior = _zeros((N_WORDS, -(-n // 16) * 16), -(-n // 16) * 16, dtype=np.float32)
    topics[:, :n], prior[:n] = _single(N_WORDS, n), 0.1
    return topics, prior


def _polished(n: int) -> tuple[Any, ...]:
    *documents, memory = _documents_of(n)
    sums = _zeros((N_WORDS, memory.shape[1]), (N_DOCUMENTS, memory.shape[1]), dtype=np.float32)
    return (*documents, 5, 0.0, 30.0, memory, *sums, np.empty((0, 2)))


def _documents_of(n: int) -> tuple[Any, ...]:
    starts, words, numbers = _counts()
    topics, prior = _padded(n)
    memory = np.zeros((N_WORDS, prior.size), np.float32)
    return (starts.astype(np.int64), *_read_only(words, numbers), topics, prior, memory)


def _drawn(n: int) -> tuple[Any, ...]:
    *documents, memory = _documents_of(n)
    return (*documents, 5, 30.0, memory, np.arange(N_DOCUMENTS, dtype=np.uint64), np.zeros_like(documents[3]))


def _shares(n: int) -> tuple[Any, ...]:
    *documents, memory = _documents_of(n)
    no_tokens, weights = _zeros((0, 0), (N_DOCUMENTS, memory.shape[1]), dtype=np.float32)
    return (*documents, 40, 1e-3, 30.0, memory, no_tokens, weights, np.zeros((N_DOCUMENTS, 2)))


def _least_squares(n: int) -> tuple[Any, ...]:
    random = np.random.default_rng(7)
    vertices = random.dirichlet(np.full(60, 0.2), n)
    rows = random.dirichlet(np.full(n, 0.3), 30) @ vertices + 0.01 * _double(30, 60)
    known = (vertices @ vertices.T, rows @ vertices.T, (rows**2).sum(axis=1))
    return (*known, *_zeros((30, n), 30))


def _corrected(n: int) -> tuple[Any, ...]:
    bounds, columns, _ = _counts()
    rows, others, given, right = (
        _single(size, n) - np.float32(0.5) for size in (N_DOCUMENTS, N_WORDS, N_DOCUMENTS, N_WORDS)
    )
    outside = np.arange(N_DOCUMENTS) % 2 == 0
    products = (np.zeros((size, n), np.float32) for size in (N_DOCUMENTS, N_WORDS))
    return (bounds, columns.astype(np.uint16), rows, others, given, right, outside, *products)


def _halved(_: int) -> tuple[Any, ...]:
    starts, words, numbers = _counts(np.int64)
    return (starts.astype(np.int64), words.astype(np.uint64), numbers, np.uint64(7), np.zeros(words.size))


def _scored(n: int) -> tuple[Any, ...]:
    starts, words, numbers = _counts(np.float64)
    known = _double(N_WORDS, n), _double(N_DOCUMENTS, n), _double(N_WORDS)
    return (starts.astype(np.int64), words.astype(np.int64), numbers, *known)


def _pieces(_: int) -> tuple[Any, ...]:
    pieces, lengths = np.arange(N_WORDS), np.full(N_WORDS, 2)
    indptr, words = np.arange(0, N_WORDS + 1, 10), np.arange(2 * N_WORDS, dtype=np.int32)
    return indptr, pieces, 2 * pieces, lengths, words, np.zeros_like(indptr), np.zeros_like(words)


def _texts() -> tuple[Array, Array]:
    """Offsets and bytes of two texts with marks of boilerplate, and words of more than eight letters."""
    texts = [
        b"From: a@b.org\n> quoted http://x.org text\n-- \nwww.y.org wrote:\n",
        b"Words, incomprehensibly long words",
    ]
    data = np.frombuffer(b"".join(texts), np.uint8)
    data.flags.writeable = False
    return np.cumsum([0, *map(len, texts)]), data


def _scanned(_: int) -> tuple[Any, ...]:
    data = np.frombuffer(b'a\t"b\n"\nc\td\n"e\n', np.uint8)
    found = np.zeros(9, np.int64), np.zeros(9, np.int64), np.zeros(8, np.uint8)
    return (
        data,
        csv_scan.Dialect("\t", escapechar="\\").syntax(),
        True,
        (0, len(data), 99, 99, 2, 0),
        *found,
    )


def _split(_: int) -> tuple[Any, ...]:
    offsets, data = _texts()
    size = int(offsets[-1])
    found = np.zeros(3, np.int64), np.zeros(size, np.int32), np.zeros(size, np.uint8), np.zeros(65, np.int32)
    return (offsets, data, *found, np.zeros(64, np.uint64), np.full(128, -1, np.int32), np.zeros(4, np.int64))


def _coded(_: int) -> tuple[Any, ...]:
    starts, codes, _ = _counts()
    found = (np.zeros(codes.size, np.int32) for _ in range(2))
    return (
        starts.astype(np.int64),
        codes,
        np.full(N_WORDS, -1, np.int64),
        *found,
        np.zeros(starts.size, np.int64),
    )


#: What the package calls; and what is called in those and has work arrays of its caller.
KERNELS: dict[str, tuple[Dispatcher, Callable[[int], tuple[Any, ...]]]] = {
    "polish": (cvb0.add_documents, _polished),
    "polish that draws topics": (gibbs.draw_documents, _drawn),
    "shares": (cvb0.add_documents, _shares),
    "simplex": (simplex.solve_rows, _least_squares),
    "inner products": (
        simplex.inner_products,
        lambda n: (_double(30, 60), _double(60, n), *_zeros((30, n))),
    ),
    "dot, single": (lanes.dot, lambda n: (_single(n), _single(n), n)),
    "dot, double": (lanes.dot, lambda n: (_double(n), _double(n), n)),
    "rows times dense": (
        csr.multiply_rows,
        lambda n: (*_counts(), _single(N_WORDS, n), *_zeros((N_DOCUMENTS, n), dtype=np.float32)),
    ),
    "columns times dense": (
        csr.add_transposed,
        lambda n: (*_counts(), _single(N_DOCUMENTS, n), *_zeros((N_WORDS, n), dtype=np.float32)),
    ),
    "pairs of columns": (
        tensor.pair_products,
        lambda n: (
            _single(20, n),
            _single(20, n),
            0,
            0,
            n,
            *_zeros((20, n * (n + 1) // 2), dtype=np.float32),
        ),
    ),
    "sort by word": (
        document_tensor.sort_by_word,
        lambda _: (*_counts(), np.zeros(N_WORDS, np.int64), _counts(np.int32)[2], _counts()[2]),
    ),
    "back to words": (
        document_tensor.add_products,
        lambda n: (
            *_by_word(),
            _single(N_DOCUMENTS, n),
            _single(N_DOCUMENTS, 2),
            *_zeros(*2 * [(N_WORDS, n)]),
        ),
    ),
    "counts to words": (
        document_tensor.add_counts,
        lambda _: (*_by_word(), _double(N_DOCUMENTS, 3), *_zeros((N_WORDS, 3))),
    ),
    "corrections": (enn.add_corrections, _corrected),
    "half of the tokens": (perplexity._draw_half, _halved),
    "score": (perplexity._score, _scored),
    "lost words": (boilerplate._count_words, lambda _: (*_texts(), np.zeros(2, np.int64))),
    "passages": (boilerplate._cuts, lambda _: (*_texts(), 2)),
    "records of fields": (csv_scan._scan, _scanned),
    "heads": (
        tokenizer._copy_heads,
        lambda _: (*_texts(), 20, np.zeros(3, np.int64), np.zeros(200, np.uint8)),
    ),
    "pieces of texts": (split._fill, _split),
    "table of pieces": (split._place, lambda _: (np.arange(60, dtype=np.uint64), np.full(128, -1, np.int32))),
    "words of pieces": (split._replace, _pieces),
    "hashes of strings": (repeats._add_bytes, lambda _: (*_texts(), np.zeros((2, 2), np.uint64))),
    "counts by column": (
        csr.count_columns,
        lambda _: (*_counts()[1:], *_zeros(N_WORDS, dtype=np.int64), *_zeros(N_WORDS)),
    ),
    "count codes": (split._count, _coded),
}

#: Compiled for these tests alone, which takes a while.
SLOW = {}


@pytest.mark.parametrize("name", KERNELS)
def test_no_placement_of_its_arguments_changes_the_bits_of_a_kernel(name: str) -> None:
    kernel, arguments = KERNELS[name]
    assert len(outcomes(kernel, arguments(5), PLACEMENTS)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("n_topics", [3, 16, 21, 40, 64, 100])
@pytest.mark.parametrize("name", [*KERNELS, *SLOW])
def test_nor_do_many_placements_with_other_numbers_of_topics(name: str, n_topics: int) -> None:
    kernel, arguments = (KERNELS | SLOW)[name]
    assert len(outcomes(kernel, arguments(n_topics), 10 * PLACEMENTS)) == 1


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


def test_every_compiled_function_is_placed() -> None:
    placed = {each for kernel, _ in KERNELS.values() for each in with_callees(kernel)}
    found = compiled_functions()
    assert len(found) > 50
    assert not [name for name, function in found.items() if function not in placed]


def test_fastmath_is_refused() -> None:
    with pytest.raises(ValueError, match="memory addresses"):
        compiled(nogil=True, fastmath={"reassoc"})


#: Of libraries, what a fit calls.
LIBRARY: dict[str, Callable[[], Call]] = {
    "product": lambda: (np.matmul, (_double(300, 61), _double(61, 60))),
    "product, single": lambda: (np.matmul, (_single(300, 61), _single(61, 60))),
    "Gram matrix": lambda: (lambda a: a.T @ a, (_double(300, 61),)),
    "Gram matrix, single": lambda: (lambda a: a.T @ a, (_single(300, 61),)),
    "product of another's transpose": lambda: (lambda a, b: a @ b.T, (_single(37, 61), _single(300, 61))),
    "matrix and vector": lambda: (np.matmul, (_double(61, 37), _double(37))),
    "vector and matrix": lambda: (np.matmul, (_double(61), _double(61, 37))),
    "inner product": lambda: (np.matmul, (_double(61), _double(61))),
    "sums of rows": lambda: (lambda a: a.sum(axis=1), (_double(61, 37),)),
    "sums of columns": lambda: (lambda a: a.sum(axis=0), (_single(61, 37),)),
    "sum": lambda: (np.sum, (_single(999),)),
    "squares of rows": lambda: (lambda a: np.einsum("ij,ij->i", a, a), (_double(61, 37),)),
    "eigenvectors": lambda: (lambda a: tuple(np.linalg.eigh(a.T @ a)), (_double(61, 37),)),
    "QR": lambda: (lambda a: tuple(np.linalg.qr(a)), (_double(300, 37),)),
    "R": lambda: (lambda a: scipy.linalg.qr(a, mode="r")[0], (_double(300, 37),)),
    "SVD": lambda: (lambda a: tuple(np.linalg.svd(a, full_matrices=False)), (_double(300, 37),)),
    "exp and log": lambda: (lambda a: np.log(np.exp(a) + a), (_double(61),)),
    "sparse product": lambda: (
        lambda starts, words, values, dense: (
            csr_array((values, words, starts), (N_DOCUMENTS, N_WORDS)) @ dense
        ),
        (*_counts(np.float64), _double(N_WORDS, 29)),
    ),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_no_placement_changes_what_a_library_computes(name: str) -> None:
    function, arguments = LIBRARY[name]()
    assert len(outcomes(function, arguments, PLACEMENTS)) == 1


# Whole fits

N_FITS = 10

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


@pytest.mark.slow
def test_forty_fits_have_one_digest(tmp_path: Path) -> None:
    """Kernels compiled on the spot, twice, and read from either cache; one thread and two."""
    corpus = write_corpus(tmp_path / "corpus", planted(600, 120, 5, seed=1).counts)
    found = []
    for turn in range(4):
        cache = tmp_path / f"cache{turn % 2}"
        line = (sys.executable, "-c", FITS, str(corpus), str(tmp_path), str(N_FITS * turn), str(N_FITS))
        ran = ended(line, NUMBA_CACHE_DIR=str(cache))
        assert ran.code == 0, ran.err
        found += ran.out.split("\n")[:-1]
    assert len(found) == 4 * N_FITS * 2
    assert len(set(found)) == 2, "a digest for each number of topics"
