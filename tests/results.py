"""A small result that stores its request: a directory of two files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.results import Wanted

WHOLE = "whole"


def write_result(folder: Path, request: dict[str, Any], part: str = WHOLE) -> Path:
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(request))
    (folder / "part-00000.parquet").write_text(part)
    return folder


def wanted_result(target: Path, request: Any, *, overwrite: bool = False) -> Wanted:
    def stored() -> dict[str, Any]:
        if not (target / "manifest.json").is_file():
            raise InputError(f"{target}: is not a result")
        try:
            found: dict[str, Any] = json.loads((target / "manifest.json").read_text())
        except ValueError as error:
            raise StoreError(f"{target}/manifest.json is damaged; restore it") from error
        return found

    def is_intact() -> bool:
        if (found := (target / "part-00000.parquet").read_text()) != WHOLE:
            raise StoreError(f"{target}: the part is {found!r}; make it again")
        return True

    return Wanted(target, request, stored, is_intact, overwrite)


def wanted_of(work: Workspace) -> Wanted:
    return wanted_result(work.target, work.arguments)
