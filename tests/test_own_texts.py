"""A user's own files in one command: what is guessed, what the defaults for texts keep, what is told."""

from __future__ import annotations

import base64
import binascii
import json
import random
import re
import shutil
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import streaming_jsmf as sj
from streaming_jsmf import InputError, evaluate, fit, report, transform
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.ingestion.tokens import boilerplate, signs
from streaming_jsmf.ingestion.tokens import tokenizer as tokenizer_module
from streaming_jsmf.ingestion.tokens.boilerplate import without_boilerplate
from streaming_jsmf.ingestion.tokens.tokenizer import BUILT_IN
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.topics.store import Model, read_model
from tests.damage import SOME
from tests.outcomes import Command
from tests.sources import tokenizing

SUBJECTS = {
    "space": "rocket orbit launch moon shuttle telescope planet gravity satellite mission",
    "kitchen": "oven flour butter sugar recipe spoon bake dough salt pepper",
    "garden": "soil seed flower tree water root leaf spade weed compost",
    "sea": "ship sail wave harbour anchor storm fish tide sailor coast",
    "court": "judge trial verdict lawyer witness appeal statute plea bail defendant",
    "music": "guitar piano violin chord melody concert drum singer rhythm opera",
}
HERE = Execution("synchronous")
#: Grammar, numbers and what a mailer adds, in every document.
DEBRIS = "the and of it 1993 55 0 q7 zq"


def write_documents(n: int = 240, seed: int = 0) -> list[str]:
    """Documents of one subject each, so that a word is in about a sixth of them, with debris."""
    draw = random.Random(seed)
    documents = []
    for i in range(n):
        words = draw.choices(SUBJECTS[draw.choice(list(SUBJECTS))].split(), k=32)
        words += [*DEBRIS.split(), f"only{i}", "ubiquitous"]
        draw.shuffle(words)
        documents.append(f"number {i % 7} " + " ".join(words) + ".")
    return documents


@pytest.fixture(scope="module")
def documents() -> list[str]:
    return write_documents()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> Path:
    """One file a document, as exported from a mailer: no suffix, subfolders."""
    root = tmp_path_factory.mktemp("own") / "posts"
    for number, text in enumerate(documents):
        place = root / ("a" if number % 2 else "b") / str(number)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return root


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    """``fit FOLDER MODEL`` and nothing else."""
    path = folder.parent / "model"
    fit(folder, path, [6], execution=HERE, workers=1)
    return path


def opened(path: Path) -> Model:
    return read_model(store_path(path), ("word", "word_topic"))


def words_of(path: Path) -> set[str]:
    return set(open_corpus(path).vocabulary().words)


def top_words(path: Path, n: int = 6) -> list[set[str]]:
    arrays = opened(path).arrays
    order = np.argsort(-arrays["word_topic"], axis=0)[:n].T
    return [{str(arrays["word"][i]) for i in row} for row in order.tolist()]


def test_a_folder_of_files_gives_its_subjects_in_one_call(model: Path) -> None:
    found = top_words(model)
    for subject in SUBJECTS.values():
        assert any(words <= set(subject.split()) for words in found), found
    kept = words_of(model.with_name("model.corpus"))
    assert kept == {word for subject in SUBJECTS.values() for word in subject.split()}


