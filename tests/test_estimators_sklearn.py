"""The estimators keep scikit-learn's rules, by its own checks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from streaming_jsmf import LRJSMF, STOD
from tests.cases import first_cases
from tests.corpora import planted, write_corpus

#: One topic, since most of the checks' small matrices of noise have co-occurrences of one positive eigenvalue. What
#: needs several topics is checked below, on documents. One scan is quicker.
ONE_TOPIC: dict[str, Any] = {"n_topics": 1, "scheduler": "synchronous", "workers": 1}
TOO_SHORT = dict.fromkeys(
    (
        "check_fit_score_takes_y",
        "check_estimators_nan_inf",
        "check_estimator_sparse_tag",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
    ),
    "its rows sum to less than 3, and a third moment needs documents of three tokens",
)
WHOLE_COUNTS = dict.fromkeys(
    ("check_fit_score_takes_y", "check_pipeline_consistency"),
    "score predicts tokens one by one, so its counts are whole numbers",
)


def expected_to_fail(estimator: Any) -> dict[str, str]:
    return WHOLE_COUNTS if isinstance(estimator, LRJSMF) else TOO_SHORT | WHOLE_COUNTS


@pytest.mark.slow
@parametrize_with_checks(
    [LRJSMF(polish_steps=1, **ONE_TOPIC), STOD(**ONE_TOPIC)], expected_failed_checks=expected_to_fail
)
@pytest.mark.filterwarnings("default")
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


COUNTS = planted(300, 50, 3, seed=4).counts
ENGINES = pytest.mark.parametrize("estimator", first_cases([LRJSMF(3, workers=1), STOD(3, workers=1)]))


@ENGINES
def test_the_failed_checks_hold_for_longer_documents(estimator: Any) -> None:
    fitted = clone(estimator).fit(COUNTS, y=np.zeros(300))
    np.testing.assert_array_equal(clone(estimator).fit(csr_array(COUNTS)).components_, fitted.components_)
    for bad in (np.nan, np.inf):
        broken = COUNTS.astype(float)
        broken[4, 5] = bad
        for X in (broken, csr_array(broken)):
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                clone(estimator).fit(X)
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                fitted.transform(X)


@ENGINES
def test_fitting_again_discards_the_earlier_fit(estimator: Any, tmp_path: Path) -> None:
    fresh = clone(estimator).fit(COUNTS)
    used = clone(estimator).fit(write_corpus(tmp_path / "corpus", COUNTS[:, 1:]))
    assert used.feature_names_in_.size == used.n_features_in_ == 49
    used.fit(COUNTS)
    assert not hasattr(used, "feature_names_in_")
    assert vars(used).keys() == vars(fresh).keys()
    np.testing.assert_array_equal(used.components_, fresh.components_)
    np.testing.assert_array_equal(used.transform(COUNTS), fresh.transform(COUNTS))


@ENGINES
def test_a_matrix_needs_no_names_after_a_corpus(estimator: Any, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", COUNTS)
    found = clone(estimator).fit(corpus)
    names = found.feature_names_in_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shares = found.transform(COUNTS)
        np.testing.assert_array_equal(found.transform(pd.DataFrame(COUNTS, columns=names)), shares)
    with pytest.raises(ValueError, match="feature names"):
        found.transform(pd.DataFrame(COUNTS, columns=names[::-1]))
    for X in (corpus, str(corpus), COUNTS):
        table = found.set_output(transform="pandas").transform(X)
        assert list(table.columns) == list(found.get_feature_names_out())
        np.testing.assert_array_equal(table.to_numpy(), shares)


def test_estimators_are_shown_by_their_parameters_and_compared_by_identity() -> None:
    assert repr(STOD(7, alpha0=0.5)) == "STOD(alpha0=0.5, n_topics=7)"
    assert LRJSMF(7) != LRJSMF(7)
