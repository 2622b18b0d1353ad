"""Word counts and other sums over a corpus that the metrics of a model need, from one scan.

They are stored in a Zarr group ``MODEL/evaluation/<corpus>``; the arrays of the model never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError, StoreError, option
from streaming_jsmf.evaluation.inputs import Cooccurrence, SelectedCounts, WordDraw, draw_words
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.inference.completion import Completion
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.typing import Integers
from streaming_jsmf.storage.arrays import (
    ArrayDigest,
    Variable,
    create_group,
    digest,
    read_array,
    write_arrays,
)
from streaming_jsmf.storage.lock import is_left, sole_writer, work_place
from streaming_jsmf.storage.paths import StorePath, child_names, is_free, node_exists
from streaming_jsmf.storage.replace import remove_store, store_written
from streaming_jsmf.storage.results import Found, Wanted, package_versions, utc_now
from streaming_jsmf.storage.sealed import read_sealed, sealed_as
from streaming_jsmf.topics.document_job import DocumentJob
from streaming_jsmf.topics.parameters import TopicParameters, ids_of_corpus, missing_parameter
from streaming_jsmf.topics.store import Model

KIND, FORMAT_VERSION = "streaming_jsmf.word_counts", 1
#: Group of a model that contains its counts.
EVALUATION = "evaluation"
#: Number of hex digits of the corpus fingerprint in the name of its group.
NAME_DIGITS = 32
#: Number of prominent and of approximate characteristic words counted for each topic.
COUNTED_PROMINENT, COUNTED_CHARACTERISTIC = 20, 10
#: Number of words drawn for Recovery and Approximation: standard errors are about 6 % of the value.
COUNTED_DRAWS = 128
#: Arrays of a model that determine what is counted; callers that read counts must load those that the model has.
COUNTED = ("word", "prominent_words", "characteristic_words", "anchors", "term_count")
#: Dimensions and meaning of each array.
_VARIABLES = {
    "selected_words": Variable(("selected",), "word ids that were counted, sorted"),
    "document_pairs": Variable(
        ("selected", "selected_"), "documents with both words; on the diagonal with the one"
    ),
    "row_words": Variable(("row",), "anchors (without them: top words) and drawn words, sorted"),
    "rows": Variable(("row", "word"), "rows of C of these words, exact"),
    "row_sum": Variable(("word",), "row sums of C, exact"),
}


def counts_of(
    path: StorePath,
    model: Model,
    corpus: Corpus,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> SelectedCounts:
    """Return the stored counts of a corpus, or compute and store them in one pass over the corpus.

    It counts words, and completes documents unless the model has no topic prior or no word counts. The same call
    resumes an interrupted pass. Results are bit-identical for every ``execution``. Words are matched as strings; words
    that the model lacks are ignored.

    Raises ``InputError`` if the corpus has none of the model's words, no document with two of them or a bad record, or
    the memory budget is too small; ``StoreError`` if a shard or a stored result is damaged.
    """
    from streaming_jsmf.evaluation.word_counts import CountReduction, count_job

    target = counts_path(path, corpus.fingerprint)
    wanted, work = _wanted_counts(path, model, corpus), work_place(target)
    if wanted.find() is not Found.MADE:
        topics = None if missing_parameter(model) else TopicParameters.of(model)
        words = {**_selection(model), "ids": ids_of_corpus(corpus, model.arrays["word"])}
        job = count_job(corpus, words, len(model.arrays["word"]), _scan_settings(model), topics, work)
        _create_evaluation_group(path)
        with job.work.acquire(wanted, job.arrays) as publish:
            if publish is not None:
                with job.running(execution, listener) as (executor, inputs):
                    reduction = CountReduction(inputs, job.fields["document_weights"])
                    sums = job.fold(executor, reduction, "counts")()
                mixed = execution is not None and execution.mixed
                made = {"committed": utc_now(), "versions": package_versions(mixed=mixed)}
                fields = {**_fields(model, job, sums), "made": made}
                with publish() as beside:
                    digests = write_arrays(beside, _divided(job, sums), _VARIABLES, compress=True)
                    create_group(beside, sealed_as(KIND, FORMAT_VERSION, {**fields, "digests": digests}))
    elif not is_free(work) or is_left(target):
        with suppress(InputError), sole_writer(target):
            remove_store(work, ignore_errors=True)
    stored = read_counts(path, model, corpus.fingerprint)
    assert stored is not None, "they were stored for this model"
    return stored


def representatives(model: Model) -> Integers:
    """Word id of each topic, (K,): its anchor, or its most probable word in models without anchors."""
    anchors = model.arrays.get("anchors")
    return model.arrays["prominent_words"][:, 0] if anchors is None else anchors


def _wanted_counts(path: StorePath, model: Model, corpus: Corpus) -> Wanted:
    """The counts of a corpus for the words and the topics of a model; others at their place are replaced."""
    target, of_model = counts_path(path, corpus.fingerprint), model.provenance.get("fingerprint")
    request = {
        "selection": _selection_digest(model),
        "completion": None if missing_parameter(model) else {"model": of_model},
    }

    def stored() -> Mapping[str, Any]:
        found = _read_attributes(target)
        completion = found.get("completion")
        return {
            "selection": found["selection"],
            "completion": completion and {"model": completion.get("model")},
        }

    def is_intact() -> bool:
        return read_counts(path, model, corpus.fingerprint) is not None

    return Wanted(target, request, stored, is_intact, overwrite=True)


def _selection(model: Model) -> dict[str, Integers]:
    """The words to count, and those whose rows of C are computed: distinct ids in ascending order."""
    lists = [model.arrays["prominent_words"][:, :COUNTED_PROMINENT], representatives(model)]
    if "characteristic_words" in model.arrays:
        lists.append(model.arrays["characteristic_words"][:, :COUNTED_CHARACTERISTIC])
    words = np.unique(np.concatenate([np.ravel(listed) for listed in lists]))
    draw = _draw(model)
    drawn = np.arange(len(model.arrays["word"])) if draw is None else draw.words
    row_words = np.union1d(representatives(model), drawn)
    return {"words": words.astype(np.int64), "row_words": row_words.astype(np.int64)}


def _draw(model: Model) -> WordDraw | None:
    """Words whose rows of C are counted, besides those of the representatives; None for all."""
    frequency = model.arrays.get("term_count", np.zeros(len(model.arrays["word"])))
    return draw_words(frequency.astype(np.float64), COUNTED_DRAWS)


def _scan_settings(model: Model) -> ScanSettings:
    """Document weights and partition size of the model's own scan, or the defaults."""
    known = model.provenance.get("scan_settings") or {}
    kept = {name: known[name] for name in ("document_weights", "partition_nonzeros") if name in known}
    return ScanSettings(**kept)


