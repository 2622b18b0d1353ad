"""Array types shared by the kernels."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: float32 or float64, whichever the caller holds.
FloatArray: TypeAlias = NDArray[np.floating[Any]]
