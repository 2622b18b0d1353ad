"""Topics of texts by embeddings and by RustMallet, compared with this package on the same documents.

    python -m benchmarks.text_peers OUT --corpus news=NEWS --text TEXTS.parquet [--topics 20] [--seeds 5]

The documents of the corpus are those of TEXTS with the same ``--id``. Seed s holds out another fifth of them. BERTopic
and FASTopic get embeddings of the texts and count the words of the corpus in them, so that all methods list words of
one vocabulary. Embeddings are those of ``--model``, a directory of sentence-transformers, or without it 100 components
of tf-idf, its documented scikit-learn embeddings. BERTopic chooses a number of topics and reduces it to
K; ``topics`` in the table is the number that is left, without its topic of outliers. Seconds are those of one thread
without embedding the texts. RustMallet is a translation of MALLET, whose own program is in no package index.

OUT gets text_peers.parquet, text_peers.md and text_peers.json. A library that is not installed is left out.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.dataset as pads
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from pipelines.common import options
from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.data import prepared
from pipelines.common.held_out import Split, is_held_out, scores_of
from pipelines.common.results import CellMissing, Results, Row, publish
from pipelines.common.tables import markdown, number, spread
from pipelines.quality import LISTED, polished
from streaming_jsmf.inference.words import prominent_words

Single = NDArray[np.float32]

#: (fitted counts, embeddings of the fitted documents, K, seed) -> the top words of each topic.
Method = Callable[[sparse.csr_array, Single, int, int], NDArray[np.int64]]

#: Digits as letters, and back.
LETTERS, DIGITS = str.maketrans("0123456789", "abcdefghij"), str.maketrans("abcdefghij", "0123456789")


def words_of(counts: sparse.csr_array) -> list[str]:
    """Each document as its words, named by their ids in letters, because some tokenizers drop digits."""
    names = np.array([f"word{word}".translate(LETTERS) for word in range(counts.shape[1])])
    ends = zip(counts.indptr[:-1], counts.indptr[1:], strict=True)
    return [" ".join(np.repeat(names[counts.indices[a:b]], counts.data[a:b])) for a, b in ends]


def id_of(name: str) -> int:
    return int(name.removeprefix("word").translate(DIGITS))


def ids_of(lists: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    return np.array([[id_of(word) for word in words[:LISTED]] for words in lists if len(words) >= LISTED])


def own(counts: sparse.csr_array, _: Single, n_topics: int, seed: int) -> NDArray[np.int64]:
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name) / "corpus", counts)
        [(_steps, found)] = polished(Path(name) / "corpus", n_topics, seed, Path(name), [10])
    return prominent_words(found["word_topic"], LISTED)


def bertopic(counts: sparse.csr_array, embeddings: Single, n_topics: int, seed: int) -> NDArray[np.int64]:
    """Its defaults, but for the seed of UMAP."""
    from bertopic import BERTopic
    from umap import UMAP

    reduce = UMAP(n_neighbors=15, n_components=5, min_dist=0.0, metric="cosine", random_state=seed)
    model = BERTopic(umap_model=reduce, nr_topics=n_topics + 1, embedding_model=None)
    model.fit(words_of(counts), embeddings)
    lists = [[word for word, _ in words] for topic, words in model.get_topics().items() if topic >= 0]
    return ids_of(lists)


def fastopic(counts: sparse.csr_array, embeddings: Single, n_topics: int, seed: int) -> NDArray[np.int64]:
    import torch
    from fastopic import FASTopic
    from topmost.preprocess import Preprocess

    class Given:
        def encode(self, texts: list[str], **_: Any) -> Single:
            assert len(texts) == len(embeddings)
            return embeddings

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    given = {"doc_embed_model": Given(), "num_top_words": LISTED, "device": "cpu"}
    model = FASTopic(n_topics, Preprocess(), **given)
    top_words, _ = model.fit_transform(words_of(counts))
    return ids_of([words.split() for words in top_words])


def rust_mallet(counts: sparse.csr_array, _: Single, n_topics: int, seed: int) -> NDArray[np.int64]:
    """1,000 sweeps with learned hyperparameters, its default."""
    from pyrmallet import LatentDirichletAllocation

    model = LatentDirichletAllocation(n_components=n_topics, random_state=seed)
    model.fit(words_of(counts))
    names = np.array([id_of(str(word)) for word in model.feature_names_in_])
    return names[prominent_words(np.asarray(model.components_).T, LISTED)]


METHODS: dict[str, tuple[Method, str]] = {
    "LR-JSMF polished": (own, "streaming_jsmf"),
    "BERTopic": (bertopic, "bertopic"),
    "FASTopic": (fastopic, "fastopic"),
    "RustMallet": (rust_mallet, "pyrmallet"),
}


def embedded(texts: list[str], model: Path | None) -> Single:
    if model is None:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        found = TfidfVectorizer().fit_transform(texts)
        return TruncatedSVD(100, random_state=0).fit_transform(found).astype(np.float32)
    from sentence_transformers import SentenceTransformer

    return np.asarray(SentenceTransformer(str(model), device="cpu").encode(texts), np.float32)


def row_of(counts: sparse.csr_array, embeddings: Single, method: str, n_topics: int, seed: int) -> Row:
    split, fitted = Split.of(counts, seed), ~is_held_out(counts.shape[0], seed)
    started = time.process_time()
    with threadpool_limits(1):
        listed = METHODS[method][0](split.fitted, embeddings[fitted], n_topics, seed)
    seconds = time.process_time() - started
    return {**scores_of(split, listed), "topics": len(listed), "seconds": seconds}


def table(rows: Sequence[Row]) -> str:
    """Means and standard deviations over seeds."""
    cells: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["corpus"], row["K"], row["method"]), []).append(row)
    columns = {
        "npmi": "NPMI",
        "held_out_npmi": "NPMI, held out",
        "distinct": "distinct top words",
        "topics": "topics",
    }
    lines = [
        [*cell, len(several), *(spread([row[name] for row in several]) for name in columns),
         number(float(np.mean([row["seconds"] for row in several])), 2)]
        for cell, several in cells.items()
    ]  # fmt: skip
    return markdown(["corpus", "K", "method", "seeds", *columns.values(), "CPU s"], lines, text=3)


@click.command(help=__doc__)
@options.OUT
@options.corpora(words=10_000)
@click.option("--text", "texts", required=True, help="Parquet with the texts.")
@click.option("--text-column", default="text", show_default=True, help="Column of the texts.")
@click.option("--id", "id_column", default="doc_id", show_default=True, help="Column of the ids.")
@click.option("--model", type=click.Path(path_type=Path), help="Directory of a sentence-transformers model.")
@options.several("topics", [20])
@options.SEEDS
@options.several("methods", METHODS)
@options.ONLY_KEPT
def main(
    out: Path, corpora: tuple[str, ...], words: int, texts: str, text_column: str, id_column: str, model: Path | None,
    topics: list[int], seeds: int, methods: list[str], only_kept: bool,
) -> None:  # fmt: skip
    results, [named] = Results(out / "cells", only_kept), corpora
    name, corpus = prepared(named, out / "corpora", words)
    found = pads.dataset(texts).to_table(columns=[id_column, text_column])
    by_id = dict(zip(*(found[column].to_pylist() for column in (id_column, text_column)), strict=True))
    shards = [corpus.shard_path(shard) for shard in corpus.shards]
    ids = pads.dataset(shards).to_table(columns=["document_id"])["document_id"].to_pylist()
    counts = read_counts(Path(corpus.root))
    key = {"corpus": corpus.fingerprint, "model": model.name if model else "tf-idf"}
    embeddings = results.arrays(key, lambda: {"rows": embedded([by_id[each] for each in ids], model)})["rows"]
    rows = []
    for n_topics in topics:
        for method in methods:
            if not only_kept and importlib.util.find_spec(METHODS[method][1]) is None:
                click.echo(f"{method} is left out: {METHODS[method][1]} is not installed", err=True)
                continue
            for seed in range(seeds):
                cell = {"K": n_topics, "method": method, "seed": seed}
                with suppress(CellMissing):
                    made = results.row(
                        {**key, **cell}, partial(row_of, counts, embeddings, method, n_topics, seed)
                    )
                    rows.append({"corpus": name, **cell, **made})
                    click.echo(f"{name} K={n_topics} {method} {seed}: {made}", err=True)
    publish(out, "text_peers", rows, table(rows), {name: corpus})


if __name__ == "__main__":
    main()
