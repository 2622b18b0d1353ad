"""A result is called complete only if a run from scratch gives the same: inputs are edited and options changed."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.outcomes import Command, Outcome
from tests.readers import BY_NAME, documents
from tests.results import write_stores
from tests.sources import put

SEED = 38
QUIET = ("--scheduler", "synchronous", "--quiet")
LOOSE = ("--preset", "papers", "--min-tokens", "0", "--min-distinct-words", "0")

#: Formats whose files are text.
SOURCES = ("text-json", "text-csv", "folder", "lines", "docword", "matrix-market", "triples", "ratings")

#: Options that name a list of words, and how many words of the list are in a line.
LISTS = {"--stop-words": 1, "--vocabulary": 1, "--phrases": 2}


def written(name: str, folder: Path) -> tuple[object, ...]:
    """Write a source and its lists to a folder; return the arguments that read it."""
    docs = documents()
    if name not in LISTS:
        return (BY_NAME[name].write(folder, docs), *BY_NAME[name].arguments())
    words, width = sorted({word for document in docs for word in document.words})[:12], LISTS[name]
    source = BY_NAME["text-json"].write(folder, docs)
    lines = (" ".join(words[start : start + width]) for start in range(0, len(words), width))
    return (source, name, put(folder / "list.txt", "\n".join(lines)))


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
@pytest.mark.parametrize("name", [*SOURCES, *LISTS])
def test_an_edited_input_is_noticed(name: str, tmp_path: Path, invoke: Command) -> None:
    rng = random.Random(f"{SEED} {name}")
    source, *options = written(name, tmp_path / "in")
    whole = shutil.copytree(tmp_path / "in", tmp_path / "whole")

    def ingest(target: str, *more: str) -> Outcome:
        return invoke("ingest", source, tmp_path / target, *LOOSE, *options, *QUIET, *more)

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
        ("ingest", "texts.jsonl", "OUT", *LOOSE, *QUIET),
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
    return write_stores(tmp_path_factory.mktemp("stores"))


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