def _fields(model: Model, job: DocumentJob, total: PartialResult) -> dict[str, Any]:
    corpus, of_model = job.corpus, {"model": model.provenance.get("fingerprint")}
    completion = {name: total.scalars[name] for name in Completion.__dataclass_fields__}
    if not total.scalars["total_weight"] > 0:
        raise InputError(
            f"{corpus.root} has no document with two tokens of the model's words; give a corpus with the same kind "
            "of words"
        )
    return {
        "selection": _selection_digest(model),
        "corpus": {
            "path": corpus.location,
            "fingerprint": corpus.fingerprint,
            "n_documents": corpus.n_documents,
            "words_found": int(np.count_nonzero(job.arrays["ids"] >= 0)),
        },
        "n_documents": int(total.scalars["n_documents"]),
        # Unlike the counts, which depend only on word lists, the completion depends on the whole model.
        "completion": {**of_model, **completion} if "keys" in job.arrays else None,
    }


def _divided(job: DocumentJob, total: PartialResult) -> dict[str, NDArray[Any]]:
    weight = total.scalars["total_weight"]
    return {
        "selected_words": job.arrays["words"],
        "document_pairs": total.arrays["pairs"],
        "row_words": job.arrays["row_words"],
        "rows": total.arrays["rows"] / weight,
        "row_sum": total.arrays["row_sum"] / weight,
    }


