"""README, docs, notebooks and site: every command and snippet is valid and runs, every name and link exists."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml

import streaming_jsmf
from streaming_jsmf.cli.main import run
from streaming_jsmf.corpus.format import read_manifest
from tests.corpora import as_lists, planted, words
from tests.doc_blocks import (
    FIRST_DAY,
    REAL_FILES,
    ROOT,
    Block,
    blocks,
    context,
    outputs_of,
    result_of,
    smaller,
)
from tests.doc_files import write_real_files

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_DAY_BLOCKS = [block for block in blocks() if block.name.startswith(FIRST_DAY)]
SHELL = [block for block in blocks() if block.kind == "sh" and block not in FIRST_DAY_BLOCKS]
RECIPES = [block for block in blocks() if block.name.startswith(REAL_FILES)]
RUN = [block for block in SHELL if block.not_run is None and block not in RECIPES]
SNIPPETS = [
    block
    for block in blocks()
    if block.kind == "python" and block.not_run is None and block not in (*RECIPES, *FIRST_DAY_BLOCKS)
]

YEARS = (1990, 1995, 2003)

#: Documents that the recipes keep of files of which they do not keep 120.
KEPT = {"mail/inbox.mbox": 60, "mail/*.eml": 60, "half_broken.csv": 40, "speeches/*.txt": 30 * 17}

#: Blocks that no test here runs, and why. Try one by hand before it is added.
NOT_RUN = [
    ("cli.md", "it changes the shell that it runs in; tests/test_help.py asks for completions"),
    ("cluster.md", "it needs other machines; tests/test_lab.py runs the same commands on separated hosts"),
    ("cluster.md", "it needs other machines; tests/test_lab.py runs the same commands on separated hosts"),
    ("cluster.md", "it needs Kubernetes"),
    ("cluster.md", "it needs SLURM"),
    ("cluster.md", "it needs accounts"),
    ("cluster.md", "it needs certificates; tests/test_cluster.py runs the same settings"),
    ("growing.md", "its folder is an example; tests/test_update.py runs the like"),
    ("ingest.md", "SOURCE stands for anything, and KOS is fetched"),
    ("object_stores.md", "it needs a bucket; tests/test_object_stores.py runs the like"),
    ("python.md", "tests/test_in_memory.py runs it where pyLDAvis is installed"),
    (
        "sources.md",
        "its module and files are examples; tests/test_sources_functions.py runs the like",
    ),
    (
        "sources.md",
        "it needs the package duckdb; tests/test_sources_functions.py runs the like where it is installed",
    ),
    ("sources.md", "it needs Spark"),
    ("sources.md", "it needs the package pypdf and files"),
    ("sources.md", "it needs the package warcio and files"),
    ("sources.md", "its address is an example"),
    ("topics_over_time.md", "its data have no public address"),
]

#: Each notebook and part of its output.
NOTEBOOKS = {
    "quick_start": "5,000 documents, 9,470 words",
    "weekly_tasks": "topics kept",
    "explore_model": "sum of A 1.0",
    "choose_k": "suggested: 8 topics",
    "topics_over_time": "1990..2022: 5% of it climate",
    "effects": "true +6.0 points",
    "documents_search": "half of the documents have a topic of",
    "dask_cluster": "of one thread",
    "two_engines": "stod has a mean L1 of 0.0",
    "sklearn_pipeline": "report of 10 topics",
    "data_frame": "5,000 rows; shares of the first sum to 1.000",
    "guided_topics": "apartheid",
    "dask_ml_classifier": "accuracy on passages held out: 0.",
}


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.name)
def test_every_command_is_valid(block: Block) -> None:
    for line in block.commands():
        with contextlib.suppress(click.exceptions.Exit):
            context(line)


def test_blocks_that_are_not_run_are_known() -> None:
    left_out = [block for block in blocks() if block.not_run is not None]
    assert [(block.name.rpartition("-")[0], block.not_run) for block in left_out] == NOT_RUN
    for block in RUN:
        assert [*block.commands()], f"{block.name} contains no command"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_functions_named_in_tables_exist(page: Path) -> None:
    """``package.function`` is a function or class of the package; keys of metrics are in first columns."""
    text = page.read_text(encoding="utf-8")
    for package, name in re.findall(
        r"(?<!\n\| )`(linalg|rectification|inference|evaluation|corpus)\.(\w+)`", text
    ):
        sources = (ROOT / "streaming_jsmf" / package).rglob("*.py")
        definition = re.compile(rf"^(def|class) {name}\b", re.M)
        assert any(definition.search(path.read_text(encoding="utf-8")) for path in sources), (
            f"{package}.{name}"
        )


def write_corpus(path: Path, seed: int) -> None:
    """Three shards over the same 60 words, each with ids, a year and parties."""
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
            "party": [("left", "right")[row % 2] for row in range(len(ids))],
        })  # fmt: skip
        pq.write_table(table, path / f"part-{number:05d}.parquet", row_group_size=20)


def write_sources(folder: Path) -> None:
    """The texts and ratings that the pages name."""
    generator = np.random.default_rng(0)
    syllables = ("mo", "sta", "ga", "ri", "pla", "nor", "de", "lu")
    spelled = np.array([a + b + c for a in syllables for b in syllables for c in ("n", "rd", "l")])
    spelled[[0, 10, 1, 11]] = "refund", "money", "wifi", "internet"
    # Ten subjects with words of their own, so that no word is too frequent.
    texts = [" ".join(generator.choice(spelled[number % 10 :: 10], 30)) for number in range(120)]
    (folder / "texts").mkdir()
    pq.write_table(pa.table({"text": texts}), folder / "texts" / "a.parquet")
    speeches = {
        "body": texts,
        "url": [f"u{i}" for i in range(120)],
        "year": [1990 + i % 3 for i in range(120)],
    }
    pq.write_table(pa.table(speeches), folder / "speeches.parquet")
    for name in ("texts.csv", "news.csv"):
        pyarrow.csv.write_csv(pa.table({"text": texts}), folder / name)
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
    for seed, name in enumerate(("CORPUS", "A", "B", "C", "D", "HELD_OUT", "DEBATES")):
        write_corpus(folder / name, max(seed, 1))
    shutil.copytree(ROOT / "data_specs", folder / "data_specs")
    small = "--max-topics 5 --partition-nonzeros 1500"
    lines = (
        "simulate DRAWN --documents 200 --vocabulary-size 60 --topics 3 --seed 0",
        f"scan A MOMENTS {small} --third-moment",
        f"scan CORPUS EXACT {small} --exact",
        f"scan A YEARS {small} --partition-by year",
        "fit CORPUS MODEL --topics 4 --steps 6",
        "infer EXACT MODELS --topics 3,4",
        "fit DRAWN DRAWN-MODEL --topics 3 --no-polish",
        "fit news.csv NEWS --topics 4 --steps 6",
        "transform MODEL CORPUS SHARES.parquet",
        "fit data_specs/un_general_debate_sample UN --topics 4 --steps 2",
        "transform UN UN.corpus UN.parquet",
    )
    with contextlib.chdir(folder):
        for line in lines:
            assert run(line.split()) == 0, line
    return folder


def remove(path: Path) -> None:
    """Remove a file or a directory, if it exists."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("block", RUN, ids=lambda block: block.name)
