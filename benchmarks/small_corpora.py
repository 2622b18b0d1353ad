"""Defaults for small corpora: topics of a few documents, judged by all documents of the collection.

    python -m benchmarks.small_corpora news.parquet mail.parquet [--sizes 200,500,1000,3000] [--seeds 2]

Each file is Parquet with a column ``text``. For each size and seed, documents are drawn without replacement, ingested
once per variant (see ``VARIANTS``) and fitted with K = 10 up to 500 documents and 20 above. Prints a table per file and
size, with means over the seeds (nan where too few words are left): share of the documents drawn that are kept; words;
mean NPMI of the ten most probable words per topic in all documents of the file, duplicates and boilerplate excepted;
and the share of distinct words.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq

from benchmarks.text_defaults import KEEP_ALL, Variant, coherence_in
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.evaluation.coherence import distinct_share
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.interface.fit import fit
from streaming_jsmf.topics.parameters import NEEDED, OPTIONAL, TopicParameters
from streaming_jsmf.topics.store import read_model

EVERY = {"min_distinct_words": 1, "min_tokens": 1}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "3 words, 5 tokens": {"min_distinct_words": 3, "min_tokens": 5, "min_document_frequency": 5},
    **{
        f"in {least} to {most:.0%}": {
            "min_document_frequency": least,
            "max_document_frequency": most,
            **EVERY,
        }
        for most in (0.2, 0.5)
        for least in (1, 2, 3, 4, 5)
    },
}


def measure(
    texts: list[str], n_topics: int, variant: Mapping[str, Any], whole: Corpus, folder: Path
) -> list[float]:
    """Share of documents kept, number of words, NPMI in ``whole``, and share of distinct words."""
    corpus = ingest(texts, folder / "corpus", IngestRequest(curation=variant))
    fit(corpus.root, folder / "model", n_topics)
    made = Variant(corpus, TopicParameters.of(read_model(folder / "model", NEEDED, OPTIONAL)))
    ids = {word: number for number, word in enumerate(made.topics.words)}
    distinct = distinct_share(np.array([[ids[word] for word in words] for words in made.top]))
    return [corpus.n_documents / len(texts), corpus.n_words, coherence_in(whole, made.top), distinct]


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--sizes", default="200,500,1000,3000", show_default=True)
@click.option("--seeds", default=2, show_default=True)
@click.option("--variants", default=None, help="Names, separated by semicolons.  [default: all]")
def main(files: tuple[Path, ...], sizes: str, seeds: int, variants: str | None) -> None:
    """Print a table for each file and size."""
    logging.getLogger("streaming_jsmf").setLevel(logging.ERROR)
    chosen = {name: VARIANTS[name] for name in (variants.split(";") if variants else VARIANTS)}
    for path in files:
        texts = pq.read_table(path, columns=["text"])["text"].to_pylist()
        with tempfile.TemporaryDirectory() as folder:
            request = IngestRequest(
                preset="papers",
                options={"boilerplate": "drop"},
                curation={"duplicates": "drop", "stop_words": "none", **KEEP_ALL},
            )
            whole = ingest(path, Path(folder) / "whole", request)
            for size in (number for number in map(int, sizes.split(",")) if number <= len(texts)):
                n_topics = 10 if size <= 500 else 20
                click.echo(f"\n{path.stem}, {size} documents, K = {n_topics}\n")
                click.echo("| variant | kept | words | NPMI | distinct |\n|---|---:|---:|---:|---:|")
                draws = [np.random.default_rng(seed).permutation(len(texts))[:size] for seed in range(seeds)]
                for name, variant in chosen.items():
                    rows = []
                    for draw in draws:
                        with tempfile.TemporaryDirectory(dir=folder) as place, suppress(InputError):
                            drawn = [texts[i] for i in draw]
                            rows.append(measure(drawn, n_topics, variant, whole, Path(place)))
                    kept, words, score, distinct = np.mean(rows or [4 * [np.nan]], axis=0)
                    click.echo(f"| {name} | {kept:.1%} | {words:,.0f} | {score:.3f} | {distinct:.2f} |")


if __name__ == "__main__":
    main()
