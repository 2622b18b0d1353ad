"""Corpora that go wrong elsewhere, the way users bring them: through the command line and as matrices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array, save_npz

from streaming_jsmf import LRJSMF, STOD
from streaming_jsmf.cli.main import run
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.topics.store import read_model
from tests.corpora import words, write_corpus
from tests.test_stod_models import N_WORDS, K, Law

Counts = NDArray[np.int64]
LAW = Law()
#: The bound is what the plain documents of ``test_stod_models`` give.
LARGEST_ERROR = 0.15


def hard_documents(kind: str) -> Counts:
    random = np.random.default_rng(2)
    if kind == "ragged":
        return LAW.documents(np.minimum(random.lognormal(3.7, 1.3, 2000).astype(int), 4000))
    counts = LAW.documents(random.poisson(60, 2000))
    if kind == "copies":
        return np.vstack([counts, np.repeat(counts[3:4], 300, axis=0)])
    counts[7] = random.multinomial(90_000, random.dirichlet(np.full(N_WORDS, 0.05)))
    return counts


def verb(*arguments: object) -> int:
    return run([str(argument) for argument in arguments])


def one_error(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that tells what is wrong, behind those on progress."""
    capsys.readouterr()
    assert verb(*arguments) == 2
    *before, line = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert not any(other.startswith((" ", "error")) for other in before)
    return line


def error(word_topic: NDArray[np.float64]) -> float:
    return match_topics(word_topic, LAW.word_topic).mean_l1


@pytest.mark.parametrize("kind", ["ragged", "huge", "copies"])
def test_from_a_file_to_topics(kind: str, tmp_path: Path) -> None:
    counts = hard_documents(kind)
    save_npz(tmp_path / "x.npz", csr_array(counts))
    (tmp_path / "vocab.txt").write_text("\n".join(words(N_WORDS)) + "\n", encoding="utf-8")
    corpus, model = tmp_path / "corpus", tmp_path / "model"
    how = ("--scheduler", "synchronous")
    assert verb("ingest", tmp_path / "x.npz", corpus, "--duplicates", "drop", *how) == 0
    assert verb("fit", corpus, model, "--topics", K, "--engine", "stod", *how) == 0
    found = read_model(model)
    by_word = dict(zip(found.arrays["word"], found.arrays["word_topic"], strict=True))
    # Words that no document has are not in the corpus.
    word_topic = np.array([by_word.get(word, np.zeros(K)) for word in words(N_WORDS)])
    assert error(word_topic) < LARGEST_ERROR
    if kind == "copies":
        assert found.metrics["n_documents"] == len(np.unique(counts[counts.sum(axis=1) >= 5], axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ragged", "huge"])
def test_as_a_matrix(kind: str) -> None:
    counts = hard_documents(kind)
    model = STOD(K, workers=1).fit(csr_array(counts))
    assert error(model.components_.T) < LARGEST_ERROR
    shares = model.transform(counts)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    longest = counts.sum(axis=1).argmax()
    np.testing.assert_array_equal(
        model.transform(counts[longest : longest + 1]), shares[longest : longest + 1]
    )


@pytest.mark.slow
def test_documents_of_less_than_three_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    for tokens, said in ((2, "no document has 3 tokens or more"), (1, "no document has two tokens or more")):
        counts = random.multinomial(tokens, np.full(30, 1 / 30), size=200)
        corpus = write_corpus(tmp_path / f"of-{tokens}", counts)
        fit = ("fit", corpus, tmp_path / f"model-{tokens}", "--topics", 2, "--scheduler", "synchronous")
        assert said in one_error(capsys, *fit, "--engine", "stod")
        assert not (tmp_path / f"model-{tokens}").exists()
        with pytest.raises(ValueError, match=said) as caught:
            STOD(2, workers=1).fit(counts)
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_more_topics_than_the_documents_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = np.random.default_rng(0).poisson(20.0, size=(2, 40))
    counts = np.repeat(kinds, 150, axis=0)
    corpus = write_corpus(tmp_path / "two", counts)
    fit = ("fit", corpus, tmp_path / "model", "--topics", 4, "--scheduler", "synchronous")
    assert "2 positive eigenvalues, 4 topics were asked for" in one_error(capsys, *fit)
    assert not (tmp_path / "model").exists()
    assert verb(*fit, "--engine", "stod") == 0
    assert "the second moment carries 2 topics, 4 were asked for" in capsys.readouterr().err
    with pytest.raises(ValueError, match="2 positive eigenvalues, 4 topics were asked for"):
        LRJSMF(4, workers=1).fit(counts)
    # Each word is in both kinds of documents: no anchor tells how pure they are.
    model = STOD(4, alpha0="shares", workers=1).fit(counts)
    assert model.components_.shape == (2, 40)
    assert len(model.get_feature_names_out()) == 2
    truth = (kinds / kinds.sum(axis=1, keepdims=True)).T
    assert match_topics(model.components_.T, truth).mean_l1 < 0.1
    shares = model.transform(counts)
    assert (shares.argmax(axis=1)[:150] != shares.argmax(axis=1)[150:]).all()
    assert shares.max(axis=1).min() > 0.9


@pytest.mark.parametrize("alpha0", ["0", "-1", "nan", "inf", "1001", "little"])
def test_an_alpha0_out_of_range_is_refused_before_any_work(
    alpha0: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus", hard_documents("ragged")[:50])
    said = one_error(
        capsys, "fit", corpus, tmp_path / "m", "--topics", 2, "--engine", "stod", "--stod-alpha0", alpha0
    )
    assert "alpha0 is " in said
    assert {path.name for path in tmp_path.iterdir()} == {"corpus"}
    value = alpha0 if alpha0 == "little" else float(alpha0)
    with pytest.raises(ValueError, match="alpha0 is "):
        STOD(2, alpha0=value, scratch=tmp_path / "not-even-looked-at").fit(corpus)
