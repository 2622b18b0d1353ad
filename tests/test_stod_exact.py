"""The third moment of a store that counts the whole C: one more stage after it, added, kept up and mended like it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from streaming_jsmf.config import ScanSettings, StodSettings
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.moments.store import open_moments
from streaming_jsmf.topics.infer import fit_moments
from tests.corpora import write_corpus
from tests.outcomes import Command, refused
from tests.stores import SMALL, digests, scanned
from tests.test_stod_stage import COUNTS

EXACT = replace(SMALL, exact=True, third_moment=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus a, an exact store of it with the third moment, and a corpus b of other documents."""
    root = tmp_path_factory.mktemp("exact_third")
    write_corpus(root / "a", COUNTS[:300])
    write_corpus(root / "b", COUNTS[300:], shards=2)
    scanned(root / "a", root / "exact", EXACT)
    return root


def test_topics_are_those_of_a_basis_by_factors(folder: Path, tmp_path: Path) -> None:
    usual = scanned(folder / "a", tmp_path / "m", replace(SMALL, third_moment=True))
    ours, theirs = (
        fit_moments(moments, StodSettings(4, alpha0=1.0), threads=1).arrays["word_topic"]
        for moments in (open_moments(folder / "exact"), usual)
    )
    assert match_topics(ours, theirs).mean_l1 < 1e-3


@pytest.mark.parametrize(
    "settings",
    [replace(EXACT, third_moment=False), replace(SMALL, document_weights="uniform", seed=3)],
    ids=["exact", "one scan"],
)
def test_the_error_names_a_command_that_adds_it(
    settings: ScanSettings, folder: Path, tmp_path: Path, invoke: Command
) -> None:
    store = tmp_path / "my moments"
    scanned(folder / "a", store, settings)
    before = digests(store)
    infer = ("infer", store, tmp_path / "model", "--topics", 4, "--engine", "stod")
    outcome = invoke(*infer)
    refused(outcome, 2, "third moment", str(store))
    program, *arguments = shlex.split(outcome.err.partition("add it with ")[2])
    assert program == "streaming-jsmf"
    log = invoke(*arguments, "--scheduler", "synchronous").err
    assert "third_moment: partition" in log
    assert not re.search("(range|cooccurrence): partition", log), "one pass, for the third moment alone"
    assert {name: value for name, value in digests(store).items() if name in before} == before
    assert not settings.exact or digests(store) == digests(folder / "exact")
    assert invoke(*infer).code == 0
