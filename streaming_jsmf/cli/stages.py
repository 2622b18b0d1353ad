"""The verbs that make a corpus, a store, a model or topic shares: each calls the public function of its name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from streaming_jsmf.cli.topics import print_topics
from streaming_jsmf.cli.verb import (
    json_option,
    json_text,
    option,
    options_of,
    overwrite_option,
    path,
    topic_numbers,
    topics_option,
    verb,
)
from streaming_jsmf.config import (
    ENGINE_SETTINGS,
    FIXED_BY_MODEL,
    INGEST_SETTINGS,
    PolishSettings,
    ScanSettings,
    ShareSettings,
    SimulationSettings,
    StodSettings,
    UpdateSettings,
    engine_settings_of,
)
from streaming_jsmf.config.inference import POLISH
from streaming_jsmf.config.requests import EXECUTION
from streaming_jsmf.config.scan import SCAN

ingest_options = partial(options_of, *INGEST_SETTINGS)
engine_options = options_of(*ENGINE_SETTINGS, without=("seed",))
topics_as_json = json_option(help="Print the topics as JSON.")


@verb(
    "streaming-jsmf ingest texts/ CORPUS --vocabulary-size 20000",
    "streaming-jsmf ingest ratings.csv CORPUS --reader ratings",
    summary=True,
)
@click.argument("source")
@path("corpus")
@ingest_options()
@overwrite_option
def ingest(source: str, corpus: str, **options: Any) -> dict[str, Any]:
    """Build CORPUS from texts, tables or counts of words.

    SOURCE is a file, a directory, a glob pattern, a URL or a spec (.toml). Prints a table of what was removed. Run the
    same command again to resume after an interruption.
    """
    from streaming_jsmf.ingestion.ingest import ingest as run

    _allow_local_tokenizers(options)
    given = click.get_current_context().params
    # A bar for downloads must not appear among lines of JSON.
    progress = sys.stderr.isatty() and given["log_json"] != "-" and not given["quiet"]
    built = run(source, corpus, progress=progress, **options)
    numbers = {"documents": built.n_documents, "words": built.n_words, "nonzeros": built.nonzeros}
    return {"corpus": corpus, **numbers}


@verb("streaming-jsmf simulate CORPUS --documents 999 --vocabulary-size 99 --topics 9", summary=True)
@path("corpus")
@options_of(SimulationSettings)
@overwrite_option
def simulate(corpus: str, **options: Any) -> dict[str, Any]:
    """Simulate CORPUS by latent Dirichlet allocation.

    The true topics are written to CORPUS/truth.zarr. The same options give the same bytes with any scheduler and number
    of workers. Run the same command again to resume after an interruption.
    """
    from streaming_jsmf.simulation import simulate_lda

    made = simulate_lda(corpus, **options)
    numbers = {"documents": made.n_documents, "nonzeros": made.nonzeros}
    return {"corpus": corpus, **numbers, "truth": str(Path(corpus) / "truth.zarr")}


@verb(
    "streaming-jsmf scan CORPUS MOMENTS --max-topics 100",
    "streaming-jsmf scan CORPUS MOMENTS --follow",
    summary=True,
)
@click.argument("corpus")
@path("moments")
@options_of(ScanSettings)
@option("--follow", is_flag=True,
        help="Let an existing store follow its corpus, whose shards have changed: only new and changed documents are "
             "summarized again.")  # fmt: skip
@option("--overwrite", is_flag=True,
        help="Replace a moments store of another corpus or with other settings; it is removed first.")  # fmt: skip
def scan(corpus: str, moments: str, **options: Any) -> dict[str, Any]:
    """Scan CORPUS into the moments store MOMENTS.

    The same command completes an interrupted scan and recomputes damaged parts.

    With --follow, an existing store is made to hold exactly the documents of CORPUS in its present state.
    """
    from streaming_jsmf.moments.scan import scan as run

    run(corpus, moments, **options)
    return {"moments": moments}


@verb(
    "streaming-jsmf infer MOMENTS MODEL --topics 20",
    "streaming-jsmf infer MOMENTS MODELS --topics 10,20,50",
    scheduled=False,
)
@path("moments")
@path("model")
@topics_option
@engine_options
@options_of(StodSettings, only=("seed",))
@option("--partitions", default=None, metavar="LABELS",
        help="Use only the partitions with these labels, such as 1990..1999 or a,b, of a store scanned with "
             "--partition-by.  [default: all]")  # fmt: skip
@overwrite_option
@topics_as_json
@option("--workers", group=EXECUTION, type=int, default=None,
        help="Number of threads.  [default: one per core]")  # fmt: skip
def infer(
    moments: str, model: str, topics: str, *, listener: Any, as_json: bool = False, **options: Any
) -> Callable[[], None]:
    """Infer MODEL with K topics from a moments store.

    The corpus is not read. Models of several K are written to MODEL/k=5, MODEL/k=10, ...
    """
    from streaming_jsmf.topics.infer import infer_each

    n_topics, own = topic_numbers(topics), _popped(options, "partitions", "overwrite", "workers")
    settings = engine_settings_of(n_topics[0], None, options)
    made = infer_each(moments, model, n_topics, settings, listener=listener, **own)
    return partial(print_topics, *made, as_json=as_json)


@verb(
    "streaming-jsmf fit news.csv MODEL --topics 20",
    "streaming-jsmf fit CORPUS MODELS --topics 10,20,50 --workers 4",
)
@click.argument("source")
@path("model")
@topics_option
@option("--moments", group=SCAN, rare=True, type=click.Path(), default=None,
        help="Path of the moments store, which is created if it does not exist.  [default: MODEL.moments]")  # fmt: skip
@ingest_options(common=("stop_words", "text", "metadata"))
@options_of(ScanSettings, without=("max_topics", "third_moment"))
@engine_options
@option("--polish/--no-polish", group=POLISH, default=None,
        help="Whether to polish topics by passes over the documents.  [default: only with lr-jsmf]")  # fmt: skip
@options_of(PolishSettings, without=("seed",))
@overwrite_option
@json_option(help="Print the topics as JSON.", rare=True)
def fit(source: str, model: str, topics: str, as_json: bool = False, **options: Any) -> Callable[[], None]:
    """Fit MODEL to SOURCE, a corpus or anything that ingest reads.

    The corpus of texts or tables and the scan are kept as MODEL.corpus and MODEL.moments. Models of several K are
    written to MODEL/k=5, MODEL/k=10, ...
    """
    from streaming_jsmf.interface.fit import fit as run

    _allow_local_tokenizers(options)
    fitted = run(source, model, topic_numbers(topics), progress=False, **options)
    return partial(print_topics, *fitted.models, as_json=as_json)


@verb("streaming-jsmf update NEWS articles/", "streaming-jsmf update NEWS 'articles/*.csv' --vanished keep")
@path("model")
@click.argument("source")
@options_of(UpdateSettings)
@ingest_options(only=("files",), common=())
@ingest_options(without=(*FIXED_BY_MODEL, "files"), common=(), default="as for fit")
@json_option(help="Print the changes as JSON.")
def update(model: str, source: str, as_json: bool = False, **options: Any) -> str:
    """Let MODEL, which fit made, follow its source.

    Reads the files of SOURCE that are new or have changed, as fit read them unless options say otherwise, removes the
    documents of those that are gone, and polishes the topics from the present ones. Topics keep their numbers, labels
    and edits; new and vanished ones are listed. The shares kept beside MODEL are computed again.

    Run the same command again to resume after an interruption; without changes it does nothing.
    """
    from streaming_jsmf.interface.update import update as run

    _allow_local_tokenizers(options)
    found = run(model, source, **options)
    return json_text(found.fields()) if as_json else str(found)


@verb("streaming-jsmf polish MODEL CORPUS BETTER --steps 40")
@path("model")
@click.argument("corpus")
@path("out")
@options_of(PolishSettings)
@overwrite_option
@topics_as_json
def polish(model: str, corpus: str, out: str, as_json: bool = False, **options: Any) -> Callable[[], None]:
    """Polish the topics of MODEL with passes over CORPUS.

    The polished model is written to OUT. Polished topics are more coherent and predict documents better. Run the same
    command again to resume after an interruption.
    """
    from streaming_jsmf.topics.polish import polish as run

    run(model, corpus, out, **options)
    return partial(print_topics, out, as_json=as_json)


@verb("streaming-jsmf transform MODEL CORPUS SHARES.parquet --workers 4", summary=True)
@path("model")
@click.argument("source")
@path("out")
@options_of(ShareSettings)
@ingest_options(without=FIXED_BY_MODEL)
@overwrite_option
def transform(model: str, source: str, out: str, **options: Any) -> dict[str, Any]:
    """Write the topic shares of every document of SOURCE.

    SOURCE is a corpus or anything that ingest reads; texts are tokenized as those of MODEL were.

    OUT.parquet is one file, OUT.zarr an array of documents x topics, and OUT without a suffix a directory of Parquet
    files. OUT.csv is a table for other programs, with a column for each topic; documents and report do not read it.
    Run the same command again to resume after an interruption.
    """
    from streaming_jsmf.documents.transform import transform as run

    made = run(model, source, out, **options)
    totals = made.about.all_totals
    documents = {"documents": totals.documents}
    if totals.without_known_words:
        documents["without_known_words"] = totals.without_known_words
    return {"shares": out, **documents, "topics": made.about.n_topics}


def _popped(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """The options of these names that are given, taken out of ``options``."""
    return {name: options.pop(name) for name in names if name in options}


def _allow_local_tokenizers(options: Mapping[str, Any]) -> None:
    """Let MODULE:FUNCTION name a module in the working directory, as other programs do."""
    if ":" in options.get("tokenizer", ""):
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
