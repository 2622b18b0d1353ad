"""What a paper needs: how a model was made in a paragraph with BibTeX, and tables that R opens as they are."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from random import Random

import pytest

import streaming_jsmf as sj
from streaming_jsmf.interface.methods import papers
from tests.outcomes import invoked, printed, refused
from tests.r_tables import require_r_reads
from tests.test_own_texts import SUBJECTS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of texts with odd metadata, and its shares."""
    folder, random = tmp_path_factory.mktemp("methods"), Random(3)
    rows = ["id,body,party,date"]
    for number in range(120):
        words = random.choices([*SUBJECTS.values()][number % 4].split(), k=30)
        party = ("", "left", 'the "new" right, of \'99')[number % 3].replace('"', '""')
        rows.append(f'd{number},{" ".join(words)},"{party}",20{10 + number % 7}-0{1 + number % 9}-05')
    (folder / "t.csv").write_text("\n".join([*rows, "d120,the and of,left,2011-01-05", ""]), encoding="utf-8")
    options = {"min_df": 1, "max_df": 1.0, "stop_words": "english", "workers": 1, "steps": 4}
    sj.fit(folder / "t.csv", folder / "model", 4, **options)
    sj.transform(folder / "model", folder / "t.csv", folder / "shares.parquet")
    return folder


@pytest.fixture
def model(fitted: Path, tmp_path: Path) -> Path:
    for name in ("model", "model.corpus", "model.moments"):
        shutil.copytree(fitted / name, tmp_path / name)
    return tmp_path / "model"


def entries(text: str) -> list[str]:
    return re.findall(r"^@\w+\{(\w+),$", text, re.MULTILINE)


ALWAYS = ["streaming_jsmf", "lee2021rectification", "lee2015robust"]
POLISHED = [*ALWAYS, "asuncion2009smoothing"]


def test_the_methods_are_those_of_the_model(model: Path) -> None:
    found = sj.TopicModel(model).label(2, "sea").methods()
    paragraph, _ = found.split("\n\n", 1)
    made = sj.TopicModel(model)
    polished = made.metrics["polish"]
    for part in (
        "The corpus has 120 documents with 3,600 tokens of",
        "121 documents with 3,603 tokens were read; left out were",
        "3 words (3 tokens) in the list of 533 stop words, 1 document without kept words",
        "summarized from all documents (each document weighs its length in tokens, but at most 200; for up to 4 topics",
        "The relative error of this summary is estimated to be at most about",
        "4 topics were inferred by LR-JSMF (Lee et al. 2021)",
        f"(ENN) in {made.metrics['rectification']['iterations']} steps",
        "refined in 4 passes over the documents",
        f"{polished['perplexity'][-1]['perplexity']:,.0f}, and"
        if polished["perplexity"]
        else "Asuncion et al. 2009",
        "seed 0",
        "Of the 4 topics, 1 were named by hand.",
        f"with streaming-jsmf {sj.__version__} (python ",
    ):
        assert part in paragraph, paragraph
    assert "{" not in paragraph
    assert entries(found)[:4] == POLISHED
    assert f"note = {{Version {sj.__version__}}}" in found
    shown = printed("info", model, "--methods")
    assert re.sub(r"\s+", " ", shown) == re.sub(r"\s+", " ", f"{found}\n")
    assert max(map(len, shown.split("\n\n")[0].splitlines())) <= 80


def test_fewer_documents_are_held_out_for_a_reason(model: Path) -> None:
    note = "(a fiftieth of all at most; 1,000 were asked for)"
    assert f"documents held out of polish {note}" in re.sub(r"\s+", " ", printed("info", model))
    assert f"documents that were held out {note}" in sj.TopicModel(model).methods()
    assert sj.PolishSettings(held_out=5).held_out_note(10_000) == "each document by chance, 5 on average"


def test_only_what_was_used_is_cited(model: Path, fitted: Path, tmp_path: Path) -> None:
    made = sj.TopicModel(model)
    assert "semantic coherence" not in made.methods()
    sj.evaluate(model, model.with_name("model.corpus"))
    counted = made.methods()
    assert {"mimno2011optimizing", "lau2014machine"} <= {*entries(counted)}
    assert "semantic coherence (Mimno et al. 2011)" in counted
    options = {"polish": False, "workers": 1, "range_finder": "halko"}
    plain = sj.fit(model.with_name("model.corpus"), tmp_path / "plain", 3, **options)
    assert entries(plain.methods()) == [*ALWAYS, "halko2011finding"]
    assert "121 documents with 3,603 tokens were read" in plain.methods()
    assert "refined" not in plain.methods()
    shutil.rmtree(model.with_name("model.corpus"))
    assert "were read" not in plain.methods(), "its moments store and corpus are deleted"
    tensor = sj.fit(fitted / "model.corpus", tmp_path / "tensor", 3, engine="stod", workers=1).methods()
    assert entries(tensor) == ["streaming_jsmf", "wang2014scalable"]
    assert (
        "from these and the third moments of the documents, 3 topics were inferred by stod" in tensor.lower()
    )


def test_methods_of_something_else_are_refused(fitted: Path) -> None:
    refused(invoked("info", fitted / "model.corpus", "--methods"), 2, "is a corpus, not a model")
    refused(invoked("info", fitted / "model", "--methods", "--json"), 2, "--methods exclude each other")


def test_the_citation_file_has_the_papers_of_the_engines() -> None:
    titles = re.findall(r'title: "(.*)"', (ROOT / "CITATION.cff").read_text(encoding="utf-8"))[1:]
    known = [re.sub("[{}]", "", entry.split("title = {")[1].split("},\n")[0]) for entry in papers().values()]
    assert {*titles} <= {*known}
    assert "(CITATION.cff)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "types"),
    [
        ("topics {m} --csv", {"topic": "integer", "share": "numeric", "label": "character", "frex": "character"}),
        ("over-time {m} {s} --by date:month --csv", {"month_of_date": "character", "standard_error": "numeric"}),
        ("documents {m} {s} --by party --csv", {"party": "character", "share": "numeric"}),
        ("documents {m} {s} --topic 1 --csv", {"document_id": "character", "share": "numeric"}),
        ("documents {m} {s} --csv", {"topic": "integer", "share": "numeric"}),
    ],
)  # fmt: skip
def test_answers_in_csv_open_in_r(line: str, types: dict[str, str], fitted: Path, tmp_path: Path) -> None:
    """Effects are tables of the same kind: ``tests.r_tables.require_r_reads`` is for them, too."""
    arguments = line.format(m=fitted / "model", s=fitted / "shares.parquet").split()
    require_r_reads(printed(*arguments), tmp_path, **types)


def test_shares_in_csv_open_in_r(fitted: Path, tmp_path: Path) -> None:
    sj.transform(fitted / "model", fitted / "t.csv", tmp_path / "s.csv")
    found = require_r_reads(
        (tmp_path / "s.csv").read_text(encoding="utf-8"), tmp_path, document_id="character", party="character"
    )
    topics = [name for name in found if name.startswith("topic_")]
    assert len(topics) == 4
    assert {found[name][0] for name in topics} == {"numeric"}
