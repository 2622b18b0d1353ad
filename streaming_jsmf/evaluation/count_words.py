"""Model and corpus -> counts of the model's words and its perplexity, stored with it; no scan where they are there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings, fingerprint
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.evaluation.completion import CompletionRequest, complete_documents
from streaming_jsmf.evaluation.inputs import SKETCH_LABEL, SKETCH_PROBES
from streaming_jsmf.evaluation.stored_counts import (
    StoredCounts,
    counts_path,
    make_evaluation_group,
    read_counts,
    write_counts,
)
from streaming_jsmf.inference.words import characteristic_words
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.count_scan import CountRequest, count_words
from streaming_jsmf.moments.stages.word_counts import SketchProbes, WordSelection
from streaming_jsmf.storage.lock import announce_commit, recover, sole_writer, work_place
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.replace import remove_store
from streaming_jsmf.topics.parameters import TopicParameters, missing_parameter
from streaming_jsmf.topics.store import Model

#: Prominent and approximate characteristic words of each topic that are counted.
COUNTED_PROMINENT, COUNTED_CHARACTERISTIC = 20, 10

#: Those that metrics draw again; their seed is fixed, so that another one asks for no other scan.
PROBES = SketchProbes(SKETCH_PROBES, 0, SKETCH_LABEL)


def counts_of(
    path: StorePath,
    model: Model,
    corpus: Corpus,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> StoredCounts:
    """What a corpus tells of a model: as it is stored, or else by two passes, which store it.

    One pass counts words, the other completes documents, unless the model has no prior of topics or no word counts. An
    interrupted pass is finished by the same call. The bits do not depend on ``execution``.

    Parameters
    ----------
    path, model
        Where the model is, and its word lists (``word``, ``prominent_words`` and, if it has them, ``anchors`` and
        ``characteristic_words``), and for the second pass the arrays of ``given_topics``.
    corpus
        The training corpus or any other; words are matched by string, and those the model lacks are left out.

    Raises
    ------
    InputError
        If the corpus has none of the model's words, or no document with two of them; and as ``count_words``.
    StoreError
        If a shard, or what is stored, is damaged.
    """
    target = counts_path(path, corpus.fingerprint)
    if (stored := _complete(path, model, corpus)) is not None:
        recover(target)
        return stored
    request = CountRequest(corpus, _selection(model, corpus), PROBES, _scan_settings(model))
    make_evaluation_group(path)
    with sole_writer(target):
        # Looked at again: another process may have been at work until now.
        if (stored := _complete(path, model, corpus)) is not None:
            return stored
        work = work_place(target)
        counts = _stored(model, request, count_words(request, work, execution, listener))
        if not missing_parameter(model):
            wanted = CompletionRequest(TopicParameters.of(model), corpus, request.budget)
            completed = complete_documents(wanted, work / "completion", execution, listener)
            counts = replace(counts, completion=completed.fields())
        announce_commit(target, fingerprint(request.arguments), work=True)
        write_counts(target, counts, model)
        remove_store(work, ignore_errors=True)
    return counts


def _complete(path: StorePath, model: Model, corpus: Corpus) -> StoredCounts | None:
    """What is stored, if nothing that can be told is missing."""
    stored = read_counts(path, model, corpus.fingerprint)
    told = stored is not None and (stored.completion is not None or bool(missing_parameter(model)))
    return stored if told else None


def representatives(model: Model) -> NDArray[np.int64]:
    """(K,) one word id a topic: its anchor, or without anchors its most probable word."""
    anchors = model.arrays.get("anchors")
    return model.arrays["prominent_words"][:, 0] if anchors is None else anchors


def _selection(model: Model, corpus: Corpus) -> WordSelection:
    ids = {str(word): place for place, word in enumerate(model.arrays["word"])}
    vocabulary = corpus.vocabulary().words
    columns = np.array([ids.get(word, -1) for word in vocabulary], dtype=np.int64)
    if not (columns >= 0).any():
        raise InputError(
            f"{corpus.root} has none of the {len(ids)} words of the model; give a corpus with the same kind of words"
        )
    lists = [model.arrays["prominent_words"][:, :COUNTED_PROMINENT], representatives(model)]
    if "characteristic_words" in model.arrays:
        lists.append(model.arrays["characteristic_words"][:, :COUNTED_CHARACTERISTIC])
    words = np.unique(np.concatenate([np.ravel(listed) for listed in lists])).astype(np.int64)
    return WordSelection(words, np.unique(representatives(model)).astype(np.int64), columns, len(ids))


def _scan_settings(model: Model) -> ScanSettings:
    """Document weights and partition size of the model's own scan; the defaults where it names none."""
    known = model.provenance.get("scan_settings") or {}
    kept = {name: known[name] for name in ("document_weights", "partition_nonzeros") if name in known}
    return ScanSettings(**kept)


def _stored(model: Model, request: CountRequest, total: PartialResult) -> StoredCounts:
    corpus, selection = request.corpus, request.selection
    if not total.scalars["total_weight"] > 0:
        raise InputError(
            f"{corpus.root} has no document with two tokens of the model's words; give a corpus with the same kind "
            "of words"
        )
    # Topics may share a word; its row was gathered once.
    places = np.searchsorted(selection.row_words, representatives(model))
    weight = total.scalars["total_weight"]
    rows = total.arrays["rows"][places] / weight
    return StoredCounts(
        selection.words,
        total.arrays["pairs"],
        rows,
        characteristic_words(rows, model.arrays["prominent_words"].shape[1]),
        (total.arrays["sketch"] / weight).astype(np.float32),
        total.arrays["row_sum"] / weight,
        int(total.scalars["n_documents"]),
        {
            "path": corpus.location,
            "fingerprint": corpus.fingerprint,
            "n_documents": corpus.n_documents,
            "words_found": int(np.count_nonzero(selection.columns >= 0)),
        },
    )