def test_every_command_runs(
    block: Block, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    for number, line in enumerate(block.commands()):
        line = smaller(line)
        if "--truth" in line:
            line[1:2], line[-1] = ["DRAWN-MODEL"], "DRAWN"
        if "data_specs/uci_kos.toml" in line:
            continue  # downloaded; tests/test_ingest_kos.py runs it where its files exist
        folder = Path(shutil.copytree(prepared, tmp_path / str(number)))
        with contextlib.chdir(folder), contextlib.redirect_stderr(io.StringIO()) as said:
            target = result_of(line)
            for left in (target, f"{target}.corpus", f"{target}.moments") if target else ():
                remove(Path(left))
            assert run(line) == 0, f"streaming-jsmf {' '.join(line)}: {said.getvalue()}"
            assert target is None or Path(target).exists()


@pytest.mark.slow
@pytest.mark.parametrize("block", SNIPPETS, ids=lambda block: block.name)
def test_every_snippet_runs(block: Block, prepared: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(prepared, tmp_path / "run"))
    for name in ("MODEL", "CORPUS"):
        (folder / name).rename(folder / name.lower())
    shutil.copytree(folder / "corpus", folder / "CORPUS")
    for name in ("MOMENTS", "MODEL.moments"):
        shutil.rmtree(folder / name)
    (folder / "SHARES.parquet").rename(folder / "old.parquet")
    texts = pd.read_csv(folder / "news.csv")["text"]
    rows = range(len(texts))
    named = {"url": [f"u{row}" for row in rows], "date": "2024-01-31", "author": "a"}
    # What an earlier block of the page has defined.
    names = {
        "matrix": planted(200, 40, 3, length=40, seed=0).counts,
        "sj": streaming_jsmf,
        "table": pd.DataFrame({"body": texts, **named}),
        "texts": [*texts],
    }
    # The texts have ten subjects.
    number = "10" if "anchor_words" in block.text else "3"
    text = re.sub(r"(?<=n_topics=)20|(?<=, )20(?=,)", number, block.text).replace(
        "max_topics=100", "max_topics=5"
    )
    with contextlib.chdir(folder):
        names["model"] = streaming_jsmf.TopicModel("model")
        exec(compile(text, block.name, "exec"), names)


@pytest.mark.slow
def test_the_first_day_runs_as_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All blocks in their order, what they show, and what is known of the simulated reviews."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    names: dict[str, Any] = {}
    with caplog.at_level("INFO"):
        for block in FIRST_DAY_BLOCKS:
            if block.kind == "python":
                exec(compile(block.text, block.name, "exec"), names)
            else:
                subprocess.run(["bash", "-euc", block.text], check=True)
    printed = [" ".join(line.split()) for line in (*capfd.readouterr().out.splitlines(), *caplog.messages)]
    assert [line for line in outputs_of(FIRST_DAY) if line not in printed] == []
    for name in (
        "1_topics.png",
        "2_months.png",
        "3_together.png",
        "4_stars.png",
        "topics.html",
        "effects.csv",
    ):
        assert (tmp_path / "day" / name).stat().st_size > 1000
    model = names["model"]
    assert sorted(model.topics()["label"]) == sorted(names["names"].values())
    found = names["effects"].set_index(["label", "term"])
    assert found.loc[("delivery", "stars"), "upper"] < -0.01
    assert found.loc[("kitchen", "stars"), "lower"] > 0.01
    assert found.loc[("batteries", "company[T.Birch]"), "lower"] > 0.02
    assert found.loc[("assembly", "company[T.Dogwood]"), "lower"] > 0.02
    months = model.over_time("date:month", topic=names["presents"]).set_index("month of date")
    assert months["share"].idxmax() == "2024-12"
    assert months.loc["2025-01", "share"] < months.loc["2024-12", "low"]
    assert model.corpus.n_documents == 20_400


@pytest.fixture(scope="module")
def real_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    write_real_files(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.name)
def test_every_recipe_keeps_the_documents_of_its_file(
    block: Block, real_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(real_files)
    monkeypatch.syspath_prepend(real_files)
    if block.kind == "python":
        exec(compile(block.text, block.name, "exec"), {})
    for line in block.commands() if block.kind == "sh" else ():
        with contextlib.redirect_stderr(io.StringIO()) as said:
            assert run([*line, "--overwrite"]) == 0, f"streaming-jsmf {' '.join(line)}: {said.getvalue()}"
        kept = read_manifest("CORPUS").totals.documents
        assert kept == KEPT.get(line[1], 120), f"streaming-jsmf {' '.join(line)}: {said.getvalue()}"


def readme_command(name: str) -> str:
    """A command that ``.ci/run`` takes from the README; there is exactly one of each name."""
    [command] = re.findall(rf"<!-- command: {name} -->\n```sh\n(.+)\n```", README)
    return str(command)


def test_ci_finds_the_command_of_the_tests() -> None:
    assert readme_command("tests").startswith("python3 -m venv .venv && ")


@pytest.mark.slow
def test_the_readme_shows_the_output_of_its_first_command(tmp_path: Path) -> None:
    command = readme_command("topics")
    assert command.startswith("python3 -m venv .venv && ")
    _, corpus, model, *options = command.partition("streaming-jsmf ")[2].split()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert run(["fit", str(ROOT / corpus), str(tmp_path / model), *options]) == 0
    [sample] = re.findall(r"<!-- output: topics -->\n```text\n(.*?)```", README, re.DOTALL)
    printed = [*said.getvalue().splitlines(), "..."]
    assert [line for line in sample.splitlines() if line not in printed] == []


def test_every_page_is_in_the_contents() -> None:
    listed = set((ROOT / "docs" / "index.md").read_text().split())
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"} <= listed


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == streaming_jsmf.__version__
    assert {reference["year"] for reference in citation["references"]} == {2014, 2015, 2021}


def test_every_notebook_is_in_the_gallery() -> None:
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == NOTEBOOKS.keys()
    gallery = (ROOT / "docs" / "notebooks" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## \[.+\]\((\w+)\.ipynb\)$", gallery, re.M)) == NOTEBOOKS.keys()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_stored_with_their_outputs(name: str) -> None:
    """``python docs/store_notebooks.py NAME`` stores them."""
    text = (ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"execute_result", "display_data", "stream"}
    shown = ["".join(output.get("text") or output["data"]["text/plain"]) for output in outputs]
    assert NOTEBOOKS[name] in "\n".join(shown)
    assert len(text) < 1_000_000
    assert "/tmp/" not in text
    assert "widget-view" not in text, "bars"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """All notebooks run, and no link is broken."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(ROOT / "docs"), str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    for verb in ("fit", "scan", "infer", "transform"):
        assert f'id="streaming-jsmf-{verb}"' in (tmp_path / "commands" / f"{verb}.html").read_text()
    assert "streaming_jsmf.scan" in (tmp_path / "api.html").read_text()
    for name, output in NOTEBOOKS.items():
        assert output in (tmp_path / "notebooks" / f"{name}.html").read_text(), name
