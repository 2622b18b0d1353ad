"""Long jobs: parts that are computed on any Dask scheduler, committed one by one and, where needed, folded in order.

Each part is computed by a task and committed by one small record, in one step. Running the same job again, after a kill
or elsewhere, computes the parts without a record. Tasks get small arguments and return tokens, so that no data goes
through the scheduler.

``run``
    ``Job`` and ``run_job``; ``map_job`` for tasks that write files; ``run_steps`` for steps that need each other
``tasks``
    what workers run, the protocol ``Reduction`` and the task graph
``order``
    the tree in which results are folded; it depends on the parts alone, not on who computes them
``checkpoints``
    records and partial results of a stage
``workspace``
    where a job works until its result is committed, and the refusal of unfinished work of other arguments
``execution``, ``cluster``, ``performance``
    schedulers; ``events``, ``memory``, ``blas``: progress, memory and BLAS threads

Tasks that write files, then one commit::

    work = Workspace.beside(target, "transform", arguments)     # JSON values that determine the bytes of the result
    with work.acquire() as commit:
        if commit is None:                                      # a run was killed after its commit
            return
        with execution.executor(listener, on_bad_input=work.remove) as executor:
            job = map_job(write_part, context, sizes, work.checkpoints(), "documents")
            run_job(job, executor)
        commit(assembled(job.records()))                        # rename a file or directory to the target

A sum over all parts::

    checkpoints = work.checkpoints("counts")
    job = Job(checkpoints, CountReduction(...), parts, FoldOrder(keys, salt))
    run_job(job, executor)
    total = job.result()
"""
