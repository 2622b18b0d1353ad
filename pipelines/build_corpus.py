"""Build a corpus from a data set spec: python pipelines/build_corpus.py SPEC SOURCE CORPUS."""

from __future__ import annotations

import sys

import click

from streaming_jsmf.corpus import build_corpus
from streaming_jsmf.errors import StreamingJSMFError


@click.command()
@click.argument("spec")
@click.argument("source")
@click.argument("corpus")
def main(spec: str, source: str, corpus: str) -> None:
    """Verify the files in SOURCE against SPEC (TOML), curate them, and write CORPUS."""
    try:
        built = build_corpus(spec, source, corpus)
    except StreamingJSMFError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    sizes = f"{built.n_documents} documents, {built.n_words} words, {built.nonzeros} nonzeros"
    click.echo(f"{built.root}: {sizes}")


if __name__ == "__main__":
    main()
