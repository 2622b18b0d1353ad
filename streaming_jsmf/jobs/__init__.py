"""One skeleton for every long job: ingest, simulation, scans, counts, and whatever comes next.

A job is work in numbered parts. Each part is computed by a task on any Dask scheduler and *committed* by one small
record, there at once or not at all; who runs the same job again, after a kill or elsewhere, does what has no record.
Tasks get small arguments and return tokens, so that nothing large goes through the scheduler.

Start reading at ``run``, which is the skeleton: started, done, watched, computed, finished. Then one of two shapes:

``tasks.TaskJob``
    numbered tasks that do not need each other; each writes files and commits a JSON record (``records``)
``fold.FoldJob``
    parts and a chain of folds: each part is computed to arrays, and these are folded in order into one result, with a
    bound on what lies unfolded on the disk; commits are those of a ``ledger.Ledger`` in a Zarr store

Around them: ``folder`` (where a job works until its result is committed, and the refusal of unfinished work that
differs), ``execution`` (``Execution``: which scheduler, how many workers; ``Executor``: one at work), ``cluster``,
``graph``, ``events``, ``memory``, ``performance``, ``lock``.

Knows ``storage``, ``linalg.blas`` (one BLAS thread in a task), ``config``; nothing of documents, corpora or models.

Numbered tasks, then one commit::

    @dataclass(frozen=True)
    class Shares:
        model: str
        corpus: Corpus
        folder: Path

    def write_part(shares: Shares, index: int) -> Record:       # over what its first run left, if it was killed
        ...
        return {"rows": rows}

    work = WorkFolder.beside(target, "transform")
    with work.held(arguments):                                  # JSON values that decide the bytes of the result
        with execution.executor(listener, on_bad_input=work.remove) as executor:
            job = TaskJob("transform", write_part, shares, sizes, work.records(), "documents")
            run_job(job, executor)
        commit(job.result())                                    # rename onto the target
        work.remove()

A sequence of sums, each over all parts::

    store = WorkStore(beside, "streaming_jsmf.polish.unfinished", "polish", arguments)
    with execution.executor(listener, on_bad_input=store.remove) as executor:
        store.start({})
        for step in range(steps):
            topics = store.write(f"topics_{step}", values, ("word", "topic"))
            stage = PolishStage(store.path, f"topics_{step}", topics)  # compute(part); fold = ledger.added
            parts = [Part(key_of(content, topics.sha256), size, source) for ...]
            job = FoldJob(store.ledger(stage.name), stage, parts, fold_keys([p.key for p in parts], ""))
            run_job(job, executor)
            values = normalised(job.result())
    write(values)                                               # the result itself, then
    store.remove()

(For partitions of a corpus ``moments.parts.fold_partitions`` does the last four lines of the loop.)
"""
