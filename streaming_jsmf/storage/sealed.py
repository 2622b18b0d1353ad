"""Attributes of groups with their kind, format version and fingerprint, which show other versions and damage."""

from __future__ import annotations

import shlex
from collections.abc import Container, Mapping
from typing import Any

from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, StoreError, StreamingJSMFError
from streaming_jsmf.fingerprint import sealed, unsealed
from streaming_jsmf.storage.arrays import read_attributes
from streaming_jsmf.storage.kinds import unsuitable
from streaming_jsmf.storage.paths import StorePath


def sealed_as(kind: str, version: int, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a group with its kind, format version and the fingerprint that ``read_sealed`` checks."""
    return sealed({"kind": kind, "format_version": version, **attributes})


def read_sealed(
    path: StorePath,
    kind: str,
    version: int,
    *,
    what: str,
    hint: str,
    wanted: str | None = None,
    migrated: Container[int] = (),
) -> dict[str, Any]:
    """Return the attributes of a group that were made by ``sealed_as``.

    Raises ``StoreError`` if they were changed, are damaged, or have another kind or version. The message names
    ``what`` is damaged and ends with ``hint``. If users name the group, which is ``wanted`` (``kinds``), another kind
    or version is an ``InputError``.
    """
    attributes = read_attributes(path, hint=hint)
    if attributes.get("kind") != kind:
        if wanted is not None:
            raise unsuitable(path, wanted)
        raise StoreError(f"{path}/zarr.json: {what} are damaged; {hint}")
    error = StoreError if wanted is None else InputError
    return verified(path, attributes, version, what=what, hint=hint, other_version=error, migrated=migrated)


def verified(
    path: StorePath,
    sealed: Mapping[str, Any],
    version: int,
    *,
    what: str,
    hint: str,
    other_version: type[StreamingJSMFError] = InputError,
    migrated: Container[int] = (),
) -> dict[str, Any]:
    """Return sealed values of the group at ``path``; errors as ``read_sealed``.

    The message about an older version names the option that rewrites it if it is one of ``migrated``.
    """
    # Values without a version are damaged, which their sha256 shows.
    if (found := sealed.get("format_version", version)) != version:
        raise other_version(
            f"{path}: has format version {found}, and this release reads {version}; "
            + _advice(path, found, version, hint, migrated)
        )
    try:
        return unsealed(sealed)
    except ValueError as error:
        raise StoreError(f"{path}/zarr.json: {what} are damaged ({error}); {hint}") from error


def _advice(path: StorePath, found: Any, version: int, hint: str, migrated: Container[int]) -> str:
    """What to do about a store of another format."""
    if found in migrated:
        return f"streaming-jsmf info {shlex.quote(location(path))} --migrate rewrites it, without a scan"
    return "install a newer release" if isinstance(found, int) and found > version else hint