def test_the_corpus_is_kept_and_used_again(
    model: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beside = model.with_name("model.corpus")
    before = {path: path.stat().st_mtime_ns for path in beside.rglob("*")}
    with caplog.at_level("INFO"):
        fit(folder, model, [6], execution=HERE, overwrite=True)
    assert "model.corpus: complete and intact, made by an earlier run" in caplog.text
    assert {path: path.stat().st_mtime_ns for path in beside.rglob("*")} == before


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A folder of 90 files."""
    root = tmp_path / "docs"
    root.mkdir()
    for number, text in enumerate(write_documents(90)):
        (root / f"{number}.txt").write_text(text)
    return root


def test_a_damaged_corpus_is_made_again_and_nothing_else(
    few: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fit_again() -> None:
        fit(few, tmp_path / "m", [2, 3], polish=False, execution=HERE)

    fit_again()
    made = {path: path.read_bytes() for path in (tmp_path / "m.corpus").rglob("*") if path.is_file()}
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "m.moments").rglob("*")}
    shard = tmp_path / "m.corpus" / "documents" / "part-00000.parquet"
    for damage in SOME:
        damage(shard)
        fit_again()
        assert f"{shard} " in caplog.text
        assert f"; {tmp_path / 'm.corpus'} is made again" in caplog.text
        assert {path: path.read_bytes() for path in made} == made
        caplog.clear()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "m.moments").rglob("*")} == kept
    # What somebody has put there is not deleted with it.
    damage(shard)
    shutil.copy(tmp_path / "m.corpus" / "vocabulary.parquet", shard.with_name("mine.parquet"))
    with pytest.raises(InputError, match=r"mine\.parquet .*manifest\.json"):
        fit_again()


def test_a_corpus_of_other_files_or_options_is_not_used(few: Path, tmp_path: Path) -> None:
    target = tmp_path / "m"
    fit(few, target, [3], polish=False, execution=HERE)
    other = IngestRequest(curation={"max_document_frequency": 0.4})
    shutil.rmtree(target)
    with pytest.raises(InputError, match=r"m\.corpus: exists already, and was made of other input"):
        fit(few, target, [2], ingest_request=other, moments=tmp_path / "n", overwrite=False)
    (few / "more.txt").write_text("one more document")
    fit(few, target, [3], polish=False, execution=HERE, overwrite=True)
    assert read_manifest(tmp_path / "m.corpus").settings["documents_read"] == 91
    for missing in ("none", "none.toml"):  # nothing is replaced
        with pytest.raises(InputError, match="no such file or directory"):
            fit(tmp_path / missing, target, [3], overwrite=True)
        assert (tmp_path / "m.moments").exists()
    with pytest.raises(InputError, match=r"m\.corpus is already a corpus"):
        fit(tmp_path / "m.corpus", tmp_path / "o", [3], ingest_request=other)


@pytest.mark.parametrize("kind", ["list", "rows", "frame", ".jsonl", ".csv", ".parquet"])
def test_missing_texts_are_dropped_and_counted(kind: str, documents: list[str], tmp_path: Path) -> None:
    texts = [None, *documents, float("nan"), ""]
    missing = [None if text != text or not text else text for text in texts]
    path = tmp_path / f"t{kind}"
    if kind == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in missing) + '{"other": 1}\n')
    elif kind == ".csv":
        pd.DataFrame({"text": missing, "n": range(len(missing))}).to_csv(path, index=False)
    elif kind == ".parquet":
        pq.write_table(pa.table({"text": missing}), path)
    source = {
        "list": texts,
        "rows": [{"text": text, "n": 1} for text in texts],
        "frame": pd.DataFrame({"text": texts}),
    }.get(kind, path)
    corpus = ingest(source, tmp_path / "c")
    assert corpus.n_documents == len(documents)
    steps = {step.step: step.documents for step in read_manifest(tmp_path / "c").dropped}
    assert steps["min_distinct_words"] == len(texts) - len(documents) + (kind == ".jsonl")


def test_a_table_of_losses_is_printed_unless_quiet(
    invoke: Command, tmp_path: Path, documents: list[str]
) -> None:
    texts = tmp_path / "t.parquet"
    ids = [f"d{number}" for number in range(len(documents) + 1)]
    pq.write_table(pa.table({"id": [*ids, None], "text": [*documents, documents[0], "text"]}), texts)
    arguments = ("ingest", str(texts), str(tmp_path / "c"), "--id", "id", "--on-bad-record", "quarantine")
    told = [line for line in invoke(*arguments).err.splitlines() if line.startswith(("- ", "kept", "read "))]
    rows = {label: numbers for label, *numbers in (re.split(" {2,}", line.strip()) for line in told)}
    # The minimum document frequency is 2, because at 5 there are fewer than 200 words.
    assert (rows["read"][0], rows["kept"][:2]) == ("242", ["240", "61"])
    assert rows["- in fewer than 2 documents"][0] == "239"
    assert rows["- in quarantine.parquet"] == ["1"]
    assert rows["- without a letter"][0] == "9"
    assert rows["- documents with the words of another"][0] == "1"
    quiet = invoke(*arguments, "--quiet", "--overwrite")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out.startswith("corpus: ")
    kept = invoke("ingest", str(texts), str(texts), "--overwrite")
    assert kept.code == 2
    assert texts.exists()


def test_the_papers_settings_keep_every_word(tmp_path: Path, folder: Path) -> None:
    ingest(folder, tmp_path / "c", IngestRequest(preset="papers"))
    assert {"1993", "55", "zq", "only3", "ubiquitous"} <= words_of(tmp_path / "c")
    ingest(folder, tmp_path / "d", IngestRequest(curation={"numbers": "keep", "max_document_frequency": 300}))
    assert {"1993", "ubiquitous"} <= words_of(tmp_path / "d")
    assert "zq" not in words_of(tmp_path / "d")


def test_short_words_stay_where_words_are_short(tmp_path: Path) -> None:
    texts = ["宇宙 火箭 空 ab abc 우주 로켓 ロケ"] * 4 + ["x"]
    pq.write_table(pa.table({"text": texts}), tmp_path / "t.parquet")
    loose = {"duplicates": "keep", "max_document_frequency": 5, "min_distinct_words": 0, "min_tokens": 0}
    ingest(tmp_path / "t.parquet", tmp_path / "c", IngestRequest(curation=loose))
    assert words_of(tmp_path / "c") == {"宇宙", "火箭", "abc", "우주", "로켓", "ロケ"}
    ingest(tmp_path / "t.parquet", tmp_path / "d", IngestRequest(curation={**loose, "min_word_length": 3}))
    assert words_of(tmp_path / "d") == {"abc"}


@pytest.mark.parametrize(
    ("numbers", "least"), [((250, 250), 5), ((150, 250), 2), ((200, 0), 5), ((199, 0), 2)]
)
def test_the_minimum_of_documents_is_lowered_where_few_words_are_left(
    numbers: tuple[int, int], least: int, tmp_path: Path
) -> None:
    often, rarely = numbers
    texts = [""] * 100
    for name, number, frequency in (("often", often, 5), ("rarely", rarely, 2)):
        for i, extra in product(range(number), range(frequency)):
            texts[(i + extra) % 100] += f" {name}{i}"
    ingest(
        texts, tmp_path / "c", IngestRequest(curation={"max_document_frequency": 100, "stop_words": "none"})
    )
    assert len(words_of(tmp_path / "c")) == often + (rarely if least == 2 else 0)


def test_texts_are_kept_unless_no_word_remains_and_losses_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [f"apple pear{'s' * (i % 2)}" for i in range(90)] + ["the and", *map(str, range(9))]
    chosen = {"stop_words": "english", "max_document_frequency": 100, "duplicates": "keep"}
    assert ingest(texts, tmp_path / "c", IngestRequest(curation=chosen)).n_documents == 90
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("10 of 100 documents are dropped: 10 "), "not yet a share, as above a tenth"
    caplog.clear()
    assert ingest([*texts, "of"], tmp_path / "d", IngestRequest(curation=chosen)).n_documents == 90
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "11% of the documents" in warning
    assert "11 without kept words" in warning


MAIL = """Path: news.example.org!not-for-mail
From: jd@example.org (John Doe)
Newsgroups: sci.space
Subject: Re: the launch
Article-I.D.: news.1993Apr1
X-Newsreader: TIN
  [version 1.1]
Lines: 9

In article <1993Apr1@example.org> ann@example.org (Ann) writes:
> quoted question
JD> older question
The rocket > the shuttle. See http://example.org/rocket.html or mail jd@example.org now.
--
John Doe, Institute of Signatures
"""


def cleaned(texts: list[str]) -> list[str]:
    found: list[str] = without_boilerplate(pa.array(texts))[0].to_pylist()
    return found


def test_boilerplate_goes_and_the_text_stays() -> None:
    body = cleaned([MAIL])[0]
    assert " ".join(body.split()) == "Re: the launch The rocket > the shuttle. See or mail now."
    kept = [
        "Note: this is no mail.\n\nIt has one field.",
        "a < b and c > d",
        "-- a dash at the start",
        "1 > 0\n\n--\n" + "not a signature\n" * 40,
        "",
    ]
    assert cleaned(kept) == kept
    page = "<p class='x'>Fish &amp; chips<br/>caf&eacute;</p><script>var x = 1 < 2;</script><!-- no -->"
    assert cleaned([page])[0].split() == ["Fish", "&", "chips", "café"]
    feed = "&lt;p class='x'&gt;Fish &amp;amp; chips&lt;/p&gt;"
    shown = "<p>close &lt;div&gt; with &lt;/div&gt;</p>"
    assert [text.split() for text in cleaned([feed, shown])] == [
        ["Fish", "&", "chips"],
        ["close", "<div>", "with", "</div>"],
    ]


MANY = "words " * 300
NO_MAIL = [
    "if p<q then every harbor and vessel of the captain sails until r>s and the tide turns",
    "a <b and c> of i <s with u> d",
    "i <3 harbors, x <y or z>, <user> and <a b c>",
    "TX>CA because the harbor is better",
    "Bob> the vessel left\nAnn> the harbor too",
    ":> happy about the harbor",
    'Speaking of the cargo, the captain said:\n"We sail."',
    "First the harbor.\n--\nThen the vessel with its cargo.",
    ">all the lines\n>are quoted",
    "FW: cargo\n\nFrom: Ann\nSent: Monday\nTo: Bob\nSubject: cargo\n\nThe harbor",
    "It went\nFrom: the harbor\nTo: the sea\nOn Monday at 10:30 the captain wrote:\nwe sail",
]


@pytest.mark.parametrize("text", NO_MAIL)
def test_texts_that_are_neither_mail_nor_html_stay(text: str) -> None:
    assert without_boilerplate(pa.array([text, "z"])) == (pa.array([text, "z"]), (0, 0))


@pytest.mark.parametrize(
    ("text", "left", "lost"),
    [
        ("so it is\n> a b\n> c d\nyes", "so it is yes", 4),
        ("Ann wrote:\n\n> a b\nyes\n-- \nAnn, Harbor", "yes", 6),
        ("In article <1@x.org> Ann says\nyes", "yes", 7),
        (f"From: a@b.c\nTo: d@e.f\nSubject: ships\n\nA> old\nyes\n--\n{MANY}", f"ships yes -- {MANY}", 11),
        ("yes\n\n----- Original Message -----\nFrom: A\nSent: 1\nTo: B;\n C\nSubject: s\n\nold", "yes", 12),
        ("ja\nVon: A\nGesendet: 1\nAn: B\nBetreff: s\n\nalt", "ja", 9),
        ("oui\nDe : A\nEnvoy\xe9 : 1\n\xc0 : B\nObjet : s\n\nold", "oui", 9),
        ("yes\nOn Mon, 3 Jan 2020 at 10:15 Ann\n<a@b.c> wrote:\n\nold", "yes", 14),
        ("ja\nAm 3.1.2020 um 10:15 schrieb Ann <a@b.c>:\n> alt\nneu", "ja neu", 13),
        ('<P class="a" hidden>one<br/>two</ p><q cite=x>three</q>', "one two three", 10),
        ("<DOC id='1'><post>one</post> <user> two <item n='2'/></DOC>", "one <user> two", 9),
        ("<!DOCTYPE html><?xml version='1.0'?>one", "one", 6),
    ],
)  # fmt: skip
def test_what_boilerplate_removes_is_counted(text: str, left: str, lost: int) -> None:
    found, removed = without_boilerplate(pa.array([text]))
    assert found[0].as_py().split() == left.split()
    assert removed == (1, lost)


# Boilerplate, parts of it, what is nearly boilerplate, and what may be around it.
SIGNS = "From jd\n;In article <;wrote:;--;>;|;JD:>;<b;<!--->;&amp;;&#64;;&;//q;www.q;q@q;From: q\rTo:;To: b\nCc: a\n\n"
SPACES = ["", "q", "é", "\n", "\t\n", "\v\x1f\xa0"]
ENCODED = [f"M{'`' * 60}\n" * 2, f"M{'A' * 60}", f"M{'A' * 59}", "aB1/" * 15, f"{'aB1/' * 14}Ab1"]
PARTS = [*SIGNS.split(";"), *SPACES, *ENCODED]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_boilerplate_and_white_space_are_found_wherever_they_are(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = pa.array(["<p>", *map("".join, product(PARTS, repeat=3))], kind).slice(1)
    found = tokenizing(boilerplate="drop", excerpt=5)(texts)
    monkeypatch.setattr(signs, "signs_of", lambda held: np.full(len(held), -1))
    without, _ = without_boilerplate(texts)
    expected = tokenizing()(without)
    assert found.dictionary.equals(expected.dictionary)
    assert np.array_equal(found.codes, expected.codes)
    single = pc.replace_substring_regex(pc.utf8_slice_codeunits(without, 0, 10), r"\s+", " ")
    assert found.excerpts.equals(pc.utf8_slice_codeunits(pc.utf8_trim_whitespace(single), 0, 5))


#: What the signs stand for, in RE2.
OF_SIGNS = {
    signs.ESCAPE: r"\\",
    signs.ENCODED: "(?m)^M[ -`]{60}|[A-Za-z0-9+/]{60}",
    signs.MAIL: r"(?m):[ \t]*$|^[ \t]*[|:]?>|\A(?:From .*\n)?[A-Za-z][A-Za-z0-9._-]*:"
    r"|^\*?(?:From|Von|De|Da)[ \t\xa0]?:",
    signs.REFERENCE: "&",
    signs.ADDRESS: r"@|://|www\.",
    signs.TAG: "<",
    signs.LIKE_MAIL: r"(?m):[ \t]*\r[ \t\r]*$|^In artic",
    signs.LOST: "\ufffd",
}
NEARLY = ["www", "://", "*Von", "De\xa0:", "Da ", "Fro", ":", "\r", "\\", "\ufffd", "ï", "Ã©"]


def test_signs_are_those_of_their_patterns_wherever_they_are() -> None:
    chosen = random.Random(0)
    made = ("".join(chosen.choices([*PARTS, *NEARLY], k=chosen.randint(0, 9))) for _ in range(4000))
    texts = pa.array(
        [f"{'q ' * chosen.randint(0, 40)}{text}" if i % 2 else text for i, text in enumerate(made)]
    )
    found = signs.signs_of(texts)
    for sign, pattern in OF_SIGNS.items():
        assert np.array_equal(found & sign > 0, pc.match_substring_regex(texts, pattern)), pattern


LINE = f"M{'`' * 60}\n"
LATER = "From: b\nTo: c\nSubject: d\n\ne"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<!-- <script> --> a </script> b", "  a   b"),
        ("<script>a<!-- </script> b --> c", "  b --> c"),
        ("<script <b> x> a </STYLE> b", "  b"),
        ("<script> a <b>b</b>", "  a  b "),
        ("<!--> a --> b <!-- c <i>d</i>", "  b <!-- c  d "),
        ("<b <!-- a --> > b", "<b   > b"),
        ("<scripts> a </script> b <scripté> c", "<scripts> a   b <scripté> c"),
        ("<p><script>a</script><!-- b --><style>c</style>d</p>", "    d "),
        ("<!doctype html <b>> a <?xml b?> c", "<!doctype html  > a   c"),
        ("In article <a@@b> c\nd", "\nd"),
        ("In article <@@b> c\nd", "\nd"),
        ("In article <@b> c\nd", "In article <@b> c\nd"),
        ("In article <@@> c\nd", "In article <@@> c\nd"),
        ("In article <a@> c\nd", "In article <a@> c\nd"),
        ("a\nOn 1 May 10:15 b wrote:\n\nc", "a\nOn 1 May 10:15 b wrote:\n\nc"),
        ("a\nOn 1 May 10:15 b@c wrote:\n\nc", "a"),
        ("a\nOn 1 May 10:15 b\n<b@c> wrote:\n\nc", "a"),
        ("a\nOn 1 May 10:15\n\n<b@c> wrote:\nc", "a\nOn 1 May 10:15\n\n< > wrote:\nc"),
        (f"a\n{LINE}{LINE}\n `\n \nend\nb", "a\n \nb"),
        (f"a\n{LINE}{LINE}\n\nending b", "a\n \n\nending b"),
        (f"a\n-----_____ Original\n\n{LATER}", "a"),
        (f"a\n----\n{LATER}", "a\n----"),
        (f"a\n-----{'x' * 101}\n{LATER}", f"a\n-----{'x' * 101}"),
        (f"a\n------ is forwarded\n\n{LATER}", f"a\n------ is forwarded\n\n{LATER}"),
        (f"a\n---- forwarded\n\n{LATER}", "a\n---- forwarded\n"),
        ("> a\n> b\nc\n--\nd\n--\ne", "\n\nc\n--\nd\n"),
    ],
)
def test_boilerplate_that_is_odd(text: str, left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cleaned([text]) == [left]
    monkeypatch.setattr(boilerplate, "_LONG", 0)
    monkeypatch.setattr(boilerplate, "_MANY", 0)
    assert cleaned([text]) == [left], "as a long text with many scripts"


def encoded_files(seed: int) -> tuple[str, str]:
    """A picture, as runs of twenty colours, in uuencode, and a key in base64."""
    rng = np.random.default_rng(seed)
    colors = np.random.default_rng(0).bytes(20)
    data = b"".join(colors[i : i + 1] * int(n) for i, n in rng.integers((0, 3), (20, 40), (200, 2)))
    lines = [binascii.b2a_uu(data[i : i + 45]).decode() for i in range(0, len(data), 45)]
    return f"begin 644 x.bmp\n{''.join(lines)}`\nend\n", base64.encodebytes(rng.bytes(200)).decode()


def test_encoded_files_are_boilerplate_and_the_text_around_them_stays() -> None:
    picture, key = encoded_files(0)
    text = f"Here it is:\n\n{picture}\nKey:\n{key}\nMORE ABOUT\nMARS\n"
    assert cleaned([text])[0].split() == [*("Here", "it", "is:", "Key:", "MORE", "ABOUT", "MARS")]
    shouted = "MARS IS FAR\n" * 3 + "a/" * 40 + "\n" + "ACGT" * 20
    assert cleaned([shouted])[0] == shouted


@pytest.mark.slow
def test_a_topic_of_encoded_files_is_doubtful_wherever_topics_are_shown(
    tmp_path: Path, invoke: Command, caplog: pytest.LogCaptureFixture
) -> None:
    papers = open_corpus(Path(__file__).parent.parent / "data_specs" / "uci_nips")
    words = np.array(papers.vocabulary().words)
    bags = pq.read_table(papers.shard_path(papers.shards[0])).slice(0, 300).to_pylist()
    texts = [" ".join(np.repeat(words[bag["ids"]], bag["counts"]).tolist()) for bag in bags]
    texts += [encoded_files(seed)[0] for seed in range(1, 13)]
    assert "warning" not in repr(fit(texts, n_topics=5, polish=False))
    caplog.clear()
    model = fit(texts, tmp_path / "model", 5, polish=False, boilerplate="keep")
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    [doubtful] = re.findall(r"^topic (\d) .*: its words are spelled unlike", warning)
    assert f"warning: {warning}" in repr(model)
    assert f"warning: {warning}" in invoke("topics", model).err
    assert any(sentence.startswith(f"topic {doubtful} ") for sentence in evaluate(model)["warnings"])
    report(model, tmp_path / "page.html")
    assert f"not topic {doubtful}" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("tokenizer", "text", "words"),
    [
        ("chinese", "我们学习人工智能。ABC 12", "我们 学习 人工智能 abc 12"),
        ("japanese", "人工知能を学習しました。\nABC", "人工 知能 学習 する abc"),
    ],
)
def test_chinese_and_japanese_have_words(tokenizer: str, text: str, words: str) -> None:
    tokens = tokenizing(tokenizer)(pa.array([text, "", text * 3000]))
    assert set(tokens.dictionary.to_pylist()) == set(words.split())
    assert tokens.indptr[1] == tokens.indptr[2]
    assert tokens.indptr[3] - tokens.indptr[2] == 3000 * tokens.indptr[1]


SPACELESS = {
    "chinese": "我们学习人工智能和历史的发展方向。",
    "japanese": "私たちは人工知能を学習しました。",
    "Thai": "ประเทศไทยมีประวัติศาสตร์ยาวนาน",
}


@pytest.mark.parametrize(
    ("script", "share", "missing", "says"),
    [
        ("chinese", 1, "", "100% of the texts are in Chinese without .* found with tokenizer='chinese'"),
        ("japanese", 1, "", "20% of the texts are in Chinese .*japanese is not made for them; ingest them"),
        ("japanese", 0.1, "sudachipy", r"10% of the texts are in Japanese .*pip install sudachipy"),
        ("Thai", 0.1, "", "10% of the texts are in Thai .*=MODULE:FUNCTION"),
        ("chinese", 0.02, "", "Chinese 2%"),
        ("chinese", 1, "rjieba", r"100% of the texts are in Chinese .*pip install rjieba.*'arrow'"),
        ("Thai", 1, "", "100% of the texts are in Thai .*MODULE:F.*'arrow'"),
    ],
)
def test_texts_without_spaces_get_their_tokenizer(
    script: str,
    share: float,
    missing: str,
    says: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: Any,
) -> None:
    tokenizer_module._analyzer.cache_clear()
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    texts = [SPACELESS[script] if i < 300 * share else f"this is a text of topic {i % 7}" for i in range(300)]
    texts[::5] = [SPACELESS["chinese"]] * 60 if script == "japanese" and share == 1 else texts[::5]
    with caplog.at_level("INFO"):
        if "'arrow'" in says:
            with pytest.raises(InputError, match=says):
                sj.ingest(texts, tmp_path / "c")
            return
        sj.ingest(texts, tmp_path / "c", duplicates="keep", max_df=1.0)
    assert re.search(says, caplog.text)
    used = script if share > 0.05 and script in BUILT_IN and not missing else "arrow"
    assert read_manifest(tmp_path / "c").settings["read_tokenizer"] == used
    tokenizer_module._analyzer.cache_clear()


def test_words_given_in_capitals_are_named(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ingest(folder, tmp_path / "c", IngestRequest(vocabulary=["The", "moon", "Absent", "gone"]))
    assert "2 of the 4 words given have capital letters and are in no document: The, Absent;" in caplog.text
    caplog.clear()
    ingest(folder, tmp_path / "d", IngestRequest(vocabulary=["the", "moon", "gone"]))
    assert "capital" not in caplog.text


def test_a_vocabulary_that_is_given_is_kept_exactly(model: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("the\nmoon\nabsent\nspoon\n")
    every = {"min_distinct_words": 0, "min_tokens": 0}
    ingest(folder, tmp_path / "file", IngestRequest(vocabulary=tmp_path / "words.txt", curation=every))
    vocabulary = open_corpus(tmp_path / "file").vocabulary()
    assert vocabulary.words == ("the", "moon", "absent", "spoon")
    assert (vocabulary.document_frequency[0], vocabulary.document_frequency[2]) == (240, 0)
    dropped = {step.step: step.words for step in read_manifest(tmp_path / "file").dropped}
    assert dropped["vocabulary"] > 200
    for number, vocabulary in enumerate((model, model.with_name("model.corpus"))):
        ingest(folder, tmp_path / str(number), IngestRequest(vocabulary=vocabulary))
        words = open_corpus(tmp_path / str(number)).vocabulary().words
        assert words == tuple(map(str, opened(model).arrays["word"]))


def test_raw_documents_are_cut_as_the_models_were(model: Path, tmp_path: Path) -> None:
    new = [*write_documents(30, seed=9), "The MOON: https://example.org/oven an orbit", "nothing known 1993"]
    pq.write_table(pa.table({"id": [f"n{i}" for i in range(32)], "text": new}), tmp_path / "new.parquet")
    source, table = tmp_path / "new.parquet", tmp_path / "shares.parquet"
    totals = transform(model, source, table, execution=HERE).about.totals
    assert totals is not None
    assert (totals.documents, totals.without_known_words) == (32, 1)
    # Every word of the first thirty documents but those of their subjects, and all but moon and orbit of the others.
    assert totals.tokens - totals.unknown_tokens == 30 * 32 + 2
    # The thirteen other words of each document, and "the an nothing known 1993"; the address is boilerplate.
    assert totals.unknown_tokens == 30 * 13 + 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.parquet", "shares.parquet"]
    shares = pq.read_table(table)
    assert shares["document_id"].to_pylist()[:2] == ["n0", "n1"]
    # The same as of a corpus that is made with the model's words.
    every = {"min_tokens": 0, "min_distinct_words": 0, "duplicates": "keep"}
    ingest(source, tmp_path / "c", IngestRequest(vocabulary=model, curation=every))
    transform(model, tmp_path / "c", tmp_path / "other.parquet", execution=HERE)
    other = pq.read_table(tmp_path / "other.parquet")
    assert shares["topic_shares"].to_pylist() == other["topic_shares"].to_pylist()


def test_new_texts_are_normalized_as_the_models_were(tmp_path: Path) -> None:
    texts = [*write_documents(90, seed=4), *["moon orbit oven"] * 6]
    options: dict[str, Any] = {"normalization": "NFKC", "duplicates": "keep", "max_df": 1.0}
    model = fit(texts, tmp_path / "m", 2, **options)
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in "moon") + " orbit"
    totals = transform(model, [wide], tmp_path / "s.parquet").about.totals
    assert totals is not None
    assert (totals.tokens, totals.unknown_tokens) == (2, 0)


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ({"tokenizer": "evil:run"}, "'evil:run'; .* vocabulary=MODEL"),
        ({"tokenizer": "arrow", "stemmer": "english", "stop_words": "file"}, "stop_words"),
        (None, "does not say how to split texts into words"),
    ],
)
def test_nothing_that_a_model_names_is_imported(
    tokens: dict[str, str] | None, says: str, model: Path, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"text": ["moon orbit rocket"]}), tmp_path / "t.parquet")
    arrays = ("word", "word_topic", "topic_probability", "term_count")
    known = read_model(store_path(model), arrays, ("topic_topic",))
    changed = Model(known.arrays, known.settings, known.metrics, {**known.provenance, "tokens": tokens})
    with pytest.raises(InputError, match=says):
        transform(changed, tmp_path / "t.parquet", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet.corpus").exists()


@pytest.mark.parametrize("range_bytes", [1 << 20, 2000], ids=["one range", "several ranges"])
def test_the_form_of_a_stem_is_its_most_frequent_one(
    range_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_jsmf.corpus.ranges.RANGE_BYTES", range_bytes)
    snowball = pytest.importorskip("snowballstemmer").stemmer("english").stemWord
    generator = np.random.default_rng(0)
    flights = ["flights", "flight", "delays", "delayed", "thanks", "thank"]
    halves = [flights, ["cooking", "cooks", "meals", "meal", "cold"]]
    texts = [" ".join(generator.choice(halves[row % 2], 8)) for row in range(300)]
    forms: dict[str, Counter[str]] = {}
    for word in " ".join(texts).split():
        forms.setdefault(snowball(word), Counter())[word] += 1
    shown = {stem: min(found, key=lambda form: (-found[form], form)) for stem, found in forms.items()}
    options = {"stemmer": "english", "max_df": 1.0, "duplicates": "keep", "ngrams": 2}
    corpus = sj.ingest(texts, tmp_path / "corpus", **options)
    vocabulary = corpus.vocabulary()
    expected = tuple(" ".join(shown[part] for part in word.split()) for word in vocabulary.words)
    assert vocabulary.forms == expected
    assert any(" " in word for word in expected)
    if range_bytes == 2000:
        return
    model = sj.fit(corpus, tmp_path / "model", 2)
    assert {word for words in model.topics(50)["words"] for word, _ in words} == {*expected}
    assert model.transform(["flight delay", "cooked meals"]).to_numpy().max(axis=1).min() > 0.5
