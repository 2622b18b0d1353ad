"""ENN and LAW beside alternating projections and AW on the whole C, as in Figure 3 of LR-JSMF.

    python pipelines/reproduction.py CORPUS OUT [--topics 5,10,20,50] [--words 1000]

OUT keeps the corpus (if it is cut to fewer words), two moments stores and the topics of each method and K, so that the
same command goes on after an interruption and prints the tables again from what is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from streaming_jsmf import InferSettings, ScanSettings, scan
from streaming_jsmf.config import AnchorMethod
from streaming_jsmf.evaluation.inputs import Cooccurrence, TopicArrays
from streaming_jsmf.evaluation.matching import match_topics, yy_error
from streaming_jsmf.evaluation.summary import evaluate_topics
from streaming_jsmf.evaluation.topic_shape import DISSIMILARITY_WORDS
from streaming_jsmf.inference.law import AnchorRules, AnchorWordTopics, anchor_words, low_rank_anchor_words
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.jobs.events import silent
from streaming_jsmf.linalg.blas import single_blas_thread
from streaming_jsmf.moments.partition import load_block, load_partitions
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.workflow.ingest import IngestRequest, ingest
from streaming_jsmf.workflow.rectify import rectify

#: Top words of a topic in Dissimilarity, as in both papers.
LISTED = DISSIMILARITY_WORDS

#: Arrays of a result that are kept.
KEPT = ("word_topic", "topic_topic", "anchors", "rectified", "seconds", "iterations")


@dataclass(frozen=True)
class Method:
    """A line of the table: a rectification on one of the stores, and whether anchors come from the whole C*."""

    name: str
    rectify: str
    exact: bool
    whole: bool = False
    anchors: AnchorMethod = "pivoted-qr"


#: The first is what the others are compared with.
METHODS = (
    Method("AP + AW", "ap", exact=True, whole=True),
    Method("ENN + LAW", "enn", exact=True),
    Method("LR-JSMF (two scans, ENN + LAW)", "enn", exact=False),
    Method("PALM + LAW", "palm", exact=True),
    Method("PALM + LAW, on F F' - D", "palm", exact=False),
    Method("no rectification, AW", "none", exact=True, whole=True),
    Method("ENN + SoftClique", "enn", exact=True, anchors="soft-clique"),
)


@dataclass(frozen=True)
class Stores:
    """Both stores of a corpus, and F with F F' - D = C exactly: the scaled documents themselves, N x M."""

    exact: Moments
    usual: Moments
    documents: NDArray[np.float32]


def prepare(corpus: Path, out: Path, settings: ScanSettings, words: int | None) -> Stores:
    """Scan the corpus twice over: with the whole C, and as usual."""
    if words is not None:
        cut = out / f"corpus-{words}"
        if not cut.exists():
            ingest(corpus, cut, IngestRequest(curation={"vocabulary_size": words}))
        corpus = cut
    usual = scan(corpus, out / "moments", settings)
    exact = scan(corpus, out / "moments-exact", ScanSettings(**{**settings.fields(), "exact": True}))
    return Stores(exact, usual, scaled_documents(exact))


def scaled_documents(moments: Moments) -> NDArray[np.float32]:
    """H^' / sqrt(total weight), N x M, dense."""
    store = moments.store
    partitions = load_partitions(store.manifest, str(store.path))
    blocks = [load_block(p, store.n_words, store.settings.document_weights).toarray() for p in partitions]
    return (np.vstack(blocks).T / np.sqrt(store.scalars("range")["total_weight"])).astype(np.float32)


def fitted(
    stores: Stores, method: Method, settings: InferSettings, threads: int
) -> dict[str, NDArray[np.generic]]:
    """Topics of a method, with the seconds of rectification and inference; eigenpairs are the stores'."""
    moments = stores.exact if method.exact else stores.usual
    documents = moments.n_documents
    rules = AnchorRules(
        settings.anchors,
        settings.anchor_floor(documents),
        settings.shrinkage(documents),
        min_row_sum=settings.anchor_row_sum,
    )
    with single_blas_thread():
        pairs = moments.eigenpairs(settings.n_topics)
        known = (moments.row_sum, moments.document_frequency)
        started = time.perf_counter()
        found = rectify(moments, pairs, settings, threads, silent)
        topics: AnchorWordTopics
        if method.whole:
            matrix = moments.cooccurrence() if found.matrix is None else found.matrix
            topics = anchor_words(matrix, *known, settings.n_topics, rules, threads=threads)
        else:
            topics = low_rank_anchor_words(found.rectified, *known, rules, threads=threads)
        seconds = time.perf_counter() - started
    values = (
        topics.word_topic,
        topics.topic_topic,
        topics.anchors.words,
        found.rectified,
        seconds,
        found.iterations,
    )
    return {name: np.asarray(value) for name, value in zip(KEPT, values, strict=True)}


