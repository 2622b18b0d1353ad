"""How the topics of one model are made of those of the next: models of several K of the same words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.evaluation.choice import Choice, choice_of
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg.simplex import simplex_least_squares
from streaming_jsmf.reporting.contents import Floats, Level, Levels
from streaming_jsmf.storage.paths import StorePath, read_text
from streaming_jsmf.topics.store import COMPARISON, read_model, read_model_panels


def levels_of(paths: Sequence[StorePath], models: Sequence[Level], own: int) -> Levels:
    """What flows from each model to the next.

    A topic of the smaller model is written as the mixture of topics of the larger one that is nearest to it: least
    squares over the simplex, in which a word counts by one over its probability, as in correspondence analysis. Two
    readings of each ``word_topic``, chunk by chunk.

    Parameters
    ----------
    paths, models
        Of the models, by rising K.
    own
        Which of them the page is about.

    Raises
    ------
    InputError
        If the models are not of the same words.
    """
    for first, second in pairwise(paths):
        if not np.array_equal(_words(first), _words(second)):
            raise InputError(f"{first} and {second} are not of the same words; give models of one scan")
    flows = tuple(
        flow(first, second, model.shares)
        for (first, second), model in zip(pairwise(paths), models, strict=False)
    )
    return Levels(tuple(models), flows, own)


def choice_at(place: StorePath) -> tuple[Choice | None, Mapping[str, str]]:
    """What ``choose_k`` left in a directory of models, and why its columns are empty; None if it left nothing.

    Raises
    ------
    StoreError
        If the file is damaged.
    """
    path = place / COMPARISON
    try:
        return choice_of(json.loads(read_text(path)))
    except FileNotFoundError:
        return None, {}
    except ValueError as error:
        raise StoreError(f"{path}: is damaged ({error}); delete it, or run choose-k again") from error


def _words(path: StorePath) -> NDArray[Any]:
    return read_model(path, ("word",)).arrays["word"]


def flow(coarse: StorePath, fine: StorePath, shares: Floats) -> Floats:
    """(K, K'): of the share of each topic of the one model what goes to each topic of the other."""
    with single_blas_thread():
        products = _products(coarse, fine, shares)
        # Rows with these inner products, which is all that least squares ask for.
        values, vectors = np.linalg.eigh(products)
        rows = vectors * np.sqrt(np.maximum(values, 0.0))
        n_coarse = len(shares)
        weights = simplex_least_squares(rows[:n_coarse], rows[n_coarse:], threads=1).weights
    return np.maximum(shares, 0.0)[:, None] * weights


def _products(coarse: StorePath, fine: StorePath, shares: Floats) -> Floats:
    """Inner products of all topics of both models, words weighted by 1 / p(word)."""
    products: Floats = np.zeros(0)
    for first, second in _aligned(
        read_model_panels(coarse, "word_topic"), read_model_panels(fine, "word_topic")
    ):
        of_words = np.maximum(first, 0.0) @ np.maximum(shares, 0.0)
        scale = np.divide(1.0, np.sqrt(of_words), out=np.zeros_like(of_words), where=of_words > 0)
        both = np.hstack([first, second]) * scale[:, None]
        products = both.T @ both + (products if products.size else 0.0)
    return products


def _aligned(first: Iterator[Floats], second: Iterator[Floats]) -> Iterator[tuple[Floats, Floats]]:
    """The same rows of both, however each is cut."""
    one, other = next(first, None), next(second, None)
    while one is not None and other is not None:
        rows = min(len(one), len(other))
        yield one[:rows], other[:rows]
        one = one[rows:] if rows < len(one) else next(first, None)
        other = other[rows:] if rows < len(other) else next(second, None)
