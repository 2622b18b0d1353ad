"""Fit the corpus that ships with the project in Python: python pipelines/nips_topics.py OUT [--topics 5,10,20,50]."""

from __future__ import annotations

from pathlib import Path

import click

from streaming_jsmf import fit, open_model

CORPUS = Path(__file__).parent.parent / "data_specs" / "uci_nips"


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--topics", default="5,10,20,50", show_default=True)
def main(out: Path, topics: str) -> None:
    """Scan the NIPS papers once, fit a model for each number of topics into OUT, and print each topic's first words."""
    fitted = fit(CORPUS, out, [int(number) for number in topics.split(",")])
    for path in fitted.models:
        model = open_model(path).load()
        click.echo(f"{path}: topic correlations sum to {float(model['topic_topic'].sum()):.3f}")
        for words in model["word"].values[model["prominent_words"].values[:, :6]]:
            click.echo("  " + " ".join(words))


if __name__ == "__main__":
    main()
