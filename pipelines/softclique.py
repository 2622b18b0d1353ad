"""Tables 3 to 5 and Figure 2 of the SoftClique paper: coherence, several cliques, and the time to select anchors.

    python -m pipelines.softclique OUT --corpus kos=KOS@60 --corpus nips=NIPS@50 [--topics 100] [--rounds 5]

NAME=SOURCE@CUTOFF removes words in fewer than CUTOFF documents or in more than 80 % of them, and English stop words, as
in Table 2 of the paper. *SC* and *FAW* select anchors among all words from the counted C and share the recovery of
topics; FAW projects the rows of C to 1,000 random directions, *pivoting* uses them as they are. LDA is Gibbs sampling
with alpha .5 and beta .01. *LR-JSMF*, with rectification and the guards of `infer`, is ours. *random words* lists words
drawn without replacement, one set per topic, for comparison. Rounds are the cliques of several sets of starts for SC,
seeds for the other random methods. Coherence (epsilon 1e-8, H top words) is the mean over topics. The share of distinct
words among all top 10 is reported with it, because topics that all list the same frequent words are very coherent.

OUT keeps the results, so an interrupted command can be run again; it gets softclique.parquet (a row per round),
softclique.md with all tables, and softclique.svg.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipelines.common import options, peers, pictures
from pipelines.common.bags import cooccurrence_counts, read_counts
from pipelines.common.data import NIPS
from pipelines.common.matching import match_topics
from pipelines.common.methods import given_anchors, projected_anchors
from pipelines.common.results import CellMissing, Results, Row, publish
from pipelines.common.tables import markdown, number, spread
from streaming_jsmf import InferSettings, ScanSettings, infer, open_corpus, scan
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.evaluation.coherence import coherence, distinct_share
from streaming_jsmf.inference.anchors import Clique, dense_similarity, soft_cliques
from streaming_jsmf.inference.law import OF_THE_PAPERS, AnchorRules, anchor_words
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.jobs.blas import single_blas_thread

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

METHODS = ("LDA", "FAW", "pivoting", "SC", "LR-JSMF", "random words")

#: Numbers of top words H; smoothing of the coherence; document frequency above which words are removed.
LISTED, EPSILON, MOST_FREQUENT = (5, 10, 20), 1e-8, 0.8

#: LDA parameters of the paper.
ALPHA, BETA, SWEEPS = 0.5, 0.01, 1000

#: Tables 4 and 5: topics, and the difference in coherence that counts as equal.
FEW_TOPICS, SAME_COHERENCE = 5, 10.0


@dataclass(frozen=True)
class Trial:
    """One corpus in memory; caches cliques by number of topics and searches."""

    name: str
    corpus: Corpus
    folder: Path
    _cliques: dict[tuple[int, int], tuple[Clique, ...]] = field(default_factory=dict)

    @cached_property
    def counts(self) -> sparse.csr_array:
        return read_counts(Path(self.corpus.root))

    @cached_property
    def words(self) -> NDArray[np.str_]:
        return np.array(self.corpus.vocabulary().words)

    @cached_property
    def cooccurrence(self) -> Floats:
        """C of Eq. 1 with uniform weights, N x N; negative rounding errors are set to 0."""
        lengths = np.asarray(self.counts.sum(axis=1), dtype=np.float64)
        kept = lengths >= 2
        h, n = self.counts[kept].astype(np.float64), lengths[kept]
        scaled = sparse.diags_array(1.0 / np.sqrt(n * (n - 1))) @ h
        c = (scaled.T @ scaled).toarray() - np.diag((1.0 / (n * (n - 1))) @ h)
        return np.asarray(np.maximum(c, 0.0) / kept.sum())

    @cached_property
    def document_frequency(self) -> Integers:
        return np.asarray((self.counts > 0).sum(axis=0), dtype=np.int64)

    def of_anchors(self, n_topics: int, rules: AnchorRules) -> Floats:
        """Topics (N x K) by anchor words from unrectified C."""
        with single_blas_thread():
            c = self.cooccurrence
            return anchor_words(c, c.sum(axis=1), self.document_frequency, n_topics, rules).word_topic

    def topics(self, method: str, n_topics: int, seed: int, rounds: int) -> Floats:
        if method == "LDA":
            prior = {"alpha": ALPHA, "eta": BETA, "learn_alpha": False}
            found = next(peers.gibbs(self.counts, n_topics, seed, [SWEEPS], **prior))  # type: ignore[arg-type]
            return found.word_topic
        if method == "pivoting":
            return self.of_anchors(n_topics, OF_THE_PAPERS)
        if method == "FAW":
            return self.of_anchors(n_topics, projected_anchors(self.cooccurrence, n_topics, seed))
        if method == "SC":
            return self.of_anchors(n_topics, given_anchors(self.cliques(n_topics, rounds)[seed].words))
        store, model = self.folder / f"moments-{n_topics}", self.folder / f"model-{n_topics}"
        moments = scan(self.corpus, store, ScanSettings(max_topics=n_topics), options.ONE_THREAD)
        return infer(moments, model, InferSettings(n_topics), workers=1, overwrite=True).arrays["word_topic"]

    def row(self, method: str, n_topics: int, seed: int, rounds: int) -> Row:
        """Coherence at each H, fraction of distinct top words, and seconds."""
        started = time.process_time()
        if method == "random words":
            random = np.random.default_rng(seed)
            listed = np.array([random.permutation(len(self.words))[: max(LISTED)] for _ in range(n_topics)])
        else:
            listed = prominent_words(self.topics(method, n_topics, seed, rounds), max(LISTED))
        return {**self.scores(listed), "seconds": time.process_time() - started}

    def scores(self, listed: Integers) -> Row:
        """Scores of lists of words, K x 20."""
        ids = np.unique(listed)
        pairs, places = cooccurrence_counts(self.counts, ids), np.searchsorted(ids, listed)
        found: Row = {
            f"H{h}": float(coherence(np.diag(pairs), pairs, places[:, :h], epsilon=EPSILON).mean())
            for h in LISTED
        }
        return found | {"distinct": distinct_share(listed[:, :10])}

    def cliques(self, n_topics: int, searches: int) -> tuple[Clique, ...]:
        """Distinct cliques of all words by increasing weight, cached."""
        if (n_topics, searches) not in self._cliques:
            self._cliques[n_topics, searches] = self.search(n_topics, searches)
        return self._cliques[n_topics, searches]

    def search(self, n_topics: int, searches: int) -> tuple[Clique, ...]:
        """``cliques`` without the cache."""
        c = self.cooccurrence
        everything = np.ones(len(c), dtype=bool)
        graph = dense_similarity(c, np.arange(len(c)))
        with single_blas_thread():
            return soft_cliques(graph, everything, n_topics, multiple=searches)


def prepared_with_cutoff(named: str, folder: Path, words: int | None = None) -> Trial:
    """The corpus of NAME=SOURCE@CUTOFF, ingested into ``folder`` unless it exists."""
    name, _, rest = named.partition("=")
    source, _, cutoff = rest.rpartition("@")
    if not (name and source and cutoff.isdigit()):
        raise click.BadParameter(f"{named!r} is not of the form NAME=SOURCE@CUTOFF")
    target = folder / "corpora" / f"{name}-{cutoff}"
    curation: dict[str, object] = {
        "min_document_frequency": int(cutoff),
        "max_document_frequency": MOST_FREQUENT,
        "vocabulary_size": words,
        "stop_words": "english",
    }
    corpus = (
        open_corpus(target) if target.exists() else ingest(source, target, IngestRequest(curation=curation))
    )
    (folder / name).mkdir(parents=True, exist_ok=True)
    return Trial(name, corpus, folder / name)


def rows_of(
    trial: Trial, methods: Sequence[str], n_topics: int, rounds: int, lda_rounds: int, results: Results
) -> Iterator[Row]:
    """Table 3: one row per round and method; fewer for SC if fewer cliques are found."""
    different = results.row(
        {"corpus": trial.corpus.fingerprint, "K": n_topics, "searches": rounds},
        lambda: {"cliques": len(trial.cliques(n_topics, rounds))},
    )["cliques"]
    times = {"LDA": lda_rounds, "SC": different, "FAW": rounds, "random words": rounds}
    for method in methods:
        for seed in range(times.get(method, 1)):
            key = {"corpus": trial.corpus.fingerprint, "method": method, "K": n_topics, "round": seed}
            if method == "SC":
                key["searches"] = rounds
            make: Callable[[], Row] = lambda m=method, s=seed: trial.row(m, n_topics, s, rounds)  # type: ignore[misc]  # noqa: E731
            try:
                yield {"corpus": trial.name, "method": method, "round": seed, **results.row(key, make)}
            except CellMissing:
                continue


def coherence_table(rows: Sequence[Row]) -> str:
    """Table 3: means over rounds."""
    lines = []
    for corpus, method in dict.fromkeys((row["corpus"], row["method"]) for row in rows):
        of = [row for row in rows if (row["corpus"], row["method"]) == (corpus, method)]
        cells = [spread([row[f"H{h}"] for row in of], 4) for h in LISTED]
        lines.append([corpus, method, len(of), *cells, spread([row["distinct"] for row in of], 2)])
    return markdown(["corpus", "method", "rounds", *(f"H = {h}" for h in LISTED), "distinct"], lines, text=2)


def timed_selection(trial: Trial, n_topics: int) -> Row:
    """Figure 2: CPU seconds to select anchors, the minimum of two runs each."""
    matrix = trial.cooccurrence

    def least(work: Callable[[], object]) -> float:
        found = []
        for _ in range(2):
            started = time.process_time()
            work()
            found.append(time.process_time() - started)
        return min(found)

    with single_blas_thread():
        return {
            "FAW": least(lambda: projected_anchors(matrix, n_topics, 0)),
            "SC": least(lambda: trial.search(n_topics, 1)),
        }


def selection_row(trial: Trial, n_topics: int, results: Results) -> Row:
    key = {"corpus": trial.corpus.fingerprint, "timed": n_topics}
    return {"corpus": trial.name, "K": n_topics, **results.row(key, lambda: timed_selection(trial, n_topics))}


def cliques_tables(trial: Trial, results: Results, searches: int) -> str:
    """Tables 4 and 5, from the cliques of many searches.

    Table 4: the two cliques without a common anchor whose topics are most similar. Table 5: the two cliques of about
    the same coherence whose topics are least similar.
    """
    key = {"corpus": trial.corpus.fingerprint, "K": FEW_TOPICS, "searches": searches, "cliques": 1}

    def make() -> dict[str, NDArray[np.generic]]:
        found = trial.cliques(FEW_TOPICS, searches)
        return {
            "anchors": np.array([clique.words for clique in found]),
            "topics": np.array(
                [trial.of_anchors(FEW_TOPICS, given_anchors(clique.words)) for clique in found]
            ),
        }

    found = results.arrays(key, make)
    anchors, listed = found["anchors"], [prominent_words(B, max(LISTED)) for B in found["topics"]]
    scores = [trial.scores(lists)["H10"] for lists in listed]
    told = [
        f"{len(anchors)} different cliques in {searches} searches, K = {FEW_TOPICS}; coherence at H = 10 "
        f"{min(scores):.0f} to {max(scores):.0f}."
    ]
    pairs = []
    for a, b in combinations(range(len(anchors)), 2):
        order = match_topics(found["topics"][b], found["topics"][a]).permutation
        common = [
            {*x[:10]} & {*y[:10]} for x, y in zip(listed[a].tolist(), listed[b][order].tolist(), strict=True)
        ]
        apart = not {*anchors[a]} & {*anchors[b]}
        pairs.append(
            (float(np.mean([len(c) for c in common])), apart, abs(scores[a] - scores[b]), a, b, order)
        )
    alike = max((p for p in pairs if p[1]), key=lambda p: p[0], default=None)
    unlike = min((p for p in pairs if p[2] < SAME_COHERENCE), key=lambda p: p[0], default=None)
    for title, pair in (
        ("Other anchors, the same topics", alike),
        ("About the same coherence, other topics", unlike),
    ):
        if pair is not None:
            shared, _, _, a, b, order = pair
            heading = (
                f"{title}: {shared:.1f} of 10 words shared, coherence {scores[a]:.1f} and {scores[b]:.1f}."
            )
            told.append(heading + "\n\n" + _side_by_side(trial, anchors, listed, a, b, order))
    return "\n\n".join(told)


def _side_by_side(
    trial: Trial, anchors: Integers, listed: Sequence[Integers], a: int, b: int, order: Integers
) -> str:
    def named(ids: Integers) -> str:
        return " ".join(trial.words[ids])

    lines = [["anchors", named(anchors[a]), named(anchors[b])]]
    lines += [
        [str(topic + 1), named(x[:10]), named(y[:10])]
        for topic, (x, y) in enumerate(zip(listed[a], listed[b][order], strict=True))
    ]
    return markdown(["topic", "one clique", "the other"], lines, text=3)


def draw(times: Sequence[Row], rows: Sequence[Row], path: Path) -> None:
    """Draw time to select anchors against K, coherence at H = 10, and distinct words, by method and corpus."""
    corpora, methods = (
        list(dict.fromkeys(r["corpus"] for r in rows)),
        list(dict.fromkeys(r["method"] for r in rows)),
    )
    figure, [panels] = pictures.panels(1, 3, width=2.6, height=2.2)
    for method in ("FAW", "SC"):
        pictures.curve(panels[0], method, {row["K"]: [row[method]] for row in times})
    panels[0].set(yscale="log", xlabel="topics K", ylabel="processor seconds")
    panels[0].set_title(f"choice of anchors, {times[0]['corpus']}", fontsize=8)
    for panel, column, label in zip(
        panels[1:], ("H10", "distinct"), ("coherence, H = 10", "distinct words"), strict=True
    ):
        for place, method in enumerate(methods):
            of = [[r[column] for r in rows if (r["corpus"], r["method"]) == (c, method)] for c in corpora]
            at = np.arange(len(corpora)) + 0.2 * (place - (len(methods) - 1) / 2)
            heights = [float(np.mean(values)) if values else 0.0 for values in of]
            panel.bar(at, heights, 0.18, color=pictures.LOOKS[method].colour, label=method)
        panel.set_xticks(range(len(corpora)), corpora)
        panel.set_ylabel(label)
    pictures.legend(figure)
    pictures.save(figure, path)


@click.command(help=__doc__)
@options.DRAWN_OUT
@click.option(
    "--corpus", "corpora", multiple=True, metavar="NAME=SOURCE@CUTOFF", help="A source; may be repeated."
)
@click.option("--topics", default=100, show_default=True, help="Number of topics of Table 3.")
@options.several("methods", METHODS)
@click.option("--rounds", default=5, show_default=True, help="Searches of SC, and seeds of FAW.")
@click.option("--lda-rounds", default=5, show_default=True, help="Seeds of LDA.")
@click.option("--searches", default=100, show_default=True, help="Searches of Tables 4 and 5; 0 for none.")
@options.several("timed", [10, 20, 50, 100], help="Numbers of topics of Figure 2.")
@options.quick("300 words of the shipped corpus, without LDA")
@options.ONLY_KEPT
def main(
    out: Path,
    corpora: tuple[str, ...],
    topics: int,
    methods: list[str],
    rounds: int,
    lda_rounds: int,
    searches: int,
    timed: list[int],
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        corpora, topics, timed = (f"nips={NIPS}@50",), 10, [5, 10]
        methods, rounds = ["FAW", "SC", "LR-JSMF", "random words"], 2
    rows: list[Row] = []
    times: list[Row] = []
    cliques = []
    used = {}
    for named in corpora:
        trial = prepared_with_cutoff(named, out / "softclique", 300 if quick else None)
        used[trial.name] = trial.corpus
        results = Results(trial.folder / "cells", only_kept)
        rows += rows_of(trial, methods, topics, rounds, lda_rounds, results)
        if not times:
            times = [selection_row(trial, k, results) for k in timed]
        if searches:
            cliques.append(f"{trial.name}: {cliques_tables(trial, results, searches)}")
    seconds = [[row["K"], *(number(row[name], 2) for name in ("FAW", "SC"))] for row in times]
    selection = markdown(["K", "FAW, s", "SC, s"], seconds, text=0)
    text = "\n\n".join([coherence_table(rows), selection, *cliques])
    publish(out, "softclique", rows, text, used)
    draw(times, rows, out / "softclique.svg")
    click.echo(text)


if __name__ == "__main__":
    main()
