"""Which versions made a store, on which the bits of a result hang, and when."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("streaming-jsmf", "numpy", "scipy", "numba", "dask", "zarr", "pyarrow")


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that touch the numbers."""
    return {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}


# Looking through the metadata of all that is installed takes as long as committing a small store.
@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def utc_now() -> str:
    """The time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
