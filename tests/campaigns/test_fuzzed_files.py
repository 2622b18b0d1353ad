"""Files of every reader with changed bytes are read, or rejected with an error that names the file and no leftovers."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from streaming_jsmf import open_corpus
from tests.campaigns.attack import Campaign, campaign, spoilt
from tests.outcomes import Command
from tests.readers import FORMATS, KEEP_ALL, Format, documents

LOOSE = (*KEEP_ALL, "--scheduler", "synchronous")

#: Codecs whose checksum detects every change of the compressed data.
CHECKED = (".gz", ".bz2", ".xz")

KINDS = [(kind, codec) for kind in FORMATS for codec in kind.codecs if not kind.file.endswith("/")]


def attack_file(tried: Campaign, folder: Path, number: int) -> None:
    """One case: ingest a file with changed bytes."""
    draw = random.Random(number)
    kind, codec = KINDS[number % len(KINDS)]
    case = f"case {number}, {kind.name}{codec}"
    source = kind.write(folder / "clean", documents(), codec)
    clean, file = kind.file_at(source), folder / "clean"
    data = spoilt(clean.read_bytes(), draw)
    shutil.rmtree(file)
    source = kind.put(folder / "source", data, codec)
    before = sorted(folder.rglob("*"))
    policy = draw.choice(("fail", "quarantine"))
    said = tried(
        case, "ingest", source, folder / "made", *kind.arguments(), *LOOSE, "--on-bad-record", policy
    )
    made = folder / "made"
    if said is not None and said.code and sorted(folder.rglob("*")) != before:
        tried.fail(case, "something half written is left")
    if said is not None and not said.code and policy == "fail" and codec in CHECKED:
        _require_same(tried, case, kind, made)
    shutil.rmtree(made, ignore_errors=True)
    shutil.rmtree(folder / "source")


_CLEAN: dict[str, str] = {}


def _require_same(tried: Campaign, case: str, kind: Format, made: Path) -> None:
    if kind.name not in _CLEAN:
        root = made.parent / "whole"
        source = kind.write(root, documents())
        assert tried(case, "ingest", source, root / "c", *kind.arguments(), *LOOSE) is not None
        _CLEAN[kind.name] = open_corpus(root / "c").fingerprint
        shutil.rmtree(root)
    if open_corpus(made).fingerprint != _CLEAN[kind.name]:
        tried.fail(case, "another corpus, and no word about it")


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(range(300), marks=pytest.mark.slow),
        pytest.param(range(100, 2100), marks=pytest.mark.campaign),
    ],
    ids=["300", "2000"],
)
def test_fuzzed_files(cases: range, tmp_path: Path, invoke: Command) -> None:
    with campaign(invoke) as tried:
        for number in cases:
            attack_file(tried, tmp_path, number)
