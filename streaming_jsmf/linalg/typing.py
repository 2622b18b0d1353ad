"""Types shared by the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: float32 or float64, whichever the caller holds.
FloatArray: TypeAlias = NDArray[np.floating[Any]]

#: (rows n x d, weights n x K, gap n, steps n): solves the rows and fills the other three.
BlockSolver: TypeAlias = Callable[
    [NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]], None
]
