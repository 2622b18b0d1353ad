"""Stores that grow and get the third moment, in either order or at once: the bits of having had it from the start."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streaming_jsmf.cli.main import run
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.changes import Changes
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.store import open_moments, read_store
from tests.corpora import as_lists, planted, write_corpus, write_lists
from tests.stores import SMALL, SYNCHRONOUS, changed, digests, require_moments, scanned

THIRD = replace(SMALL, third_moment=True)
COUNTS = planted(500, 60, 4, length=30).counts
SETTINGS = ("--max-topics", "5", "--partition-nonzeros", "4000")
GROWN = ("--add", "b", "--third-moment")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora a and b; stores of a, and of both, without and with the third moment from the first scan on."""
    root = tmp_path_factory.mktemp("grow-third")
    write_corpus(root / "a", COUNTS[:300])
    write_corpus(root / "b", COUNTS[300:], shards=2)
    for name, settings in (("plain", SMALL), ("third", THIRD)):
        scanned(root / "a", root / f"{name}-of-a", settings)
        shutil.copytree(root / f"{name}-of-a", root / f"{name}-of-both")
        changed(root / "a", root / f"{name}-of-both", add=[root / "b"])
    scanned(root / "b", root / "plain-of-b")
    require_moments(open_moments(root / "third-of-both"), COUNTS)
    return root


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(folder / name, tmp_path / name))


def command(folder: Path, store: Path, *options: str) -> int:
    paths = [str(folder / option) if (folder / option).exists() else option for option in options]
    return run(["scan", str(folder / "a"), str(store), *paths, "--scheduler", "synchronous"])


def test_a_bad_corpus_leaves_a_store_without_it(
    folder: Path, copy: Callable[[str], Path], tmp_path: Path
) -> None:
    bad, store = write_corpus(tmp_path / "bad", COUNTS[300:]), copy("plain-of-a")
    ids, counts = as_lists(COUNTS[300:320])
    counts[3][0] = -1
    write_lists(bad / "part-00001.parquet", ids, counts)
    with pytest.raises(InputError, match="-1"):
        scan(folder / "a", store, THIRD, SYNCHRONOUS, changes=Changes(add=[str(bad)]))
    assert digests(store) == digests(folder / "plain-of-a")
    assert read_store(store).settings == SMALL
    assert not read_store(store).missing_stages


def test_what_cannot_be_added_leaves_the_store_complete(
    folder: Path, copy: Callable[[str], Path], tmp_path: Path
) -> None:
    store, of_gone, gone = copy("plain-of-both"), tmp_path / "of-gone", tmp_path / "gone"
    with pytest.raises(InputError, match="memory"):
        scanned(folder / "a", store, THIRD, execution=Execution("synchronous", memory=2**28))
    shutil.copytree(folder / "b", gone)
    changed(folder / "a", shutil.copytree(folder / "plain-of-a", of_gone), add=[gone])
    shutil.rmtree(gone)
    with pytest.raises(InputError, match=re.escape(str(gone))):
        scanned(folder / "a", of_gone, THIRD)
    for unchanged in (store, of_gone):
        assert digests(unchanged) == digests(folder / "plain-of-both")
        assert not read_store(unchanged).missing_stages


@pytest.mark.parametrize(
    ("start", "options", "end"),
    [
        (None, (*SETTINGS, *GROWN), "third-of-both"),
        ("plain-of-both", (*SETTINGS, "--third-moment"), "third-of-both"),
        ("plain-of-a", (*SETTINGS, *GROWN), "third-of-both"),
        ("plain-of-a", ("--merge", "plain-of-b", "--third-moment"), "third-of-both"),
        ("third-of-both", ("--remove", "b", "--third-moment"), "third-of-a"),
        ("plain-of-both", ("--remove", "b", "--third-moment"), "third-of-a"),
        ("third-of-a", (*SETTINGS, "--add", "b"), "third-of-both"),
    ],
)
def test_a_change_and_the_third_moment_in_any_order(
    start: str | None, options: tuple[str, ...], end: str, folder: Path, tmp_path: Path
) -> None:
    store = tmp_path / "m"
    if start:
        shutil.copytree(folder / start, store)
    assert command(folder, store, *options) == 0
    assert digests(store) == digests(folder / end)
    assert read_store(store).settings == read_store(folder / end).settings


def test_settings_in_python_may_ask_for_it_and_the_same_again_does_nothing(
    folder: Path, copy: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    store, changes = copy("plain-of-a"), Changes(add=[str(folder / "b")])
    for wrong in (replace(THIRD, seed=1), ScanSettings(third_moment=True)):
        with pytest.raises(InputError, match=re.escape(str(store))):
            scan(folder / "a", store, wrong, SYNCHRONOUS, changes=changes)
    # A corpus that is open is the one at its path.
    moments = scan(open_corpus(folder / "a"), store, THIRD, SYNCHRONOUS, changes=changes)
    assert moments.settings == THIRD
    assert digests(store) == digests(folder / "third-of-both")
    assert command(folder, store, *GROWN) == 0
    assert "there is nothing to do" in capsys.readouterr().err
    assert digests(store) == digests(folder / "third-of-both")
