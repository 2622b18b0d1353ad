"""The command line: what it prints, its exit codes, and what it leaves on the disk."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import dask
import distributed  # noqa: F401  (its settings exist once it is imported)
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import streaming_jsmf as sj
from streaming_jsmf import display
from streaming_jsmf.cli.main import run
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs import run as jobs_run
from streaming_jsmf.jobs import run as tasks
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult
from streaming_jsmf.moments.stages.sums import SumsReduction
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.topics.store import read_model
from tests import outcomes, reference_metrics
from tests.corpora import as_lists, planted, words, write_corpus, write_lists
from tests.outcomes import Outcome
from tests.processes import PATIENCE, ended
from tests.processes import command as process

#: A scan of several partitions in one thread of this process.
SCAN = ("--partition-nonzeros", "1200", "--scheduler", "synchronous")
SMALL_SCAN = ("--max-topics", "5", *SCAN)

N_WORDS = 40

Counts = NDArray[np.int64]
Refused = Callable[..., None]


def command(*arguments: object) -> Outcome:
    """Run the command line in this process, and drop its progress lines."""
    return outcomes.invoked(*arguments).without_progress()


def done(*arguments: object) -> str:
    """Run a command that must succeed without a message, and return what it prints."""
    outcome = command(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """Run a command line that must fail and change no name in ``folder``; placeholders stand for ``places``."""

    def call(
        line: str, *named: str, code: int = 2, folder: Path = tmp_path, **places: Path | dict[str, Path]
    ) -> None:
        before = listing(folder)
        outcomes.refused(
            command(*_arguments(line, **places)), code, *(text.format(**places) for text in named)
        )
        assert listing(folder) == before

    return call


def _arguments(line: str, **places: Any) -> list[str]:
    line = line.replace(" SMALL", f" {' '.join(SMALL_SCAN)}").replace(" SCAN", f" {' '.join(SCAN)}")
    return line.format(**places).split(" ")


@pytest.fixture(scope="module")
def counts() -> Counts:
    """150 documents of 5 separable topics over 40 words."""
    return planted(150, N_WORDS, 5, length=40, seed=3).counts


@pytest.fixture(scope="module")
def corpus(counts: Counts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("cli") / "corpus", counts, row_group_rows=25)


@pytest.fixture(scope="module")
def made_moments(corpus: Path) -> Path:
    path = corpus.parent / "moments"
    assert run(["scan", str(corpus), str(path), *SMALL_SCAN]) == 0
    return path


@pytest.fixture(scope="module")
def made_model(made_moments: Path) -> Path:
    path = made_moments.parent / "model"
    assert run(["infer", str(made_moments), str(path), "--topics", "5"]) == 0
    return path


@pytest.fixture
def moments(made_moments: Path, tmp_path: Path) -> Path:
    """A copy of a complete moments store."""
    return shutil.copytree(made_moments, tmp_path / "moments")


@pytest.fixture
def unfinished(made_moments: Path, tmp_path: Path) -> Path:
    """A copy without its last stage."""
    path = shutil.copytree(made_moments, tmp_path / "unfinished")
    shutil.rmtree(path / "records" / "projection")
    return path


@pytest.fixture
def model(made_model: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made_model, tmp_path / "model")


# --- success


def topics(path: object, *options: object) -> Any:
    """The topics of a model or of several as JSON."""
    return json.loads(done("topics", path, "--json", *options))


def table(path: object, *options: object) -> list[dict[str, str]]:
    """The topics of a model or of several as rows of a CSV file."""
    return list(csv.DictReader(done("topics", path, "--csv", *options).splitlines()))


def test_topics_as_a_table_csv_and_json_agree(made_model: Path) -> None:
    model = read_model(made_model)
    rows = topics(made_model, "--words", "4")
    assert [row["topic"] for row in rows] == list(range(5))
    assert sum(row["probability"] for row in rows) == pytest.approx(1)
    text = done("topics", made_model, "--words", "4", "--characteristic")
    lines = table(made_model, "--words", "4", "--sort", "topic")
    names, given = model.arrays["word"].tolist(), model.arrays["word_topic"]
    with np.errstate(divide="ignore", invalid="ignore"):
        overall = np.log(given @ model.arrays["topic_probability"])[:, None]
        relevance = np.nan_to_num(np.log(given) - 0.6 * overall, nan=-np.inf)
    for line, row in zip(lines, rows, strict=True):
        assert len(row["prominent"]) == len(row["characteristic"]) == 4
        ids = model.arrays["prominent_words"][row["topic"], :4]
        assert row["probabilities"] == model.arrays["word_topic"][ids, row["topic"]].tolist()
        own = [names.index(word) for word in row["characteristic"]]
        least = np.sort(relevance[:, row["topic"]])[-4:]
        np.testing.assert_allclose(relevance[own, row["topic"]], least[::-1], rtol=1e-9)
        label, prominent, characteristic = (
            ", ".join(row[key]) for key in ("label", "prominent", "characteristic")
        )
        assert f"{row['topic']:>5} {row['probability']:>6.1%}  {label}" in text
        assert f"{' ' * 14}{prominent}\n" in text
        assert f"characteristic: {characteristic}" in text
        assert (int(line["topic"]), float(line["share"])) == (row["topic"], row["probability"])
        assert (line["anchor"], line["words"], line["label"]) == (row["anchor"], prominent, label)
        assert line["characteristic"].startswith(characteristic)
        scores = np.where(given[:, row["topic"]] > 0, reference_metrics.frex(given)[:, row["topic"]], 0)
        exclusive = [names.index(word) for word in row["frex"]]
        np.testing.assert_allclose(scores[exclusive], np.sort(scores)[:-5:-1], rtol=1e-9)
        assert f"exclusive (FREX): {', '.join(row['frex'])}" in text
        assert line["frex"] == ", ".join(row["frex"])


def test_topics_are_sorted_by_share_except_in_json(made_model: Path) -> None:
    shares = read_model(made_model).arrays["topic_probability"]
    by_share = np.argsort(-shares, kind="stable").tolist()
    assert by_share != list(range(5))
    printed = re.findall(r"^ +(\d+) +[\d.]+%", done("topics", made_model), re.MULTILINE)
    assert [int(number) for number in printed] == by_share
    assert [int(line["topic"]) for line in table(made_model)] == by_share
    assert [row["topic"] for row in topics(made_model, "--sort", "share")] == by_share


def test_topics_lists_more_words_than_the_model_stores(made_model: Path) -> None:
    model = read_model(made_model)
    order = np.argsort(-model.arrays["word_topic"], axis=0, kind="stable")[:30].T
    expected = [[str(model.arrays["word"][word]) for word in topic] for topic in order]
    assert [row["prominent"] for row in topics(made_model, "--words", "30")] == expected
    assert len(topics(made_model, "--words", "99")[0]["prominent"]) == N_WORDS


def test_infer_takes_several_topic_numbers(made_moments: Path, tmp_path: Path) -> None:
    models, arguments = tmp_path / "models", ("infer", made_moments, tmp_path / "models", "--topics", "5,3")
    made = done(*arguments)
    assert sorted(path.name for path in models.iterdir()) == ["k=3", "k=5"]
    shutil.rmtree(models / "k=5")
    again = command(*arguments)
    assert (again.code, again.out) == (0, made)
    assert "k=3: complete" in again.err
    done("infer", made_moments, tmp_path / "one", "--topics", "3")
    one, three = (read_model(path).arrays["word_topic"] for path in (tmp_path / "one", models / "k=3"))
    np.testing.assert_array_equal(one, three)
    paths = [str(models / name) for name in ("k=3", "k=5")]
    assert done("topics", models) == "".join(done("topics", path) for path in paths)
    assert topics(models) == [{"model": path, "topics": topics(path)} for path in paths]
    assert [line["model"] for line in table(models)] == [paths[0]] * 3 + [paths[1]] * 5


def test_fit_of_several_topic_numbers_scans_once_and_resumes(corpus: Path, tmp_path: Path) -> None:
    models, store = tmp_path / "models", tmp_path / "models.moments"
    arguments = ("fit", corpus, models, "--topics", "3,5", *SCAN)
    done(*arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "models.moments"]
    assert [len(topics(models / f"k={k}")) for k in (3, 5)] == [3, 5]
    assert {model["provenance"]["moments"] for model in info(models)["models"]} == {str(store)}
    kept = (models / "k=3" / "zarr.json").stat().st_mtime_ns
    shutil.rmtree(models / "k=5")
    assert command(*arguments).code == 0
    assert sorted(path.name for path in models.iterdir()) == ["k=3", "k=5"]
    assert (models / "k=3" / "zarr.json").stat().st_mtime_ns == kept
    fewer = command("fit", corpus, tmp_path / "one", "--topics", "2", "--moments", store, *SCAN)
    assert fewer.code == 0, fewer.err


@pytest.mark.slow
def test_a_fit_to_a_corpus_imports_neither_clusters_nor_readers(corpus: Path, tmp_path: Path) -> None:
    arguments = ["fit", str(corpus), str(tmp_path / "model"), "--topics", "3", "--steps", "2", *SCAN]
    code = f"""
