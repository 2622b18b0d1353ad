"""What takes long is said before anything is scanned, or refused with numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_jsmf import InputError
from streaming_jsmf.config import InferSettings
from streaming_jsmf.interface import fit as fitting
from streaming_jsmf.topics import requirements
from streaming_jsmf.topics.requirements import Requirements
from tests.outcomes import Command


def required(settings: InferSettings, n_words: int = 6_906, *, exact: bool = False) -> Requirements:
    return Requirements(settings, "corpus", ["word"] * n_words, 10_000, None, exact)


def test_very_many_topics_are_announced_with_numbers(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        required(InferSettings(100)).announce()
        assert caplog.text == ""
        required(InferSettings(1_500)).announce()
    assert "K = 1,500 of 6,906 words takes about 1.16 GiB of memory" in caplog.text
    assert "about 14 s of a core for each of its steps" in caplog.text


def test_a_rectification_of_the_whole_matrix_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        required(InferSettings(20, rectify="ap"), 20_000, exact=True).announce()
    assert "ap works on the whole matrix of 20,000 x 20,000 words, 2.98 GiB, in each of up to" in caplog.text


def test_more_than_the_machine_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "machine_memory", lambda: 1 << 30)
    with pytest.raises(
        InputError, match=r"n_topics is 1,500, which takes about 1\.16 GiB .* this machine has 1\.00 GiB"
    ):
        required(InferSettings(1_500)).require()


def test_the_cost_comes_first(
    corpus_path: Path, invoke: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "_MANY_TOPICS", 3)
    assert invoke("scan", corpus_path, tmp_path / "s", "--max-topics", "3").code == 0
    said = invoke("infer", tmp_path / "s", tmp_path / "m", "--topics", "3")
    assert said.code == 0
    assert said.err.startswith("K = 3 of ")

    def scanned(*_: object, **__: object) -> None:
        raise InputError("the scan begins here")

    monkeypatch.setattr(fitting, "scan", scanned)
    lines = invoke("fit", corpus_path, tmp_path / "f", "--topics", "3").err.splitlines()
    assert lines[0].startswith("K = 3 of ")
    assert lines[-1] == "error: the scan begins here"
