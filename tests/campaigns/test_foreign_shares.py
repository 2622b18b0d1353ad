"""Topic shares with every other model and corpus: only what they were computed from is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streaming_jsmf as sj
from tests.campaigns.attack import campaign
from tests.corpora import planted, words
from tests.outcomes import Command

N, K, M = 40, 3, 60
NAMES, FORMATS = ("one", "two"), (".parquet", ".zarr", "")


def shares_of(folder: Path, model: str, corpus: str, suffix: str) -> Path:
    return folder / f"of-{model}-{corpus}{suffix}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two corpora of the same ids, words, columns and sizes, models of both, and shares of each pair."""
    reading = {"text": "text", "id": "id", "metadata": ["year"], "stop_words": "none", "max_df": 1.0}
    for seed, name in enumerate(NAMES):
        counts = planted(M, N, K, length=50, seed=seed).counts
        texts = [" ".join(np.repeat(words(N), row)) for row in counts]
        table = pd.DataFrame({"text": texts, "id": range(M), "year": [1990 + row % 4 for row in range(M)]})
        sj.fit(table, tmp_path / name, K, min_df=1, progress=False, polish=False, **reading)
    for model, corpus, suffix in product(NAMES, NAMES, FORMATS):
        sj.transform(
            tmp_path / model, tmp_path / f"{corpus}.corpus", shares_of(tmp_path, model, corpus, suffix)
        )
    return tmp_path


def questions(folder: Path) -> Iterator[tuple[bool, tuple[Any, ...]]]:
    """Whether a command line must succeed, and the command line."""
    page = folder / "page.html"
    for of_model, of_corpus, suffix, model, corpus in product(NAMES, NAMES, FORMATS, NAMES, NAMES):
        shares, documents = shares_of(folder, of_model, of_corpus, suffix), folder / f"{corpus}.corpus"
        for line in (
            ("documents", folder / model, shares, "--outliers", documents),
            ("over-time", folder / model, shares, "--by", "year", "--corpus", documents),
            ("report", folder / model, page, "--shares", shares, "--corpus", documents, "--overwrite"),
        ):
            yield (of_model, of_corpus) == (model, corpus), line
    for of_model, suffix, model in product(NAMES, FORMATS, NAMES):
        line = ("documents", folder / model, shares_of(folder, of_model, "one", suffix))
        for question in (("--topic", 0), ("--by", "year"), ("--similar", 3), ()):
            yield of_model == model, (*line, *question)


@pytest.mark.slow
def test_foreign_shares(folder: Path, invoke: Command) -> None:
    with campaign(invoke) as tried:
        for right, line in questions(folder):
            said = tried(f"{line}", *line)
            if said is not None and said.code != (0 if right else 2):
                tried.fail(f"{line}", f"exit code {said.code}: {said.err}")


@pytest.mark.slow
def test_foreign_shares_for_other_libraries(folder: Path) -> None:
    for of_model, of_corpus, suffix, model, corpus in product(NAMES, NAMES, FORMATS, NAMES, NAMES):
        of = (folder / model, folder / f"{corpus}.corpus", shares_of(folder, of_model, of_corpus, suffix))
        if (of_model, of_corpus) == (model, corpus):
            assert len(sj.model_to_pyldavis(*of)["doc_lengths"]) == M
        else:
            with pytest.raises(sj.InputError):
                sj.model_to_pyldavis(*of)
