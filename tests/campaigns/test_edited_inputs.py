"""A result is called complete only if a run from scratch gives the same: inputs are edited and options changed."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

import streaming_jsmf as sj
from tests.corpora import planted, write_corpus, write_texts
from tests.outcomes import Command, Outcome

SEED = 38
QUIET = ("--scheduler", "synchronous", "--quiet")
LOOSE = ("--preset", "papers", "--min-tokens", "0", "--min-distinct-words", "0")
NAMES = [first + second for first in "bdfgkmnp" for second in ("arn", "elk", "ist", "old", "und")]
COUNTS = planted(60, len(NAMES), 3, length=20, seed=7).counts


def _texts(folder: Path) -> None:
    write_texts(
        folder / "t.jsonl", {i: " ".join(np.repeat(NAMES, row).tolist()) for i, row in enumerate(COUNTS)}
    )


def _folder(folder: Path) -> None:
    (folder / "texts").mkdir()
    for i, row in enumerate(COUNTS[:9]):
        (folder / "texts" / f"{i}.txt").write_text(" ".join(np.repeat(NAMES, row).tolist()))


def _docword(folder: Path) -> None:
    lines = [f"{m + 1} {n + 1} {COUNTS[m, n]}\n" for m, n in np.argwhere(COUNTS)]
    (folder / "docword.x.txt").write_text(
        f"{COUNTS.shape[0]}\n{COUNTS.shape[1]}\n{len(lines)}\n{''.join(lines)}"
    )
    (folder / "vocab.x.txt").write_text("\n".join(NAMES) + "\n")


def _matrix(folder: Path) -> None:
    scipy.io.mmwrite(folder / "x.mtx", scipy.sparse.coo_matrix(COUNTS), field="integer")
    (folder / "vocab.txt").write_text("\n".join(NAMES) + "\n")


def _ratings(folder: Path) -> None:
    rows = [f"{m},{n},{4 + COUNTS[m, n] % 2}\n" for m, n in np.argwhere(COUNTS)]
    (folder / "ratings.csv").write_text("userId,movieId,rating\n" + "".join(rows))
    titles = "".join(f"{n},{name}\n" for n, name in enumerate(NAMES))
    (folder / "names.csv").write_text(f"movieId,title\n{titles}")


_NAMES = ("--read", "names_item=movieId", "--read", "names_name=title")


def _with_lists(folder: Path) -> None:
    _texts(folder)
    (folder / "stop.txt").write_text("\n".join(NAMES[:3]) + "\n")
    (folder / "words.txt").write_text("\n".join(NAMES[5:30]) + "\n")
    (folder / "pairs.txt").write_text(f"{NAMES[6]} {NAMES[7]}\n{NAMES[8]} {NAMES[9]}\n")


@dataclass(frozen=True)
class Kind:
    """What is written for a source, and how it is read."""

    write: Callable[[Path], None]
    source: str
    options: tuple[str, ...] = ()


KINDS = {
    "texts": Kind(_texts, "t.jsonl"),
    "folder": Kind(_folder, "texts"),
    "docword": Kind(_docword, "docword.x.txt"),
    "matrix market": Kind(_matrix, "x.mtx"),
    "ratings": Kind(_ratings, "ratings.csv", ("--reader", "ratings", "--read", "names=names.csv", *_NAMES)),
    "stop words": Kind(_with_lists, "t.jsonl", ("--stop-words", "stop.txt")),
    "vocabulary": Kind(_with_lists, "t.jsonl", ("--vocabulary", "words.txt")),
    "phrases": Kind(_with_lists, "t.jsonl", ("--phrases", "pairs.txt")),
}


def edits(folder: Path, rng: random.Random) -> Iterator[tuple[str, Callable[[], None]]]:
    """Edits of a letter or digit of each file that keep its size and its time."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        text, kept = path.read_text(), path.stat()
        places = [i for i, character in enumerate(text) if character.isalnum() and i > len(text) // 3]

        def edit(
            path: Path = path, text: str = text, at: int = rng.choice(places), kept: os.stat_result = kept
        ) -> None:
            other = "7" if text[at] == "3" else "3" if text[at].isdigit() else "q" if text[at] != "q" else "z"
            path.write_text(text[:at] + other + text[at + 1 :])
            os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))

        yield path.name, edit


