"""Proposals of other papers on anchor words, measured against the defaults of this package.

    python -m pipelines.later_papers OUT --corpus kos=KOS --corpus news=NEWS [--topics 20] [--seeds 5]

*Topics* (a seed holds out another fifth of the documents):

- *default*: `infer`, least squares in the rectified space; the others use its anchors unless stated;
- *least squares*, *KL*: RecoverL2 and RecoverKL (Arora et al. 2013) with rows of C as counted;
- *KL, L2 .01* and *.1*: the same with the regularized coefficients of Nguyen et al. 2014;
- *three words*, *harmonic*: the three top words of each topic of the default as a tandem anchor (Lund et al. 2017), by
  the row of their joint word, or by the entrywise harmonic mean of their rows;
- *background*: one of the K topics is the distribution of all words.

Each is rated as it is and after ten steps of polish. *Numbers of topics*: FindAnchorWords of Bing, Bunea and Wegkamp
2020 with several multiples of their noise bound, on simulated documents with K = 20 and on the corpora. *Shares*: the
distance to the true shares of simulated documents with correlated topics, by CVB0 with the Dirichlet prior as in
`transform`, by thresholded least squares, and by the objective of PADD (Lee et al. 2020), ||H - B W||^2 / ||H||^2 + g
||A - W W'/M||^2 / ||A||^2, with projected gradients instead of dual decomposition.

OUT gets later_papers.parquet, later_papers.md and later_papers.json.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from pipelines.common import options
from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.data import NIPS, draw_documents, prepared
from pipelines.common.held_out import Split
from pipelines.common.quality_tables import METRICS, difference, shown
from pipelines.common.results import Arrays, Results, Row, publish
from pipelines.common.tables import markdown, spread
from pipelines.quality import polished, quality, scheduled
from streaming_jsmf.inference.cvb0 import document_topics
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.linalg.simplex import simplex_least_squares
from streaming_jsmf.topics.store import read_model

Floats = NDArray[np.float64]

#: Iterations of KL and of projected gradients, words of a tandem anchor, steps of polish.
ITERATIONS, TANDEM, STEPS = 200, 3, 10

#: Simulated documents: topics, words, tokens, and numbers of documents.
TOPICS, WORDS, LENGTHS, DOCUMENTS = 20, 1000, (25, 100), (2000, 20_000)

#: Multiples of the noise bound in FindAnchorWords.
BOUNDS = (0.01, 0.1, 0.3, 1.0, 3.0)

#: Weights g of A in the objective of PADD.
WEIGHTS = (0.0, 0.1, 1.0, 10.0)


def cooccurrence(counts: sparse.csr_array) -> Floats:
    """C of Eq. 1 with uniform weights, N x N."""
    lengths = counts.sum(axis=1)
    used = sparse.csr_array(counts[lengths >= 2].astype(np.float64))
    n = used.sum(axis=1)
    scaled = sparse.diags_array(1 / np.sqrt(n * (n - 1) * len(n))) @ used
    diagonal = used.T @ (1 / (n * (n - 1) * len(n)))
    found = (scaled.T @ scaled).toarray()
    found[np.diag_indices_from(found)] -= diagonal
    return np.maximum(found, 0)


def by_rows(c: Floats, corners: Floats, solve: Callable[[Floats, Floats], Floats]) -> tuple[Floats, Floats]:
    """Topics (N x K) and their shares (K,) from coefficients of the rows of C, scaled to 1, in ``corners`` (K x N)."""
    mass = c.sum(axis=1)
    rows = c / np.maximum(mass, 1e-300)[:, None]
    joint = solve(rows, corners / corners.sum(axis=1, keepdims=True)) * mass[:, None]
    return joint / joint.sum(axis=0), joint.sum(axis=0) / joint.sum()


def least_squares(rows: Floats, corners: Floats) -> Floats:
    return simplex_least_squares(rows, corners, threads=1).weights


def kullback_leibler(rows: Floats, corners: Floats, penalty: float = 0.0) -> Floats:
    """Minimize KL(row || c'Q) + penalty ||c||^2 over the simplex, by multiplicative updates."""
    x, q = rows.astype(np.float32), np.maximum(corners, 1e-12).astype(np.float32)
    c = np.full((len(x), len(q)), 1 / len(q), np.float32)
    for _ in range(ITERATIONS):
        pull = (x / np.maximum(c @ q, 1e-20)) @ q.T
        c *= pull / np.maximum(1 - 2 * penalty * (c**2).sum(axis=1, keepdims=True) + 2 * penalty * c, 1e-6)
        c /= np.maximum(c.sum(axis=1, keepdims=True), 1e-20)
    return c.astype(np.float64)


def harmonic(rows: Floats) -> Floats:
    return len(rows) / (1 / np.maximum(rows, 1e-12)).sum(axis=0)


def variants(counts: sparse.csr_array, n_topics: int, seed: int) -> dict[str, Arrays]:
    """Topics and prior of each method."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder / "corpus", counts)
        [(_, default)] = polished(folder / "corpus", n_topics, seed, folder, [0])
        anchors = read_model(folder / "start").arrays["anchors"]
        (folder / "fewer").mkdir()
        [(_, fewer)] = polished(folder / "corpus", n_topics - 1, seed, folder / "fewer", [0])
    c, common = cooccurrence(counts), np.asarray(counts.sum(axis=0), np.float64).ravel()
    mass = c.sum(axis=1, keepdims=True)
    listed = prominent_words(default["word_topic"], TANDEM)
    rows = c / np.maximum(mass, 1e-300)
    found = {
        "least squares": by_rows(c, c[anchors], least_squares),
        "KL": by_rows(c, c[anchors], kullback_leibler),
        "KL, L2 .01": by_rows(c, c[anchors], partial(kullback_leibler, penalty=0.01)),
        "KL, L2 .1": by_rows(c, c[anchors], partial(kullback_leibler, penalty=0.1)),
        "three words": by_rows(c, np.array([c[words].sum(axis=0) for words in listed]), least_squares),
        "harmonic": by_rows(c, np.array([harmonic(rows[words]) for words in listed]), least_squares),
    }
    total = default["prior"].sum()
    made = {
        name: {**default, "word_topic": topics, "prior": total * shares}
        for name, (topics, shares) in found.items()
    }
    background = np.column_stack([fewer["word_topic"], common / common.sum()])
    prior = np.append(fewer["prior"], fewer["prior"].mean())
    return {"default": default, **made, "background": {**default, "word_topic": background, "prior": prior}}


def topic_rows(
    name: str, counts: sparse.csr_array, n_topics: int, seeds: int, results: Results
) -> Iterator[Row]:
    for seed in range(seeds):
        base = {"corpus": name, "K": n_topics, "seed": seed}
        keys = [
            {**base, "method": method, "polished": after}
            for method in TOPIC_METHODS
            for after in (False, True)
        ]
        if not all(results.has_row(key) for key in keys):
            split = Split.of(counts, seed)
            for method, found in variants(split.fitted, n_topics, seed).items():
                after = scheduled(split.fitted, found, seed, "relaxed", STEPS)
                for key, each in zip([k for k in keys if k["method"] == method], (found, after), strict=True):
                    results.row(key, partial(quality, split, each))
        for key in keys:
            yield {"table": "topics", **key, **results.row(key, dict)}


TOPIC_METHODS = (
    "default",
    "least squares",
    "KL",
    "KL, L2 .01",
    "KL, L2 .1",
    "three words",
    "harmonic",
    "background",
)


def anchor_groups(counts: sparse.csr_array, bound: float) -> list[set[int]]:
    """FindAnchorWords (Bing et al. 2020, algorithm 2): groups of anchor words; their number estimates K.

    ``bound`` multiplies the leading terms of their bounds delta of the noise of R = D^-1 Theta D^-1.
    """
    lengths = counts.sum(axis=1)
    used = sparse.csr_array(counts[lengths >= 2].astype(np.float64))
    n_documents, length = used.shape[0], float(used.sum(axis=1).mean())
    frequencies = sparse.csr_array(sparse.diags_array(1 / used.sum(axis=1)) @ used)
    mean = np.asarray(frequencies.mean(axis=0)).ravel()
    words = np.flatnonzero(mean > 0)
    theta, mean = cooccurrence(used)[np.ix_(words, words)], mean[words]
    highest = np.asarray(frequencies.max(axis=0).todense()).ravel()[words]
    r, log = theta / np.outer(mean, mean), np.log(max(counts.shape[1], n_documents))
    eta = np.sqrt(highest[:, None] + highest) * np.sqrt(
        np.maximum(theta, 1e-12) * log / (n_documents * length)
    )
    delta = bound * (
        eta / np.outer(mean, mean) + r * np.sqrt(log / (n_documents * length * np.minimum.outer(mean, mean)))
    )
    best = r.argmax(axis=1)
    at_best = np.arange(words.size), best
    near = r[at_best][:, None] - r <= delta[at_best][:, None] + delta
    top = np.abs(r - r[at_best][None, :]) <= delta + delta[at_best][None, :]
    groups: list[set[int]] = []
    for word in np.argsort(-mean):
        group = np.flatnonzero(near[word])
        if top[word, group].all():
            group = {int(each) for each in group}
            shared = next((number for number, known in enumerate(groups) if known & group), None)
            if shared is None:
                groups.append(group)
            else:
                groups[shared] &= group
    return groups


def planted(
    random: np.random.Generator, documents: int, length: int, *, correlated: bool
) -> tuple[Floats, ...]:
    """Topics with five anchors of .4 % each, shares, and counts of simulated documents."""
    topics = random.dirichlet(np.full(WORDS, 0.1), TOPICS).T
    topics[: 5 * TOPICS] = 0
    topics *= 0.98 / topics.sum(axis=0)
    topics[np.arange(5 * TOPICS), np.repeat(np.arange(TOPICS), 5)] = 0.004
    if correlated:
        factor = random.standard_normal((TOPICS, 4))
        logs = 1.5 * random.standard_normal((documents, 4)) @ factor.T + random.standard_normal(
            (documents, TOPICS)
        )
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
    else:
        shares = random.dirichlet(np.full(TOPICS, 0.1), documents)
    return (
        topics,
        shares,
        draw_documents(topics, shares, np.full(documents, length), int(random.integers(1 << 30))),
    )


def number_rows(corpora: Mapping[str, sparse.csr_array], seeds: int, results: Results) -> Iterator[Row]:
    for documents in DOCUMENTS:
        for seed in range(seeds):
            for bound in BOUNDS:
                key = {"corpus": f"simulated, K = {TOPICS}, {documents:,}", "seed": seed, "bound": bound}
                draw = partial(planted, np.random.default_rng(seed), documents, 100, correlated=False)
                yield {
                    "table": "numbers",
                    **key,
                    **results.row(key, lambda draw=draw, b=bound: _number(draw()[2], b)),
                }
    for name, counts in corpora.items():
        for bound in BOUNDS:
            key = {"corpus": name, "seed": None, "bound": bound}
            yield {"table": "numbers", **key, **results.row(key, partial(_number, counts, bound))}


def _number(counts: sparse.csr_array, bound: float) -> Row:
    return {"found": len(anchor_groups(counts, bound))}


def on_simplex(rows: Floats) -> Floats:
    """Euclidean projection of each row."""
    ordered = -np.sort(-rows, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = (ordered > excess).sum(axis=1) - 1
    return np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0)


def prior_aware(frequencies: sparse.csr_array, topics: Floats, a: Floats, weight: float) -> Floats:
    """W (M x K) that minimizes the objective of PADD, by accelerated projected gradients."""
    documents = frequencies.shape[0]
    gram, linear = topics.T @ topics, frequencies @ topics
    scale = (
        weight
        * np.square(linear).mean()
        / max(np.square(a).mean(), 1e-300)
        * a.size
        / np.square(a).sum()
        * 1e-2
    )
    shares = np.full(linear.shape, 1 / a.shape[0])
    point, momentum = shares.copy(), 1.0
    step = 0.5 / (np.linalg.norm(gram, 2) + 4 * scale * np.linalg.norm(a, 2) + 1e-300)
    for _ in range(ITERATIONS):
        gradient = 2 * (point @ gram - linear) + 4 * scale * point @ (point.T @ point / documents - a)
        before, shares = shares, on_simplex(point - step * gradient)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        point, momentum = shares + (momentum - 1) / following * (shares - before), following
    return shares


def share_rows(seeds: int, results: Results) -> Iterator[Row]:
    for length in LENGTHS:
        for seed in range(seeds):
            base = {"length": length, "seed": seed}
            if not results.has_row({**base, "method": "CVB0"}):
                for method, found, truth in _shares(length, seed):
                    error = float(np.abs(found - truth).sum(axis=1).mean())
                    results.row({**base, "method": method}, partial(dict, error=error))
            for method in ("CVB0", "least squares", *(f"PADD, g = {weight:g}" for weight in WEIGHTS)):
                key = {**base, "method": method}
                yield {"table": "shares", **key, **results.row(key, dict)}


def _shares(length: int, seed: int) -> Iterator[tuple[str, Floats, Floats]]:
    """Method, shares that it finds, and true shares; topics and A are the true ones."""
    topics, truth, counts = planted(np.random.default_rng(seed), DOCUMENTS[0], length, correlated=True)
    a = truth.T @ truth / len(truth)
    frequencies = sparse.csr_array(counts / length)
    spread_of = np.square(truth).sum(axis=1).mean()
    mean = truth.mean(axis=0)
    total = (1 - spread_of) / max(spread_of - np.square(mean).sum(), 1e-9)
    for weight in WEIGHTS:
        yield f"PADD, g = {weight:g}", prior_aware(frequencies, topics, a, weight), truth
    linear = np.maximum(frequencies @ np.linalg.pinv(topics).T, 0)
    yield "least squares", linear / np.maximum(linear.sum(axis=1, keepdims=True), 1e-300), truth
    yield "CVB0", document_topics(counts, topics, total * mean, threads=1).shares, truth


def tables(rows: Sequence[Row]) -> str:
    """Differences of topics from the default, numbers of topics, and errors of shares, over seeds."""
    cells: dict[tuple[object, ...], dict[int, Row]] = {}
    for row in rows:
        keys = [row[key] for key in KEYS[row["table"]]]
        cells.setdefault((row["table"], *keys), {})[row["seed"]] = row
    lines: dict[str, list[list[object]]] = {kind: [] for kind in KEYS}
    for (kind, *keys), several in cells.items():
        line = [*keys, len(several)]
        if kind != "topics":
            lines[str(kind)].append([*line, spread([row[MEASURED[str(kind)]] for row in several.values()])])
        elif keys[2] != "default":
            default = cells["topics", keys[0], keys[1], "default", keys[3]]
            found = {name: [difference(name, several[s], default[s]) for s in several] for name in METRICS}
            lines["topics"].append(
                [*line, *(shown(found[name], 1 if "perplexity" in name else 3) for name in METRICS)]
            )
    heads = {
        "topics": [f"{label}, %" if "perplexity" in name else label for name, label in METRICS.items()],
        "numbers": ["topics found"],
        "shares": ["L1 to the true shares"],
    }
    return "\n\n".join(markdown([*KEYS[kind], "seeds", *heads[kind]], lines[kind], text=4) for kind in KEYS)


#: Table -> measure.
MEASURED = {"numbers": "found", "shares": "error"}

#: Table -> columns that identify a line.
KEYS = {
    "topics": ("corpus", "K", "method", "polished"),
    "numbers": ("corpus", "bound"),
    "shares": ("length", "method"),
}


@click.command(help=__doc__)
@options.OUT
@options.corpora(words=2000)
@options.several("topics", [20])
@options.SEEDS
@options.quick("300 words of the shipped corpus, one seed")
def main(out: Path, corpora: tuple[str, ...], words: int, topics: list[int], seeds: int, quick: bool) -> None:
    if quick:
        corpora, words, topics, seeds = (f"nips={NIPS}",), 300, [5], 1
    results, rows = Results(out / "cells"), []
    used = dict(prepared(each, out / "corpora", words) for each in corpora)
    counts = {name: read_counts(Path(corpus.root)) for name, corpus in used.items()}
    with threadpool_limits(1):
        for name, each in counts.items():
            for n_topics in topics:
                rows += topic_rows(name, each, n_topics, seeds, results)
        rows += number_rows(counts, seeds, results)
        rows += share_rows(seeds, results)
    text = tables(rows)
    publish(out, "later_papers", rows, text, used)
    click.echo(text)


if __name__ == "__main__":
    main()