import sys
from streaming_jsmf.cli.main import run
assert run({arguments}) == 0
print("imported:", *{{"distributed", "xarray", "streaming_jsmf.ingestion"}} & sys.modules.keys())
"""
    assert ended([sys.executable, "-c", code]).out.endswith("imported:\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", ["info {corpus}", "info {shares}", "info {model}", "topics {model}", "topics {model} --csv"]
)
def test_a_query_of_a_store_imports_no_package_of_computations(
    arguments: str, corpus: Path, tmp_path: Path
) -> None:
    places = {"corpus": corpus, "model": tmp_path / "model", "shares": tmp_path / "shares"}
    done("fit", corpus, places["model"], "--topics", "3", "--steps", "2", *SCAN)
    done("transform", places["model"], corpus, places["shares"])
    code = f"""
import sys
from streaming_jsmf.cli.main import run
assert run({arguments.format(**places).split()}) == 0
print("imported:", *{{"numba", "pandas", "scipy", "dask", "distributed"}} & sys.modules.keys())
"""
    assert ended([sys.executable, "-c", code]).out.endswith("imported:\n")


def test_a_vocabulary_shorter_than_the_printed_lists(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "c", np.full((30, 1), 5))
    fitted = done("fit", path, tmp_path / "model", "--topics", "1", *SCAN)
    assert "100.0%  word0000" in fitted
    assert done("topics", tmp_path / "model") == fitted


def test_paths_are_taken_literally(
    corpus: Path, made_moments: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a dir é%20☃"
    shutil.copytree(corpus, folder / "c")
    monkeypatch.chdir(folder)
    url = (folder / "c").as_uri()
    for source, store in (("c", "deep/er/m 1"), (url, "m 2"), ("c", (tmp_path / "m3").as_uri())):
        done("scan", source, store, *SMALL_SCAN)
    for store in (folder / "deep" / "er" / "m 1", folder / "m 2", tmp_path / "m3"):
        assert info(store)["digests"] == info(made_moments)["digests"]
    assert done("infer", "m 2", "model ü", "--topics", "3").startswith("model: model ü\n")
    assert {path.name for path in tmp_path.iterdir()} == {folder.name, "m3"}


@pytest.mark.parametrize("max_topics", [5, 3])
def test_a_scan_of_a_complete_store_computes_and_changes_nothing(
    max_topics: int, corpus: Path, moments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times() -> dict[str, int]:
        return {name: (moments / name).stat().st_mtime_ns for name in listing(moments)}

    before = times()
    monkeypatch.setattr(SumsReduction, "compute", lambda *_: pytest.fail("a partition was computed"))
    again = command("scan", corpus, moments, "--max-topics", max_topics, *SCAN)
    assert (again.code, again.out) == (0, f"moments: {moments}\n")
    assert ("up to 5 topics" in again.err) == (max_topics == 3)
    assert times() == before


def info(path: Path) -> Any:
    return json.loads(done("info", path, "--json"))


def test_info_is_a_page_for_people(
    corpus: Path, made_moments: Path, made_model: Path, unfinished: Path, tmp_path: Path
) -> None:
    shutil.copytree(made_model, tmp_path / "models" / "k=5")
    expected = {
        corpus: ("corpus: ", "documents         150"),
        made_moments: ("moments: ", "max_topics=5", "peak memory "),
        unfinished: (
            *("incomplete", "still to do       counting words that occur together"),
            "partitions done   counting words that occur together ",
        ),
        made_model: ("model: ", "topics            5", str(made_moments), "finding topics "),
        tmp_path / "models": ("models: ", "k=5 (complete and intact)"),
    }
    for path, parts in expected.items():
        shown = done("info", path)
        for part in parts:
            assert part in shown
        without_paths = [
            line for line in shown.splitlines() if str(path) not in line and str(corpus.parent) not in line
        ]
        assert max(map(len, without_paths)) <= 80


def test_info_as_json(
    corpus: Path, counts: Counts, made_moments: Path, unfinished: Path, made_model: Path, tmp_path: Path
) -> None:
    of_corpus = info(corpus)
    nonzeros = np.count_nonzero(counts)
    expected = {"kind": "corpus", "documents": 150, "words": N_WORDS, "shards": 3, "nonzeros": nonzeros}
    assert of_corpus.items() >= expected.items()
    whole = info(made_moments)
    assert (whole["kind"], whole["complete"], whole["missing"]) == ("moments", True, [])
    assert whole["partitions"] > 1
    entry = whole["corpus"]
    assert (entry["path"], entry["fingerprint"]) == (str(corpus), of_corpus["fingerprint"])
    assert {"word", "row_sum", "eigenvectors", "basis", "projection"} <= set(whole["digests"])
    part = info(unfinished)
    assert (part["complete"], part["missing"]) == (False, ["projection", "refinement"])
    assert part["projection_partitions_done"] == 0
    assert {"basis", "projection"} & set(part["digests"]) == {"basis"}
    single = info(made_model)
    assert single.items() >= {"kind": "model", "complete": True, "topics": 5, "words": N_WORDS}.items()
    for k in (10, 5):
        shutil.copytree(made_model, tmp_path / "models" / f"k={k}")
    several = info(tmp_path / "models")
    paths = [str(tmp_path / "models" / name) for name in ("k=5", "k=10")]
    assert (several["kind"], several["models"]) == ("models", [{"path": path, **single} for path in paths])


# --- wrong input: exit code 2, one line, nothing left behind

Lists = tuple[list[Any] | None, list[Any]]

#: How to spoil the ids and counts of a document, and what the message must contain. ``test_moments`` has all kinds.
BAD_RECORDS: dict[str, tuple[Callable[[list[Any], list[Any]], Lists], str]] = {
    "id too large": (
        lambda ids, counts: ([*ids[:-1], N_WORDS], counts),
        f"{N_WORDS} is outside 0..{N_WORDS - 1}",
    ),
    "null list": (lambda _, counts: (None, counts), "ids is null"),
}


def _bad_corpus(folder: Path, counts: Counts, kind: str, *, statistics: bool = False) -> tuple[Path, str]:
    """Spoil row 5 of row group 1 of the second shard."""
    path = write_corpus(folder / "bad", counts, shards=3, row_group_rows=25)
    ids, numbers = as_lists(counts[50:100])
    spoil, reason = BAD_RECORDS[kind]
    spoiled, numbers[30] = spoil(ids[30], numbers[30])
    lists = pa.list_(pa.int32())
    columns = {"ids": pa.array([*ids[:30], spoiled, *ids[31:]], lists), "counts": pa.array(numbers, lists)}
    shard = path / "part-00001.parquet"
    pq.write_table(pa.table(columns), shard, row_group_size=25, write_statistics=statistics)
    return path, reason


@pytest.mark.parametrize(
    ("kind", "statistics", "verb"),
    [*product(BAD_RECORDS, [True, False], ["scan {bad} {new} SMALL"]),
     ("id too large", False, "fit {bad} {new} --topics 3 SCAN")],
)  # fmt: skip
def test_a_bad_record_is_named_and_leaves_no_store(
    kind: str, statistics: bool, verb: str, counts: Counts, refused: Refused, tmp_path: Path
) -> None:
    path, reason = _bad_corpus(tmp_path, counts, kind, statistics=statistics)
    row = () if statistics else ("row 5",)
    shard = str(path / "part-00001.parquet")
    refused(verb, shard, "row group 1", reason, *row, bad=path, new=tmp_path / "new")


def test_a_bad_record_while_other_threads_still_commit(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reason = _bad_corpus(tmp_path, counts, "null list")
    failed, ended, first = threading.Event(), threading.Event(), list[int]()
    commit, compute = tasks.commit_part, SumsReduction.compute

    def slow_if_good(stage: SumsReduction, partition: Partition) -> PartialResult:
        try:
            partial = compute(stage, partition)
        except InputError:
            failed.set()
            raise
        if not first:
            first.append(partition.index)
            # It commits after the bad partition has raised its error.
            assert failed.wait(timeout=PATIENCE)
            time.sleep(0.3)
        return partial

    def told(checkpoints: Checkpoints, stage: tasks.Reduction, part: tasks.Part, *step: Any) -> str:
        try:
            return commit(checkpoints, stage, part, *step)
        finally:
            if part.source is not None and part.source.index in first:
                ended.set()

    monkeypatch.setattr(SumsReduction, "compute", slow_if_good)
    monkeypatch.setattr(jobs_run, "commit_part", told)
    before = listing(tmp_path)
    arguments = ("--max-topics", "5", "--partition-nonzeros", "1000", "--workers", "2")
    outcome = command("scan", path, tmp_path / "m", *arguments)
    assert ended.wait(timeout=PATIENCE)
    outcomes.refused(outcome, 2, reason)
    assert listing(tmp_path) == before


EMPTY: dict[str, tuple[list[list[int]] | None, str]] = {
    "no files": (None, "is a folder, not a corpus; streaming-jsmf ingest"),
    "no rows": ([], "empty corpus"),
    "no words": ([[0] * 6] * 4, "empty corpus"),
    "one token": (np.eye(6, dtype=int).tolist(), "two tokens"),
}


@pytest.mark.parametrize("verb", ["scan {c} {new} SMALL", "fit {c} {new} --topics 2 SCAN"])
@pytest.mark.parametrize("kind", EMPTY)
def test_an_empty_corpus(kind: str, verb: str, refused: Refused, tmp_path: Path) -> None:
    documents, reason = EMPTY[kind]
    if kind == "no files" and verb.startswith("fit"):
        reason = "contains no files but a word list"  # fit takes any source
    path = tmp_path / "corpus"
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(words(6)) + "\n", encoding="utf-8")
    if documents is not None:
        write_lists(path / "part-0.parquet", *as_lists(np.array(documents, dtype=np.int64).reshape(-1, 6)))
    refused(verb, "{c}", reason, c=path, new=tmp_path / "out")


#: A command and what its message must contain; names in braces are paths of the fixture ``places``.
REFUSED: list[tuple[str, ...]] = [
    ("scan {headless} {new} SMALL", "{headless}/part-00002.parquet", "'counts'", "number"),
    ("infer {moments} {new} --topics 6", "{moments}", "up to 5 topics", "--max-topics 6"),
    ("scan {corpus} {moments} --max-topics 6 SCAN", "max_topics: stored 5, asked 6"),
    ("infer {rank2} {new} --topics 3", "2 positive eigenvalues", "--topics 2"),
    (
        "infer {unfinished} {new} --topics 3",
        "{unfinished}",
        "(still to do: counting words that occur together, ",
        "run the same scan",
    ),
    ("fit {corpus} {model} --topics 3,5 SCAN", "{model}", "not a folder of models of several K"),
    ("topics {model} --csv --json", "--csv", "--json"),
    ("topics {model} --words 0", "words is 0"),
    ("scan {corpus} {file}/m SMALL", "{file}"),
    ("scan {corpus} {new} SMALL --memory 100MiB", "MiB and --memory allows 100.00 MiB"),
    ("scan {corpus} {new} SMALL --scheduler tcp://127.0.0.1:1", "at tcp://127.0.0.1:1"),
    *(
        (f"scan {{corpus}} {{{kind}}} SMALL", f"{{{kind}}}", "moments store")
        for kind in ("file", "directory", "model")
    ),
    *(
        (f"fit {{corpus}} {{new}} --topics={topics} SCAN", f"--topics is {topics!r}", "5,10,20")
        for topics in ("", "0", "3,3", "2.5")
    ),
    *(
        (f"scan {{corpus}} {{new}} SMALL --{name.replace('_', '-')}={value}", f"{name} is {shown}")
        for name, value, shown in (
            ("memory", "1e400GB", "'1e400GB'"),
            ("scheduler", "tcp://", "'tcp://'"),
        )
    ),
    *(
        (f"infer {{moments}} {{new}} --topics 3 {option}", *named)
        for option, *named in (
            ("--tolerance=nan", "tolerance is nan"),
            ("--anchor-min-df=1e9", "1e+09 documents"),
            ("--workers=-2", "workers is -2"),
            ("--rectify=pca", "--rectify", "see --help"),
        )
    ),
    ("infer {moments} {moments} --topics 3,5", "{moments}", "not a folder of models of several K"),
    *(
        (command, "{later}", "format version 99", "reads 5", "newer release")
        for command in ("info {later}", "scan {corpus} {later} SMALL", "infer {later} {new} --topics 3")
    ),
    *((f"{verb} {{later_model}}", "{later_model}", "format version 99") for verb in ("topics", "info")),
]


@pytest.fixture(scope="module")
def places(
    corpus: Path,
    made_moments: Path,
    made_model: Path,
    counts: Counts,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """Paths that a user may give by mistake."""
    folder = tmp_path_factory.mktemp("places")
    found = {name: folder / name for name in ("new", "file", "directory")}
    found["file"].write_text("mine")
    found["directory"].mkdir()
    (found["directory"] / "mine.txt").write_text("mine")
    found["headless"] = write_corpus(folder / "headless", counts)
    shard = found["headless"] / "part-00002.parquet"
    pq.write_table(pq.read_table(shard).rename_columns(["ids", "number"]), shard)
    two = write_corpus(folder / "two", np.array([[1, 1, 0, 0], [0, 0, 1, 1]] * 10))
    found["rank2"] = folder / "rank2"
    assert run(["scan", str(two), str(found["rank2"]), *SMALL_SCAN]) == 0
    for name, source in (
        ("moments", made_moments), ("model", made_model), ("corpus", corpus), ("later", made_moments),
        ("later_model", made_model), ("unfinished", made_moments),
    ):  # fmt: skip
        found[name] = shutil.copytree(source, folder / name)
    shutil.rmtree(found["unfinished"] / "records" / "projection")
    found["corpus"] = corpus
    for name in ("later", "later_model"):
        root = found[name] / "zarr.json"
        value = json.loads(root.read_text(encoding="utf-8"))
        attributes = value["attributes"]
        attributes.get("manifest", attributes)["format_version"] = 99
        root.write_text(json.dumps(value), encoding="utf-8")
    return found


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_wrong_input_is_refused_in_one_line(
    case: tuple[str, ...], places: dict[str, Path], refused: Refused
) -> None:
    # A store that lacks a stage is not wrong input but damage.
    code = 3 if case[0].startswith("infer {unfinished}") else 2
    with dask.config.set({"distributed.comm.timeouts.connect": "300ms"}):
        refused(*case, code=code, folder=places["new"].parent, **places)


@pytest.mark.slow
def test_a_full_disk_ends_in_one_line_and_the_scan_resumes(counts: Counts, tmp_path: Path) -> None:
    wide = np.zeros((len(counts), 400), dtype=np.int64)
    wide[:, :N_WORDS] = counts
    path = write_corpus(tmp_path / "c", wide, row_group_rows=25)
    arguments = ("scan", path, tmp_path / "m", *SMALL_SCAN)
    # No file may be larger than 24 KiB; a basis is.
    limited = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (24576, 24576)); "
    limited += "os.execv(sys.argv[1], sys.argv[1:])"
    done = ended([sys.executable, "-c", limited, *process(*arguments)], PYTHONDONTWRITEBYTECODE="1")
    assert done.code == 2, done.err
    assert "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("error: ")
    assert f"{tmp_path}: File too large" in done.err
    assert require_unfinished(tmp_path / "m") == "sums"
    assert run([str(argument) for argument in arguments]) == 0


# --- damage: exit code 3, the part named


def test_a_parquet_file_truncated_while_it_is_scanned(
    counts: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_corpus(tmp_path / "c", counts, row_group_rows=25)
    whole, compute = {shard: shard.read_bytes() for shard in path.glob("*.parquet")}, SumsReduction.compute

    def compute_then_truncate(stage: SumsReduction, partition: Any) -> Any:
        partial = compute(stage, partition)
        for shard, data in whole.items():
            shard.write_bytes(data[: len(data) // 2])
        return partial

    arguments = ("scan", path, tmp_path / "m", *SMALL_SCAN)
    with monkeypatch.context() as patch:
        patch.setattr(SumsReduction, "compute", compute_then_truncate)
        outcomes.refused(command(*arguments), 3, str(path / "part-"), "sha256")
    assert info(tmp_path / "m")["sums_partitions_done"] > 0, "committed partitions are kept"
    for shard, data in whole.items():
        shard.write_bytes(data)
    assert command(*arguments).code == 0


# --- as processes


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["processes", "synchronous", "threads", "cluster"])
def test_a_bad_record_in_a_process(scheduler: str, counts: Counts, tmp_path: Path) -> None:
    path, reason = _bad_corpus(tmp_path, counts, "null list")
    before = listing(tmp_path)
    # One partition, so that no other commit is reported before the error.
    arguments = ("--max-topics", "5", "--scheduler", scheduler, "--workers", "2", "--quiet")
    done = ended(process("scan", path, tmp_path / "m", *arguments))
    outcomes.refused(done, 2, reason, "row group 1", "row 5")
    assert listing(tmp_path) == before


def test_packages_that_fail_at_exit_print_nothing() -> None:
    failing = (
        "import weakref; from streaming_jsmf.cli import interrupts as i; weakref.finalize(i._watch, int, 'x')"
    )
    assert ended([sys.executable, "-c", f"{failing}; i.end(0)"]) == outcomes.Outcome(0, "", "")


# The campaign of interrupts has other verbs and schedulers; test_observability interrupts a scan in the default run.
def require_unfinished(store: Path) -> str:
    """Return the first stage that is missing."""
    return read_store(store).missing_stages[0]


# --- a reader that closes the output, as head does


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True], ids=["output", "output and messages"])
def test_a_closed_output_ends_a_command_whose_result_is_complete(
    both: bool, corpus_path: Path, tmp_path: Path
) -> None:
    read, write = os.pipe()
    os.close(read)
    line = process("scan", corpus_path, tmp_path / "m", "--max-topics", 3, "--workers", 1)
    done = subprocess.run(
        line, stdout=write, stderr=write if both else subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert done.returncode == 141
    assert both or ("error" not in done.stderr and "Traceback" not in done.stderr)
    assert outcomes.described(tmp_path / "m")["complete"]


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_tables_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wider where words can be wrapped."""
    monkeypatch.setenv("COLUMNS", str(columns))
    texts = [
        ("metric", "value", "meaning"),
        ("a_name_of_a_metric", 0.5, "the meaning of it in " + "many words " * 9),
    ]
    drawn = display.table(texts, "<><").splitlines()
    assert max(map(len, drawn)) <= columns
    assert " ".join(" ".join(drawn).split()).count("many words") == 9
    reasons = [("", "documents"), ("- documents with the words of another, which were dropped", 12)]
    assert max(map(len, display.table(reasons, "<>").splitlines())) <= columns
    wide = [
        ("a_name_that_cannot_be_wrapped_at_all", "another_one", "and texts of several words"),
        ("b", "c", "d e f"),
    ]
    first, below, *_ = display.table(wide, "<<<").splitlines()
    assert (columns > 60) == first.endswith("several words") or below.startswith("    and texts")
    assert max(map(len, display.wrapped("word " * 40, "  head  "))) <= columns
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr("sys.__stdout__", None)
    assert len(display.table(texts, "<><").splitlines()) == 2, "a file gets whole rows"


def test_what_is_printed_fits_40_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    counts = planted(120, 40, 3, length=40, seed=1).counts
    corpus = sj.corpus_from_matrix(counts, words(40), tmp_path / "c")
    sj.fit(corpus, tmp_path / "m", 3, polish=False)
    for line in (("topics", tmp_path / "m", "--characteristic"), ("evaluate", tmp_path / "m", "--words", 8)):
        for shown in outcomes.invoked(*line).out.splitlines():
            assert len(shown) <= 40 or re.match(
                r"[\w ().,-]+  +-?\d|metric  |model: |missing: |words counted", shown
            ), shown