def results(
    stores: Stores, out: Path, numbers: list[int], base: Callable[[int, Method], InferSettings], threads: int
) -> Iterator[tuple[int, Method, dict[str, NDArray[np.generic]]]]:
    """Topics of all methods, made now or read from an earlier run."""
    for n_topics in numbers:
        for place, method in enumerate(METHODS):
            path = out / f"k={n_topics}-{place}.npz"
            if not path.exists():
                made = fitted(stores, method, base(n_topics, method), threads)
                beside = path.with_suffix(".part.npz")
                np.savez(beside, **made)
                beside.rename(path)
            with np.load(path) as arrays:
                yield n_topics, method, {name: arrays[name] for name in KEPT}


def line(
    stores: Stores, name: str, found: dict[str, NDArray[np.generic]], first: dict[str, NDArray[np.generic]]
) -> str:
    """A row of the table: the metrics of Figure 3, and the distance to the first method."""
    moments = stores.exact
    share = moments.term_count / moments.term_count.sum()
    topics = TopicArrays(
        found["word_topic"],
        prominent_words(found["word_topic"], LISTED),
        share,
        topic_topic=found["topic_topic"],
        topic_probability=found["topic_topic"].sum(axis=1) / found["topic_topic"].sum(),
        anchors=found["anchors"],
    )
    metrics = evaluate_topics(
        topics, cooccurrence=Cooccurrence(stores.documents, moments.diagonal, moments.row_sum)
    )
    shared = len(set(found["anchors"].tolist()) & set(first["anchors"].tolist()))
    distances = match_topics(found["word_topic"], first["word_topic"]).l1
    return (
        f"| {len(found['anchors'])} | {name} | {shared} | {distances.mean():.4f} | {np.median(distances):.4f} "
        f"| {yy_error(found['rectified'], first['rectified']):.4f} | {metrics['relative_recovery']:.5f} "
        f"| {metrics['relative_approximation']:.3f} | {metrics['relative_dominancy']:.3f} "
        f"| {metrics['specificity']['2021']:.3f} | {metrics['dissimilarity']:.2f} "
        f"| {float(found['seconds']):.1f} | {int(found['iterations'])} | {found['topic_topic'].sum():.3f} |"
    )


HEAD = (
    "| K | method | anchors shared | mean L1 | median L1 | Y Y' off | relative recovery | relative approximation "
    "| relative dominancy | specificity | dissimilarity | seconds | steps | sum(A) |\n"
    + "|---:|---|"
    + "---:|" * 12
)


@click.command(help=__doc__)
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--topics", default="5,10,20,50", show_default=True, help="Numbers of topics, with commas between."
)
@click.option("--words", type=int, default=None, help="Keep so many words.  [default: all]")
@click.option("--document-weights", default="capped", show_default=True, help="uniform: as in the papers.")
@click.option(
    "--papers", is_flag=True, help="Anchors among all words, as in the papers: no guards, no shrinkage."
)
@click.option("--iterations", default=150, show_default=True, help="Most steps of a rectification.")
@click.option("--threads", default=2, show_default=True)
def main(
    corpus: Path,
    out: Path,
    topics: str,
    words: int | None,
    document_weights: str,
    papers: bool,
    iterations: int,
    threads: int,
) -> None:
    """Fit all methods for all K and print a table in Markdown."""
    numbers = [int(number) for number in topics.split(",")]
    out.mkdir(parents=True, exist_ok=True)
    settings = ScanSettings(max_topics=max(numbers), document_weights=document_weights)
    stores = prepare(corpus, out, settings, words)
    guards = {"anchor_min_df": 0.0, "anchor_shrinkage": 0.0, "anchor_row_sum": 0.0} if papers else {}

    def base(n_topics: int, method: Method) -> InferSettings:
        return InferSettings(
            n_topics, rectify=method.rectify, anchors=method.anchors, max_iterations=iterations, **guards
        )

    click.echo(HEAD)
    first: dict[str, NDArray[np.generic]] = {}
    for _, method, found in results(stores, out, numbers, base, threads):
        if method is METHODS[0]:
            first = found
        click.echo(line(stores, method.name, found, first))


if __name__ == "__main__":
    main()
