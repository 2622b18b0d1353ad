"""The verb simulate: what it prints, what it refuses, and a kill in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from streaming_jsmf.cli.main import run
from streaming_jsmf.corpus import open_corpus, read_truth
from streaming_jsmf.corpus.format import read_manifest

SMALL = ("--vocabulary-size", "300", "--topics", "4")


def call(*arguments: str | Path) -> int:
    return run(["simulate", *map(str, arguments)])


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_prints_where_the_corpus_and_its_truth_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "corpus"
    assert call(path, "--documents", "50", *SMALL, "--workers", "1", "--memory", "4GB") == 0
    corpus = open_corpus(path)
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        f"corpus: {path} (50 documents, {corpus.nonzeros} nonzeros)",
        f"truth: {path / 'truth.zarr'}",
    ]
    assert "simulate: finished" in printed.err
    assert (corpus.n_documents, corpus.n_words) == (50, 300)


def test_every_option_reaches_the_simulation(tmp_path: Path) -> None:
    options = ["--alpha", "0.5", "--beta", "0.1", "--mean-length", "20", "--seed", "9", "--separable"]
    options += ["--zipf", "1.1", "--documents-per-shard", "30", "--scheduler", "synchronous"]
    assert call(tmp_path / "a", "--documents", "70", *SMALL, *options) == 0
    assert [shard.rows for shard in open_corpus(tmp_path / "a").shards] == [30, 30, 10]
    assert read_manifest(tmp_path / "a").settings == {
        "simulated": "lda",
        "n_topics": 4,
        "mean_length": 20.0,
        "alpha": "0.5 0.5 0.5 0.5",
        "beta": 0.1,
        "separable": True,
        "zipf": 1.1,
        "seed": 9,
    }
    truth = read_truth(tmp_path / "a")
    assert truth.anchors is not None
    assert (truth.seed, truth.mean_length, truth.alpha.tolist()) == (9, 20.0, [0.5] * 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--documents", "0", *SMALL], "--documents"),
        (["--documents", "5", "--topics", "2"], "--vocabulary-size"),
        (["--documents", "5", *SMALL, "--zipf", "much"], "--zipf"),
        (["--documents", "5", *SMALL, "--alpha", "-1"], "alpha must be positive"),
        (["--documents", "5", *SMALL, "--seed", "-1"], "seed is -1"),
        (["--documents", "5", *SMALL, "--scheduler", "magic"], "scheduler is 'magic'"),
        (["--documents", "5", *SMALL, "--memory", "lots"], "memory is 'lots'"),
        (["--documents", "5", *SMALL, "--memory", "100MB"], "MiB and --memory allows 95.37 MiB"),
    ],
)
def test_what_is_refused_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert call(tmp_path / "a", *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert list(tmp_path.iterdir()) == []


def test_an_existing_target_is_refused_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "a"
    target.write_text("mine")
    assert call(target, "--documents", "5", *SMALL) == 2
    assert f"{target} exists" in capsys.readouterr().err
    assert target.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_a_killed_simulation_is_finished_by_the_same_command(scheduler: str, tmp_path: Path) -> None:
    # Many topics make small batches, here of 2000 documents, and so quick parts.
    arguments = ["--vocabulary-size", "600", "--topics", "500", "--mean-length", "10", "--zipf", "1"]
    arguments += ["--documents", "24000", "--documents-per-shard", "2000"]
    target, partial = tmp_path / "a", tmp_path / "a.partial"
    simulate = [sys.executable, "-m", "streaming_jsmf", "simulate"]
    command = [*simulate, str(target), *arguments, "--scheduler", scheduler, "--workers", "2"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True) as process:
        try:
            while process.poll() is None and len(list(partial.glob("records/*.json"))) < 2:
                time.sleep(0.002)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"
    assert not target.exists()
    kept = [f"part-{path.stem}.parquet" for path in partial.glob("records/*.json")]
    assert 2 <= len(kept) < 12
    inodes = {name: (partial / "corpus" / "documents" / name).stat().st_ino for name in kept}

    assert call(target, *arguments) == 0
    assert {name: (target / "documents" / name).stat().st_ino for name in kept} == inodes, "made again"
    assert call(tmp_path / "b", *arguments, "--scheduler", "synchronous") == 0
    assert files(target) == files(tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
