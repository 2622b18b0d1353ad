"""Which of many cases the default run has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def first_cases(cases: Iterable[object], number: int = 1) -> list[Any]:
    """Cases for ``parametrize``; the default run has the first of them, the slow one the rest."""
    return [
        case
        if place < number
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for place, case in enumerate(cases)
    ]
