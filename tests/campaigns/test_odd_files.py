"""FIFOs, sockets and devices in the place of each file of each store are never read: one line, or an intact answer."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_jsmf.documents import transform_job
from tests.campaigns.attack import campaign
from tests.campaigns.test_mutated_stores import (
    KINDS,
    SYNCHRONOUS,
    Stores,
    ask,
    copied,
    files_of,
    stores,
)
from tests.outcomes import Command

__all__ = ["stores"]


def _socket(path: Path) -> None:
    # The path of a socket has at most 107 bytes.
    place = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{place}/{path.name}")
    os.close(place)


#: What takes the place of a file.
ODD: dict[str, Callable[[Path], None]] = {
    "fifo": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "socket": _socket,
}


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", KINDS)
def test_odd_files_in_stores(kind: str, odd: str, stores: Stores, tmp_path: Path, invoke: Command) -> None:
    with campaign(invoke) as tried:
        for number, file in enumerate(files_of(stores.root / kind)):
            store = copied(stores, kind, tmp_path)
            place = store / file.relative_to(stores.root / kind)
            place.unlink()
            ODD[odd](place)
            ask(tried, stores, store, kind, f"case {number}, {odd} at {kind}/{place.relative_to(store)}")


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD)
def test_odd_files_in_unfinished_work(
    odd: str,
    stores: Stores,
    tmp_path: Path,
    invoke: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, out = stores.root, tmp_path / "s.parquet"
    partial, kept = tmp_path / "s.parquet.partial", tmp_path / "kept"
    line = ("transform", root / "model", root / "corpus", out, *SYNCHRONOUS)
    with monkeypatch.context() as patch:
        patch.setattr(transform_job, "_assemble", lambda *_: (_ for _ in ()).throw(OSError("full")))
        assert invoke(*line).code == 2
    partial.rename(kept)
    with campaign(invoke) as tried:
        for file in files_of(kept):
            shutil.copytree(kept, partial)
            place = partial / file.relative_to(kept)
            place.unlink()
            ODD[odd](place)
            case = f"{odd} at {place.relative_to(tmp_path)}"
            said = tried(case, *line)
            if said is not None and said.code == 0:
                if out.read_bytes() != (root / "shares.parquet").read_bytes():
                    tried.fail(case, "other shares")
                out.unlink()
            shutil.rmtree(partial, ignore_errors=True)
