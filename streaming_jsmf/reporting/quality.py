"""Picture of the quality of topics as papers report it: exclusivity against semantic coherence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.evaluation.counts import counts_of
from streaming_jsmf.reporting.contents import read_contents
from streaming_jsmf.reporting.figures import COLORS, axes_for, require, set_title, shortened
from streaming_jsmf.reporting.map_names import write_names
from streaming_jsmf.reporting.plots import all_or
from streaming_jsmf.topics.store import AnyModel, corpus_beside, model_path, read_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_quality(
    model: AnyModel,
    topics: Sequence[int] | None = None,
    *,
    corpus: Corpus | None = None,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the exclusivity of topics against their semantic coherence; up and to the right are the good ones.

    Coherence (Mimno et al. 2011) tells whether the top 10 words of a topic occur in the same documents, exclusivity
    (FREX of Bischof and Airoldi 2012, summed as by R's stm) whether they belong to it alone. Areas are shares of the
    corpus. ``topics`` are numbers, by default all; merged ones have no values and are left out. Words that ``evaluate``
    has not counted in the training corpus are counted in ``corpus``, by default the one next to the model, in one pass.
    Raises ``InputError`` if it is missing, a topic does not exist, or matplotlib is missing.

    Examples
    --------
    >>> plot_quality("model", title="Topics of the debates")  # doctest: +SKIP
    """
    require("matplotlib")
    path = model_path(model)
    if (contents := read_contents(path)).quality is None:
        corpus = corpus or getattr(model, "corpus", None) or corpus_beside(path)
        if corpus is None:
            raise InputError(
                f"{path}: its words were not counted in its corpus; run evaluate once with corpus=CORPUS"
            )
        counts_of(path, read_model(path), corpus)
        contents = read_contents(path)
    if contents.quality is None:
        raise InputError(
            f"{path}: was not fitted to this corpus, or has one word per topic; coherence is not defined"
        )
    coherence, exclusivity = contents.quality
    drawn = [place for place in all_or(contents.topics, topics) if np.isfinite(coherence[place])]
    shown = [contents.topics[place] for place in drawn]
    points = np.stack([coherence[drawn], exclusivity[drawn]], axis=1)
    areas = np.array([4000 * topic.share for topic in shown])
    figure, [axes] = axes_for(ax, 1, figsize, (8.0, 6.0))
    axes.scatter(points[:, 0], points[:, 1], areas, COLORS[0], alpha=0.35)
    axes.margins(0.12)
    axes.set_xlabel("semantic coherence: the words occur in the same documents")
    axes.set_ylabel("exclusivity: the words belong to one topic")
    set_title(figure, [axes], title, "Coherence and exclusivity of the topics")
    radii = np.sqrt(areas / np.pi) * figure.dpi / 72
    write_names(
        axes, points, radii, [topic.number for topic in shown], [shortened(topic.name) for topic in shown]
    )
    return figure
