"""The sum of a Dirichlet prior by anchor words: what the tensor engine takes for alpha0 where none is given."""

from __future__ import annotations

from streaming_jsmf.config import InferSettings
from streaming_jsmf.errors import TooFewFactorsError
from streaming_jsmf.inference.anchors import DegenerateAnchorsError
from streaming_jsmf.inference.correlations import prior_sum
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.topics.anchored_topics import anchored_topics
from streaming_jsmf.topics.rectify import rectify

#: Eigenpairs that the rectification starts from beyond the first K.
EXTRA_PAIRS = 10


def anchored_prior_sum(moments: Moments, n_topics: int, threads: int, listener: Listener) -> float:
    """The prior sum that the refined correlations of LR-JSMF's topics imply, defaults throughout. No scan.

    At ``n_topics``, or at as many as C has positive eigenvalues: the tensor engine finds fewer where there are no more.

    Raises
    ------
    TooFewFactorsError
        If C has no positive eigenvalue or not so many anchor words; says what to do.
    """
    pairs = moments.eigenpairs(1, extra=n_topics - 1 + EXTRA_PAIRS)
    settings = InferSettings(min(n_topics, pairs.positive), correlations="refined")
    rectification = rectify(moments, pairs, settings, threads, listener)
    try:
        topics = anchored_topics(moments, rectification, settings, threads)
    except DegenerateAnchorsError as error:
        reason = str(error).partition(";")[0]
        raise TooFewFactorsError(
            f"{moments.path}: alpha0 is found by anchor words, and {reason}; give --alpha0 a number or shares, or "
            "use fewer topics"
        ) from error
    return prior_sum(topics.topic_topic, topics.topic_probability)
