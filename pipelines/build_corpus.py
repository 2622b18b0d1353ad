"""Build a corpus from a spec in Python: python pipelines/build_corpus.py SPEC CORPUS [--files DIRECTORY]."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.errors import StreamingJSMFError
from streaming_jsmf.ingestion.ingest import ingest


@click.command()
@click.argument("spec")
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option("--files", type=click.Path(path_type=Path), default=None, help="Directory of the source files.")
def main(spec: str, corpus: Path, files: Path | None) -> None:
    """Fetch and verify the files of SPEC (TOML), curate them into CORPUS, and say what each step left out."""
    try:
        built = ingest(spec, corpus, IngestRequest(files=files), progress=sys.stderr.isatty())
    except StreamingJSMFError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    for step in read_manifest(corpus).dropped:
        left_out = f"{step.words} words, {step.documents} documents, {step.tokens} tokens"
        click.echo(f"{step.step}: {left_out} {step.reason}")
    click.echo(f"{corpus}: {built.n_documents} documents, {built.n_words} words, {built.nonzeros} nonzeros")


if __name__ == "__main__":
    main()
