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
) -> bool:
    """Write the negative entries of a block (rows x columns) as CSR; False if there are more than there is room for.

    Nothing branches on a sign: an entry is written in any case, and kept if it counts, because the processor cannot
    foresee the signs. Likewise for the groups of entries among which one is negative.

    Parameters
    ----------
    block
        Entries, C order.
    signs
        Its memory as integers of the same width, whose signs are those of the entries.
    indptr
        (rows + 1,), overwritten.
    columns, values
        Overwritten up to ``indptr[-1]``. Their room is that for the entries found and for one row more.
    """
    found, width = 0, block.shape[1]
    whole = width // GROUP
    groups = np.empty(whole + 1, np.int32)
    for row in range(block.shape[0]):
        indptr[row] = found
        if found + width >= values.size:
            return False
        entries, bits = block[row], signs[row]
        with_negatives = 0
        for group in range(whole):
            together = bits[group * GROUP]
            for column in range(group * GROUP + 1, (group + 1) * GROUP):
                together |= bits[column]
            groups[with_negatives] = group
            with_negatives += together < 0
        for group in groups[:with_negatives]:
            for column in range(group * GROUP, (group + 1) * GROUP):
                columns[found] = column
                values[found] = entries[column]
                found += entries[column] < 0
        for column in range(whole * GROUP, width):
            columns[found] = column
            values[found] = entries[column]
            found += entries[column] < 0
    indptr[block.shape[0]] = found
    return True
