"""Hundreds of seeded random attacks: each command ends in time, within its memory limit, and reports what is wrong."""

from __future__ import annotations

import pytest

#: A few cases of the same draw in the slow run, and all of them by hand before a release.
FEW_AND_ALL = [
    pytest.param(False, marks=pytest.mark.slow, id="few"),
    pytest.param(True, marks=pytest.mark.campaign, id="all"),
]
