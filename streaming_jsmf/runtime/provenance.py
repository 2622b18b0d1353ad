"""Which versions made a store, on which the bits of a result hang, and when."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("streaming-jsmf", "numpy", "scipy", "numba", "dask", "zarr", "pyarrow")


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that touch the numbers."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def utc_now() -> str:
    """The time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
