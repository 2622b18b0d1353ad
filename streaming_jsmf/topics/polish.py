"""Polish: improve the topics of a model by reproducible steps over the documents of a corpus.

One pass (``draw``) copies held-out documents, which no step uses, and a sample for each of the first steps, which this
process takes, or a cluster in blocks of documents; the last steps (``step-1``, ...) make a pass over all other
documents each. If the corpus is no larger than a sample, all steps use the copy. A killed job resumes at the first part
that was not committed, and results are bit-identical for all schedulers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import PolishSettings, settings_of, takes
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.corpus.vocabulary import Vocabulary
from streaming_jsmf.display import location
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.inference.polish import StepSums, first_topics, in_sample
from streaming_jsmf.inference.words import label_words, prominent_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.jobs.events import Iteration, Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.run import run_steps
from streaming_jsmf.linalg.csr import rows_of
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.process_limits import peak_memory
from streaming_jsmf.storage.lock import work_place
from streaming_jsmf.storage.paths import StorePath, store_path
from streaming_jsmf.storage.results import Found, package_versions
from streaming_jsmf.topics.document_job import DocumentJob, Read, TaskInputs
from streaming_jsmf.topics.parameters import TopicParameters
from streaming_jsmf.topics.polish_tasks import (
    ALGORITHM_VERSION,
    DRAWS,
    SAMPLE,
    TOPICS,
    Counts,
    DrawReduction,
    PolishPlan,
    SampledBlock,
    SplitDocuments,
    StepReduction,
    TakenStep,
    longest_of,
    polish_job,
    sample_blocks,
    sums_of,
    topics_after,
)
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
    began, topics, plan = time.perf_counter(), TopicParameters.of(start), PolishPlan(corpus, settings)
    described = {**start.settings, "polish": settings.fields()}
    made_by = polished_fingerprint(start.fingerprint, corpus, settings)
    nonzeros = (start.provenance.get("scan_settings") or {}).get("partition_nonzeros")
    result = fingerprint(request_of_model(made_by, described))
    with single_blas_thread():
        job = polish_job(plan, topics, nonzeros, work_place(target), result)
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
class _Run:
    """A running polish. Results are bit-identical for all schedulers.

    The result has ``word_topic`` (N, K), columns sum to 1; ``shares`` (K,) and ``pairs`` (K, K), the sums of topic
    shares and their products over the ``n_documents`` documents of the last step; ``log_likelihood`` per token at each
    step; and ``watched``, the number of steps and held-out perplexity after the sampled steps and after each full
    step.
    """

    plan: PolishPlan
    topics: TopicParameters
    job: DocumentJob
    executor: Executor
    inputs: TaskInputs

    def result(self) -> PartialResult:
        sampled, given = self.plan.sampled_steps, self.topics
        draw = DrawReduction(self._documents, sampled[0].share if sampled else 0.0)
        drawn = self.job.fold(self.executor, draw, "draw")
        held_out, longest = self._held_out(drawn)
        state = self.job.work.checkpoints("topics")
        # The sampled steps are one move together; each full step is a move.
        full = self.plan.steps[len(sampled) :]
        moves = [sampled] * bool(sampled) + [(step,) for step in full]

        def move(number: int, key: str, before: PartialResult) -> PartialResult:
            steps, last = moves[number], number + 1 == len(moves)
            if steps is sampled:
                found = self._sampled(before.arrays["word_topic"], drawn(), longest, last)
            else:
                taken = TakenStep(steps[0], number, given.prior, longest, with_pairs=last)
                read = partial(state.read_fold, key)
                found = self._full(before, StepReduction(self._documents, read, taken), key)
            return self._watched(before, found, held_out)

        # The start is not evaluated: it may have been fitted to the held-out documents.
        start = first_topics(given.word_topic, given.term_count / given.term_count.sum())
        begin = PartialResult({"word_topic": start, "log_likelihood": np.zeros(0)})
        return run_steps(state, begin, len(moves), move)

    @property
    def _documents(self) -> SplitDocuments:
        return SplitDocuments(self.inputs, self.plan.held_out, self.plan.settings.seed)

    def _held_out(self, drawn: Read) -> tuple[Counts, float]:
        """Held-out documents, and the maximum length; frees the sample."""
        documents = drawn()
        return rows_of("held_out", documents.arrays, self.inputs.n_words), longest_of(documents)

    def _sampled(self, topics: Floats, drawn: PartialResult, longest: float, last: bool) -> PartialResult:
        """All sampled steps, without a pass over the corpus; ``last`` if no full steps follow."""
        steps, history = self.plan.sampled_steps, list[float]()
        sample, draws = rows_of(SAMPLE, drawn.arrays, self.inputs.n_words), drawn.arrays[DRAWS]
        for number, step in enumerate(steps):
            last_of_all = last and number + 1 == len(steps)
            used = np.flatnonzero(in_sample(draws, number, step.share))
            taken = TakenStep(step, number, self.topics.prior, longest, with_pairs=last_of_all)
            documents = sample if used.size == draws.size else sample[used]
            sums = self._sums(taken, documents, draws[used], topics)
            found = topics_after(sums, topics, step, last=last_of_all)
            topics = found.arrays["word_topic"]
            history.append(self._reported(number, found))
        return PartialResult({**found.arrays, "log_likelihood": np.array(history)}, found.scalars)

    def _sums(self, taken: TakenStep, documents: Counts, draws: Floats, topics: Floats) -> StepSums:
        """The sums of a sampled step, from the threads of this process or the tasks of a cluster."""
        given = {} if self.executor.worker_threads is None else sample_blocks(documents, draws)
        if not given:
            return taken.sums(documents, topics, draws, threads=self.executor.threads_here)
        name, keys, total = f"sampled-{taken.number + 1}", [*given], None
        stage = SampledBlock(taken, self.job.work.checkpoints(name))
        given[TOPICS] = PartialResult({TOPICS: topics})
        for of_block in self.job.computed(self.executor, stage, name, given, keys):
            total = stage.fold(total, of_block)
        assert total is not None, "there are blocks"
        # Fractional counts of blocks have another sum.
        return replace(sums_of(total), n_tokens=float(documents.data.sum(dtype=np.float64)))

    def _full(self, before: PartialResult, reduction: StepReduction, key: str) -> PartialResult:
        number = before.arrays["log_likelihood"].size
        name = f"step-{number + 1}"
        sums = self.job.fold(self.executor, reduction, name, key)()
        self.job.work.checkpoints(name).clear()
        topics = before.arrays["word_topic"]
        found = topics_after(sums_of(sums), topics, reduction.taken.step, last=reduction.taken.with_pairs)
        self._reported(number, found)
        return found

    def _reported(self, number: int, found: PartialResult) -> float:
        """Report a step, numbered from 0, and return its log-likelihood."""
        likelihood = float(found.arrays["log_likelihood"][0])
        steps = len(self.plan.steps)
        self.executor.listener(Iteration("polish", number + 1, steps, {"log_likelihood": likelihood}))
        return likelihood

    def _watched(self, before: PartialResult, found: PartialResult, held_out: Counts) -> PartialResult:
        """Add the history of earlier moves to the result of a move."""
        history = np.concatenate([before.arrays["log_likelihood"], found.arrays["log_likelihood"]])
        row = np.array([[history.size, *self._perplexity(found.arrays["word_topic"], held_out)]])
        seen = before.arrays.get("watched")
        watched = row if seen is None else np.concatenate([seen, row])
        return PartialResult({**found.arrays, "log_likelihood": history, "watched": watched}, found.scalars)

    def _perplexity(self, word_topic: Floats, held_out: Counts) -> tuple[float, ...]:
        """Perplexity of the held-out documents by the model and by word frequencies, and their number.

        Empty without held-out tokens, and for fractional counts, which cannot be split into halves.
        """
        if not held_out.nnz or not np.array_equal(np.rint(held_out.data), held_out.data):
            return ()
        given = self.topics
        done = Completer.of(word_topic, given.prior, given.term_count).complete(
            held_out, threads=self.executor.threads_here
        )
        return (done.perplexity, done.unigram_perplexity, done.documents) if done.tokens else ()
