"""One skeleton for every long job: ingest, simulation, scans, counts, and whatever comes next.

A job is work in numbered parts. Each part is computed by a task on any Dask scheduler and *committed* by one small
record, there at once or not at all; who runs the same job again, after a kill or elsewhere, does what has no record.
Tasks get small arguments and return tokens, so that nothing large goes through the scheduler.

Start reading at ``run``, which is the skeleton: started, done, watched, computed, finished. Then one of two shapes:

``tasks.TaskJob``
    numbered tasks that do not need each other; each writes files and commits a JSON record (``records``)
``fold.FoldJob``
    parts and a tree of folds: each part is computed to arrays, and these are folded into one result in the fixed shape
    of ``order``, with a bound on what lies unfolded on the disk; commits are ``checkpoints.Checkpoints`` in a store

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
        return {"rows": rows, FILES: file_hashes(shares.folder, paths)}

    work = WorkFolder.beside(target, "transform")
    with work.acquire(arguments) as commit:                        # JSON values that decide the bytes of the result
        if commit is None:                                      # a run was killed when the result was in place
            return
        with execution.executor(listener, on_bad_input=work.remove) as executor:
            job = TaskJob("transform", write_part, shares, sizes, work.records(), "documents")
            run_job(job, executor)
        commit(assembled(job.result()))                         # rename a file or directory to the target

A sequence of sums, each over all parts, from what the one before gave::

    store = WorkStore(beside, "streaming_jsmf.polish.unfinished", "polish", arguments)
    store.require_same()                                        # work of other arguments is refused, and stays
    with execution.executor(listener, on_bad_input=store.remove) as executor:
        store.start({})
        topics, sums = store.checkpoints("topics"), store.checkpoints("polish")

        def step(number: int, key: str, before: PartialResult) -> PartialResult:
            reduction = Polish(topics, key)                     # compute: topics.read_fold(key), then a partition
            keys = [key_of(content, key) for content in contents]
            total = fold_partitions(sums, reduction, keys, partitions, "", executor)
            sums.clear()                                        # fold: checkpoints.added
            return normalised(total)

        result = run_steps(topics, PartialResult({"word_topic": start}), steps, step)
    write(result)                                               # the result itself, then
    store.remove()

``blocks.parts.fold_partitions`` runs a ``FoldJob`` whose parts are partitions of a corpus, and gives its result.
"""
