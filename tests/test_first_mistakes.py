"""What newcomers write first: it works, or one line says what to write instead."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streaming_jsmf as sj
from tests.corpora import planted, words

K, N = 3, 40
COUNTS = planted(200, N, K, length=50, seed=2).counts
TABLE = pd.DataFrame({"text": ["a text", "another"], "n": [1, 2]})
TEXT = "the cat sat on the mat " * 300


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A corpus, its moments, a model and shares, as paths and opened."""
    folder = tmp_path_factory.mktemp("mistakes")
    corpus = sj.corpus_from_matrix(COUNTS, words(N), folder / "corpus")
    moments = sj.scan(corpus, folder / "moments", sj.ScanSettings(max_topics=K))
    sj.infer(moments, folder / "model", sj.InferSettings(K))
    shares = sj.transform(folder / "model", corpus, folder / "shares.parquet")
    TABLE.to_parquet(folder / "texts.parquet")
    estimator = sj.LRJSMF(K).fit(COUNTS)
    return SimpleNamespace(folder=folder, corpus=corpus, moments=moments, shares=shares, estimator=estimator)


def test_common_calls_work(at: Any, tmp_path: Path) -> None:
    model = sj.infer(at.moments, tmp_path / "z", K)
    assert model.arrays["word_topic"].shape == (N, K)
    np.testing.assert_array_equal(
        sj.open_model(tmp_path / "z")["word_topic"].values,
        sj.open_model(at.folder / "model")["word_topic"].values,
    )
    found = sj.evaluate(sj.open_model(at.folder / "model"), at.corpus)
    assert found["corpus"]["training"]
    assert found["metrics"]["npmi"] is not None
    assert sj.evaluate(at.folder / "model", str(at.folder / "corpus"))["metrics"] == found["metrics"]
    assert isinstance(sj.fit(at.corpus, tmp_path / "m", K), sj.TopicModel)
    assert len(sj.documents_of_topic(at.folder / "model", at.shares, 1, 5)) == 5
    assert sj.to_dask_array(at.folder / "corpus").shape == (200, N)
    assert sj.InferSettings(np.int64(3)) == sj.InferSettings(3)
    assert len(repr(model)) < 1000
    assert len(repr(at.moments)) < 300
    assert sj.transform(sj.open_model(tmp_path / "z"), at.corpus, tmp_path / "s.parquet").about.n_topics == K


#: What is written, and what is answered.
MISTAKES = [
    ("sj.infer(moments, new, [3, 4])", r"settings is '\[3, 4\]' \(list\); give Inf"),
    ("sj.infer(corpus, new, 3)", "is a corpus, not a moments store; make one"),
    ("sj.infer(model, new, 3)", "this is not a moments store; give the"),
    ("sj.fit(corpus, K)", "where the model goes; write n_topics=3"),
    ("sj.fit(corpus, new, '20')", "n_topics is '20'; give a whole number, or several"),
    ("sj.fit(corpus, new, 0)", "n_topics is 0; give a whole number of at least 1"),
    ("sj.fit(moments, new)", "a moments store, not a corpus; infer makes a model"),
    ("sj.fit(model, new)", "is a model, not a corpus; give the corpus"),
    ("sj.fit(COUNTS)", r"is a matrix \(ndarray\); corpus_from_matrix\(matrix"),
    ("sj.fit('the cat sat on the mat')", "the mat: no such file or directory; check the path, or give texts"),
    ("sj.fit(TEXT)", r"can be named 'the cat sat .{40,50}'\.\.\. \(6,900 char.*; .* give texts as a list"),
    ("sj.fit('a\\0b')", r"no file or directory can be named 'a\\x00b'; check the path"),
    ("sj.fit('see http://x.y for the rest')", "no such file or directory; check the path, or give texts"),
    ("sj.open_corpus(TEXT)", "no file or directory can be named"),
    ("sj.open_model(TEXT)", "no file or directory can be named"),
    ("sj.fit('two lines\\nof a text')", r"two lines\\u000aof a text: no such file .*, or give texts"),
    ("sj.fit([{'a'}, {'c'}])", "rows of type set; give texts, lists of tokens"),
    ("sj.fit(TABLE[['n']])", "^the DataFrame has the columns n; say which"),
    ("sj.scan(TABLE, new)", r"not as a DataFrame; make a corpus of it with ingest\("),
    (
        "sj.scan(folder / 'texts.parquet', new)",
        "not a corpus; make .* with: streaming-jsmf ingest",
    ),
    ("sj.scan(corpus, new, 20)", r"settings is '20' \(int\); give ScanSettings\(...\)"),
    ("sj.evaluate(estimator.model_)", "Dataset was not opened from a model store"),
    ("sj.open_model(folder / 'moments')", "this is not a model"),
    ("sj.open_model(folder / 'corpus')", "is a corpus, not a model; fit makes a model of it"),
    ("sj.ingest(moments.path, new)", "is a moments store, not a corpus"),
    ("sj.choose_k(corpus, [2, 3], folder / 'corpus')", "is a store or a corpus; models of several K need a"),
    ("sj.open_model(TABLE)", "a model or a fitted estimator, not a DataFrame"),
    ("sj.open_corpus(model)", "is a model, not a corpus"),
    ("sj.transform(model, 'some text', new)", "give texts as a list"),
    ("sj.shares_by(model, TABLE)", "topic shares is named by its path or URL"),
    ("sj.documents_of_topic(model, shares, '1')", "topic is '1'; give a whole number"),
    ("sj.choose_k(corpus, 5)", "a single number of topics is given; give several"),
]


@pytest.mark.parametrize(("written", "line"), MISTAKES)
def test_mistakes_are_refused_in_one_line(written: str, line: str, at: Any, tmp_path: Path) -> None:
    with pytest.raises(sj.InputError, match=line) as raised:
        eval(written, globals(), {**vars(at), "model": at.folder / "model", "new": tmp_path / "new"})
    assert len(str(raised.value).splitlines()) == 1
    assert "streaming-jsmf-" not in str(raised.value), "no temporary path"
