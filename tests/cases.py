"""Which of many cases the default run has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def each_once(*axes: Sequence[object]) -> list[Any]:
    """All combinations for ``parametrize``; the default run has each value of each axis, the slow one the rest."""
    longest = max(len(axis) for axis in axes)
    chosen = {tuple(number % len(axis) for axis in axes) for number in range(longest)}
    return [
        pytest.param(
            *(axis[at] for axis, at in zip(axes, places, strict=True)),
            marks=() if places in chosen else pytest.mark.slow,
        )
        for places in product(*(range(len(axis)) for axis in axes))
    ]
