"""Phrases of adjacent words: found by NPMI, independent of how the source is divided, applied to later texts."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf import InputError, fit, transform
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.ingestion import job, steps
from streaming_jsmf.ingestion import word_choice as found
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.ingestion.tokens.split import TokenLists, with_phrases
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.topics.store import read_model
from tests.outcomes import Command, refused
from tests.sources import tokenizing
from tests.test_ingest_resume import same_files

SUBJECTS = (
    "rocket orbit launch moon shuttle",
    "oven flour butter sugar recipe",
    "soil seed flower tree leaf",
    "ship sail wave harbour storm",
    "judge trial verdict lawyer witness",
    "guitar piano violin chord melody",
)
#: Two words that are often together and seldom apart, in documents of one subject each.
PLANTED = ("black hole", "olive oil", "green house", "north wind", "supreme court", "jazz band")


def write_texts(n: int = 240, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    texts = []
    for i in range(n):
        words = draw.choices(SUBJECTS[i % 6].split(), k=20) + ["of the", "in the", "1993 55"] * 2
        words += [PLANTED[i % 6]] * draw.randint(1, 3)
        if not i % 7:
            words += PLANTED[i % 6].split()[::-1]  # apart, or the other way round
        draw.shuffle(words)
        texts.append(" ".join(words).capitalize() + f" only{i}.")
    return texts


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files with a row group for each ten texts."""
    folder = tmp_path_factory.mktemp("phrases") / "texts"
    folder.mkdir()
    texts = write_texts()
    for number in range(4):
        table = pa.table({"text": texts[number * 60 : (number + 1) * 60]})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=10)
    return folder


def ingested(source: Path, target: Path, phrases: Any = 0.5, **request: Any) -> Corpus:
    return ingest(
        source, target, IngestRequest(options={"phrases": phrases}, **request), Execution("synchronous")
    )


@pytest.fixture(scope="module")
def corpus(source: Path) -> Corpus:
    return ingested(source, source.parent / "corpus")


def spelled(tokens: TokenLists) -> list[list[str]]:
    words = tokens.dictionary.to_pylist()
    assert len(set(words)) == len(words)
    pairs = zip(tokens.indptr[:-1], tokens.indptr[1:], strict=True)
    return [[words[code] for code in tokens.codes[a:b]] for a, b in pairs]


def joined(words: list[str], phrases: set[str]) -> list[str]:
    out: list[str] = []
    place = 0
    while place < len(words):
        pair = " ".join(words[place : place + 2])
        out.append(pair if pair in phrases else words[place])
        place += 2 if pair in phrases else 1
    return out


@pytest.mark.parametrize("seed", range(2))
def test_phrases_are_joined_from_left_to_right_within_a_document(seed: int) -> None:
    draw = np.random.default_rng(seed)
    # "a b" is also a word, as a tokenizer of the user's own may give it.
    words = ["a", "b", "c", "d", "a b"]
    codes = draw.integers(0, len(words), 200).astype(np.int32)
    indptr = np.concatenate([[0, 0], np.sort(draw.integers(0, 200, 20)), [200]]).astype(np.int64)
    phrases = ["a b", "b c", "c c", "d a", "x y", "a x"]
    tokens = TokenLists(indptr, codes, pa.array(words))
    expected = [joined(document, set(phrases)) for document in spelled(tokens)]
    assert spelled(with_phrases(tokens, phrases)) == expected
    assert spelled(with_phrases(tokens, ["x y"])) == spelled(tokens)


def test_nothing_to_join_is_not_an_error() -> None:
    tokenizer = tokenizing(phrases=("new york",))
    assert spelled(tokenizer(pa.array(["", "New", "new York!"]))) == [[], ["new"], ["new york"]]
    assert spelled(tokenizer(pa.array([], pa.string()))) == []


def expected_phrases(texts: list[str], least: float, least_documents: int) -> list[str]:
    """Pairs of words of three letters or more that are no stop words, by counting all there are."""
    documents = [[word.strip(".") for word in text.lower().split()] for text in texts]
    words = Counter(word for document in documents for word in document)
    pairs = [[f"{a} {b}" for a, b in pairwise(d)] for d in documents]
    counts = Counter(pair for document in pairs for pair in document)
    frequency = Counter(pair for document in pairs for pair in set(document))
    total = sum(words.values())
    grammar = {"of", "the", "in"}
    kept = []
    for pair, count in counts.items():
        a, b = pair.split()
        if grammar & {a, b} or a.isdigit() or b.isdigit() or frequency[pair] < least_documents:
            continue
        share = count / total
        npmi = math.log(share / (words[a] / total * words[b] / total)) / -math.log(share)
        if npmi >= least:
            kept.append((-count, pair))
    return [pair for _, pair in sorted(kept)]


@pytest.mark.parametrize("least", [0.2, 0.5])
def test_those_of_high_npmi_in_enough_documents_are_found(source: Path, tmp_path: Path, least: float) -> None:
    made = ingested(source, tmp_path / "c", least)
    assert made.tokens is not None
    expected = expected_phrases(write_texts(), least, 10)
    assert set(PLANTED) <= set(expected)
    settings = read_manifest(made.root).settings
    assert settings["read_phrases"] == least
    assert settings["phrases"] == made.tokens["phrases"] == "\n".join(expected)


