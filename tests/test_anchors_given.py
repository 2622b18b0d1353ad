"""Anchors that the user gives: alone, with others found beside them, and several words as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streaming_jsmf import InferSettings, ScanSettings, fit, infer, scan
from streaming_jsmf.errors import InputError
from streaming_jsmf.inference.anchors import DegenerateAnchorsError, RejectedAnchorError
from streaming_jsmf.inference.law import AnchorRules, anchor_words, low_rank_anchor_words
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.topics.store import Model, read_model
from tests import reference_anchors as oracle
from tests.outcomes import Command, refused
from tests.reference import row_normalized
from tests.test_anchors import EVERYWHERE, factor

Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def moments(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Moments:
    path = tmp_path_factory.mktemp("moments") / "m"
    return scan(corpus_path, path, ScanSettings(max_topics=5), Execution("synchronous"))


def test_all_anchors_given_are_the_anchors_in_their_order() -> None:
    y = factor(0, np.ones(4))
    c = y @ y.T
    d = c.sum(axis=1)
    given = [40, 3, 22, 9]
    found = low_rank_anchor_words(y, d, EVERYWHERE, AnchorRules(given=[[word] for word in given]))
    np.testing.assert_array_equal(found.anchors.words, given)
    slow = oracle.topics_of_anchors(row_normalized(c, d), d, c, given)
    np.testing.assert_allclose(found.word_topic, slow.word_topic, atol=1e-8)
    np.testing.assert_allclose(found.topic_topic, slow.topic_topic, rtol=1e-6)


def test_the_others_are_farthest_from_the_span_of_those_given() -> None:
    y = factor(1, np.ones(5))
    c = y @ y.T
    rows = row_normalized(c, c.sum(axis=1))
    found = low_rank_anchor_words(y, c.sum(axis=1), EVERYWHERE, AnchorRules(given=[[12], [50]])).anchors.words
    np.testing.assert_array_equal(found[:2], [12, 50])
    for count in range(2, 5):
        span, _ = np.linalg.qr(rows[found[:count]].T)
        distance = np.linalg.norm(rows - rows @ span @ span.T, axis=1)
        assert distance.argmax() == found[count]


def test_a_tandem_anchor_is_its_words_counted_as_one() -> None:
    y = factor(2, np.ones(4))
    c = y @ y.T
    groups = [[5, 8, 31], [0], [17, 60], [44]]
    rules = AnchorRules(given=groups)
    full = anchor_words(c, c.sum(axis=1), EVERYWHERE, 4, rules)
    low = low_rank_anchor_words(y, c.sum(axis=1), EVERYWHERE, rules)
    assert full.anchors.groups == low.anchors.groups == ((5, 8, 31), (0,), (17, 60), (44,))
    np.testing.assert_array_equal(low.anchors.words, [5, 0, 17, 44])
    slow = oracle.tandem_topics(c, groups)
    for found in (full, low):
        np.testing.assert_allclose(found.word_topic, slow.word_topic, atol=1e-8)
        np.testing.assert_allclose(found.topic_topic, slow.topic_topic, rtol=1e-6)


def test_words_of_one_topic_as_a_tandem_anchor_recover_exact_topics() -> None:
    # Topics of disjoint words: every word is an anchor, and any mean of the words of a topic is its vertex.
    b = np.kron(np.eye(4), np.ones((5, 1)) / 5)
    a = np.full((4, 4), 0.02) + np.diag([0.1, 0.2, 0.16, 0.22])
    y = b @ np.linalg.cholesky(a)
    rules = AnchorRules(given=[[0, 1, 4], [5, 9], [12], [15, 16, 17, 18, 19]])
    found = low_rank_anchor_words(y, y @ y.sum(axis=0), np.full(20, 50), rules)
    np.testing.assert_allclose(found.word_topic, b, atol=1e-10)
    np.testing.assert_allclose(found.topic_topic, a, atol=1e-10)


def test_given_words_may_be_rare_and_those_without_mass_are_left_out() -> None:
    y = factor(3, np.ones(4))
    u, frequency = y @ y.sum(axis=0), EVERYWHERE.copy()
    frequency[7] = 12
    rules = AnchorRules(min_document_frequency=30, given=[[2], [4, 7]])
    assert low_rank_anchor_words(y, u, frequency, rules).anchors.groups[:2] == ((2,), (4, 7))
    u[4] *= 11
    assert low_rank_anchor_words(y, u, frequency, rules).anchors.groups[:2] == ((2,), (7,))
    free = AnchorRules(given=[[2], [4]], min_row_sum=0.0)
    assert 4 in low_rank_anchor_words(y, u, EVERYWHERE, free).anchors.words
    with pytest.raises(RejectedAnchorError, match=r"word 4 keeps less than 0.1 of .* lower anchor_row_sum"):
        low_rank_anchor_words(y, u, EVERYWHERE, AnchorRules(given=[[2], [4]]))
    y = y.copy()
    y[4] = 0
    with pytest.raises(RejectedAnchorError, match="word 4 keeps none of its co-occurrences"):
        low_rank_anchor_words(y, u, EVERYWHERE, free)


def test_given_anchors_that_say_the_same_are_refused() -> None:
    y = factor(4, np.ones(4))
    y[1] = 2 * y[0]
    with pytest.raises(
        DegenerateAnchorsError, match=r"only 1 words are far enough apart.*other anchor words"
    ):
        low_rank_anchor_words(y, y @ y.sum(axis=0), EVERYWHERE, AnchorRules(given=[[0], [1]]))


def test_a_string_is_a_word_and_not_its_letters() -> None:
    assert InferSettings(3, anchor_words=["god", ("car", "engine")]).anchor_words == (
        ("god",),
        ("car", "engine"),
    )
    with pytest.raises(InputError, match=r"anchor_words is 'god'; give a list of words, such as \['god'\]"):
        InferSettings(3, anchor_words="god")


def test_guided_topics_leave_out_words_that_cannot_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = ["the room was clean and the staff friendly", "a refund of my money please", "wifi slow all day"]
    texts = [f"{text} {number % 7} x{number}" for number in range(400) for text in table]
    texts += ["rare word", "rare internet wifi"]
    model = fit(
        texts,
        tmp_path / "m",
        3,
        anchor_words=[["refund", "money"], ["wifi", "internet"]],
        min_df=1,
        max_df=1.0,
    )
    assert model.metrics["given_anchors"] == [["refund", "money"], ["wifi"]]
    line = "the anchor word 'internet' is left out; it occurs in 1 documents; a given anchor needs 5"
    assert line in caplog.text
    lists = [{word for word, _ in pairs} for pairs in model.topics(4)["words"]]
    assert any({"refund", "money"} <= words for words in lists)


KEPT: dict[str, Any] = {"min_df": 1, "max_df": 1.0, "duplicates": "keep"}


@pytest.mark.parametrize("known", [False, True])
def test_fit_finds_a_wrong_word_before_the_scan(known: bool, tmp_path: Path) -> None:
    texts = [f"apple pear plum {'fig' * (number < 2)}" for number in range(400)]
    word, line = ("fig", "'fig' occurs in 2 documents") if known else ("nothing", "'nothing' is not in the")
    with pytest.raises(InputError, match=line) as error:
        fit(texts, tmp_path / "model", 2, anchor_words=[[word], "pear"], **KEPT)
    assert error.value.__cause__ is None
    assert not (tmp_path / "model").exists()


def test_the_command_line_takes_a_list_and_a_file(moments: Moments, tmp_path: Path, invoke: Command) -> None:
    def inferred(name: str, *options: object) -> Model:
        assert invoke("infer", moments.path, tmp_path / name, "--topics", 5, *options).code == 0
        return read_model(tmp_path / name)

    found = inferred("a", "--anchor-words", "word0003,word0000")
    np.testing.assert_array_equal(found.arrays["anchors"][:2], [3, 0])
    assert found.settings["anchor_words"] == [["word0003"], ["word0000"]]
    assert "anchor_row_sum" not in found.settings
    assert inferred("papers", "--anchor-row-sum", 0).settings["anchor_row_sum"] == 0
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("# one topic a line\n\nword0003, word0000\nword0001\n", encoding="utf-8")
    tandem = inferred("b", "--anchor-words", seeds)
    assert tandem.settings["anchor_words"] == [["word0003", "word0000"], ["word0001"]]
    assert tandem.provenance["fingerprint"] != found.provenance["fingerprint"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--anchor-words", "word0003,nothing"), "'nothing' is not in the vocabulary"),
        (("--anchor-words", "word0003,,word0001"), "'word0003,,word0001'"),
        (("--anchor-words", "word0003,word0003"), "'word0003' twice"),
        (("--anchor-words", ",".join(["word0003"] * 50)), "--anchor-words has 50 entries"),
    ],
)
def test_wrong_options_end_in_one_line(
    moments: Moments, tmp_path: Path, invoke: Command, options: tuple[str, ...], line: str
) -> None:
    refused(invoke("infer", moments.path, tmp_path / "m", "--topics", 5, *options), 2, line)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("content", "line"), [(b"# nothing\n", "the file has no words"), (b"\xff\xfe", "cannot be read as UTF-8")]
)
def test_a_bad_file_of_words_is_refused(content: bytes, line: str, tmp_path: Path, invoke: Command) -> None:
    (tmp_path / "seeds").write_bytes(content)
    refused(invoke("infer", "m", "n", "--topics", 5, "--anchor-words", tmp_path / "seeds"), 2, line)


@pytest.mark.parametrize("options", [{"anchors": "soft-clique"}, {"correlations": "refined"}])
def test_every_method_makes_a_model_and_records_itself(
    moments: Moments, tmp_path: Path, options: dict[str, str]
) -> None:
    settings = InferSettings(5, **options)
    model = infer(moments, tmp_path / "m", settings)
    assert {key: model.settings[key] for key in options} == options
    np.testing.assert_allclose(model.arrays["word_topic"].sum(axis=0), 1.0, atol=1e-10)
    if "correlations" in options:
        assert model.arrays["topic_topic"].sum() == pytest.approx(1.0, abs=1e-12)
        plain = infer(moments, tmp_path / "plain", InferSettings(5))
        assert model.metrics["reconstruction_error"] <= plain.metrics["reconstruction_error"] + 1e-9
    with pytest.raises(InputError, match="one of"):
        InferSettings(5, **dict.fromkeys(options, "else"))


def test_a_whole_number_is_the_same_setting_as_an_integer(
    moments: Moments, tmp_path: Path, invoke: Command
) -> None:
    first = infer(moments, tmp_path / "m", 5, anchor_min_df=2)
    assert invoke("infer", moments.path, tmp_path / "m", "--topics", 5, "--anchor-min-df", 2).code == 0
    assert read_model(tmp_path / "m").provenance["fingerprint"] == first.provenance["fingerprint"]
