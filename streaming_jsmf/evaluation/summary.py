"""All metrics of a model as one JSON-ready dict.

Shape of every value (``number`` is a finite float). A value is null where the input that it needs was not given:

=======================  ==============================================================================================
recovery                 R; needs ``cooccurrence``
relative_recovery        R; needs ``cooccurrence``
approximation            R; needs ``cooccurrence`` and ``topic_topic``
relative_approximation   R; needs ``cooccurrence`` and ``topic_topic``. R is a number, against C as the factor has it;
                         with ``counts.sketch`` it is {"value": number, "standard_error": number}, an estimate against
                         C of the counted documents
dominancy                number; needs ``topic_topic``
relative_dominancy       number; needs ``topic_topic``
specificity              {"2015": number, "2021": number or null}, never null; "2021" needs ``cooccurrence``
dissimilarity            number, never null
coherence                {"mimno_2011": E, "jsmf_2015": E, "softclique": E}; needs ``counts``.
                         E = {"epsilon": number, "words": integer, "mean": number, "per_topic": [number, K of them]}
u_mass                   {"mean": number, "per_topic": [number, K of them]}; needs ``counts``
npmi                     {"mean": number, "per_topic": [number, K of them]}; needs ``counts``
perplexity               {"model": number, "unigram": number, "tokens_without_mass": number, "documents": integer,
                         "tokens": integer, "unseen_tokens": integer, "unconverged": integer}; needs ``completion``
mst_incoherence          {"cooccurrence": M or null, "documents": M or null}, never null;
                         M = {"mean": number, "per_topic": [number, K of them]}; the first needs ``cooccurrence``, the
                         second ``counts`` and, for the anchors' rows, their ``anchor_rows`` or ``cooccurrence``
log_relative_volume      {"value": number, "standard_error": number}; needs ``rectified``, ``anchor_rows`` or
                         ``cooccurrence``; null too where the hull has no volume (two topics with one anchor)
recovery_error           number; needs ``truth``
distinct_share           number, never null
effective_topics         number; needs ``topic_probability``
hoyer_sparsity           number, never null
legality                 number; needs ``topic_topic``
validity                 number; needs ``topic_topic`` and ``topic_probability``
entropy                  number, never null
basis_rank               P; needs ``anchors``. P = {"hard": number, "soft": number or null}
basis_quality            P; needs ``anchors``; null too for one topic
stability                {"value": number, "standard_error": number or null}; needs ``replicas``; the error is null
                         for a single replica
=======================  ==============================================================================================

``coherence``, ``u_mass`` and ``npmi`` are null too where topics list fewer than two words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streaming_jsmf.evaluation import basis, coherence, topic_shape
from streaming_jsmf.evaluation.factorization import cooccurrence_rows, factorization_errors
from streaming_jsmf.evaluation.incoherence import incoherence_in_cooccurrence, incoherence_in_documents
from streaming_jsmf.evaluation.inputs import (
    Cooccurrence,
    Estimate,
    Floats,
    Integers,
    SelectedCounts,
    TopicArrays,
)
from streaming_jsmf.evaluation.matching import Stability, recovery_error, stability
from streaming_jsmf.evaluation.sketch import estimated_errors
from streaming_jsmf.evaluation.volume import anchor_points, log_relative_volume
from streaming_jsmf.inference.perplexity import Completion

#: Top words of a topic in NPMI, UMass and the distinct share.
TOP_WORDS = 10

#: Name of a coherence -> epsilon and top words (as many as are listed) of the paper.
COHERENCES = {"mimno_2011": (1.0, 10), "jsmf_2015": (0.01, 20), "softclique": (1e-8, 10)}


def evaluate_topics(
    topics: TopicArrays,
    *,
    cooccurrence: Cooccurrence | None = None,
    counts: SelectedCounts | None = None,
    completion: Completion | None = None,
    truth: Floats | None = None,
    replicas: Sequence[Floats] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """All metrics; the module's text has the shape of the result. No pass over documents; O(N L^2) at most.

    Parameters
    ----------
    topics
        The model.
    cooccurrence
        C of the training corpus.
    counts
        Of the training corpus, or of a held-out one over the same words.
    completion
        Of the same documents, with tokens scored.
    truth
        (N, K*) topics that drew the corpus.
    replicas
        (N, K') each: topics of models of bootstrap samples.
    seed
        Of the random hulls of ``log_relative_volume``.

    Raises
    ------
    ValueError
        If the inputs are not over the same words, or ``counts`` lacks a top word.

    Examples
    --------
    >>> one_topic = TopicArrays(np.full((2, 1), 0.5), np.array([[0, 1]]), np.full(2, 0.5))
    >>> result = evaluate_topics(one_topic)
    >>> result["distinct_share"], result["specificity"], result["recovery"]
    (1.0, {'2015': 0.0, '2021': None}, None)
    """
    result = _factorization(topics, cooccurrence, counts) | _shape(topics, cooccurrence) | _basis(topics)
    result |= document_metrics(topics.top_words, counts) | _anchors(topics, cooccurrence, counts, seed)
    result["perplexity"] = perplexity_metric(completion)
    result["recovery_error"] = None if truth is None else recovery_error(topics.word_topic, truth)
    result["stability"] = _estimate(stability(topics.word_topic, replicas) if replicas else None)
    return result


def _factorization(
    topics: TopicArrays, cooccurrence: Cooccurrence | None, counts: SelectedCounts | None
) -> dict[str, Any]:
    """Against the documents where they left a sketch, else against the factor."""
    names = ("recovery", "relative_recovery", "approximation", "relative_approximation")
    if cooccurrence is None:
        return dict.fromkeys(names)
    sketch = None if counts is None else counts.sketch
    if sketch is None:
        exact = factorization_errors(topics, cooccurrence)
        return {name: getattr(exact, name) for name in names}
    estimated = estimated_errors(topics, cooccurrence, sketch)
    return {name: _estimate(getattr(estimated, name)) for name in names}


def _shape(topics: TopicArrays, cooccurrence: Cooccurrence | None) -> dict[str, Any]:
    """What follows from the topics alone, and Specificity, whose 2021 form has the row sums of C."""
    A, B = topics.topic_topic, topics.word_topic
    probability = topics.topic_probability
    return {
        "dominancy": None if A is None else topic_shape.dominancy(A),
        "relative_dominancy": None if A is None else topic_shape.relative_dominancy(A),
        "specificity": {
            "2015": topic_shape.specificity(B, topics.word_probability),
            "2021": None if cooccurrence is None else topic_shape.specificity(B, cooccurrence.row_sum),
        },
        "dissimilarity": topic_shape.dissimilarity(topics.top_words),
        "distinct_share": coherence.distinct_share(topics.top_words[:, :TOP_WORDS]),
        "effective_topics": None if probability is None else topic_shape.effective_topics(probability),
        "hoyer_sparsity": topic_shape.hoyer_sparsity(B),
    }


def _basis(topics: TopicArrays) -> dict[str, Any]:
    """The measures of the authors' code."""
    A, probability = topics.topic_topic, topics.topic_probability
    anchored = topics.anchors is not None
    return {
        "legality": None if A is None else basis.legality(A),
        "validity": None if A is None or probability is None else basis.validity(A, probability),
        "entropy": basis.word_entropy(topics),
        "basis_rank": _pair(basis.basis_rank(topics) if anchored else None),
        "basis_quality": _pair(basis.basis_quality(topics) if anchored else None),
    }


def document_metrics(top_words: Integers, counts: SelectedCounts | None) -> dict[str, Any]:
    """The metrics ``coherence``, ``u_mass`` and ``npmi`` of top words (K, n), shaped as the module's text has it.

    Raises
    ------
    ValueError
        If ``counts`` lacks a top word.

    Examples
    --------
    Of four documents two hold each word and one holds both, as chance would have it.

    >>> counts = SelectedCounts(np.array([0, 1]), np.array([[2, 1], [1, 2]]), 4)
    >>> document_metrics(np.array([[0, 1]]), counts)["npmi"]
    {'mean': 0.0, 'per_topic': [0.0]}
    """
    if counts is None or top_words.shape[1] < 2:
        return dict.fromkeys(("coherence", "u_mass", "npmi"))
    listed = top_words[:, : max(words for _, words in COHERENCES.values())]
    places = counts.places(listed)
    if (places < 0).any():
        raise ValueError(f"word {listed[places < 0][0]} is a top word and was not counted")
    frequency, first = np.diag(counts.pairs), places[:, :TOP_WORDS]
    coherences = {
        name: {"epsilon": epsilon, "words": places[:, :words].shape[1]}
        | _mean(coherence.coherence(frequency, counts.pairs, places[:, :words], epsilon=epsilon))
        for name, (epsilon, words) in COHERENCES.items()
    }
    return {
        "coherence": coherences,
        "u_mass": _mean(coherence.u_mass(frequency, counts.pairs, counts.n_documents, first)),
        "npmi": _mean(coherence.npmi(frequency, counts.pairs, counts.n_documents, first)),
    }


def perplexity_metric(completion: Completion | None) -> dict[str, Any] | None:
    """The metric ``perplexity``, shaped as the module's text has it.

    Examples
    --------
    Two tokens of probability 1/8 by the topics, and 1/16 by the words' frequencies.

    >>> sums = Completion(1, tokens=2, log_likelihood=-6 * np.log(2), unigram_log_likelihood=-8 * np.log(2))
    >>> found = perplexity_metric(sums)
    >>> round(found["model"], 6), round(found["unigram"], 6), found["tokens_without_mass"]
    (8.0, 16.0, 0.0)
    """
    if completion is None:
        return None
    return {
        "model": completion.perplexity,
        "unigram": completion.unigram_perplexity,
        "tokens_without_mass": completion.tokens_without_mass,
        "documents": completion.documents,
        "tokens": completion.tokens,
        "unseen_tokens": completion.unseen,
        "unconverged": completion.unconverged,
    }


def _anchors(
    topics: TopicArrays, cooccurrence: Cooccurrence | None, counts: SelectedCounts | None, seed: int
) -> dict[str, Any]:
    """What looks at the anchors' rows of C: exact ones where they were counted, else those of the factor."""
    rows = None if counts is None else counts.anchor_rows
    if rows is None and cooccurrence is not None:
        rows = cooccurrence_rows(cooccurrence, topics.representatives)
    in_cooccurrence = in_documents = volume = None
    if cooccurrence is not None:
        in_cooccurrence = _mean(incoherence_in_cooccurrence(topics, cooccurrence, rows))
    if counts is not None and rows is not None:
        in_documents = _mean(incoherence_in_documents(topics, counts, rows))
    points = anchor_points(topics, cooccurrence, None if counts is None else counts.anchor_rows)
    if points is not None:
        volume = log_relative_volume(points, len(topics.word_topic), seed=seed)
    return {
        "mst_incoherence": {"cooccurrence": in_cooccurrence, "documents": in_documents},
        "log_relative_volume": _estimate(volume),
    }


def _estimate(estimate: Estimate | Stability | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {"value": estimate.value, "standard_error": estimate.standard_error}


def _pair(pair: basis.Pair | None) -> dict[str, Any] | None:
    return None if pair is None else {"hard": pair.hard, "soft": pair.soft}


def _mean(per_topic: Floats) -> dict[str, Any]:
    return {"mean": float(per_topic.mean()), "per_topic": per_topic.tolist()}
