"""CSR matrices of counts: document weights, sums over rows and words, and products with dense matrices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import CAPPED_LENGTH, DocumentWeights
from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.typing import FloatArray, Floats, Integers, Single
from streaming_jsmf.storage.large_arrays import large_copy, large_zeros

#: A document with fewer tokens has no pair of words; Eq. 1 divides by n (n - 1).
SHORTEST_DOCUMENT = 2
#: Pairs of words in the documents of one sparse product: limits its memory and affects the bits.
PAIRS_AT_ONCE = 8_000_000
#: Size in bytes of the temporary H X of a row block, so that it stays in the cache between its two uses.
ROW_BLOCK_BYTES = 8 * 2**20


def pair_scales(
    indptr: NDArray[Any], counts: NDArray[Any], scheme: DocumentWeights
) -> tuple[Floats, tuple[Floats, Floats]]:
    """Weights w of documents (CSR) in Eq. 1 of LR-JSMF, and the factors of their counts in u and of pairs in C.

    C is the sum of s (h h' - diag(h)) over documents, divided by that of w. All are (documents,); the factors are
    w / n and s = w / (n (n - 1)). With counts below 1 the ``pair_totals`` exceed n (n - 1); the factors are then
    w (n - 1) / pairs and w / pairs, and the words' ``diagonal_excess`` must be added to u with the second factor.
    Documents of weight 0 do not count.
    """
    lengths = row_totals(indptr, counts)
    weights, n = document_weights(lengths, scheme), np.maximum(lengths, 2.0)
    whole = n * (n - 1)
    s = np.where(lengths < SHORTEST_DOCUMENT, whole, pair_totals(indptr, counts))
    return weights, (np.where(s == whole, weights / n, weights * (n - 1) / s), weights / s)


def document_weights(lengths: Floats, scheme: DocumentWeights) -> Floats:
    """Weight of each document from its length (tokens); 0 below two tokens.

    ``uniform`` follows the papers (LR-JSMF Eq. 1), but gives the noise of short documents full weight. ``capped`` =
    min(length, 200) avoids that and, unlike ``length``, is robust against a single huge document.
    """
    if scheme == "uniform":
        weights = np.ones_like(lengths)
    elif scheme == "capped":
        weights = np.minimum(lengths, float(CAPPED_LENGTH))
    else:
        weights = lengths.copy()
    weights[lengths < SHORTEST_DOCUMENT] = 0.0
    return weights


def row_totals(indptr: NDArray[Any], counts: NDArray[Any]) -> Floats:
    """Sum of each row of a CSR matrix, (rows,), in float64."""
    totals, filled = np.zeros(indptr.size - 1), np.flatnonzero(np.diff(indptr))
    totals[filled] = np.add.reduceat(counts, indptr[filled], dtype=np.float64) if filled.size else 0.0
    return totals


def diagonal_excess(counts: NDArray[Any]) -> Floats:
    """max(c - c^2, 0) of each count: the excess that Eq. 1 subtracts from the diagonal for c below 1."""
    part = np.minimum(counts, 1.0, dtype=np.float64)
    return np.asarray(part - part * part)


def pair_totals(indptr: NDArray[Any], counts: NDArray[Any]) -> Floats:
    """(rows,), ordered pairs of tokens of each document: n (n - 1), plus ``diagonal_excess`` for counts below 1.

    This is the sum of the entries of h h' - diag(min(h, h^2)).
    """
    lengths = row_totals(indptr, counts)
    totals = lengths * (lengths - 1.0)
    if (counts < 1).any():
        totals += row_totals(indptr, diagonal_excess(counts))
    return totals


def scale_rows(indptr: NDArray[Any], counts: NDArray[Any], scale: Floats, out: Single) -> None:
    """Set ``out`` (nonzeros,) to the counts times the ``scale`` of their row; rounded once."""
    np.multiply(counts, np.repeat(scale, np.diff(indptr)), out=out, casting="same_kind")


def word_sums(block: csr_array[Any], factors: Floats) -> tuple[Floats, Integers]:
    """Sums over documents, (words, 2 or more), and the number of documents of each word, (words,).

    H is documents x words. With X = ``factors`` (documents x 2 or more) and g = ``diagonal_excess(counts)``, a word
    with count c adds c X_0 + g X_1, (c - g) X_1, c X_2, ... Documents with X_0 = 0 do not count.
    """
    sums = block.T @ factors
    if (block.data < 1).any():
        excess = csr_array((diagonal_excess(block.data), block.indices, block.indptr), shape=block.shape)
        back = excess.T @ factors[:, 1]
        sums[:, 0] += back
        sums[:, 1] -= back
    counted = factors[:, 0] != 0.0
    words = block.indices if counted.all() else block.indices[np.repeat(counted, np.diff(block.indptr))]
    return sums, np.bincount(words, minlength=block.shape[1])


@compiled(nogil=True)
def multiply_rows(
    indptr: NDArray[Any], words: NDArray[Any], values: FloatArray, vectors: FloatArray, out: FloatArray
) -> None:
    """Set ``out`` (rows x columns) to H X for H rows x words (CSR) and X words x columns, in C order.

    Extra columns of ``out`` become 0. Processes four nonzeros at a time to reduce loads and stores of ``out``.
    """
    columns = vectors.shape[1]
    for row in range(indptr.size - 1):
        total = out[row]
        total[:] = 0.0
        fours = indptr[row] + (indptr[row + 1] - indptr[row]) // 4 * 4
        for k in range(indptr[row], fours, 4):
            a, b, c, d = values[k], values[k + 1], values[k + 2], values[k + 3]
            x, y, z, w = words[k], words[k + 1], words[k + 2], words[k + 3]
            p, q, r, s = vectors[x], vectors[y], vectors[z], vectors[w]
            for column in range(columns):
                total[column] += (a * p[column] + b * q[column]) + (c * r[column] + d * s[column])
        for k in range(fours, indptr[row + 1]):
            value, vector = values[k], vectors[words[k]]
            for column in range(columns):
                total[column] += value * vector[column]


@compiled(nogil=True)
def add_transposed(
    indptr: NDArray[Any], words: NDArray[Any], values: Single, rows: Single, out: Single
) -> None:
    """Add H'Z to ``out`` (words x columns) for H rows x words (CSR) and Z rows x columns, in C order."""
    columns = rows.shape[1]
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            value, word = values[k], words[k]
            for column in range(columns):
                out[word, column] += value * rows[row, column]


def contiguous(vectors: FloatArray) -> Single:
    """The matrix in float32 and C order, a copy only if it is not."""
    is_so = vectors.dtype == np.float32 and vectors.flags.c_contiguous
    return vectors if is_so else large_copy(vectors, np.float32)


def apply_gram(
    block: csr_array[Any],
    vectors: FloatArray,
    product: Single | None = None,
    *,
    documents: slice = slice(None),
) -> Single:
    """H'(H X), words x columns, for H documents x words (CSR, float32) and X words x columns (float32).

    It is added to a ``product`` of earlier documents. Products of blocks added in order, and columns of X separately,
    have the bits of one product. ``documents`` are the rows of H to use, all by default: SciPy would copy the entries
    of a part.
    """
    n_words, chosen = block.shape[1], range(block.shape[0])[documents]
    x = contiguous(vectors)
    if product is None:
        product = large_zeros((n_words, x.shape[1]), np.float32)
    step = max(1, ROW_BLOCK_BYTES // (4 * max(1, x.shape[1])))
    inner = np.empty((min(step, len(chosen)), x.shape[1]), dtype=np.float32)
    for start in chosen[::step]:
        indptr = block.indptr[start : min(start + step, chosen.stop) + 1]
        rows = inner[: indptr.size - 1]
        multiply_rows(indptr, block.indices, block.data, x, rows)
        add_transposed(indptr, block.indices, block.data, rows, product)
    return product


@compiled(nogil=True)
def count_columns(
    columns: NDArray[Any], counts: NDArray[Any], frequency: NDArray[Any], total: Floats
) -> None:
    """Add the entries of a CSR matrix to the number and the sum of each column, both (columns,).

    Counts are added one at a time: sums per batch would make rounding depend on the batches.
    """
    for k in range(columns.size):
        frequency[columns[k]] += 1
        total[columns[k]] += counts[k]


@compiled(nogil=True)
def map_columns(
    indptr: NDArray[Any],
    columns: NDArray[Any],
    counts: NDArray[Any],
    new: NDArray[Any],
    ends: NDArray[Any],
    kept: NDArray[Any],
    values: NDArray[Any],
) -> None:
    """Replace the columns of a CSR matrix by ``new`` ones in ``ends`` (rows + 1,), ``kept`` and ``values``.

    Entries whose new column is negative are left out.
    """
    used = 0
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            column = new[columns[k]]
            kept[used], values[used] = column, counts[k]
            used += column >= 0
        ends[row + 1] = used


@compiled(nogil=True)
def add_rows(indptr: NDArray[Any], counts: NDArray[Any], totals: Floats) -> None:
    """Add the entries of a CSR matrix to the sum of each row, one at a time."""
    for row in range(totals.size):
        for k in range(indptr[row], indptr[row + 1]):
            totals[row] += counts[k]


def row_arrays(
    name: str, indptr: NDArray[Any], columns: NDArray[Any], values: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """The rows of a CSR matrix between ``indptr`` as three named arrays, of which ``rows_of`` makes a matrix."""
    held = slice(indptr[0], indptr[-1])
    return {
        f"{name}_lengths": np.diff(indptr).astype(np.int32),
        f"{name}_words": columns[held].astype(np.int32, copy=False),
        f"{name}_values": values[held].astype(np.float32, copy=False),
    }


def rows_of(name: str, arrays: Mapping[str, NDArray[Any]], n_columns: int) -> csr_array[Any]:
    """Rows of float32 numbers from their arrays, which are not copied."""
    lengths, words, values = (arrays[f"{name}_{part}"] for part in ("lengths", "words", "values"))
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    # SciPy's products are fastest, and make no copies, when both index arrays are 32-bit.
    indptr = starts.astype(np.int32) if starts[-1] < np.iinfo(np.int32).max else starts
    return csr_array((values, words, indptr), shape=(lengths.size, n_columns), copy=False)


def word_rows(block: csr_array[Any], words: Integers) -> Floats:
    """Rows of H'H for word ids (n,), (n, words) dense float64, for H documents x words (CSR)."""
    rows = np.zeros((words.size, block.shape[1]))
    of_words = block[:, words].tocsc()
    add_word_rows(
        of_words.indptr, of_words.indices, of_words.data, block.indptr, block.indices, block.data, rows
    )
    return rows


@compiled(nogil=True)
def add_word_rows(
    starts: NDArray[Any],
    documents: NDArray[Any],
    counts: FloatArray,
    indptr: NDArray[Any],
    words: NDArray[Any],
    values: FloatArray,
    out: Floats,
) -> None:
    """Add W'H to ``out`` for columns W of H (CSC) and H documents x words (CSR); one row is in the cache at a time."""
    for row in range(starts.size - 1):
        total = out[row]
        for held in range(starts[row], starts[row + 1]):
            count, document = np.float64(counts[held]), documents[held]
            for k in range(indptr[document], indptr[document + 1]):
                total[words[k]] += count * values[k]


def gram_rows(block: csr_array[Any], rows: slice) -> Floats:
    """Rows of H'H, (rows, words) dense float64: products in the precision of H, added in float64.

    ``block`` is H, documents x words (CSR); ``rows`` is a slice of words with ``start`` and ``stop``. Entries (i, j)
    and (j, i) are summed in the same order for any ``rows``, so panels together form an exactly symmetric matrix.
    """
    total = np.zeros((rows.stop - rows.start, block.shape[1]))
    for part in _document_chunks(block):
        # A single document may have more pairs than the limit; then process a few rows at a time.
        large = int(np.sum(np.diff(part.indptr).astype(np.int64) ** 2)) > PAIRS_AT_ONCE
        height = max(1, PAIRS_AT_ONCE // block.shape[1]) if large else total.shape[0]
        for panel in panels(total.shape[0], height):
            target = total[panel]
            first = rows.start + panel.start
            product = csr_array(part[:, first : first + len(target)].T @ part)
            # Each entry occurs only once in a product, so indexed addition is safe.
            row_ids = np.repeat(np.arange(len(target)), np.diff(product.indptr))
            target[row_ids, product.indices] += product.data
    return total


def _document_chunks(block: csr_array[Any]) -> Iterator[csr_array[Any]]:
    lengths = np.diff(block.indptr).astype(np.int64)
    chunk = np.cumsum(lengths**2) // PAIRS_AT_ONCE
    starts = np.flatnonzero(np.diff(chunk, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], block.shape[0]], strict=True):
        yield block[start:stop]
