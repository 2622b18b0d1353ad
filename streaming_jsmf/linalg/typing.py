"""Array types shared by the numerical packages."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Single: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

#: float32 or float64.
FloatArray: TypeAlias = NDArray[np.floating[Any]]
