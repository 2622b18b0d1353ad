"""Models as figures of matplotlib: the map, words of topics, correlations, the course of topics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streaming_jsmf.documents.queries import shown_shares_of
from streaming_jsmf.errors import InputError
from streaming_jsmf.reporting import figures
from streaming_jsmf.reporting.contents import Contents, Floats
from streaming_jsmf.reporting.read_contents import read_contents
from streaming_jsmf.reporting.read_documents import groups_of
from streaming_jsmf.topics.store import AnyModel, model_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Topics that are shown unless told which.
LARGEST = 6


def plot_map(model: AnyModel) -> Figure:
    """The topics as circles: near where they use the same words, as large as their shares.

    The layout is that of the report: t-SNE of Hellinger distances. Its axes have no unit; below it stands how many
    neighbours it keeps. One reading of ``word_topic``, none of documents. Needs matplotlib.

    Raises
    ------
    InputError
        If there is no model, or no matplotlib.

    Examples
    --------
    >>> plot_map("model").savefig("map.pdf")  # doctest: +SKIP
    """
    return figures.map_figure(_contents(model))


def plot_topics(model: AnyModel, topics: Sequence[int] | None = None, *, words: int = 10) -> Figure:
    """The most probable words of topics as bars of p(word | topic), in per cent; None: the six largest topics.

    Raises
    ------
    InputError
        If there is no such topic, the model lists fewer words, or there is no matplotlib.
    """
    contents = _contents(model, words)
    return figures.topics_figure(contents, _chosen(contents, topics), words)


def plot_correlations(model: AnyModel) -> Figure:
    """How many times as often as by chance two topics meet in a document, topics in the order of their similarity.

    Raises
    ------
    InputError
        If the model has no correlations, or there is no matplotlib.
    """
    contents = _contents(model)
    if contents.topic_topic is None:
        raise InputError(f"{model}: this model has no correlations between topics; polish makes them")
    return figures.correlations_figure(contents)


def plot_over_time(
    model: AnyModel,
    shares: str | Path,
    topics: Sequence[int] | None = None,
    *,
    by: str | None = None,
) -> Figure:
    """Mean shares of topics over time, or by another column of ``shares``, with the standard errors of the means.

    Parameters
    ----------
    model
        Path or URL.
    shares
        What ``transform`` wrote with this model.
    topics
        Their numbers. None: the six whose shares differ most between the groups.
    by
        A metadata column. None: a year or a date.

    Raises
    ------
    InputError
        If there is no such topic or column, the shares are of another model, or there is no matplotlib.
    """
    contents = _contents(model)
    groups = groups_of(shown_shares_of(model, shares), by)
    if groups is None:
        raise InputError(f"{shares}: no column holds a year or a date of few enough years; name one by by=")
    spread = groups.shares.std(axis=0)
    return figures.groups_figure(contents, groups, _chosen(contents, topics, spread))


def _contents(model: AnyModel, words: int | None = None) -> Contents:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError(
            "figures need matplotlib; install it, or streaming-jsmf with the extra notebook"
        ) from error
    return read_contents(model_path(model), words)


def _chosen(contents: Contents, topics: Sequence[int] | None, weight: Floats | None = None) -> Sequence[int]:
    """Places of topics that were asked for, or of the first by share or another weight."""
    if topics is None:
        weights = np.array([topic.share for topic in contents.topics]) if weight is None else weight
        return [int(topic) for topic in np.argsort(-weights, kind="stable")[:LARGEST]]
    places = {topic.number: place for place, topic in enumerate(contents.topics)}
    wrong = [topic for topic in topics if topic not in places]
    if wrong or not topics:
        named = f"there is no topic {wrong[0]}" if wrong else "topics is empty"
        raise InputError(f"{named}; the model has topics 0 to {max(places)}")
    return [places[topic] for topic in topics]
