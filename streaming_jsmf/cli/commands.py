"""The verbs. Each parses, calls one function and prints."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.documents import documents
from streaming_jsmf.cli.evaluate import evaluate
from streaming_jsmf.cli.ingest import ingest
from streaming_jsmf.cli.observation import observed
from streaming_jsmf.cli.polish import polish
from streaming_jsmf.cli.report import report, view
from streaming_jsmf.cli.simulate import simulate
from streaming_jsmf.cli.tables import print_topics, topic_rows
from streaming_jsmf.cli.transform import transform
from streaming_jsmf.config import ScanSettings, StodSettings
from streaming_jsmf.display import location


@click.command()
@click.argument("corpus")
@click.argument("moments", type=click.Path())
@click.option("--max-topics", type=int, default=50, show_default=True, help="Largest K the store will serve.")
@options.scan_options
@click.option("--third-moment", is_flag=True,
              help="Also what --engine stod needs, in one more pass; also for a store that is there.")  # fmt: skip
@click.option("--keep-partitions", is_flag=True,
              help="Keep the result of each partition, so that some can be removed or selected later.")  # fmt: skip
@click.option("--remove", multiple=True, metavar="SHARD_OR_CORPUS",
              help="Take out of a store that keeps its partitions; may be given several times.")  # fmt: skip
@click.option("--add", multiple=True, metavar="CORPUS2", help="Add a corpus with the same words.")
@click.option("--merge", multiple=True, type=click.Path(), metavar="MOMENTS2",
              help="Merge another store in; words are matched by name.")  # fmt: skip
@click.option("--repair", is_flag=True, help="Make again what is damaged in MOMENTS, and finish it.")
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
    repair: bool,
    **settings: Any,
) -> None:
    """Scan CORPUS into the moments store MOMENTS, or finish an interrupted scan.

    With --remove, --add, --merge or --repair a store that is there is changed; CORPUS is one of its corpora.
    """
    from streaming_jsmf.storage.paths import node_exists, store_path
    from streaming_jsmf.workflow.scan import Changes
    from streaming_jsmf.workflow.scan import scan as run

    changes = Changes(remove, add, merge)
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


@click.command()
@click.argument("moments", type=click.Path())
@click.argument("model", type=click.Path())
@click.option("--topics", required=True, type=int, help="Number of topics K.")
@options.engine_options
@options.infer_options
@click.option("--seed", type=int, default=0, show_default=True, help="stod: of the random starts.")
@click.option("--partitions", default=None, metavar="LABELS",
              help="Only partitions of these labels, such as 1990..1999 or a,b (of a store scanned with "
                   "--partition-by and --keep-partitions).")  # fmt: skip
@click.option("--workers", type=int, default=None, help="Threads.  [default: one for each core]")
@options.log_option
@click.pass_context
def infer(
    context: click.Context,
    /,
    moments: str,
    model: str,
    topics: int,
    overwrite: bool,
    workers: int | None,
    partitions: str | None,
    log_json: str | None,
    **settings: Any,
) -> None:
    """Fit a model of K topics from MOMENTS into MODEL, without the corpus."""
    from streaming_jsmf.workflow.infer import infer as run

    with observed(log_json) as listener:
        run(
            moments,
            model,
            options.take_inference(context, settings, topics),
            partitions=partitions,
            threads=workers,
            overwrite=overwrite,
            listener=listener,
        )
    print_topics(model)


@click.command()
@click.argument("corpus")
@click.argument("model", type=click.Path())
@click.option(
    "--topics", required=True, metavar="K[,K...]", help="Number of topics; several: one model each."
)
@click.option("--moments", type=click.Path(), default=None,
              help="Where the moments store is or goes.  [default: MODEL.moments]")  # fmt: skip
@options.scan_options
@options.engine_options
@options.infer_options
@click.option("--polish/--no-polish", "polished", default=None,
              help="Finish the topics by a few passes over the documents.  [default: those of lr-jsmf]")  # fmt: skip
@options.polish_options
@options.execution_options
@options.log_option
@click.pass_context
def fit(
    context: click.Context,
    /,
    corpus: str,
    model: str,
    topics: str,
    moments: str | None,
    log_json: str | None,
    overwrite: bool,
    polished: bool | None,
    **settings: Any,
) -> None:
    """Scan CORPUS and fit MODEL in one command; several K become MODEL/k=5, MODEL/k=10, ... of one scan.

    A spec (.toml) is ingested first, to MODEL.corpus.
    """
    from streaming_jsmf.workflow.fit import fit as run

    with observed(log_json) as listener:
        numbers, execution = options.topic_numbers(topics), options.take_execution(settings)
        finish = options.take_polish(settings, settings["seed"])
        inference = options.take_inference(context, settings, numbers[0], scan_seed=settings["seed"])
        third_moment = isinstance(inference, StodSettings)
        polished = not third_moment if polished is None else polished
        fitted = run(
            corpus,
            model,
            numbers,
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


@click.command()
@click.argument("model", type=click.Path())
@click.option("--words", type=int, default=None, help="Words for each topic.  [default: 10]")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def topics(model: str, words: int | None, as_json: bool) -> None:
    """Print the topics of MODEL."""
    if as_json:
        click.echo(json.dumps(topic_rows(model, words), ensure_ascii=False, indent=1))
    else:
        print_topics(model, words)


@click.command()
@click.argument("path")
@click.option("--verify", is_flag=True,
              help="Read all of a corpus and compare it with its hashes; stores always are.")  # fmt: skip
def info(path: str, verify: bool) -> None:
    """Say what is at PATH (corpus, moments or model), whether it is complete and sound, and what made it."""
    from streaming_jsmf.workflow.info import describe

    click.echo(json.dumps(describe(path, verify=verify), ensure_ascii=False, indent=1))


COMMANDS = (
    ingest,
    simulate,
    scan,
    infer,
    fit,
    polish,
    topics,
    transform,
    documents,
    evaluate,
    report,
    view,
    info,
)
