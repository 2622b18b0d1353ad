"""Corpora and models of other libraries in and out, with the libraries themselves where they are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_array, csr_matrix

import streaming_jsmf as sj
from streaming_jsmf.documents import interop
from tests.corpora import planted, words

K, N = 3, 40
#: With a document of no words and a word of no document.
COUNTS = np.vstack([planted(200, N - 1, K, length=50, seed=2).counts, np.zeros((1, N - 1), np.int64)])
COUNTS = np.hstack([COUNTS, np.zeros((201, 1), np.int64)])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("interop")
    corpus = sj.corpus_from_matrix(COUNTS, words(N), folder / "corpus")
    return sj.fit(corpus, folder / "model", K, polish=False)


@pytest.mark.parametrize("kind", [np.array, csr_array, coo_matrix, lambda X: csr_matrix(X.astype(np.uint8))])
def test_a_matrix_and_its_words_go_there_and_back(kind: Any, tmp_path: Path) -> None:
    made = sj.corpus_from_matrix(kind(COUNTS), words(N), tmp_path / "c")
    matrix, names = sj.corpus_to_matrix(tmp_path / "c")
    assert names == words(N)
    assert made.n_documents == 201
    np.testing.assert_array_equal(matrix.toarray(), COUNTS)


def test_a_vectorizer_has_the_words(tmp_path: Path) -> None:
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(token_pattern=r"\w")
    made = sj.corpus_from_matrix(vectorizer.fit_transform(["b a a", "c"]), vectorizer, tmp_path / "c")
    assert made.vocabulary().words == ("a", "b", "c")
    np.testing.assert_array_equal(sj.corpus_to_matrix(made)[0].toarray(), [[2, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    ("matrix", "names", "line"),
    [
        (COUNTS, words(N - 1), "39 words and the matrix has 40 columns"),
        (-COUNTS, words(N), "negative or non-finite"),
        (COUNTS * np.nan, words(N), "negative or non-finite"),
        (COUNTS, ["w"] * N, "have 'w' 40 times"),
    ],
)
def test_a_matrix_that_is_none_is_refused(matrix: Any, names: list[str], line: str, tmp_path: Path) -> None:
    with pytest.raises(sj.InputError, match=line):
        sj.corpus_from_matrix(matrix, names, tmp_path / "c")
    assert not [*tmp_path.iterdir()]


def bags() -> list[list[tuple[int, int]]]:
    return [[(int(word) * 3, int(row[word])) for word in np.flatnonzero(row)] for row in COUNTS]


def test_bags_of_gensim_are_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids need not follow each other; a generator is enough."""
    monkeypatch.setattr(interop, "BATCH", 7)
    dictionary = {3 * place: word for place, word in reversed([*enumerate(words(N))])}
    sj.corpus_from_gensim(iter(bags()), dictionary, tmp_path / "c")
    matrix, names = sj.corpus_to_matrix(tmp_path / "c")
    assert names == words(N)
    np.testing.assert_array_equal(matrix.toarray(), COUNTS)
    for document, bad in ((12, [(1, 1)]), (0, [(999, 1)]), (200, [(0, -1)])):
        wrong = bags()
        wrong[document] = bad
        with pytest.raises(sj.InputError, match=rf"document {document}, from 0, has \({bad[0][0]}, "):
            sj.corpus_from_gensim(wrong, dictionary, tmp_path / "d")
    with pytest.raises(sj.InputError, match="exists already"):
        sj.corpus_from_gensim(bags()[1:], dictionary, tmp_path / "c")


def test_topics_are_given_by_the_ids_of_a_dictionary(model: Any) -> None:
    dictionary = {0: "strange", 2: words(N)[5], 3: words(N)[1]}
    topics = sj.model_to_gensim(model, dictionary)
    expected = np.zeros((K, 4))
    expected[:, 2] = model.dataset["word_topic"].values[5]
    expected[:, 3] = model.dataset["word_topic"].values[1]
    np.testing.assert_array_equal(topics.get_topics(), expected)
    assert topics.num_topics == K
    with pytest.raises(sj.InputError, match="none of the model's words"):
        sj.model_to_gensim(model, {0: "strange"})


def test_gensim_reads_what_is_made_for_it(model: Any, tmp_path: Path) -> None:
    gensim = pytest.importorskip("gensim", reason="gensim is not installed")
    from gensim.models import CoherenceModel

    texts = [[word for word, n in zip(words(N), row, strict=True) for _ in range(n)] for row in COUNTS[:200]]
    dictionary = gensim.corpora.Dictionary(texts)
    bags = [dictionary.doc2bow(text) for text in texts]
    topics = sj.model_to_gensim(model, dictionary)
    assert topics.get_topics().shape == (K, len(dictionary))
    found = CoherenceModel(model=topics, corpus=bags, dictionary=dictionary, coherence="u_mass", topn=5)
    assert -5 < found.get_coherence() <= 0
    shown = [{dictionary[number] for number in topic} for topic in found.topics]
    for topic, listed in zip(shown, model.topics(5).sort_values("topic")["words"], strict=True):
        assert topic == {word for word, _ in listed}
    made = sj.corpus_from_gensim(bags, dictionary, tmp_path / "c")
    matrix, names = sj.corpus_to_matrix(made)
    assert set(names) == {word for word, used in zip(words(N), COUNTS.any(axis=0), strict=True) if used}
    np.testing.assert_array_equal(matrix.toarray(), COUNTS[:200, [words(N).index(word) for word in names]])


def test_pyldavis_takes_its_arguments(model: Any, tmp_path: Path) -> None:
    shares = sj.transform(model, model.corpus, tmp_path / "shares.parquet")
    found = sj.model_to_pyldavis(model, model.corpus)
    np.testing.assert_array_equal(found["doc_lengths"], COUNTS.sum(axis=1))
    np.testing.assert_array_equal(found["term_frequency"], COUNTS.sum(axis=0))
    np.testing.assert_allclose(found["doc_topic_dists"].sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(found["topic_term_dists"].sum(axis=1), 1, atol=1e-12)
    assert found["doc_topic_dists"].shape == (201, K)
    again = sj.model_to_pyldavis(model, model.corpus, shares)
    np.testing.assert_array_equal(again["doc_topic_dists"], found["doc_topic_dists"])
    other = sj.corpus_from_matrix(COUNTS[:50], words(N), tmp_path / "other")
    with pytest.raises(sj.InputError, match="not shares of the corpus"):
        sj.model_to_pyldavis(model, other, shares)


@pytest.mark.filterwarnings("ignore")
def test_pyldavis_draws_it(model: Any) -> None:
    pyldavis = pytest.importorskip("pyLDAvis", reason="pyLDAvis is not installed")
    drawn = pyldavis.prepare(**sj.model_to_pyldavis(model, model.corpus), n_jobs=1)
    assert len(drawn.topic_coordinates) == K
    shares = model.topics()["share"]
    np.testing.assert_allclose(drawn.topic_coordinates["Freq"] / 100, shares, atol=0.15)
