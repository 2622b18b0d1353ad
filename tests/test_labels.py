"""Labels of topics: prominent and characteristic words, none twice."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf import fit
from streaming_jsmf.cli.main import run
from streaming_jsmf.inference import words
from streaming_jsmf.inference.words import label_words, topic_labels
from streaming_jsmf.topics.store import read_model
from tests.damage import rewritten


def test_words_on_both_lists_come_first_and_a_shared_word_goes_where_it_suits_best() -> None:
    prominent = np.array([[9, 1, 2], [9, 4, 5]])
    characteristic = np.array([[1, 2, 9], [9, 6, 4]])
    # Ranks: topic 0 has 1 at 1 + 0, 2 at 2 + 1 and 9 at 0 + 2; topic 1 has 9 at 0 + 0, 4 at 1 + 2, 6 at 3 + 1.
    np.testing.assert_array_equal(label_words(prominent, characteristic, 3), [[1, 2, -1], [9, 4, 6]])


def test_words_on_only_one_list_fill_up_the_label() -> None:
    prominent, characteristic = np.array([[0, 1, 2]]), np.array([[3, 1, 4]])
    np.testing.assert_array_equal(label_words(prominent, characteristic, 5), [[1, 0, 3, 2, 4]])


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 1000))
def test_no_word_labels_two_topics(n_topics: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lists = [np.array([rng.permutation(12)[:6] for _ in range(n_topics)]) for _ in range(2)]
    labels = label_words(lists[0], lists[1], count)
    assert labels.shape == (n_topics, count)
    used = labels[labels >= 0]
    assert len(set(used.tolist())) == used.size
    for topic, row in enumerate(labels):
        assert set(row[row >= 0].tolist()) <= {*lists[0][topic].tolist(), *lists[1][topic].tolist()}
        # What is missing is missing at the end.
        assert (np.diff((row < 0).astype(int)) >= 0).all()


def test_topics_shows_labels_and_a_model_without_them_is_shown_too(
    corpus_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    assert run(["fit", str(corpus_path), str(model), "--topics", "5"]) == 0
    arrays = read_model(model, ("word", "label_words")).arrays
    spelled = [[str(arrays["word"][word]) for word in row if word >= 0] for row in arrays["label_words"]]
    assert len({word for row in spelled for word in row}) == sum(map(len, spelled))
    printed = capsys.readouterr().out
    for row in spelled:
        assert f"%  {', '.join(row)}" in printed
    assert run(["topics", str(model), "--json"]) == 0
    assert [row["label"] for row in json.loads(capsys.readouterr().out)] == spelled
    rewritten(model, lambda about: about["digests"].pop("label_words"))
    assert run(["topics", str(model), "--json"]) == 0
    assert [row["label"] for row in json.loads(capsys.readouterr().out)] == [[]] * 5


@pytest.mark.parametrize(
    ("label", "others", "shown"),
    [
        ("game games team", "year hockey", "game, team, year"),
        ("game games cities", "city gaming hockey", "game, cities, hockey"),
        ("game games", "gamers", "game, other"),
        ("president white house", "white white_house congress", "president, white house, congress"),
        ("president white house", "white congress law white_house", "president, white, house"),
        ("white_house houses gun", "guns law", "white house, gun, law"),
        ("white white_house gun", "white white_house guns law", "white house, gun, law"),
        ("gun guns_gun", "law", "gun, law"),
        ("car care cart", "cars", "car, care, cart"),
        ("armenia armenian turkish", "taken", "armenia, turkish, other"),
    ],
)
def test_a_label_has_no_two_words_of_one_stem_and_phrases_for_their_parts(
    label: str, others: str, shown: str
) -> None:
    rows = [[word.replace("_", " ") for word in text.split()] for text in (label, others)]
    words = [*rows[0], *rows[1], "other", "taken"]
    # The second topic is labeled by the last word, which the first may not use.
    ids = [[words.index(word) for word in row] for row in rows]
    n = len(ids[0])
    arrays = {
        "word": np.array(words),
        "label_words": np.array([ids[0], [words.index("taken")] + [-1] * (n - 1)]),
        "prominent_words": np.array([[*ids[1], words.index("other")]] * 2),
    }
    found = topic_labels(arrays)
    assert ", ".join(found[0]) == shown
    assert found[1] == ("taken",)


def test_phrases_of_the_corpus_label_its_topics() -> None:
    rng = np.random.default_rng(0)
    themes = (
        "space station orbit orbits rocket",
        "white house senate senates vote",
        "ice hockey goal goals team",
    )
    texts = []
    for i in range(150):
        first, second, *rest = themes[i % 3].split()
        texts.append(" ".join([f"{first} {second}", *rng.choice(rest, 12), f"{first} {second}"]))
    model = fit(texts, n_topics=3, ngrams=2, max_df=1.0, stop_words="none", polish=False)
    shown = model.topics()["label"].tolist()
    assert {
        phrase for phrase in ("space station", "white house", "ice hockey") if phrase in " | ".join(shown)
    } == {"space station", "white house", "ice hockey"}
    for label in shown:
        parts = [part for word in label.split(", ") for part in word.split()]
        assert len({part.rstrip("s") for part in parts}) == len(parts)


def test_examples_hold() -> None:
    assert doctest.testmod(words).failed == 0
