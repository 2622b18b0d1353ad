"""Corpora, moments, models and shares with a changed or odd file give the answers of the intact store or an error."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streaming_jsmf.documents import transform_job
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.storage.arrays import read_attributes
from tests.campaigns.attack import ODD, Campaign, campaign, spoilt
from tests.outcomes import Command

SYNCHRONOUS = ("--scheduler", "synchronous")
SCAN = ("--max-topics", "3", "--partition-nonzeros", "1500", *SYNCHRONOUS)


@dataclass(frozen=True)
class Question:
    """A command line (STORE, MADE and intact stores stand for paths), and the reproducible part of its answer.

    ``answer`` is a function of the output and the path of the result.
    """

    arguments: tuple[str, ...]
    answer: Callable[[str, Path], Any]

    def of(self, root: Path, store: Path, made: Path) -> list[str]:
        places = {kind.upper(): str(root / kind) for kind in ("corpus", "model")}
        places |= {"STORE": str(store), "MADE": str(made)}
        return [places.get(argument, argument) for argument in self.arguments]


def _told(*names: str) -> Callable[[str, Path], Any]:
    return lambda out, _: {name: json.loads(out)[name] for name in names}


SHARES = (
    Question(("info", "STORE", "--verify", "--json"), lambda out, _: json.loads(out)),
    Question(
        ("documents", "MODEL", "STORE", "--outliers", "CORPUS", "--json"), lambda out, _: json.loads(out)
    ),
)

#: For each kind of store, a quick question and one that reads all of it.
QUESTIONS: Mapping[str, tuple[Question, Question]] = {
    "corpus": (
        Question(("info", "STORE", "--verify", "--json"), lambda out, _: json.loads(out)),
        Question(
            ("scan", "STORE", "MADE", *SCAN), lambda _, made: read_store(made).digests(third_moment=True)
        ),
    ),
    "moments": (
        Question(("info", "STORE", "--json"), _told("complete", "words", "digests", "settings")),
        Question(
            ("infer", "STORE", "MADE", "--topics", "3"), lambda _, made: read_attributes(made)["digests"]
        ),
    ),
    "model": (
        Question(("topics", "STORE", "--json"), lambda out, _: json.loads(out)),
        Question(("evaluate", "STORE", "--json"), _told("n_topics", "n_words", "topics", "metrics")),
    ),
    **dict.fromkeys(("shares", "shares.parquet", "shares.zarr"), SHARES),
}
KINDS = tuple(QUESTIONS)


@dataclass(frozen=True)
class Stores:
    root: Path
    answers: Mapping[str, list[Any]]


@pytest.fixture
def stores(tmp_path: Path, invoke: Command) -> Stores:
    root = tmp_path / "whole"
    corpus, moments, model, *shares = (root / kind for kind in KINDS)
    sizes = ("--documents", "120", "--vocabulary-size", "30", "--topics", "3", "--mean-length", "40")
    for arguments in (
        ("simulate", corpus, *sizes, "--documents-per-shard", "60", *SYNCHRONOUS),
        ("scan", corpus, moments, *SCAN),
        ("infer", moments, model, "--topics", "3"),
        ("evaluate", model, "--corpus", corpus, *SYNCHRONOUS),
        ("topics", model, "--label", "0=first"),
        *(("transform", model, corpus, made, *SYNCHRONOUS) for made in shares),
    ):
        assert invoke(*arguments).code == 0
    answers: dict[str, list[Any]] = {}
    for kind, questions in QUESTIONS.items():
        for number, question in enumerate(questions):
            made = tmp_path / f"{kind}-{number}"
            said = invoke(*question.of(root, root / kind, made))
            assert said.code == 0, said.err
            answers.setdefault(kind, []).append(question.answer(said.out, made))
    return Stores(root, answers)


def _honest(found: Any, answer: Any) -> bool:
    """Whether an answer is that of the intact store, or says that the store is incomplete, as without a record."""
    return bool(found == answer or (isinstance(found, dict) and found.get("complete") is False))


def files_of(store: Path) -> list[Path]:
    return sorted(path for path in [store, *store.rglob("*")] if path.is_file())


def copied(stores: Stores, kind: str, folder: Path) -> Path:
    copy = folder / f"store{Path(kind).suffix}"
    whole = stores.root / kind
    if whole.is_file():
        shutil.copy(whole, copy)
    else:
        shutil.copytree(whole, copy)
    return copy


def attack_store(tried: Campaign, stores: Stores, folder: Path, number: int, questions: slice) -> None:
    """One case: change or remove one file in a copy of a store, and ask questions."""
    draw = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    store = copied(stores, kind, folder)
    file = draw.choice(files_of(store))
    if draw.random() < 0.1:
        file.unlink()
    else:
        file.write_bytes(spoilt(file.read_bytes(), draw))
    ask(tried, stores, store, kind, f"case {number}, {kind}/{file.relative_to(store)}", questions)


def ask(
    tried: Campaign, stores: Stores, store: Path, kind: str, case: str, questions: slice = slice(2)
) -> None:
    """Ask questions about a changed copy of a store, and remove it."""
    made = store.with_name("made")
    for question, answer in list(zip(QUESTIONS[kind], stores.answers[kind], strict=True))[questions]:
        said = tried(case, *question.of(stores.root, store, made))
        if said is not None and said.code == 0 and not _honest(question.answer(said.out, made), answer):
            tried.fail(case, f"another answer to {question.arguments[0]}, and no word about it")
        if said is not None and said.code and made.exists() and said.code != 3:
            tried.fail(case, "something half written is left")
        shutil.rmtree(made, ignore_errors=True)
    if store.is_dir():
        shutil.rmtree(store)
    else:
        store.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("cases", "questions"),
    [
        pytest.param(range(220), slice(2), marks=pytest.mark.slow),
        pytest.param(range(100, 1100), slice(2), marks=pytest.mark.campaign),
    ],
    ids=["220", "1000"],
)
def test_mutated_stores(
    cases: range, questions: slice, stores: Stores, tmp_path: Path, invoke: Command
) -> None:
    with campaign(invoke) as tried:
        for number in cases:
            attack_store(tried, stores, tmp_path, number, questions)


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
        patch.setattr(transform_job, "unfinished_shares", lambda *_: (_ for _ in ()).throw(OSError("full")))
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
