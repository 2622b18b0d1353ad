"""Every command and snippet of README and docs is run, as it stands in the text; see ``doc_blocks``."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from streaming_jsmf.cli.main import cli, run
from tests.corpora import as_lists, planted, words
from tests.doc_blocks import ROOT, Block, blocks, made_small, result_of

SHELL = [block for block in blocks() if block.kind == "sh"]
RUN = [block for block in SHELL if block.not_run is None and [*block.commands()]]

#: The snippets of the README are run by ``test_quality``.
SNIPPETS = [
    block
    for block in blocks()
    if block.kind == "python" and block.not_run is None and block.page != "README.md"
]

YEARS = (1990, 1995, 2003)


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.name)
def test_every_command_is_one_of_the_program(block: Block) -> None:
    for line in block.commands():
        verb, *arguments = [word.strip("[]") for word in line if word != "..."]
        with contextlib.suppress(click.exceptions.Exit):
            cli.commands[verb].make_context(verb, arguments)


def test_what_is_not_run_says_why() -> None:
    for block in blocks():
        assert block.not_run is None or len(block.not_run.split()) >= 3, block.name
        if block.kind == "sh" and block.not_run is None:
            assert [*block.commands()], f"{block.name} has nothing to run and does not say so"


def write_corpus(path: Path, seed: int) -> Path:
    """A corpus of the same 60 words in three shards, of a year each, with ids."""
    path.mkdir()
    counts = planted(240, 60, 4, length=60, seed=seed).counts
    (path / "vocab.txt").write_text("\n".join(["gene", "neuron", *words(60)[2:]]) + "\n", encoding="utf-8")
    for number, rows in enumerate(np.array_split(counts, 3)):
        ids, numbers = as_lists(rows)
        table = pa.table({
            "ids": pa.array(ids, pa.list_(pa.int32())),
            "counts": pa.array(numbers, pa.list_(pa.int32())),
            "document_id": [f"d{80 * number + row}" for row in range(len(ids))],
            "year": pa.array([YEARS[number]] * len(ids), pa.int64()),
        })  # fmt: skip
        pq.write_table(table, path / f"part-{number:05d}.parquet", row_group_size=20)
    return path


def write_sources(folder: Path) -> None:
    """Texts and ratings as the lines of the README name them."""
    generator = np.random.default_rng(0)
    syllables = ("mo", "sta", "ga", "ri", "pla", "nor", "de", "lu")
    spelled = np.array([a + b + c for a in syllables for b in syllables for c in ("n", "rd", "l")])
    # Ten subjects with words of their own: no word is in most of the texts.
    texts = [" ".join(generator.choice(spelled[number % 10 :: 10], 30)) for number in range(120)]
    (folder / "texts").mkdir()
    pq.write_table(pa.table({"text": texts}), folder / "texts" / "a.parquet")
    speeches = pa.table(
        {"body": texts, "url": [f"u{i}" for i in range(120)], "year": [1990 + i % 3 for i in range(120)]}
    )
    pq.write_table(speeches, folder / "speeches.parquet")
    pyarrow.csv.write_csv(pa.table({"text": texts}), folder / "texts.csv")
    pyarrow.csv.write_csv(pa.table({"text": texts}), folder / "news.csv")
    (folder / "german.txt").write_text("monra\n", encoding="utf-8")
    users, items = generator.integers(0, 60, 2000), generator.integers(0, 40, 2000)
    ratings = pa.table({
        "userId": users, "movieId": items, "rating": generator.integers(1, 6, 2000), "timestamp": np.arange(2000),
    })  # fmt: skip
    pyarrow.csv.write_csv(ratings, folder / "ratings.csv")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the commands name."""
    folder = tmp_path_factory.mktemp("docs")
    write_sources(folder)
    for name, seed in (
        ("CORPUS", 1),
        ("A", 1),
        ("B", 2),
        ("C", 3),
        ("D", 4),
        ("HELD_OUT", 5),
        ("DEBATES", 6),
    ):
        write_corpus(folder / name, seed)
    shutil.copytree(ROOT / "data_specs", folder / "data_specs")
    small = ["--max-topics", "5", "--partition-nonzeros", "1500"]
    lines = [
        [
            "simulate",
            "DRAWN",
            "--documents",
            "200",
            "--vocabulary-size",
            "60",
            "--topics",
            "3",
            "--seed",
            "0",
        ],
        ["scan", "A", "ALONE", *small, "--keep-partitions"],
        ["scan", "A", "MOMENTS", *small, "--third-moment", "--keep-partitions"],
        ["scan", "A", "MOMENTS", "--add", "B"],
        ["scan", "D", "MOMENTS2", *small],
        ["scan", "CORPUS", "EXACT", *small, "--exact"],
        ["scan", "A", "YEARS", *small, "--partition-by", "year", "--keep-partitions"],
        ["fit", "CORPUS", "MODEL", "--topics", "4", "--steps", "6"],
        ["infer", "EXACT", "MODELS", "--topics", "3,4"],
        ["fit", "DRAWN", "DRAWN-MODEL", "--topics", "3", "--no-polish"],
        ["transform", "MODEL", "CORPUS", "SHARES.parquet"],
    ]
    with contextlib.chdir(folder):
        for line in lines:
            assert run(line) == 0, line
    return folder


