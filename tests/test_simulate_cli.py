"""The verb simulate: what it prints and refuses, and how a simulation that was interrupted goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streaming_jsmf.cli.main import run
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.ingestion.simulation import documents as drawing
from streaming_jsmf.ingestion.simulation import read_truth, simulate_lda
from streaming_jsmf.ingestion.simulation import run as simulating
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.events import Event, PartitionCommitted
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.lock import sole_writer
from tests.damage import SOME, Damage
from tests.processes import command, killed

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


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_a_killed_simulation_is_finished_by_the_same_command(scheduler: str, tmp_path: Path) -> None:
    # Many topics make small batches, here of 2000 documents, and so quick parts.
    arguments = ["--vocabulary-size", "600", "--topics", "500", "--mean-length", "10", "--zipf", "1"]
    arguments += ["--alpha", "0.2", "--documents", "24000", "--documents-per-shard", "2000"]
    target, partial = tmp_path / "a", tmp_path / "a.partial"
    line = command("simulate", target, *arguments, "--scheduler", scheduler, "--workers", "2")
    with killed(line, lambda: len(list(partial.glob("records/simulate-part-*/zarr.json"))) >= 2):
        pass
    assert not target.exists()
    kept = [
        f"{path.parent.name.removeprefix('simulate-')}.parquet"
        for path in partial.glob("records/simulate-part-*/zarr.json")
    ]
    assert 2 <= len(kept) < 12
    inodes = {name: (partial / "corpus" / "documents" / name).stat().st_ino for name in kept}

    assert call(target, *arguments) == 0
    assert {name: (target / "documents" / name).stat().st_ino for name in kept} == inodes, "made again"
    assert call(tmp_path / "b", *arguments, "--scheduler", "synchronous") == 0
    assert files(target) == files(tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def committed(partial: Path) -> list[int]:
    return sorted(int(path.parent.name[-5:]) for path in partial.glob("records/simulate-part-*/zarr.json"))


class TestInterruption:
    """Five parts; ``stop`` fails the run before its third."""

    ARGUMENTS: ClassVar[dict[str, Any]] = {
        "n_words": 300,
        "n_topics": 4,
        "seed": 7,
        "n_documents": 450,
        "documents_per_shard": 100,
        "execution": Execution("synchronous"),
    }

    @pytest.fixture(autouse=True)
    def small_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(drawing, "BATCH_TOKENS", 10_000)

    @pytest.fixture
    def stop(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
        def stop(error: BaseException, after: int = 2) -> Path:
            def failing(simulation: simulating.Simulation, part: int) -> Record:
                if len(simulation.job.committed()) == after:
                    raise error
                return task(simulation, part)

            task = simulating.write_part
            monkeypatch.setattr(simulating, "write_part", failing)
            with pytest.raises(type(error)):
                simulate_lda(tmp_path / "a", **self.ARGUMENTS)
            monkeypatch.setattr(simulating, "write_part", task)
            assert not (tmp_path / "a").exists()
            return tmp_path / "a.partial"

        return stop

    def finish(self, tmp_path: Path) -> list[int]:
        """Run to the end, compare with an undisturbed run, and return the parts that were made."""
        events: list[Event] = []
        simulate_lda(tmp_path / "a", listener=events.append, **self.ARGUMENTS)
        simulate_lda(tmp_path / "undisturbed", **self.ARGUMENTS)
        assert files(tmp_path / "a") == files(tmp_path / "undisturbed")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "undisturbed"]
        return sorted(event.index for event in events if isinstance(event, PartitionCommitted))

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
    def test_goes_on_from_what_is_committed(
        self, tmp_path: Path, stop: Callable[..., Path], error: BaseException
    ) -> None:
        partial = stop(error)
        kept = committed(partial)
        assert len(kept) == 2
        documents = partial / "corpus" / "documents"
        assert sorted(path.name for path in documents.iterdir()) == [f"part-0000{i}.parquet" for i in kept]
        (partial / "work" / "half").mkdir()
        assert self.finish(tmp_path) == sorted({0, 1, 2, 3, 4} - set(kept))

    def test_leaves_nothing_when_nothing_is_committed(
        self, tmp_path: Path, stop: Callable[..., Path]
    ) -> None:
        stop(KeyboardInterrupt(), after=0)
        assert list(tmp_path.iterdir()) == []

    def test_other_arguments_are_refused_and_named(self, tmp_path: Path, stop: Callable[..., Path]) -> None:
        partial = stop(KeyboardInterrupt())
        before = files(partial)
        for change, named in (
            ({"seed": 8}, "seed: stored 7, asked 8"),
            ({"alpha": [1, 2, 3, 4]}, r"alpha: stored 0.25, asked \[1.0, 2.0, 3.0, 4.0\]"),
            ({"n_documents": 451}, "n_documents: stored 450, asked 451"),
            ({"documents_per_shard": None}, "documents_per_shard: stored 100"),
        ):
            with pytest.raises(SettingsMismatchError, match=named):
                simulate_lda(tmp_path / "a", **{**self.ARGUMENTS, **change})
        assert files(partial) == before

    def test_files_cut_off_by_a_crash_are_made_again(self, tmp_path: Path, stop: Callable[..., Path]) -> None:
        partial = stop(KeyboardInterrupt(), after=3)
        first, second, third = committed(partial)
        shard = partial / "corpus" / "documents" / f"part-0000{first}.parquet"
        shard.write_bytes(shard.read_bytes()[:-10])
        (partial / "records" / f"0000{second}.npy").write_bytes(b"")
        assert self.finish(tmp_path) == sorted({0, 1, 2, 3, 4} - {third})

    def test_damaged_arguments_are_named(self, tmp_path: Path, stop: Callable[..., Path]) -> None:
        path = stop(KeyboardInterrupt()) / "zarr.json"
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(StoreError, match=f"{path}.* damaged .*; remove .* run"):
            simulate_lda(tmp_path / "a", **self.ARGUMENTS)

    @pytest.mark.parametrize(
        "name",
        [
            "records/simulate-part-0000{}/zarr.json",
            "records/0000{}.npy",
            "corpus/documents/part-0000{}.parquet",
        ],
    )
    @pytest.mark.parametrize("damage", SOME)
    def test_damaged_parts_are_made_again(
        self, tmp_path: Path, stop: Callable[..., Path], name: str, damage: Damage
    ) -> None:
        partial = stop(KeyboardInterrupt())
        part = committed(partial)[0]
        damage(partial / name.format(part))
        assert part in self.finish(tmp_path)

    @pytest.mark.parametrize("damage", SOME)
    def test_a_damaged_truth_is_written_again(
        self, tmp_path: Path, stop: Callable[..., Path], damage: Damage
    ) -> None:
        partial = stop(KeyboardInterrupt())
        damage(partial / "corpus" / "truth.zarr" / "word_topic" / "c" / "0" / "0")
        self.finish(tmp_path)

    def test_two_at_once_do_not_mix(self, tmp_path: Path, stop: Callable[..., Path]) -> None:
        partial = stop(KeyboardInterrupt())
        before = committed(partial)
        with sole_writer(tmp_path / "a"), pytest.raises(InputError, match="has been writing it"):
            simulate_lda(tmp_path / "a", **self.ARGUMENTS)
        assert committed(partial) == before

    def test_a_foreign_directory_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "a.partial").mkdir()
        (tmp_path / "a.partial" / "thesis.txt").write_text("mine")
        with pytest.raises(InputError, match="holds something else"):
            simulate_lda(tmp_path / "a", **self.ARGUMENTS)
        assert (tmp_path / "a.partial" / "thesis.txt").exists()

    def test_a_worker_that_comes_late_does_not_bring_the_directory_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[simulating.Simulation] = []
        task = simulating.write_part
        monkeypatch.setattr(simulating, "write_part", lambda job, part: made.append(job) or task(job, part))
        simulate_lda(tmp_path / "a", **self.ARGUMENTS)
        with pytest.raises(StoreError, match="was removed"):
            task(made[0], 0)
        assert [path.name for path in tmp_path.iterdir()] == ["a"]
