"""Draw the passages of speeches in `data_specs/un_general_debate_sample` from the whole corpus.

    python -m pipelines.un_general_debate_sample SPEECHES OUT.parquet [--passages 5000] [--characters 2000] [--seed 0]

SPEECHES is a directory of Parquet files with the columns ``text``, ``country`` and ``year``, one row per speech. Each
passage consists of whole, consecutive sentences from a random place of another speech. The result is in the order of
years and countries.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def passage(text: str, characters: int, generator: np.random.Generator) -> str:
    """Consecutive sentences of at least ``characters``, from a random one on; the whole text if it is shorter."""
    sentences = [
        " ".join(sentence.split()) for sentence in re.split(r"(?<=[.?!])\s+", text) if sentence.strip()
    ]
    ends = np.cumsum([len(sentence) + 1 for sentence in sentences])
    starts = max(1, int(np.searchsorted(ends, ends[-1] - characters)))
    start = int(generator.integers(starts))
    before = ends[start - 1] if start else 0
    stop = int(np.searchsorted(ends, before + characters)) + 1
    return " ".join(sentences[start:stop])


@click.command(help=__doc__)
@click.argument("speeches", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--passages", default=5000, show_default=True)
@click.option("--characters", default=2000, show_default=True, help="Minimum length of a passage.")
@click.option("--seed", default=0, show_default=True)
def main(speeches: Path, out: Path, passages: int, characters: int, seed: int) -> None:
    table = pq.read_table(speeches, columns=["text", "country", "year"])
    table = table.sort_by([("year", "ascending"), ("country", "ascending")])
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.choice(len(table), passages, replace=False))
    table = table.take(pa.array(chosen))
    texts = [passage(text, characters, generator) for text in table.column("text").to_pylist()]
    drawn = pa.table(
        {
            "text": texts,
            "country": table.column("country").combine_chunks(),
            "year": table.column("year").combine_chunks(),
        }
    )
    pq.write_table(drawn, out, compression="zstd", compression_level=22)
    click.echo(f"{out}: {len(drawn):,} passages, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
