"""The verbs. Each parses, calls one function and prints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.choose_k import choose_k
from streaming_jsmf.cli.documents import documents
from streaming_jsmf.cli.evaluate import evaluate
from streaming_jsmf.cli.info import info
from streaming_jsmf.cli.ingest import ingest, ingest_options, take_request
from streaming_jsmf.cli.observation import observed
from streaming_jsmf.cli.polish import polish
from streaming_jsmf.cli.report import report, view
from streaming_jsmf.cli.simulate import simulate
from streaming_jsmf.cli.tables import print_topics
from streaming_jsmf.cli.topics import topics
from streaming_jsmf.cli.transform import transform
from streaming_jsmf.cli.verb import option, rarely, verb
from streaming_jsmf.config import ScanSettings, StodSettings
from streaming_jsmf.display import location

#: Heading of what changes a store that is there.
CHANGES = "A store that grows"


@verb(
    "streaming-jsmf scan CORPUS MOMENTS --max-topics 100",
    "streaming-jsmf scan CORPUS MOMENTS --add MORE --keep-partitions",
)
@click.argument("corpus")
@click.argument("moments", type=click.Path())
@option("--max-topics", type=int, default=50, show_default=True,
        help="Largest number of topics K that will be asked of the store; its width follows from it.")  # fmt: skip
@options.scan_options
@option("--third-moment", group=options.SCAN, is_flag=True,
        help="Also what --engine stod needs, in one more pass; also for a store that is there.")  # fmt: skip
@option("--keep-partitions", group=CHANGES, is_flag=True,
        help="Keep the result of each partition, so that some can be removed or selected later; 4 bytes x words x "
             "width each.")  # fmt: skip
@option("--remove", group=CHANGES, multiple=True, metavar="SHARD_OR_CORPUS",
        help="Take documents out of a store that keeps its partitions; may be given several times.")  # fmt: skip
@option("--add", group=CHANGES, multiple=True, metavar="CORPUS2",
        help="Add a corpus with the same words; may be given several times.")  # fmt: skip
@option("--merge", group=CHANGES, multiple=True, type=click.Path(), metavar="MOMENTS2",
        help="Merge another store in, words matched by name; may be given several times.")  # fmt: skip
@option("--rebase", group=CHANGES, is_flag=True,
        help="After --add to a store with a sample: make the basis of all that is there, and scan again.")  # fmt: skip
@option("--repair", group=CHANGES, is_flag=True, help="Make again what is damaged in MOMENTS, and finish it.")
@options.execution_options
@options.log_option
@click.pass_context
def scan(
    context: click.Context,
    /,
    corpus: str,
    moments: str,
    log_json: str | None,
    keep_partitions: bool,
    remove: tuple[str, ...],
    add: tuple[str, ...],
    merge: tuple[str, ...],
    rebase: bool,
    repair: bool,
    **settings: Any,
) -> None:
    """Scan CORPUS into the moments store MOMENTS, or finish an interrupted scan.

    With --remove, --add, --merge, --rebase or --repair a store that is there is changed; CORPUS is one of its corpora.
    """
    from streaming_jsmf.storage.paths import node_exists, store_path
    from streaming_jsmf.workflow.scan import Changes
    from streaming_jsmf.workflow.scan import scan as run

    changes = Changes(remove, add, merge, rebase=rebase)
    if changes.any:
        # Not an option like the others then, which would have to be those of the store.
        changes = replace(changes, third_moment=settings.pop("third_moment"))
    with observed(log_json) as listener:
        execution = options.take_execution(settings)
        given = options.were_given(context, settings)
        there = node_exists(store_path(moments, "a moments store"))
        as_it_is = (changes.any or repair) and not given and there
        run(
            corpus,
            moments,
            None if as_it_is else ScanSettings(**{"third_moment": changes.third_moment, **settings}),
            execution,
            listener,
            keep_partitions=keep_partitions,
            changes=changes,
            repair=repair,
        )
    click.echo(f"moments: {location(moments)}")


@verb(
    "streaming-jsmf infer MOMENTS MODEL --topics 20",
    "streaming-jsmf infer MOMENTS MODELS --topics 10,20,50",
)
@click.argument("moments", type=click.Path())
@click.argument("model", type=click.Path())
@options.topics_option
@options.engine_options
@options.infer_options
@option("--seed", group=options.STOD, rare=True, type=int, default=0, show_default=True,
        help="Number that decides the random starts of stod.")  # fmt: skip
@option("--partitions", default=None, metavar="LABELS",
        help="Only partitions of these labels, such as 1990..1999 or a,b, of a store scanned with --partition-by and "
             "--keep-partitions.  [default: all]")  # fmt: skip
@option(
    "--workers",
    group=options.EXECUTION,
    type=int,
    default=None,
    help="Threads of the inference.  [default: one for each core]",
)
@options.log_option
@click.pass_context
def infer(
    context: click.Context,
    /,
    moments: str,
    model: str,
    topics: str,
    overwrite: bool,
    workers: int | None,
    partitions: str | None,
    log_json: str | None,
    **settings: Any,
) -> None:
    """Fit a model of K topics from MOMENTS into MODEL, without the corpus; several K become MODEL/k=5, ..."""
    from streaming_jsmf.workflow.several import infer_each

    with observed(log_json) as listener:
        numbers = options.topic_numbers(topics)
        made = infer_each(
            moments,
            model,
            numbers,
            options.take_inference(context, settings, numbers[0]),
            partitions=partitions,
            threads=workers,
            overwrite=overwrite,
            listener=listener,
        )
    for path in made:
        print_topics(str(path))


@verb(
    "streaming-jsmf fit news.csv MODEL --topics 20",
    "streaming-jsmf fit CORPUS MODELS --topics 10,20,50 --workers 4",
)
@click.argument("source")
@click.argument("model", type=click.Path())
@options.topics_option
@option("--moments", group=options.SCAN, rare=True, type=click.Path(), default=None,
        help="Where the moments store is or goes.  [default: MODEL.moments]")  # fmt: skip
@rarely(ingest_options, "stop_words", "read")
@options.scan_options
@options.engine_options
@options.infer_options
@option("--polish/--no-polish", "polished", group=options.POLISH, default=None,
        help="Finish the topics by a few passes over the documents.  [default: those of lr-jsmf]")  # fmt: skip
@options.polish_options
@option("--quiet", rare=True, is_flag=True, help="Say nothing but the topics and what is wrong.")
@options.execution_options
@options.log_option
@click.pass_context
def fit(
    context: click.Context,
    /,
    source: str,
    model: str,
    topics: str,
    moments: str | None,
    log_json: str | None,
    overwrite: bool,
    polished: bool | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Fit MODEL to SOURCE, a corpus or anything that ingest reads; several K become MODEL/k=5, MODEL/k=10, ...

    The corpus that is made of texts or tables is kept as MODEL.corpus, the scan as MODEL.moments; both are used again.
    """
    from streaming_jsmf.workflow.fit import fit as run

    with observed(log_json, quiet=quiet) as listener:
        numbers, execution = options.topic_numbers(topics), options.take_execution(settings)
        request = take_request(settings)
        finish = options.take_polish(settings, settings["seed"])
        inference = options.take_inference(context, settings, numbers[0], scan_seed=settings["seed"])
        third_moment = isinstance(inference, StodSettings)
        polished = not third_moment if polished is None else polished
        fitted = run(
            source,
            model,
            numbers,
            ingest_request=request,
            scan_settings=ScanSettings(max_topics=max(numbers), third_moment=third_moment, **settings),
            infer_settings=inference,
            polish=finish if polished else False,
            moments=moments,
            execution=execution,
            threads=execution.workers,
            overwrite=overwrite,
            listener=listener,
        )
    for path in fitted.models:
        print_topics(str(path))


COMMANDS = (
    ingest,
    simulate,
    scan,
    infer,
    fit,
    choose_k,
    polish,
    topics,
    transform,
    documents,
    evaluate,
    report,
    view,
    info,
)
