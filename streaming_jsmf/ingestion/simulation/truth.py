"""The known topics of a simulated corpus, stored in ``truth.zarr``, a Zarr group that xarray can open."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.ingestion.simulation.law import Law, anchor_words, make_law, topic_rows, word_names
from streaming_jsmf.storage.arrays import (
    ArrayDigest,
    Variable,
    create_group,
    read_array,
    read_attributes,
    write_arrays,
)
from streaming_jsmf.storage.paths import fsync_directory, local_path

TRUTH_NAME = "truth.zarr"
KIND, FORMAT_VERSION = "streaming_jsmf.truth", 1

#: Dimensions and meaning of each array; a model store uses the same names.
_VARIABLES = {
    "word": Variable(("word",), "vocabulary"),
    "topic": Variable(("topic",), "topic number"),
    "topic_": Variable(("topic_",), "topic number, second axis of topic_topic"),
    "word_topic": Variable(("word", "topic"), "p(word | topic); columns sum to 1"),
    "alpha": Variable(("topic",), "Dirichlet prior of the topic shares of a document"),
    "topic_topic": Variable(("topic", "topic_"), "E[theta theta'] of the prior; entries sum to 1"),
    "anchors": Variable(("topic",), "word id that only this topic uses"),
}


@dataclass(frozen=True, eq=False)
class Truth:
    """The parameters from which a simulated corpus was drawn.

    Attributes
    ----------
    word_topic
        (N, K) float64; p(word | topic), columns sum to 1.
    alpha
        (K,) float64; Dirichlet prior of the topic shares of a document.
    anchors
        (K,) int64; the word that only topic k uses; None if the topics are not separable.
    mean_length
        Mean of the Poisson distribution of document lengths (a length of 0 becomes 1).
    """

    word_topic: NDArray[np.float64]
    alpha: NDArray[np.float64]
    anchors: NDArray[np.int64] | None
    seed: int
    mean_length: float

    @property
    def topic_topic(self) -> NDArray[np.float64]:
        """(K, K) float64; E[theta theta'] of the Dirichlet prior, entries sum to 1."""
        total = self.alpha.sum()
        moment: NDArray[np.float64] = np.outer(self.alpha, self.alpha) + np.diag(self.alpha)
        moment /= total * (total + 1)
        return moment


def simulate_truth(
    *,
    n_words: int,
    n_topics: int,
    mean_length: float = 100,
    alpha: float | Sequence[float] | None = None,
    beta: float | None = None,
    separable: bool = False,
    zipf: float | None = None,
    seed: int,
) -> Truth:
    """Return the topics that ``simulate_lda`` uses with the same arguments. Memory: briefly 16 N K bytes.

    Raises ``InputError`` if a size or parameter is out of range.

    Parameters
    ----------
    n_words, n_topics
        N and K.
    mean_length
        Mean of the Poisson distribution of document lengths.
    alpha
        Dirichlet prior of the topic shares: one number for all topics, or K numbers; default 1/K.
    beta
        Mean of the Dirichlet parameters of the topics; default 200/N.
    separable
        Whether each topic has an anchor word, with probability 0.01 in that topic and 0 in all others.
    zipf
        Exponent s: the Dirichlet parameters decrease as 1 / rank^s with the same sum (id = rank), so that word
        frequencies have the tail of real text at large N.
    """
    return truth_of(make_law(n_words, n_topics, mean_length, alpha, beta, separable, zipf, seed))


def truth_of(law: Law) -> Truth:
    """Draw the topics of a law. Memory: 16 N K bytes."""
    by_topic = topic_rows(law)
    anchors = anchor_words(law) if law.separable else None
    return Truth(np.ascontiguousarray(by_topic.T), np.array(law.alpha), anchors, law.seed, law.mean_length)


def write_truth(path: Path, truth: Truth) -> None:
    """Write a truth store at ``path``, whose parent exists; deterministic. Memory: one 16 MiB chunk, and N words."""
    create_group(path, {})
    digests = write_arrays(path, _arrays(truth), _VARIABLES, compress=True)
    # Written last: a store is complete if its attributes name its arrays.
    attributes = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "seed": truth.seed,
        "mean_length": truth.mean_length,
        "digests": digests,
    }
    zarr.open_group(store=str(path), mode="r+").update_attributes(attributes)


def commit_truth(work: Path, path: Path, truth: Truth) -> None:
    """Write a truth store in ``work`` and atomically rename it to ``path``, on the same disk."""
    attempt = work / f"truth-{uuid.uuid4().hex}"
    write_truth(attempt, truth)
    attempt.rename(path)
    fsync_directory(path.parent)


def read_truth(corpus: str | os.PathLike[str]) -> Truth:
    """Read the truth of a simulated corpus, a local directory, and compare each array with its digest.

    Raises
    ------
    InputError
        If the directory has no truth, or its format version is unknown.
    StoreError
        If an array is missing, truncated or altered; the message names it.
    """
    path = local_path(corpus, "a simulated corpus") / TRUTH_NAME
    attributes = _checked_attributes(path)
    digests = attributes["digests"]
    wanted = [name for name in ("word_topic", "alpha", "anchors") if name in digests]
    arrays = {name: read_array(path, name, ArrayDigest.from_fields(digests[name])) for name in wanted}
    return Truth(
        arrays["word_topic"],
        arrays["alpha"],
        arrays.get("anchors"),
        int(attributes["seed"]),
        float(attributes["mean_length"]),
    )


def read_truth_words(corpus: str | os.PathLike[str]) -> NDArray[Any]:
    """Read the words of the rows of ``word_topic``, (N,) strings; raises as ``read_truth`` does."""
    path = local_path(corpus, "a simulated corpus") / TRUTH_NAME
    digests = _checked_attributes(path)["digests"]
    return read_array(path, "word", ArrayDigest.from_fields(digests["word"]) if "word" in digests else None)


def _arrays(truth: Truth) -> dict[str, NDArray[Any]]:
    n_words, n_topics = truth.word_topic.shape
    numbers = np.arange(n_topics, dtype=np.int64)
    arrays: dict[str, NDArray[Any]] = {
        "word": np.array(word_names(n_words), dtype=object),
        "topic": numbers,
        "topic_": numbers,
        "word_topic": truth.word_topic,
        "alpha": truth.alpha,
        "topic_topic": truth.topic_topic,
    }
    return arrays if truth.anchors is None else {**arrays, "anchors": truth.anchors}


def _checked_attributes(path: Path) -> dict[str, Any]:
    if not (path / "zarr.json").exists():
        raise InputError(
            f"{path}: there is no truth here; give the directory of a corpus that simulate wrote"
        )
    attributes = read_attributes(path)
    missing = {"kind", "format_version", "seed", "mean_length", "digests"} - attributes.keys()
    if missing or not {"word_topic", "alpha"} <= set(attributes["digests"]):
        missing_names = ", ".join(sorted(missing)) or "arrays"
        raise StoreError(f"{path}/zarr.json: metadata are missing {missing_names}; simulate the corpus again")
    if (attributes["kind"], attributes["format_version"]) != (KIND, FORMAT_VERSION):
        raise InputError(
            f"{path}: {attributes['kind']} of format version {attributes['format_version']}; "
            f"this release reads {KIND} of version {FORMAT_VERSION}"
        )
    return attributes