def test_a_phrase_takes_the_place_of_its_words(corpus: Corpus) -> None:
    vocabulary = corpus.vocabulary()
    frequency = dict(zip(vocabulary.words, vocabulary.document_frequency.tolist(), strict=True))
    joined_texts = [joined(text.lower().split(), set(PLANTED)) for text in write_texts()]
    for word in ("olive oil", "black hole", "wind", "oven"):
        assert frequency.get(word, 0) == sum(word in text for text in joined_texts)


def test_language_and_phrases_are_reported(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        ingested(source, tmp_path / "c")
    assert caplog.text.count("languages: English 100%") == 1
    assert "6 pairs of adjacent words are joined into one word each: " in caplog.text
    with caplog.at_level("INFO"):
        ingested(source, tmp_path / "d", 1.0)
    assert "no adjacent words have such a high NPMI" in caplog.text


@pytest.mark.parametrize(("workers", "group_bytes", "rows"), [(2, 1, 1_000_000), (1, 1, 7), (2, 16 << 20, 1)])
def test_the_cut_of_the_source_changes_no_byte(
    workers: int, group_bytes: int, rows: int, source: Path, corpus: Corpus, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(job, "GROUP_BYTES", (group_bytes, group_bytes))
    monkeypatch.setattr(found, "TABLE_ROWS", rows)
    made = ingest(
        source, tmp_path / "c", IngestRequest(options={"phrases": 0.5}), Execution("threads", workers)
    )
    assert made.tokens == corpus.tokens
    assert made.vocabulary().words == corpus.vocabulary().words
    if group_bytes > 1:  # else there are as many shards as groups
        same_files(Path(made.root), Path(corpus.root))


def test_what_was_counted_is_not_counted_again_after_an_interruption(
    source: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(steps, "read_source", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ingested(source, tmp_path / "c")
    assert set(Workspace(tmp_path / "c.partial", "ingest").steps_done) == {"phrases"}
    monkeypatch.setattr(found, "count_group", interrupted)
    same_files(Path(ingested(source, tmp_path / "c").root), Path(corpus.root))


def test_a_vocabulary_brings_its_phrases(source: Path, corpus: Corpus, tmp_path: Path) -> None:
    again = ingested(source, tmp_path / "again", None, vocabulary=corpus.root)
    assert again.tokens == corpus.tokens
    counts = again.vocabulary(), corpus.vocabulary()
    assert counts[0].words == counts[1].words
    assert counts[0].document_frequency.tolist() == counts[1].document_frequency.tolist()
    (tmp_path / "words.txt").write_text("olive oil\nbutter\n")
    words = {"vocabulary": tmp_path / "words.txt", "curation": {"min_distinct_words": 0, "min_tokens": 0}}
    listed = ingested(source, tmp_path / "listed", None, **words)
    assert listed.vocabulary().document_frequency.tolist()[0] == 40
    without = ingested(source, tmp_path / "without", "none", **words)
    assert without.vocabulary().document_frequency.tolist()[0] == 0


def test_phrases_can_be_listed(source: Path, tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_text("olive oil\nsingle\nof the\n")
    made = ingested(source, tmp_path / "c", tmp_path / "phrases.txt")
    assert made.tokens is not None
    assert made.tokens["phrases"] == "olive oil\nof the"
    assert "olive oil" in made.vocabulary().words
    assert "black hole" not in made.vocabulary().words


def test_new_texts_are_joined_as_those_of_the_model(source: Path, corpus: Corpus, tmp_path: Path) -> None:
    fit(corpus.root, tmp_path / "m", [4], polish=False, execution=Execution("synchronous"))
    texts = ["black hole hole black rocket", "olive oil olive oil oven"]
    pq.write_table(pa.table({"text": texts}), tmp_path / "new.parquet")
    shares = transform(tmp_path / "m", tmp_path / "new.parquet", tmp_path / "shares.parquet")
    totals = shares.about.totals
    assert totals is not None
    assert totals.tokens == 7  # black hole, hole, black, rocket; olive oil twice, oven
    model = read_model(store_path(tmp_path / "m"), ("word",))
    assert model.provenance["tokens"]["phrases"] == corpus.tokens["phrases"]  # type: ignore[index]
    again = ingested(source, tmp_path / "c", None, vocabulary=tmp_path / "m")
    assert again.tokens == corpus.tokens


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--phrases", "1.5"],
            "--phrases is '1.5'; give an NPMI above 0 and at most 1, a list of phrases",
        ),
        (["--quiet", "--vocabulary", "other.txt"], "give documents that contain words of the vocabulary"),
        (["--phrases", "0.5", "--ngrams", "2"], "give one of them"),
        (["--phrases", "missing.txt"], "missing.txt"),
        (["--phrases", "0.5", "--vocabulary", "words.txt"], "leave --phrases out"),
    ],
)
def test_impossible_requests_are_refused_in_one_line(
    arguments: list[str], says: str, source: Path, tmp_path: Path, monkeypatch: Any, invoke: Command
) -> None:
    (tmp_path / "words.txt").write_text("olive oil\nbutter\n")
    (tmp_path / "other.txt").write_text("elsewhere\n")
    monkeypatch.chdir(tmp_path)
    refused(invoke("ingest", str(source), "c", *arguments), 2, says)
    assert not (tmp_path / "c").exists()


def test_words_that_are_given_have_no_phrases(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating\n1,2,3\n")
    with pytest.raises(InputError, match=r"ratings .*; leave phrases out"):
        ingested(tmp_path / "ratings.csv", tmp_path / "c")
