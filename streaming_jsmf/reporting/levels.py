"""How the topics of models of several K, fitted from one scan, split as K grows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.evaluation.choice import Choice, choice_of
from streaming_jsmf.evaluation.counts import StoredCounts, read_training_counts
from streaming_jsmf.evaluation.evaluate import completion_of
from streaming_jsmf.evaluation.metrics import Unavailable, evaluate_topics, rows_of
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg.simplex import simplex_least_squares
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.reporting.topics import NEEDED, OPTIONAL
from streaming_jsmf.storage.paths import StorePath, read_bytes
from streaming_jsmf.topics.edits import TopicEdits, shown_topics
from streaming_jsmf.topics.store import COMPARISON, Model, read_model, read_model_panels

#: Counts of the training corpus used by a page.
COUNTS = ("selected_words", "document_pairs")


@dataclass(frozen=True)
class Level:
    """Names and shares of the K topics of one of several models of the same moments, and its metrics as text."""

    names: tuple[str, ...]
    shares: Floats
    metrics: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Levels:
    """Models of an increasing number of topics.

    ``flows`` (K, K') between each model and the next say how the share of each topic is distributed over the next
    model's topics; rows sum to the shares. ``own`` is the index of the model that the page shows, ``choice`` the
    result of ``choose_k`` if it fitted these models, and ``missing`` the reason for each measure without values.
    """

    models: tuple[Level, ...]
    flows: tuple[Floats, ...]
    own: int
    choice: Choice | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


def read_levels(root: StorePath, paths: Sequence[StorePath], own: int) -> Levels:
    """Read how the topics of each model in ``paths``, by ascending K, are distributed over those of the next.

    Reads each ``word_topic`` twice, in chunks. ``own`` is the index of the model that the page shows, ``root`` their
    directory. Raises ``InputError`` if the models have different vocabularies; ``StoreError`` if the result of
    ``choose_k`` in ``root`` is damaged.
    """
    levels = tuple(map(_read_level, paths))
    flows = tuple(
        flow(first, second, level.shares)
        for (first, second), level in zip(pairwise(paths), levels, strict=False)
    )
    return Levels(levels, flows, own, *_read_choice(root))


def _read_level(path: StorePath) -> Level:
    shown = shown_topics(path, NEEDED, OPTIONAL)
    model, stored = shown.stored, TopicEdits(shown.edits.n_topics, shown.edits.labels)
    metrics = rows_of(metrics_of(model, read_training_counts(path, model, COUNTS)))
    return Level(
        replace(shown, edits=stored).names,
        model.arrays["topic_probability"],
        tuple((row.path, row.value) for row in metrics),
    )


def _read_choice(root: StorePath) -> tuple[Choice | None, Mapping[str, str]]:
    """The result of ``choose_k``, if there is one, and why columns are empty."""
    path = root / COMPARISON
    try:
        return choice_of(json.loads(read_bytes(path)))
    except FileNotFoundError:
        return None, {}
    except ValueError as error:
        raise StoreError(f"{path}: is damaged ({error}); delete it, or run choose-k again") from error


@single_blas_thread()
def flow(coarse: StorePath, fine: StorePath, shares: Floats) -> Floats:
    """How the share of each topic of one model is distributed over the topics of another, (K, K').

    Each topic is approximated by a mixture of the other model's topics: least squares over the simplex, with words
    weighted by inverse probability as in correspondence analysis. Raises ``InputError`` if the vocabularies differ.
    """
    words, other_words = (read_model(path, ("word",)).arrays["word"] for path in (coarse, fine))
    if not np.array_equal(words, other_words):
        raise InputError(f"{coarse} and {fine} are not of the same words; give models of one scan")
    products: Any = 0.0
    for first, second in _aligned(*(read_model_panels(path, "word_topic") for path in (coarse, fine))):
        of_words = np.maximum(first, 0.0) @ np.maximum(shares, 0.0)
        scale = np.divide(1.0, np.sqrt(of_words), out=np.zeros_like(of_words), where=of_words > 0)
        both = np.hstack([first, second]) * scale[:, None]
        products = both.T @ both + products
    # Rows with these inner products, which are all that least squares needs.
    values, vectors = np.linalg.eigh(products)
    rows = vectors * np.sqrt(np.maximum(values, 0.0))
    weights = simplex_least_squares(rows[: len(shares)], rows[len(shares) :], threads=1).weights
    return np.maximum(shares, 0.0)[:, None] * weights


def _aligned(first: Iterator[Floats], second: Iterator[Floats]) -> Iterator[tuple[Floats, Floats]]:
    """Yield the same rows of two arrays that have different panels."""
    one, other = next(first, None), next(second, None)
    while one is not None and other is not None:
        rows = min(len(one), len(other))
        yield one[:rows], other[:rows]
        one = one[rows:] if rows < len(one) else next(first, None)
        other = other[rows:] if rows < len(other) else next(second, None)


def metrics_of(model: Model, counts: StoredCounts | None) -> dict[str, Any]:
    """Metrics that need only word lists, shares, correlations and counts; None for the others."""
    completion = None
    if counts is not None:
        with suppress(Unavailable):
            completion = completion_of(model, counts)
    metrics, _ = evaluate_topics(
        None,
        top_words=model.arrays["prominent_words"],
        topic_probability=model.arrays["topic_probability"],
        topic_topic=model.arrays.get("topic_topic"),
        counts=counts,
        completion=completion,
    )
    return metrics