def files(folder: Path) -> dict[str, bytes]:
    names = (path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in names}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_an_edited_input_is_noticed(
    name: str, tmp_path: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, rng = KINDS[name], random.Random(f"{SEED} {name}")
    (tmp_path / "in").mkdir()
    kind.write(tmp_path / "in")
    whole = shutil.copytree(tmp_path / "in", tmp_path / "whole")
    monkeypatch.chdir(tmp_path / "in")

    def ingest(target: str, *more: str) -> Outcome:
        return invoke("ingest", kind.source, f"../{target}", *LOOSE, *kind.options, *QUIET, *more)

    assert ingest("made").code == 0
    made, tried, noticed = files(tmp_path / "made"), 0, 0
    for file, edit in edits(tmp_path / "in", rng):
        edit()
        fresh, again = ingest("fresh"), ingest("made")
        tried += 1
        noticed += again.code == 2
        assert again.code in (0, 2), (file, again.err)
        if fresh.code or files(tmp_path / "fresh") != made:
            assert again.code == 2, f"{file} was edited, and the corpus of before is called complete"
        assert files(tmp_path / "made") == made, file
        if fresh.code == 0:
            assert ingest("made", "--overwrite").code == 0, file
            assert files(tmp_path / "made") == files(tmp_path / "fresh"), file
        for place in ("made", "fresh"):
            shutil.rmtree(tmp_path / place, ignore_errors=True)
        shutil.copytree(whole, tmp_path / "in", dirs_exist_ok=True)
        assert ingest("made").code == 0
    print(f"{name}: {tried} edits, {noticed} noticed")
    assert noticed


#: Options of each verb; pairs of them ask for two results, which may be equal.
OPTIONS: dict[str, tuple[tuple[str, ...], list[tuple[str, ...]]]] = {
    "ingest": (
        ("ingest", "t.jsonl", "OUT", *LOOSE, *QUIET),
        [(), ("--min-df", "2"), ("--min-df", "1"), ("--max-df", "50%"), ("--ngrams", "2"), ("--stop-words", "none"),
         ("--stop-words", "english"), ("--numbers", "drop"), ("--excerpt", "9"), ("--tokenizer", "sklearn")],
    ),
    "scan": (
        ("scan", "a", "OUT", *QUIET),
        [("--max-topics", "4"), ("--max-topics", "3"), ("--max-topics", "4", "--seed", "1"),
         ("--max-topics", "4", "--document-weights", "uniform"), ("--max-topics", "4", "--exact")],
    ),
    "infer": (
        ("infer", "m", "OUT"),
        [("--topics", "3"), ("--topics", "2"), ("--topics", "3", "--rectify", "none"),
         ("--topics", "3", "--anchor-min-df", "2"), ("--topics", "3", "--tolerance", "1e-3")],
    ),
    "polish": (
        ("polish", "model", "a", "OUT", *QUIET),
        [("--steps", "8"), ("--steps", "9"), ("--steps", "8", "--seed", "1"), ("--steps", "8", "--rounds", "3")],
    ),
    "transform": (
        ("transform", "model", "a", "OUT.zarr", *QUIET),
        [(), ("--top", "2"), ("--top", "3")],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    _texts(folder)
    write_corpus(folder / "a", COUNTS, row_group_rows=10)
    sj.scan(folder / "a", folder / "m", sj.ScanSettings(max_topics=3), sj.Execution("synchronous"))
    sj.infer(folder / "m", folder / "model", 3, anchor_min_df=2)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("verb", OPTIONS)
def test_two_requests_are_the_same_only_if_their_results_are(
    verb: str, stores: Path, tmp_path: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stores)
    command, options = OPTIONS[verb]
    suffix = ".zarr" * (verb == "transform")

    def run(target: Path, *more: str) -> Outcome:
        line = [str(target) + suffix if word in ("OUT", "OUT.zarr") else word for word in command]
        return invoke(*line, *more)

    def arrays(target: Path) -> dict[str, bytes]:
        found = files(Path(str(target) + suffix))
        # Metadata and records have times.
        return {name: data for name, data in found.items() if not name.endswith(".json")}

    for number, given in enumerate(options):
        assert run(tmp_path / str(number), *given).code == 0, given
    same = 0
    for (one, first), (other, second) in itertools.permutations(enumerate(options), 2):
        again = run(tmp_path / str(one), *second)
        # A scan for more topics serves fewer.
        serves = verb == "scan" and first[:2] == ("--max-topics", "4") and second == ("--max-topics", "3")
        if again.code == 0 and not (serves and len(first) == 2):
            assert arrays(tmp_path / str(one)) == arrays(tmp_path / str(other)), (first, second)
        assert again.code in (0, 2), again.err
        same += again.code == 0
    print(f"{verb}: {len(options) * (len(options) - 1)} pairs, {same} of them the same request")
