"""The words that the columns of a matrix stand for, from wherever they can be had."""

from __future__ import annotations

import inspect
from typing import Any

from sklearn.pipeline import Pipeline

from streaming_jsmf.corpus.matrices import column_words


def feature_words(given: Any, estimator: object, n_features: int) -> list[str] | None:
    """The words that ``given`` names, or else those of the steps before the estimator in the pipeline that fits it.

    Parameters
    ----------
    given
        Words, or a fitted transformer with ``get_feature_names_out``, such as a ``CountVectorizer``; None: nothing.
    estimator
        Whose ``fit`` is running.
    n_features
        Columns of the matrix.

    Returns
    -------
    The words; None where nothing names them.

    Raises
    ------
    InputError
        As ``column_words``.
    """
    if given is None:
        return _words_of_pipeline(estimator, n_features)
    return column_words(given, n_features, "feature_names")


def _words_of_pipeline(estimator: object, n_features: int) -> list[str] | None:
    """Names that a pipeline knows and does not hand on.

    Scikit-learn passes names from step to step with data frames only, and vectorizers make sparse matrices. The
    pipeline that is calling ``fit`` knows them, and it is on the stack.
    """
    frame = inspect.currentframe()
    while frame is not None:
        pipeline = frame.f_locals.get("self")
        if isinstance(pipeline, Pipeline) and pipeline.steps and pipeline.steps[-1][1] is estimator:
            return _names_out(pipeline, n_features)
        frame = frame.f_back
    return None


def _names_out(pipeline: Pipeline, n_features: int) -> list[str] | None:
    try:
        names = pipeline[:-1].get_feature_names_out()
    except (AttributeError, ValueError):
        # A step without names of its own; numbers stand for the words then.
        return None
    # Without a step before, there is nobody who could name them.
    return None if names is None or len(names) != n_features else [str(word) for word in names]
