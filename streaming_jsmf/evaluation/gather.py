"""What the metrics of a model are computed from: its arrays, its moments, a truth, and models of resampled data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import InferSettings
from streaming_jsmf.errors import InputError, StreamingJSMFError
from streaming_jsmf.evaluation.completion import Completed
from streaming_jsmf.evaluation.inputs import Cooccurrence, TopicArrays
from streaming_jsmf.evaluation.stored_counts import StoredCounts
from streaming_jsmf.inference.perplexity import Completion
from streaming_jsmf.ingestion.simulation.truth import read_truth, read_truth_words
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.moments.reader import Moments, open_moments
from streaming_jsmf.moments.select import require_parts, resampled, select_partitions
from streaming_jsmf.storage.paths import StorePath, store_path
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.parameters import missing_parameter
from streaming_jsmf.topics.store import Model, read_model

#: Arrays that every engine writes, and those that some do.
NEEDED = ("word", "word_topic", "prominent_words")
OPTIONAL = (
    "alpha",
    "anchors",
    "characteristic_words",
    "rectified",
    "row_sum",
    "term_count",
    "topic_probability",
    "topic_topic",
)


class Unavailable(Exception):
    """An input cannot be had; the message is the reason, for people."""


@dataclass(frozen=True)
class Replicas:
    """How many models of resampled moments tell the stability, and the seed of the drawing."""

    count: int
    seed: int


def read_topics(path: StorePath) -> Model:
    """The arrays of a model that metrics need; errors as ``read_model``."""
    return read_model(path, NEEDED, OPTIONAL)


def topic_arrays(model: Model) -> TopicArrays:
    """A model of any engine as the metrics see it."""
    arrays = model.arrays
    return TopicArrays(
        arrays["word_topic"],
        arrays["prominent_words"],
        _word_probability(model),
        arrays.get("topic_topic"),
        arrays.get("topic_probability"),
        arrays.get("anchors"),
        arrays.get("rectified"),
    )


def _word_probability(model: Model) -> NDArray[np.float64]:
    """Share of each word in the corpus; from the model itself where it keeps no counts."""
    arrays = model.arrays
    if "term_count" in arrays:
        mass = arrays["term_count"]
    elif "row_sum" in arrays:
        mass = arrays["row_sum"]
    elif "topic_probability" in arrays:
        mass = arrays["word_topic"] @ arrays["topic_probability"]
    else:
        mass = arrays["word_topic"].mean(axis=1)
    shares: NDArray[np.float64] = mass / mass.sum()
    return shares


def moments_of(model: Model, given: str | StorePath | None) -> Moments:
    """The moments that a model was made of: those ``given``, or else those that it names.

    Raises
    ------
    InputError, StoreError
        If the given ones cannot be read or are of other words.
    Unavailable
        If those that the model names are not there any more, or not the same.
    """
    if given is not None:
        moments = open_moments(store_path(given, "a moments store"))
        _require_same_words(model, moments)
        return moments
    named = model.provenance.get("moments")
    if not named:
        raise Unavailable("the model names no moments store; give it with --moments")
    try:
        moments = open_moments(store_path(str(named), "a moments store"))
        _require_same_words(model, moments)
        _require_same_contents(model, moments)
        chosen = model.provenance.get("partitions")
        return moments if chosen is None else select_partitions(moments, str(chosen))
    except StreamingJSMFError as error:
        raise Unavailable(f"{error}; or give it with --moments") from error


def _require_same_words(model: Model, moments: Moments) -> None:
    if moments.words != tuple(str(word) for word in model.arrays["word"]):
        raise InputError(
            f"{moments.path}: has other words than the model; give the store that it was made of"
        )


def _require_same_contents(model: Model, moments: Moments) -> None:
    """A store may have gained or lost documents, or have been made anew, since the model was inferred."""
    manifest, made = moments.store.manifest, model.provenance
    # A third moment that was added since changes nothing else.
    settings = manifest.range_key
    fingerprints = [entry.fingerprint for entry in manifest.corpora]
    documents = model.metrics.get("n_documents")
    same = (
        made.get("corpus_fingerprints", fingerprints) == fingerprints
        and made.get("settings_fingerprint", settings) == settings
        and (made.get("partitions") is not None or documents in (None, moments.n_documents))
    )
    if not same:
        raise InputError(f"{moments.path}: is not what the model was made of any more; infer the model again")


def cooccurrence_of(moments: Moments) -> Cooccurrence:
    """C through the factor of scan 1, or after ``halko`` through the eigenpairs, which need no diagonal."""
    factor = moments.factor()
    if factor is not None:
        return Cooccurrence(factor, moments.diagonal, moments.row_sum)
    pairs = moments.eigenpairs(1, extra=moments.settings.basis_width)
    half = pairs.vectors * np.sqrt(np.maximum(pairs.values, 0.0))
    return Cooccurrence(half.astype(np.float32), np.zeros(len(moments.words)), moments.row_sum)


def completion_of(model: Model, counts: StoredCounts) -> Completion:
    """How well the topics predict the documents that were counted.

    Raises
    ------
    Unavailable
        If the model is none that predicts documents, or these have no tokens that could be predicted.
    """
    if counts.completion is None:
        lacking = missing_parameter(model)
        raise Unavailable(
            f"the model has no {lacking}"
            if lacking
            else "no documents were predicted when the words were counted; give the corpus once more with --corpus"
        )
    found = Completed.from_fields(counts.completion)
    if found.fractional:
        raise Unavailable(
            f"{found.fractional:,} documents have counts that are no whole numbers, and so no tokens to predict"
        )
    if not found.sums.tokens:
        raise Unavailable("no document has two tokens of words that the training corpus has")
    return found.sums


def doubts_of_perplexity(completion: Completion | None) -> list[str]:
    """A sentence if the topics predict documents no better than the words' frequencies do."""
    if completion is None or completion.perplexity < completion.unigram_perplexity:
        return []
    return [
        f"perplexity {completion.perplexity:.4g} is not below that of the words' frequencies alone "
        f"({completion.unigram_perplexity:.4g}): the topics do not predict these documents; try another number of "
        "topics, or documents of the same kind as those of the model"
    ]