def copied(prepared: Path, folder: Path) -> Path:
    return Path(shutil.copytree(prepared, folder / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("block", RUN, ids=lambda block: block.name)
def test_every_command_does_what_it_says(block: Block, prepared: Path, tmp_path: Path) -> None:
    for number, line in enumerate(block.commands()):
        (tmp_path / str(number)).mkdir()
        folder = copied(prepared, tmp_path / str(number))
        words = made_small(line)
        if "--truth" in words:
            words[1:2], words[-1] = ["DRAWN-MODEL"], "DRAWN"
        if "data_specs/uci_kos.toml" in words:
            continue  # it is fetched; tests/test_ingest_kos.py runs it where its files are
        target = result_of(words)
        with contextlib.chdir(folder):
            for left in (target, f"{target}.corpus", f"{target}.moments") if target else ():
                shutil.rmtree(left, ignore_errors=True)
                if Path(left).is_file():
                    Path(left).unlink()
            if "--remove" in words:
                # The store knows it by the path at which it was added.
                words[-1] = str(prepared / words[-1])
            if "--add" in words:
                # Removing needs a store with B, and adding one without.
                shutil.rmtree("MOMENTS")
                Path("ALONE").rename("MOMENTS")
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                assert run(words) == 0, f"streaming-jsmf {' '.join(words)}: {said.getvalue()}"
            assert target is None or Path(target).exists()


@pytest.mark.slow
@pytest.mark.parametrize("block", SNIPPETS, ids=lambda block: block.name)
def test_every_snippet_of_the_docs_runs(block: Block, prepared: Path, tmp_path: Path) -> None:
    folder = copied(prepared, tmp_path)
    for name in ("MODEL", "CORPUS"):
        (folder / name).rename(folder / name.lower())
    (folder / "SHARES.parquet").rename(folder / "old.parquet")
    matrix = planted(200, 40, 3, length=40, seed=0).counts
    with contextlib.chdir(folder):
        exec(compile(block.text.replace("n_topics=20", "n_topics=3"), block.name, "exec"), {"matrix": matrix})


@pytest.mark.slow
def test_the_first_lines_of_the_readme_are_what_the_command_prints(tmp_path: Path) -> None:
    """The sample is of the model that ships with the project, cut to some topics."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [sample] = re.findall(r"<!-- output: topics -->\n```text\n(.*?)```", readme, re.DOTALL)
    [line] = re.findall(
        r"streaming-jsmf (fit .*)", re.findall(r"<!-- command: topics -->\n```sh\n(.+)\n```", readme)[0]
    )
    _, corpus, model, *options = line.split()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert run(["fit", str(ROOT / corpus), str(tmp_path / model), *options]) == 0
    printed = said.getvalue().splitlines()
    for told in sample.rstrip().splitlines():
        assert told in printed or told.strip() == "...", told
