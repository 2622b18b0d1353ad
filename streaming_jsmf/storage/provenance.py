"""Package versions and time at which a store was made; the versions may affect the bits of its results."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("streaming-jsmf", "numpy", "scipy", "numba", "dask", "zarr", "pyarrow")


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect numerical results."""
    return {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}


# Searching the metadata of all installed packages takes as long as committing a small store.
@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def utc_now() -> str:
    """Return the current UTC time in ISO 8601 format with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
