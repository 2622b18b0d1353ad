"""Counts of a model's words in a corpus, and what else one scan gathers for metrics, kept below the model.

They are at ``MODEL/evaluation/<corpus>``, a Zarr group for each corpus. A group is committed by a rename, or behind a
URL by its root, and each array has a digest. The model itself is never written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import fingerprint
from streaming_jsmf.errors import StoreError, StreamingJSMFError
from streaming_jsmf.storage.arrays import (
    ArrayDigest,
    create_group,
    digest,
    read_array,
    read_attributes,
    write_array,
)
from streaming_jsmf.storage.lock import is_left, sole_writer
from streaming_jsmf.storage.paths import StorePath, group_names, node_exists
from streaming_jsmf.storage.provenance import package_versions, utc_now
from streaming_jsmf.storage.replace import store_written
from streaming_jsmf.topics.store import Model

KIND, FORMAT_VERSION = "streaming_jsmf.word_counts", 1

#: Group of a model that holds its counts.
EVALUATION = "evaluation"

#: Hex digits of a corpus' fingerprint in a name.
NAME_DIGITS = 32

#: Arrays of a model that decide what is counted; who reads counts has read those that the model has.
COUNTED = ("word", "prominent_words", "characteristic_words", "anchors")

#: Arrays: dimensions, meaning.
_VARIABLES = {
    "selected_words": (("selected",), "word ids that were counted, sorted"),
    "document_pairs": (
        ("selected", "selected_"),
        "documents with both words; on the diagonal with the one",
    ),
    "anchor_rows": (("topic", "word"), "rows of C at the anchors (without them: at the top words), exact"),
    "characteristic_words": (("topic", "rank"), "word ids that co-occur most with the word of those rows"),
    "sketch": (("word", "probe"), "C G for standard normal probes G"),
    "row_sum": (("word",), "row sums of C, exact"),
}


@dataclass(frozen=True)
class StoredCounts:
    """What one scan of a corpus counted for a model.

    Attributes
    ----------
    words
        (P,) int64, sorted word ids of the model.
    pairs
        (P, P) int64, documents with both words; on the diagonal with the one.
    anchor_rows
        (K, N) float64, rows of C at the anchors, or without anchors at the most probable word of each topic; None if
        not read.
    characteristic_words
        (K, ranks) int64 word ids by those rows; None if not read.
    sketch
        (N, s) float32, C G with the probes G of ``evaluation.inputs.sketch_probes``; None if not read.
    row_sum
        (N,) float64, row sums of C; None if not read.
    n_documents
        Documents of two tokens or more of the model's words.
    corpus
        JSON values: ``path``, ``fingerprint``, ``n_documents`` (all), ``words_found`` of the model's.
    completion
        How well the topics predict the documents, ``documents.completion.Completed.fields``; None if it was not asked.
    """

    words: NDArray[np.int64]
    pairs: NDArray[np.int64]
    anchor_rows: NDArray[np.float64] | None
    characteristic_words: NDArray[np.int64] | None
    sketch: NDArray[np.float32] | None
    row_sum: NDArray[np.float64] | None
    n_documents: int
    corpus: Mapping[str, Any]
    completion: Mapping[str, float] | None = None


def counts_path(model: StorePath, corpus_fingerprint: str) -> StorePath:
    """Where the counts of a corpus are kept."""
    return model / EVALUATION / corpus_fingerprint[:NAME_DIGITS]


def selection_digest(model: Model) -> str:
    """What makes counts those of a model: its vocabulary, word lists and anchors, as far as it has them."""
    held = [name for name in COUNTED if name in model.arrays]
    return fingerprint({name: digest(model.arrays[name]).sha256 for name in held})


def write_counts(path: StorePath, counts: StoredCounts, model: Model) -> None:
    """Commit the counts at ``path``; those of another model that lie there are replaced."""
    arrays = {
        "selected_words": counts.words,
        "document_pairs": counts.pairs,
        "anchor_rows": counts.anchor_rows,
        "characteristic_words": counts.characteristic_words,
        "sketch": counts.sketch,
        "row_sum": counts.row_sum,
    }
    with store_written(path, overwrite=node_exists(path)) as beside:
        digests = {
            name: _write(beside, name, values) for name, values in arrays.items() if values is not None
        }
        attributes = {
            "kind": KIND,
            "format_version": FORMAT_VERSION,
            "selection": selection_digest(model),
            "corpus": dict(counts.corpus),
            "n_documents": counts.n_documents,
            "completion": _of_model(counts.completion, model),
            "made": {"committed": utc_now(), "versions": package_versions()},
            "digests": digests,
        }
        create_group(beside, {**attributes, "sha256": fingerprint(attributes)})


def make_evaluation_group(model: StorePath) -> None:
    """Make the group that counts are kept in: without metadata Zarr would wonder what it is."""
    group = model / EVALUATION
    if node_exists(group) and not is_left(group):
        return
    with sole_writer(group):
        if not node_exists(group):
            with store_written(group) as beside:
                create_group(beside, {})


def _write(group: StorePath, name: str, values: NDArray[Any]) -> dict[str, Any]:
    dimensions, meaning = _VARIABLES[name]
    return write_array(group, name, values, dimensions, {"long_name": meaning}, compress=True).fields()


def read_counts(
    model_path: StorePath, model: Model, corpus_fingerprint: str, names: tuple[str, ...] | None = None
) -> StoredCounts | None:
    """The counts of a corpus that are stored with a model; None if there are none, or of other words.

    Parameters
    ----------
    names
        Arrays to read; the others come back empty or as None. None: all.

    Raises
    ------
    StoreError
        If they are damaged: names the array and what to do.
    """
    path = counts_path(model_path, corpus_fingerprint)
    if not node_exists(path):
        return None
    attributes = _attributes(path)
    if attributes["selection"] != selection_digest(model):
        return None
    digests = attributes["digests"]
    wanted = [name for name in digests if names is None or name in names]
    arrays = {
        name: read_array(path, name, ArrayDigest.from_fields(digests[name]), hint=_remedy(path))
        for name in wanted
    }
    empty = np.zeros(0, dtype=np.int64)
    return StoredCounts(
        arrays.get("selected_words", empty),
        arrays.get("document_pairs", empty.reshape(0, 0)),
        arrays.get("anchor_rows"),
        arrays.get("characteristic_words"),
        arrays.get("sketch"),
        arrays.get("row_sum"),
        int(attributes["n_documents"]),
        attributes["corpus"],
        _told_of(model, attributes.get("completion")),
    )


def _of_model(completion: Mapping[str, float] | None, model: Model) -> dict[str, Any] | None:
    """Unlike counts, which hang on word lists, these numbers hang on all of a model."""
    return None if completion is None else {"model": model.provenance.get("fingerprint"), **completion}


def _told_of(model: Model, stored: Mapping[str, Any] | None) -> dict[str, float] | None:
    """What ``_of_model`` made; None if it is of another model, or of a release that did not ask."""
    if stored is None or stored["model"] != model.provenance.get("fingerprint"):
        return None
    return {name: value for name, value in stored.items() if name != "model"}


def _attributes(path: StorePath) -> dict[str, Any]:
    try:
        attributes = read_attributes(path)
        stored = attributes.pop("sha256", None)
        sound = attributes.get("kind") == KIND and stored == fingerprint(attributes)
    except StreamingJSMFError:
        sound = False
    if not sound:
        raise StoreError(f"{path}/zarr.json: metadata are damaged; {_remedy(path)}")
    if attributes["format_version"] != FORMAT_VERSION:
        raise StoreError(
            f"{path}: format version {attributes['format_version']} is unknown; this release reads {FORMAT_VERSION}; "
            f"{_remedy(path)}"
        )
    return attributes


def _remedy(path: StorePath) -> str:
    return f"delete {path} and run evaluate with --corpus again"


def training_fingerprint(model: Model) -> str | None:
    """Fingerprint of the corpus that a model was made of, if it was one, and the whole of it."""
    made_of = model.provenance.get("corpus_fingerprints") or []
    if len(made_of) != 1 or model.provenance.get("partitions") is not None:
        return None
    return str(made_of[0])


def read_training_counts(
    model_path: StorePath, model: Model, names: tuple[str, ...] | None = None
) -> StoredCounts | None:
    """The stored counts of the very documents that a model was made of; None without them.

    A corpus of the same fingerprint may have lost shards before the model was made; the number of documents tells.
    Arguments and errors are those of ``read_counts``.
    """
    of = training_fingerprint(model)
    counts = None if of is None else read_counts(model_path, model, of, names)
    documents = model.metrics.get("n_documents")
    return counts if counts is not None and counts.n_documents == documents else None


def stored_corpora(model_path: StorePath) -> list[dict[str, Any]]:
    """Of each corpus counted for a model: path, fingerprint and numbers; empty as a rule.

    Raises
    ------
    StoreError
        If one of the groups is damaged.
    """
    # A name with a dot is of work that is not done.
    places = sorted(name for name in group_names(model_path / EVALUATION) if "." not in name)
    return [dict(_attributes(model_path / EVALUATION / name)["corpus"]) for name in places]
