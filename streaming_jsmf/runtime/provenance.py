"""Which versions made a store: the bits of a result hang on them."""

from __future__ import annotations

import platform
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
