"""The tensor engine with a K other than the true number of topics: errors and perplexities.

    python -m pipelines.stod_any_k OUT [--corpus kos=KOS] [--topics 20,25,50] [--seeds 1]

The first table is for simulated corpora (12 topics, 1,500 words, 6,000 documents of about 100 tokens): mean L1 error
(at most 2) of the best pairs of topics with the true alpha0, and alpha0 and error with its estimates: *auto* of the
engine, and *shares*, at which the shares of the components sum to 1; with the true alpha0 and components refined by
alternating least squares (*ALS*), and of LR-JSMF. The second is for each CORPUS, with every fifth document held out:
perplexity of one half of the tokens of held-out documents given the other half, for the unigram model, LR-JSMF and the
tensor engine. Lower is better.

OUT keeps stores and results, so an interrupted command can be run again; it gets stod_any_k.parquet and stod_any_k.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from pipelines.common import options
from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.data import prepared
from pipelines.common.held_out import Split
from pipelines.common.options import ONE_THREAD
from pipelines.common.results import Results, Row, publish
from pipelines.common.tables import markdown, number
from pipelines.common.tensor_variants import refined_topics, share_alpha0
from streaming_jsmf import InferSettings, ScanSettings, StodSettings, scan
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.evaluation.topic_shape import recovery_error
from streaming_jsmf.inference.correlations import dirichlet_prior, prior_sum
from streaming_jsmf.inference.perplexity import Completer, Completion
from streaming_jsmf.inference.stod import core_moments
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.simulation import read_truth, simulate_lda
from streaming_jsmf.topics.infer import fit_moments

Floats = NDArray[np.float64]

TRUE_TOPICS, WORDS, DOCUMENTS = 12, 1_500, 6_000
TRUE_SUMS, ASKED_TOPICS = (0.3, 1.0, 5.0), (12, 14, 16, 24)

#: Columns of the first table, after alpha0, K and seed, and their labels.
ERRORS = {
    "error": "error",
    "auto": "auto",
    "auto_error": "error",
    "shares": "shares",
    "shares_error": "error",
    "als_error": "error of ALS",
    "auto_over_true": "auto over true",
    "lr_jsmf_error": "LR-JSMF",
}
#: Columns of the second table, after corpus and K, and their labels.
PERPLEXITIES = {
    "unigram": "unigram",
    "lr_jsmf": "LR-JSMF",
    "stod": "STOD",
    "stod_over_lr_jsmf": "STOD over LR-JSMF",
    "alpha0": "alpha0",
    "share_sum": "sum of shares",
    "mass_without_topic": "mass without topic",
}


def simulated(moments: Moments, truth: Floats, total: float, n_topics: int) -> Row:
    """Errors at one K; ``total`` is the true alpha0."""
    settings = StodSettings(n_topics, total)
    with single_blas_thread():
        shares = share_alpha0(core_moments(moments.tensor_moments()), settings)
        refined = refined_topics(moments, settings, total).word_topic
    models = {
        "": fit_moments(moments, settings, threads=1),
        "auto_": fit_moments(moments, StodSettings(n_topics), threads=1),
        "shares_": fit_moments(moments, StodSettings(n_topics, shares), threads=1),
        "lr_jsmf_": fit_moments(moments, InferSettings(n_topics), threads=1),
    }
    errors = {
        f"{how}error": recovery_error(model.arrays["word_topic"], truth) for how, model in models.items()
    }
    return {
        **errors,
        "als_error": recovery_error(refined, truth),
        "auto": models["auto_"].metrics["alpha0"],
        "shares": shares,
        "auto_over_true": errors["auto_error"] / errors["error"],
    }


def simulated_rows(
    out: Path, documents: int, words: int, sums: tuple[float, ...], asked: tuple[int, ...], seeds: int
) -> Iterator[Row]:
    results = Results(out / "cells")
    for seed in range(seeds):
        for total in sums:
            corpus = out / "corpora" / f"simulated-{total:g}-{documents}-{seed}"
            if not corpus.exists():
                simulate_lda(
                    corpus, n_documents=documents, n_words=words, n_topics=TRUE_TOPICS,
                    alpha=total / TRUE_TOPICS, seed=seed, execution=ONE_THREAD,
                )  # fmt: skip
            settings = ScanSettings(max_topics=max(asked), third_moment=True)
            moments = scan(corpus, out / f"{corpus.name}-moments", settings, ONE_THREAD)
            truth = read_truth(corpus).word_topic
            for n_topics in asked:
                told = {"total": total, "K": n_topics, "seed": seed}
                key = {**told, "documents": documents, "words": words}
                yield told | results.row(key, lambda: simulated(moments, truth, total, n_topics))  # noqa: B023


def completed_rows(name: str, corpus: Corpus, topics: list[int], out: Path) -> Iterator[Row]:
    documents, folder = Split.of(read_counts(Path(corpus.root))), out / f"{Path(corpus.root).name}-fitted"
    if not folder.exists():
        write_corpus(folder, documents.fitted)
    settings = ScanSettings(max_topics=max(topics), third_moment=True)
    moments = scan(folder, out / f"{folder.name}-moments", settings, ONE_THREAD)

    def completed(topics: Floats, prior: Floats) -> Completion:
        return Completer.of(topics, prior, moments.term_count).complete(documents.held_out, threads=1)

    for n_topics in topics:
        anchored = fit_moments(moments, InferSettings(n_topics, correlations="refined"), threads=1).arrays
        total = prior_sum(anchored["topic_topic"], anchored["topic_probability"])
        prior = dirichlet_prior(anchored["topic_probability"], total)
        model = fit_moments(moments, StodSettings(n_topics), threads=1)
        first = completed(anchored["word_topic"], prior)
        second = completed(model.arrays["word_topic"], model.arrays["alpha"]).perplexity
        yield {
            "corpus": name,
            "K": n_topics,
            "unigram": first.unigram_perplexity,
            "lr_jsmf": first.perplexity,
            "stod": second,
            "stod_over_lr_jsmf": second / first.perplexity,
            **{name: model.metrics[name] for name in ("alpha0", "share_sum", "mass_without_topic")},
        }


def tables(rows: list[Row]) -> str:
    of_laws = [
        [f"{row['total']:g}", row["K"], row["seed"], *(number(row[name]) for name in ERRORS)]
        for row in rows
        if "total" in row
    ]
    of_texts = [
        [row["corpus"], row["K"], *(number(row[name], 4) for name in PERPLEXITIES)]
        for row in rows
        if "corpus" in row
    ]
    texts = [markdown(["alpha0", "K", "seed", *ERRORS.values()], of_laws, text=0)]
    return "\n\n".join(
        [*texts, *([markdown(["corpus", "K", *PERPLEXITIES.values()], of_texts)] if of_texts else [])]
    )


@click.command(help=__doc__)
@options.OUT
@options.corpora(words=10_000)
@options.several("topics", [20, 25, 50], help="Numbers of topics for the corpora.")
@click.option("--seeds", default=1, show_default=True, help="Simulated corpora of each kind.")
@options.quick("one simulated corpus of 1,000 documents")
def main(out: Path, corpora: tuple[str, ...], words: int, topics: list[int], seeds: int, quick: bool) -> None:
    if quick:
        rows = [*simulated_rows(out, 1000, 200, (1.0,), (TRUE_TOPICS, TRUE_TOPICS + 2), 1)]
    else:
        rows = [*simulated_rows(out, DOCUMENTS, WORDS, TRUE_SUMS, ASKED_TOPICS, seeds)]
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        rows += completed_rows(name, corpus, topics, out)
    publish(out, "stod_any_k", rows, tables(rows), used)
    click.echo(tables(rows))


if __name__ == "__main__":
    main()