def truth_of(corpus: str, model: Model) -> NDArray[np.float64]:
    """Topics of a simulated corpus over the words of the model, (N, K of the truth); columns sum to 1.

    Words are matched by string. Words of the truth that the model lacks are left out, and what remains of a topic is
    normalised; words that the truth lacks are 0.

    Raises
    ------
    InputError
        If there is no truth at ``corpus``, or a topic of it has none of the model's words.
    StoreError
        If it is damaged.
    """
    truth = read_truth(corpus)
    places = {str(word): place for place, word in enumerate(read_truth_words(corpus))}
    found = np.array([places.get(str(word), -1) for word in model.arrays["word"]], dtype=np.int64)
    topics = np.where((found >= 0)[:, None], truth.word_topic[found], 0.0)
    mass = topics.sum(axis=0)
    if not (mass > 0).all():
        raise InputError(
            f"{corpus}: the model has none of the words of {np.count_nonzero(mass <= 0)} of the {mass.size} true "
            "topics; give the corpus that the model was made of"
        )
    normalised: NDArray[np.float64] = topics / mass
    return normalised


def replicas_of(
    model: Model, moments: Moments, wanted: Replicas, threads: int | None, listener: Listener = silent
) -> Sequence[NDArray[np.float64]]:
    """Topics (N, K) of models inferred from bootstrap samples of the kept partitions. No scan.

    Raises
    ------
    Unavailable
        If the moments keep no partitions, or the model is of another engine.
    """
    if wanted.count == 0:
        raise Unavailable("no replicas were asked for (--replicas)")
    if model.provenance.get("engine") != "lr-jsmf":
        raise Unavailable("only models of the engine lr-jsmf are inferred again from resampled moments")
    if model.provenance.get("partitions") is not None:
        raise Unavailable("the model is of some partitions only, which are not resampled")
    try:
        require_parts(moments)
        settings = _infer_settings(model.settings)
        return [
            fit_moments(
                resampled(moments, wanted.seed, number), settings, threads=threads, listener=listener
            ).arrays["word_topic"]
            for number in range(wanted.count)
        ]
    except InputError as error:
        raise Unavailable(str(error)) from error


def _infer_settings(fields: Mapping[str, object]) -> InferSettings:
    try:
        return InferSettings(**fields)  # type: ignore[arg-type]
    except TypeError as error:
        raise InputError(f"the settings of the model are of another release ({error})") from error
