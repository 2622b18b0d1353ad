"""Documents that break the assumptions of the tensor engine: copies, a huge one, too few kinds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from streaming_jsmf import LRJSMF, STOD
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.topics.store import read_model
from tests.corpora import words, write_corpus
from tests.outcomes import Command, refused
from tests.test_stod_models import N_WORDS, K, Law

QUIET = ("--scheduler", "synchronous")


def test_copies_of_a_document_are_dropped_on_the_way_from_a_file_to_topics(
    tmp_path: Path, invoke: Command
) -> None:
    law, random = Law(), np.random.default_rng(2)
    counts = law.documents(random.poisson(60, 2000))
    counts[7] = random.multinomial(90_000, random.dirichlet(np.full(N_WORDS, 0.05)))
    counts = np.vstack([counts, np.repeat(counts[3:4], 300, axis=0)])
    save_npz(tmp_path / "x.npz", csr_array(counts))
    (tmp_path / "vocab.txt").write_text("\n".join(words(N_WORDS)) + "\n", encoding="utf-8")
    corpus, model = tmp_path / "corpus", tmp_path / "model"
    assert invoke("ingest", tmp_path / "x.npz", corpus, "--duplicates", "drop", *QUIET).code == 0
    assert invoke("fit", corpus, model, "--topics", K, "--engine", "stod", *QUIET).code == 0
    found = read_model(model)
    by_word = dict(zip(found.arrays["word"], found.arrays["word_topic"], strict=True))
    # Words that no document has are not in the corpus.
    word_topic = np.array([by_word.get(word, np.zeros(K)) for word in words(N_WORDS)])
    # The bound is what the plain documents of ``test_stod_models`` give.
    assert match_topics(word_topic, law.word_topic).mean_l1 < 0.15
    assert found.metrics["n_documents"] == len(np.unique(counts[counts.sum(axis=1) >= 5], axis=0))


@pytest.mark.slow
def test_more_topics_than_the_documents_hold(tmp_path: Path, invoke: Command) -> None:
    kinds = np.random.default_rng(0).poisson(20.0, size=(2, 40))
    counts = np.repeat(kinds, 150, axis=0)
    corpus = write_corpus(tmp_path / "two", counts)
    fit = ("fit", corpus, tmp_path / "model", "--topics", 4, *QUIET)
    said = "2 positive eigenvalues, 4 topics were asked for"
    refused(invoke(*fit).without_progress(), 2, said)
    assert not (tmp_path / "model").exists()
    outcome = invoke(*fit, "--engine", "stod")
    assert outcome.code == 0
    assert "2 topics, 4 were asked for" in outcome.err
    with pytest.raises(ValueError, match=said):
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
    alpha0: str, tmp_path: Path, invoke: Command
) -> None:
    corpus = write_corpus(tmp_path / "corpus", Law().documents(np.full(50, 60)))
    fit = ("fit", corpus, tmp_path / "m", "--topics", 2, "--engine", "stod", "--stod-alpha0", alpha0)
    refused(invoke(*fit), 2, "alpha0 is ", alpha0)
    assert {path.name for path in tmp_path.iterdir()} == {"corpus"}
    value = alpha0 if alpha0 == "little" else float(alpha0)
    with pytest.raises(ValueError, match="alpha0 is "):
        STOD(2, alpha0=value, scratch=tmp_path / "not-even-looked-at").fit(corpus)
