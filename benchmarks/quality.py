"""Topic quality beside scikit-learn, on the same words and documents of one corpus.

    python -m benchmarks.quality CORPUS --topics 20,50 [--seed 0]

Prints a Markdown table: NPMI of the top 10 words (documents as windows, the corpus itself as reference) and
the share of distinct words among all top words. All models see the same matrix of raw counts; no tf-idf.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse

from streaming_jsmf.evaluation.coherence import cooccurrence_counts, distinct_share, npmi
from streaming_jsmf.inference.words import prominent_words

Floats = NDArray[np.float64]
LISTED = 10


@dataclass(frozen=True)
class Bag:
    """counts: CSR, documents x words, f64; words: the vocabulary in column order."""

    counts: sparse.csr_array
    words: list[str]


@dataclass(frozen=True)
class Row:
    """One line of the table. npmi: mean over topics; distinct: share of 1; seconds: wall, fitting only."""

    model: str
    topics: int
    npmi: float
    distinct: float
    seconds: float


def read_bag(corpus: Path) -> Bag:
    """The whole corpus in memory: a corpus directory, or Parquet files with `ids` and `counts` and vocab.txt."""
    shards = sorted((corpus / "documents").glob("*.parquet"))
    shards = shards or sorted(p for p in corpus.glob("*.parquet") if p.name != "vocabulary.parquet")
    if not shards:
        raise click.ClickException(f"{corpus}: no Parquet files in it or in its documents/")
    table = corpus / "vocabulary.parquet"
    if table.exists():
        words = pq.read_table(table, columns=["word"])["word"].to_pylist()
    else:
        words = (corpus / "vocab.txt").read_text(encoding="utf-8").split()
    return Bag(sparse.vstack([_shard(path, len(words)) for path in shards], format="csr"), words)


def _shard(path: Path, n_words: int) -> sparse.csr_array:
    table = pq.read_table(path, columns=["ids", "counts"])
    ids, counts = (table[name].combine_chunks() for name in ("ids", "counts"))
    starts = np.concatenate([[0], np.cumsum(ids.value_lengths().to_numpy())])
    values = counts.flatten().to_numpy().astype(np.float64)
    return sparse.csr_array((values, ids.flatten().to_numpy(), starts), shape=(len(table), n_words))


def ours(corpus: Path, topics: list[int], weights: str, seed: int, workdir: Path) -> dict[int, Floats]:
    """LR-JSMF with the package's defaults: one scan for all K; word_topic (N x K) by K."""
    import zarr

    from streaming_jsmf.config import ScanSettings
    from streaming_jsmf.workflow.fit import fit

    settings = ScanSettings(document_weights=weights, seed=seed)
    fitted = fit(corpus, workdir / weights, topics, scan_settings=settings)
    models = zip(topics, fitted.models, strict=True)
    return {k: np.asarray(zarr.open_group(str(path), mode="r")["word_topic"]) for k, path in models}


def online_lda(counts: sparse.csr_array, n_topics: int, seed: int) -> Floats:
    """scikit-learn's online variational LDA, its defaults; N x K."""
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(n_topics, learning_method="online", random_state=seed)
    return model.fit(counts).components_.T


def minibatch_nmf(counts: sparse.csr_array, n_topics: int, seed: int) -> Floats:
    """scikit-learn's MiniBatchNMF (Frobenius), its defaults, on the raw counts; N x K."""
    from sklearn.decomposition import MiniBatchNMF

    return MiniBatchNMF(n_topics, random_state=seed).fit(counts).components_.T


def score(bag: Bag, name: str, word_topic: Floats, seconds: float) -> Row:
    """Coherence and distinct share of one model's top words."""
    words = prominent_words(word_topic, LISTED)
    chosen, places = np.unique(words, return_inverse=True)
    pairs = cooccurrence_counts([bag.counts], chosen)
    places = places.reshape(words.shape)
    coherence = npmi(np.diag(pairs), pairs, bag.counts.shape[0], places).mean()
    return Row(name, word_topic.shape[1], float(coherence), distinct_share(words), seconds)


def rows(corpus: Path, topics: list[int], seed: int) -> Iterator[Row]:
    """All models for all K, one row as soon as it is there. Our seconds are for all K together."""
    bag = read_bag(corpus)
    for weights in ("capped", "uniform"):
        with tempfile.TemporaryDirectory() as workdir:
            started = time.perf_counter()
            found = ours(corpus, topics, weights, seed, Path(workdir))
            seconds = time.perf_counter() - started
        for word_topic in found.values():
            yield score(bag, f"LR-JSMF, {weights} weights", word_topic, seconds)
    peers = {"scikit-learn LDA (online), counts": online_lda, "MiniBatchNMF, counts": minibatch_nmf}
    for n_topics in topics:
        for name, fit_peer in peers.items():
            started = time.perf_counter()
            word_topic = fit_peer(bag.counts, n_topics, seed)
            yield score(bag, name, word_topic, time.perf_counter() - started)


@click.command(help=__doc__)
@click.argument("corpus", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--topics", default="20,50", show_default=True, help="Numbers of topics, with commas between.")
@click.option("--seed", default=0, show_default=True)
def main(corpus: Path, topics: str, seed: int) -> None:
    click.echo("| model | K | NPMI@10 | distinct share | seconds |\n|---|---|---|---|---|")
    for row in rows(corpus, [int(k) for k in topics.split(",")], seed):
        click.echo(
            f"| {row.model} | {row.topics} | {row.npmi:.3f} | {row.distinct:.2f} | {row.seconds:.1f} |"
        )


if __name__ == "__main__":
    main()
