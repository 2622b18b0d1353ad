"""Labels of topics: prominent and characteristic words, none twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf.cli.main import run
from streaming_jsmf.inference.words import label_words
from streaming_jsmf.topics.store import read_model
from tests.damage import rewritten


def test_words_on_both_lists_come_first_and_a_shared_word_goes_where_it_suits_best() -> None:
    prominent = np.array([[9, 1, 2], [9, 4, 5]])
    characteristic = np.array([[1, 2, 9], [9, 6, 4]])
    # Ranks: topic 0 has 1 at 1 + 0, 2 at 2 + 1 and 9 at 0 + 2; topic 1 has 9 at 0 + 0, 4 at 1 + 2, 6 at 3 + 1.
    np.testing.assert_array_equal(label_words(prominent, characteristic, 3), [[1, 2, -1], [9, 4, 6]])


def test_what_is_only_on_one_list_fills_up() -> None:
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
