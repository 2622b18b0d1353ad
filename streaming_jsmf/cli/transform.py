"""The verb ``transform``."""

from __future__ import annotations

from typing import Any

import click

from streaming_jsmf.cli.verb import options_of, overwrite_option, path, verb
from streaming_jsmf.config import FIXED_BY_MODEL, INGEST_SETTINGS, ShareSettings


@verb("streaming-jsmf transform MODEL CORPUS SHARES.parquet --workers 4", summary=True)
@path("model")
@click.argument("source")
@path("out")
@options_of(ShareSettings)
@options_of(*INGEST_SETTINGS, without=FIXED_BY_MODEL)
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
    totals = made.about.totals
    documents = {"documents": totals.documents} if totals else {}
    return {"shares": out, **documents, "topics": made.about.n_topics}
