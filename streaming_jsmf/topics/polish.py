"""Polish: improve the topics of a model by reproducible steps over the documents of a corpus.

The formulas of a step and the schedule are in ``inference.polish``. One pass (``draw``) copies held-out documents,
which no step uses, and a sample for each of the first steps, which this process takes; the last steps (``step-9``, ...)
make a pass over all other documents each. If the corpus is no larger than a sample, all steps use the copy. A killed
job resumes at the first part that was not committed, and results are bit-identical for all schedulers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import PolishSettings, ScanSettings, settings_of, takes
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.corpus.vocabulary import Vocabulary
from streaming_jsmf.display import location
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.inference import polish as polish_step
from streaming_jsmf.inference.cvb0 import smoothed
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.inference.polish import (
    HELD_OUT_DRAW,
    SAMPLE_DRAW,
    Schedule,
    Step,
    StepSums,
    document_draws,
    log_lengths,
    longest_document,
    plan_steps,
    sampled_range,
)
from streaming_jsmf.inference.words import label_words, prominent_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import PartialResult, SumReduction, joined_arrays
from streaming_jsmf.jobs.events import Iteration, Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.run import run_steps
from streaming_jsmf.linalg.csr import row_arrays, rows_of
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.process_limits import peak_memory
from streaming_jsmf.storage.lock import work_place
from streaming_jsmf.storage.paths import StorePath, store_path
from streaming_jsmf.storage.results import Found, package_versions
from streaming_jsmf.topics.document_job import DocumentJob, Read, TaskInputs
from streaming_jsmf.topics.parameters import TopicParameters, ids_of_corpus
from streaming_jsmf.topics.store import (
    AnyModel,
    Model,
    model_path,
    read_model,
    request_of_model,
    require_model_or_free,
    wanted_model,
    write_model,
)

Counts = csr_array[Any]

#: Increase when the same request gives other bits.
ALGORITHM_VERSION = 5
#: Bytes per nonzero of the sample: a word id and a count.
BYTES_PER_SAMPLED = 8
#: N x K float64 arrays per worker: topics in both precisions, and sums of blocks, partition and fold.
TALL_ARRAYS = 6
#: The same in the command's own process: the two of the start, and the topics before and after a step.
OWN_ARRAYS = 4
#: Names of the drawn documents, and of the draws of the sampled ones, which tell the steps that use them.
HELD_OUT, SAMPLE, DRAWS = "held_out", "sample", "sample_draws"
#: Names of the columns of ``watched`` in the result of ``polish_topics``.
WATCHED = ("step", "perplexity", "unigram_perplexity", "documents")


@takes(PolishSettings, Execution)
def polish(
    model: AnyModel,
    corpus: str | Path | Corpus,
    out: str | Path | StorePath,
    settings: PolishSettings | None = None,
    *,
    execution: Execution | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
    **options: Any,
) -> Model:
    """Improve the topics of a model of any engine by a few passes over the documents, and write them to ``out``.

    Each step applies CVB0 (Asuncion et al. 2009) within documents, given the topics of the previous step and the
    model's prior, which stays fixed. With 10,000 documents or more, all but the last two steps draw the topics of words
    instead, with random numbers that depend on the seed and the document alone. Anchors and topic correlations are
    kept; correlations from the topic shares of documents are added. The metrics include the log-likelihood at each step
    and the perplexity of held-out documents.

    Makes one pass over the documents to draw samples, and one for each of the last two steps. The same call
    completes an interrupted run, and does nothing after a complete one. The result does not depend on ``execution``.
    Raises ``InputError`` if ``out`` was made by another call (without ``overwrite``), the corpus has none of the
    model's words or a bad record, or memory is too small; ``StoreError`` if the model, a shard, or the work of an
    interrupted run is damaged.

    Parameters
    ----------
    model
        Path or URL of the model to start from.
    corpus
        The training corpus, or another one with some of its words, which are matched as strings.
    out
        Path or URL of the result; may be ``model`` itself only with ``overwrite``. The same call on the polished model
        then does nothing.
    settings
        None: the defaults of ``PolishSettings``. Its fields, and those of ``Execution``, are also keyword arguments.

    Examples
    --------
    >>> polish("model", "corpus", "polished", PolishSettings(steps=40, rounds=10))  # doctest: +SKIP
    """
    settings = settings_of("settings", PolishSettings, settings, options)
    execution = settings_of("execution", Execution, execution, options)
    target = store_path(out, "a model")
    require_model_or_free(target)
    source = model_path(model)
    opened, start = open_corpus(corpus), read_model(source)
    made_by = polished_fingerprint(start.fingerprint, opened, settings)
    request: Mapping[str, Any] = request_of_model(made_by, {**start.settings, "polish": settings.fields()})
    if source == target:
        # A model that this command has polished in place already is not polished again.
        before = str((start.provenance.get("start") or {}).get("fingerprint"))
        if polished_fingerprint(before, opened, settings) == start.fingerprint:
            request = start.request
    with wanted_model(target, request, overwrite=overwrite).writing() as found:
        if found is Found.MADE:
            return read_model(target)
        polished = polish_model(start, str(source), opened, target, settings, execution, listener)
        write_model(target, polished)
    return polished


def polish_model(
    start: Model,
    name: str,
    corpus: Corpus,
    target: StorePath,
    settings: PolishSettings,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    replace_work: bool = False,
) -> Model:
    """``polish`` for a model in memory; writes only the work store of ``target``, whose lock the caller holds.

    ``replace_work`` removes unfinished work of another request.
    """
    began, topics, plan = time.perf_counter(), TopicParameters.of(start), _Plan(corpus, settings)
    described = {**start.settings, "polish": settings.fields()}
    made_by = polished_fingerprint(start.fingerprint, corpus, settings)
    nonzeros = (start.provenance.get("scan_settings") or {}).get("partition_nonzeros")
    result = fingerprint(request_of_model(made_by, described))
    with single_blas_thread():
        job = _job(plan, topics, nonzeros, work_place(target), result)
        with job.running(execution, listener, replace=replace_work) as running:
            found = _Run(plan, topics, job, *running).result()
    stage = {"seconds": round(time.perf_counter() - began, 3), "peak_memory": peak_memory()}
    watched = found.arrays["watched"].tolist()
    metrics = {
        "start": name,
        "steps": [asdict(step) for step in plan.steps],
        "n_documents": _n_documents(found),
        "log_likelihood": found.arrays["log_likelihood"].tolist(),
        "perplexity": [dict(zip(WATCHED, row, strict=False)) for row in watched if len(row) > 1],
    }
    return Model(
        _arrays(start, topics.prior, found) | _shown_words(topics.words, corpus.vocabulary()),
        described,
        {**start.metrics, "polish": metrics},
        {
            **start.provenance,
            "fingerprint": made_by,
            "start": {"path": location(name), "fingerprint": start.fingerprint},
            "polish_corpus": {"path": corpus.location, "fingerprint": corpus.fingerprint},
            "versions": package_versions(mixed=execution is not None and execution.mixed),
            "stages": {**start.provenance.get("stages", {}), "polish": stage},
        },
    )


def polished_fingerprint(start: str, corpus: Corpus, settings: PolishSettings) -> str:
    """sha256 of the start, the corpus, the settings and the algorithm, which determine a polished model."""
    fields = {"start": start, "corpus": corpus.fingerprint, "polish": settings.fields()}
    return fingerprint({**fields, "algorithm": ALGORITHM_VERSION})


def _n_documents(found: PartialResult) -> int:
    return max(int(found.scalars["n_documents"]), 1)


def _shown_words(words: Sequence[str], vocabulary: Vocabulary) -> dict[str, NDArray[Any]]:
    if vocabulary.forms is None:
        return {}
    forms = dict(zip(vocabulary.words, vocabulary.forms, strict=True))
    return {"shown_word": np.array([forms.get(word, word) for word in words], dtype=object)}


def _arrays(start: Model, prior: Floats, found: PartialResult) -> dict[str, NDArray[Any]]:
    arrays, word_topic = dict(start.arrays), found.arrays["word_topic"]
    topic_probability = found.arrays["shares"] / _n_documents(found)
    prominent = prominent_words(word_topic, arrays["prominent_words"].shape[1])
    arrays |= {
        "word_topic": word_topic,
        "topic_probability": topic_probability,
        "alpha": prior,
        "topic_topic_of_documents": found.arrays["pairs"] / _n_documents(found),
        "topic_": arrays["topic"],
        "prominent_words": prominent,
        "label_words": label_words(prominent, arrays["characteristic_words"], arrays["label_words"].shape[1]),
    }
    if "topic_given_word" in arrays:
        joint = word_topic * topic_probability
        arrays["topic_given_word"] = joint / joint.sum(axis=1, keepdims=True)
    return arrays


@dataclass(frozen=True)
class _Plan:
    """The steps over a corpus, and the documents that they use."""

    corpus: Corpus
    settings: PolishSettings

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        settings = self.settings
        return plan_steps(self.corpus.nonzeros, self.corpus.n_documents, settings.steps, settings.rounds)

    @property
    def n_sampled(self) -> int:
        """The number of first steps that use the sample: all if the corpus is no larger."""
        whole = self.corpus.nonzeros <= polish_step.SAMPLE_NONZEROS
        return sum(whole or step.share < 1 for step in self.steps)

    @property
    def held_out(self) -> float:
        """Probability that a document is held out."""
        return self.settings.held_out_share(self.corpus.n_documents)


def _job(
    plan: _Plan, topics: TopicParameters, partition_nonzeros: int | None, root: StorePath, result: str
) -> DocumentJob:
    """The job that takes the planned steps; ``result`` is the fingerprint of the request of the polished model."""
    corpus, n_topics = plan.corpus, topics.prior.size
    scan = ScanSettings(max_topics=n_topics, partition_nonzeros=partition_nonzeros)
    task, shared = polish_needs(len(topics.words), n_topics, corpus.nonzeros)
    return DocumentJob(
        "polish",
        root,
        corpus,
        budget=scan.partition_budget(corpus.nonzeros, corpus.n_words),
        n_words=len(topics.words),
        arrays={"ids": ids_of_corpus(corpus, topics.words)},
        fields={
            "algorithm": ALGORITHM_VERSION,
            "topics": topics.fingerprint,
            "steps": [asdict(step) for step in plan.steps],
            "held_out": plan.held_out,
            "seed": plan.settings.seed,
        },
        task_bytes=task,
        shared_bytes=shared,
        result=result,
    )


def polish_needs(n_words: int, n_topics: int, nonzeros: int) -> tuple[int, int]:
    """Memory of a task of polish besides a row group, and what is needed only once, in bytes."""
    sampled = min(polish_step.SAMPLES * polish_step.SAMPLE_NONZEROS, nonzeros)
    # There are no more blocks of float32 sums than the nonzeros of a step allow.
    block_sums = 4 * n_topics * (polish_step.SAMPLE_NONZEROS // polish_step.NONZEROS_PER_WORD)
    topics = 8 * n_words * n_topics
    return TALL_ARRAYS * topics, 2 * BYTES_PER_SAMPLED * sampled + OWN_ARRAYS * topics + block_sums


@dataclass(frozen=True)
class _Run:
    """A running polish. Results are bit-identical for all schedulers.

    The result has ``word_topic`` (N, K), columns sum to 1; ``shares`` (K,) and ``pairs`` (K, K), the sums of topic
    shares and their products over the ``n_documents`` documents of the last step; ``log_likelihood`` per token at each
    step; and ``watched``, the number of steps and held-out perplexity after the sampled steps and after each full
    step.
    """

    plan: _Plan
    topics: TopicParameters
    job: DocumentJob
    executor: Executor
    inputs: TaskInputs

    def result(self) -> PartialResult:
        plan, given, state = self.plan, self.topics, self.job.work.checkpoints("topics")
        documents = SplitDocuments(self.inputs, plan.held_out, plan.settings.seed)
        draw = Draw(documents, plan.steps[0].share if plan.n_sampled else 0.0)
        drawn = self.job.joined(self.executor, draw, "draw")
        held_out, sampled = (rows_of(name, drawn.arrays, self.inputs.n_words) for name in (HELD_OUT, SAMPLE))
        schedule, samples = self._schedule(drawn), [(sampled, drawn.arrays[DRAWS])]
        del drawn, sampled

        def advance(_: int, key: str, before: PartialResult) -> PartialResult:
            # The sampled steps are committed together, and each full step by itself.
            taken = before.arrays["log_likelihood"].size
            if taken < plan.n_sampled:
                found = self._sampled(schedule, before, *samples.pop())  # frees it for the full steps
            else:
                read_topics = partial(state.read_fold, key)
                found = self._full(taken, before, StepReduction(documents, read_topics, schedule, taken), key)
            return self._watched(before, found, held_out)

        # The start is not evaluated: it may have been fitted to the held-out documents.
        start = smoothed(given.word_topic, given.term_count)
        begin = PartialResult({"word_topic": start, "log_likelihood": np.zeros(0)})
        commits = len(plan.steps) - max(plan.n_sampled - 1, 0)
        return run_steps(state, begin, commits, advance)

    def _schedule(self, drawn: PartialResult) -> Schedule:
        """The schedule, which depends on the lengths of documents."""
        lengths = drawn.scalars["log_length"], int(drawn.scalars["n_documents"])
        longest = longest_document(*lengths, self.topics.prior.size)
        return Schedule(self.plan.steps, self.topics.prior, longest)

    def _sampled(
        self, schedule: Schedule, before: PartialResult, counts: Counts, draws: Floats
    ) -> PartialResult:
        """All sampled steps, without a pass over the corpus."""
        history = list[float]()

        def told(number: int, sums: StepSums) -> None:
            history.append(self._reported(number, sums))

        topics, sums = schedule.in_memory(
            self.plan.n_sampled,
            before.arrays["word_topic"],
            counts,
            draws,
            threads=self.executor.threads_here,
            told=told,
        )
        return _after(topics, sums, history)

    def _full(self, number: int, before: PartialResult, step: StepReduction, key: str) -> PartialResult:
        """One step, with a pass over the corpus."""
        name = f"step-{number + 1}"
        sums = _sums_of(self.job.fold(self.executor, step, name, key)())
        self.job.work.checkpoints(name).clear()
        topics = step.schedule.next_topics(number, before.arrays["word_topic"], sums)
        return _after(topics, sums, [self._reported(number, sums)])

    def _reported(self, number: int, sums: StepSums) -> float:
        """Report a step, and return its log-likelihood."""
        likelihood, steps = sums.mean_log_likelihood, len(self.plan.steps)
        self.executor.listener(Iteration("polish", number + 1, steps, {"log_likelihood": likelihood}))
        return likelihood

    def _watched(self, before: PartialResult, found: PartialResult, held_out: Counts) -> PartialResult:
        """Add the history of earlier steps to the result of new ones."""
        history = np.concatenate([before.arrays["log_likelihood"], found.arrays["log_likelihood"]])
        row = np.array([[history.size, *self._perplexity(found.arrays["word_topic"], held_out)]])
        seen = before.arrays.get("watched")
        watched = row if seen is None else np.concatenate([seen, row])
        return PartialResult({**found.arrays, "log_likelihood": history, "watched": watched}, found.scalars)

    def _perplexity(self, word_topic: Floats, held_out: Counts) -> tuple[float, ...]:
        """Perplexity of the held-out documents by the model and by word frequencies, and their number.

        Empty without held-out tokens, and for fractional counts, which cannot be split into halves.
        """
        if not held_out.nnz:
            return ()
        completer = Completer.of(word_topic, self.topics.prior, self.topics.term_count)
        done = completer.complete(held_out, threads=self.executor.threads_here)
        if done.fractional or not done.tokens:
            return ()
        return done.perplexity, done.unigram_perplexity, done.documents


def _after(topics: Floats, sums: StepSums, history: Sequence[float]) -> PartialResult:
    """The topics after steps, and what the last one found of the documents."""
    arrays = {"word_topic": topics, "shares": sums.shares, "pairs": sums.pairs}
    return PartialResult({**arrays, "log_likelihood": np.array(history)}, {"n_documents": sums.n_documents})


@dataclass(frozen=True)
class SplitDocuments:
    """Inputs of the tasks, and the share of the documents that is held out by draws with ``seed``."""

    inputs: TaskInputs
    held_out: float
    seed: int

    def blocks(self, partition: Partition) -> Iterator[tuple[str, Counts, NDArray[np.bool_]]]:
        """Yield content hash, counts (documents x N) and the mask of held-out documents of each row group."""
        for unit, block, _ in self.inputs.blocks(partition):
            draws = document_draws(unit.content, block.shape[0], HELD_OUT_DRAW, self.seed)
            yield unit.content, block, draws < self.held_out


@dataclass(frozen=True)
class Draw:
    """Held-out and sampled documents in corpus order, and the sums of ``log_lengths`` over all documents.

    ``share`` is that of one sampled step.
    """

    documents: SplitDocuments
    share: float

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition, with one row group in memory at a time."""
        drawn, lengths = list[PartialResult](), list[tuple[float, int]]()
        for content, block, held in self.documents.blocks(partition):
            draws = document_draws(content, block.shape[0], SAMPLE_DRAW, self.documents.seed)
            sample = (draws < sampled_range(self.share)) & ~held
            arrays: dict[str, NDArray[Any]] = {DRAWS: draws[sample]}
            for name, rows in ((HELD_OUT, held), (SAMPLE, sample)):
                chosen = block[np.flatnonzero(rows)]
                arrays |= row_arrays(name, chosen.indptr, chosen.indices, chosen.data)
            drawn.append(PartialResult(arrays))
            lengths.append(log_lengths(block))
        log_length, n_documents = map(sum, zip(*lengths, strict=True))
        return PartialResult(joined_arrays(drawn), {"log_length": log_length, "n_documents": n_documents})


@dataclass(frozen=True)
class StepReduction(SumReduction):
    """A full step of the ``schedule``: the ``StepSums`` of all documents that are not held out."""

    documents: SplitDocuments
    state: Read
    schedule: Schedule
    number: int

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition, with one row group in memory at a time."""
        topics, threads = self.state().arrays["word_topic"], self.documents.inputs.threads
        total: PartialResult | None = None
        for _, block, held in self.documents.blocks(partition):
            rows = block[np.flatnonzero(~held)] if held.any() else block
            sums = vars(self.schedule.sums(self.number, rows, topics, threads=threads))
            arrays = {name: value for name, value in sums.items() if isinstance(value, np.ndarray)}
            scalars = {name: value for name, value in sums.items() if name not in arrays}
            total = self.fold(total, PartialResult(arrays, scalars))
        assert total is not None, "a partition has units"
        return total


def _sums_of(result: PartialResult) -> StepSums:
    return StepSums(**result.arrays, **result.scalars)  # type: ignore[arg-type]
