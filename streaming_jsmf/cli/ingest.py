"""The verb ``ingest``."""

from __future__ import annotations

import sys
from typing import Any

import click

from streaming_jsmf.cli.verb import allow_local_tokenizers, ingest_options, overwrite_option, path, verb


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

    allow_local_tokenizers(options)
    given = click.get_current_context().params
    # A bar for downloads must not appear among lines of JSON.
    progress = sys.stderr.isatty() and given["log_json"] != "-" and not given["quiet"]
    built = run(source, corpus, progress=progress, **options)
    numbers = {"documents": built.n_documents, "words": built.n_words, "nonzeros": built.nonzeros}
    return {"corpus": corpus, **numbers}
