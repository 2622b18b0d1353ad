"""Small results: of all verbs, and a directory of two files that stores its request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import streaming_jsmf as sj
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.results import Wanted
from tests.corpora import planted, write_corpus, write_texts

WHOLE = "whole"

#: Options of the scan and of the model of ``write_stores``.
SCAN = ("--max-topics", "3", "--partition-nonzeros", "900", "--scheduler", "synchronous")
INFER = ("--topics", "3", "--anchor-min-df", "2")


def write_stores(folder: Path) -> Path:
    """Write a corpus ``a``, the same documents as ``texts.jsonl``, moments ``m`` and a ``model``."""
    counts = planted(120, 40, 3, length=30, seed=7).counts
    names = [f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyzäöüßéèêàâçñø"] + ["olive", "plum"]
    write_corpus(folder / "a", counts, row_group_rows=10)
    texts = {number: " ".join(np.repeat(names, row).tolist()) for number, row in enumerate(counts)}
    write_texts(folder / "texts.jsonl", texts)
    settings = sj.ScanSettings(max_topics=3, partition_nonzeros=900)
    sj.scan(folder / "a", folder / "m", settings, sj.Execution("synchronous"))
    sj.infer(folder / "m", folder / "model", 3, anchor_min_df=2.0)
    return folder


def write_result(folder: Path, request: dict[str, Any], part: str = WHOLE) -> Path:
    folder.mkdir(exist_ok=True)
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
