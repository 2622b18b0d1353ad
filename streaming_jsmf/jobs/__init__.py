"""Long jobs on any Dask scheduler: parts are computed by tasks, committed one by one and optionally folded in order.

A task commits its part atomically with one small record, so rerunning a job after a kill computes only the parts
without a record. Tasks take small arguments and return tokens; no data passes through the scheduler.

Four ideas: *checkpoints* are the committed results of parts (``checkpoints``), those of unfinished work in a
``workspace``; a *job* computes the missing parts (``run``) and folds them in a fixed ``order``; an *execution* is where
its tasks run (``execution``, ``cluster``, ``preflight``, ``blas``); and *events* tell how far it is (``events``).

Tasks that write files, followed by one commit::

    work = Workspace.beside(target, "transform", arguments)     # JSON values that determine the bytes of the result
    with work.acquire(wanted) as publish:
        if publish is None:                                     # the result is there
            return
        with work.executor(memory, execution, listener) as executor:
            job = map_job(write_part, context, sizes, work.checkpoints(), "documents")
            run_job(job, executor)
        with publish() as place:                                # a directory; publish(file_written) for a file
            assemble(place, job.records())                      # its last file makes it valid

A sum over all parts::

    checkpoints = work.checkpoints("counts")
    job = Job(checkpoints, CountReduction(...), parts, FoldOrder(keys, salt))
    run_job(job, executor)
    total = job.result()
"""