def counts_path(model: StorePath, corpus_fingerprint: str) -> StorePath:
    return model / EVALUATION / corpus_fingerprint[:NAME_DIGITS]


def _selection_digest(model: Model) -> str:
    """Digest of the vocabulary, word lists and anchors that the counts of a model depend on."""
    names = [name for name in COUNTED if name in model.arrays]
    return fingerprint({name: digest(model.arrays[name]).sha256 for name in names})


def _create_evaluation_group(model: StorePath) -> None:
    """Create the parent group of all counts; Zarr warns about a directory without metadata."""
    group = model / EVALUATION
    if node_exists(group) and not is_left(group):
        return
    with sole_writer(group):
        if not node_exists(group):
            with store_written(group) as beside:
                create_group(beside, {})


def read_counts(
    model_path: StorePath, model: Model, corpus_fingerprint: str, names: tuple[str, ...] | None = None
) -> SelectedCounts | None:
    """Read the stored counts of a corpus, or return None if they are missing or for other words.

    ``names`` are the arrays to read, None for all; others are empty or None. Raises ``StoreError``, naming the array,
    if the counts are damaged.
    """
    path = counts_path(model_path, corpus_fingerprint)
    if not node_exists(path):
        if not is_free(path):
            raise StoreError(f"{path}: its zarr.json is missing; {_hint(path)}")
        return None
    attributes = _read_attributes(path)
    if attributes["selection"] != _selection_digest(model):
        return None
    arrays = {
        name: read_array(path, name, ArrayDigest.from_fields(fields), hint=_hint(path))
        for name, fields in attributes["digests"].items()
        if names is None or name in names
    }
    completion = dict(attributes.get("completion") or {})
    of_this_model = completion.pop("model", None) == model.provenance.get("fingerprint")
    empty, c = np.zeros(0, dtype=np.int64), None
    if "rows" in arrays:
        c = Cooccurrence.of_rows(arrays["row_words"], arrays["rows"], arrays["row_sum"], _draw(model))
    return SelectedCounts(
        arrays.get("selected_words", empty),
        arrays.get("document_pairs", empty.reshape(0, 0)),
        int(attributes["n_documents"]),
        c,
        attributes["corpus"],
        Completion(**completion) if completion and of_this_model else None,
    )


def _read_attributes(path: StorePath) -> dict[str, Any]:
    return read_sealed(path, KIND, FORMAT_VERSION, what="metadata", hint=_hint(path))


def _hint(path: StorePath) -> str:
    return f"delete {path} and run evaluate with {option.corpus('CORPUS').alone} again"


def training_fingerprint(model: Model) -> str | None:
    """Fingerprint of the training corpus; None for several corpora or part of one."""
    if len(model.corpora) != 1 or model.provenance.get("partitions") is not None:
        return None
    return model.corpora[0]


def is_training_corpus(model: Model, counts: SelectedCounts) -> bool:
    """Whether the counted documents are those that the model was fitted to.

    The number of documents is compared, too, because shards of a corpus with the same fingerprint may have been lost.
    """
    return (
        counts.corpus["fingerprint"] == training_fingerprint(model)
        and model.metrics.get("n_documents") == counts.n_documents
    )


def read_training_counts(
    model_path: StorePath, model: Model, names: tuple[str, ...] | None = None
) -> SelectedCounts | None:
    """Read the stored counts of the training corpus, or None; arguments and errors are as in ``read_counts``."""
    corpus = training_fingerprint(model)
    counts = None if corpus is None else read_counts(model_path, model, corpus, names)
    return counts if counts is not None and is_training_corpus(model, counts) else None


def stored_corpora(model_path: StorePath) -> list[dict[str, Any]]:
    """Path, fingerprint and sizes of each corpus counted for a model; ``StoreError`` if counts are damaged."""
    # Names with a dot are unfinished work.
    names = sorted(name for name in child_names(model_path / EVALUATION) if "." not in name)
    return [dict(_read_attributes(model_path / EVALUATION / name)["corpus"]) for name in names]
