"""The negative entries of a block of Y Y_I', compiled.

They are few from the first step on, 3 to 15 % on text and under 1 % at the end, so that the two products with E cost a
tenth of the dense ones. numpy takes longer to find them than to multiply the block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.typing import FloatArray

#: Neighbours looked at together: most groups hold no negative entry, and are passed over by their sign bits.
GROUP = 8


@compiled(nogil=True)
def negative_entries(
    block: FloatArray,
    signs: NDArray[Any],
    indptr: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: FloatArray,
) -> None:
    """Write the negative entries of a block (rows x columns) as CSR.

    Parameters
    ----------
    block
        Entries, C order.
    signs
        Its memory as integers of the same width, whose signs are those of the entries.
    indptr
        (rows + 1,), overwritten.
    columns, values
        Room for all entries of the block and one more; overwritten up to ``indptr[-1]``.
    """
    found = 0
    whole = block.shape[1] // GROUP * GROUP
    for row in range(block.shape[0]):
        indptr[row] = found
        entries, bits = block[row], signs[row]
        for first in range(0, whole, GROUP):
            together = bits[first]
            for column in range(first + 1, first + GROUP):
                together |= bits[column]
            if together < 0:
                for column in range(first, first + GROUP):
                    # Written in any case, and kept if it counts: the processor cannot foresee the signs.
                    columns[found] = column
                    values[found] = entries[column]
                    found += entries[column] < 0
        for column in range(whole, block.shape[1]):
            columns[found] = column
            values[found] = entries[column]
            found += entries[column] < 0
    indptr[block.shape[0]] = found
