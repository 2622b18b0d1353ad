"""The methods of the JSMF and LR-JSMF experiments, each from a corpus to topics in one thread.

They use C of Eq. 1 with uniform weights and anchors among all words, as in the papers; `guards` adds those of `infer`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipelines.common import peers, rand_eig
from pipelines.common.bags import read_counts
from pipelines.common.diagonal_completion import diagonal_completion
from pipelines.common.dykstra import dykstra_projection
from pipelines.common.options import ONE_THREAD
from pipelines.common.results import Arrays, Results
from streaming_jsmf import InferSettings, PolishSettings, ScanSettings, infer, polish, scan
from streaming_jsmf.config import Acceleration, AnchorMethod, Rectifier
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.inference.anchors import pivoted_anchors
from streaming_jsmf.inference.law import AnchorRules, AnchorWordTopics, anchor_words, low_rank_anchor_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import silent
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.rectification.enn import epsilon_nonnegative, papers_rows
from streaming_jsmf.rectification.result import Rectification
from streaming_jsmf.topics.anchor_words import anchor_rules, rectify

Floats = NDArray[np.float64]

#: Kind of scan: exact C; two scans with uniform weights, with capped weights, or from a sample; or the single pass of
#: Halko et al., as in the paper, with as many columns as the factor of the others.
Store = Literal["exact", "usual", "capped", "sampled", "one-pass"]

#: Rectifications that only the experiments have: diagonal completion, and Dykstra's projections.
Experiment = Literal["dc", "dykstra"]

#: Fraction of documents in a sampled scan; by default it would use all documents of such small corpora.
SAMPLED_SHARE = 0.25

#: Sweeps of Gibbs sampling in the JSMF paper.
SWEEPS = 1000


@dataclass(frozen=True)
class Method:
    """A rectification of one of the stores.

    ``whole``: anchor words from all of C* (AW) instead of LAW. ``random``: the topics depend on a seed. ``iterations``:
    maximum number of steps, if not that of the setup. ``checked``: |I| of ENN by K, if not that of the package;
    ``acceleration`` is used only then. ``power``: T of the authors' `randEig`, from which ENN starts then.
    ``projected``: number of random directions to which the rows of C are projected before anchors are selected.
    """

    rectify: Rectifier | Experiment = "none"
    store: Store = "exact"
    whole: bool = False
    anchors: AnchorMethod = "pivoted-qr"
    polish: bool = False
    random: bool = False
    sweeps: int = 0
    iterations: int | None = None
    checked: Callable[[int], int] | None = None
    acceleration: Acceleration = "none"
    power: int = 0
    projected: int = 0


#: More steps than methods that run until they converge need.
TO_THE_END = 5000


#: Steps of ENN in the authors' code.
AUTHORS_STEPS = 50

#: Directions to which FAW of the SoftClique paper projects the rows of C.
PROJECTED = 1000


def first_rows(n_topics: int) -> int:
    """|I| of ENN in the first versions of the authors' code, and in a comment of the last."""
    return math.ceil(5 * n_topics * math.log(n_topics))


METHODS = {
    "baseline": Method(whole=True),
    "baseline projected": Method(whole=True, random=True, projected=PROJECTED),
    "DC": Method("dc", whole=True),
    "DP": Method("dykstra", whole=True),
    "AP": Method("ap", whole=True),
    "ENN": Method("enn"),
    "ENN printed": Method("enn", checked=papers_rows, iterations=TO_THE_END),
    "ENN printed momentum": Method(
        "enn", checked=papers_rows, iterations=TO_THE_END, acceleration="momentum"
    ),
    **{
        f"ENN {rows} rows": Method("enn", checked=lambda _, n=rows: n, iterations=TO_THE_END)  # type: ignore[misc]
        for rows in (200, 500, 1000, 2000, 3000)
    },
    "ENN all rows": Method("enn", checked=lambda _: 10**9, iterations=TO_THE_END),
    "ENN authors": Method(
        "enn", random=True, iterations=AUTHORS_STEPS, checked=papers_rows, power=rand_eig.ITERATIONS
    ),
    "ENN first rows": Method(
        "enn", random=True, iterations=AUTHORS_STEPS, checked=first_rows, power=rand_eig.ITERATIONS
    ),
    "PALM": Method("palm"),
    "PALM converged": Method("palm", iterations=TO_THE_END),
    "iPALM": Method("ipalm", iterations=TO_THE_END),
    "PALM low-rank": Method("palm", "usual", random=True),
    "LR-JSMF": Method("enn", "usual", random=True),
    "LR-JSMF one pass": Method("enn", "one-pass", random=True),
    "LR-JSMF capped": Method("enn", "capped", random=True),
    "LR-JSMF sampled": Method("enn", "sampled", random=True),
    "LR-JSMF polished": Method("enn", "usual", polish=True, random=True),
    "SC": Method("enn", anchors="soft-clique"),
    "Gibbs": Method(sweeps=SWEEPS, random=True),
    "Gibbs 200": Method(sweeps=200, random=True),
}

#: Disables the anchor guards of `infer`.
PAPERS: dict[str, Any] = {"anchor_min_df": 0.0, "anchor_shrinkage": 0.0, "anchor_row_sum": 0.0}


@dataclass(frozen=True)
class Setup:
    """A corpus and the settings of its methods; ``folder`` contains stores and results."""

    corpus: Corpus
    folder: Path
    max_topics: int
    guards: bool = False
    max_iterations: int = 150
    tolerance: float = 1e-5
    only_kept: bool = False

    @cached_property
    def results(self) -> Results:
        return Results(self.folder / "cells", self.only_kept)

    @cached_property
    def counts(self) -> sparse.csr_array:
        return read_counts(Path(self.corpus.root))

    def moments(self, store: Store = "exact", seed: int = 0) -> Moments:
        """The moments store; scanned unless it exists."""
        settings = ScanSettings(
            max_topics=self.max_topics,
            document_weights="capped" if store == "capped" else "uniform",
            exact=store == "exact",
            range_finder="halko" if store == "one-pass" else "sample",
            sample_share=SAMPLED_SHARE if store == "sampled" else None,
            seed=seed,
        )
        path = self.folder / f"moments-{store}-k{self.max_topics}-{seed}"
        return scan(self.corpus.root, path, settings, ONE_THREAD)

    def scan_seconds(self, store: Store, seed: int) -> float:
        """CPU seconds of a scan, measured once."""

        def timed() -> dict[str, float]:
            started = time.process_time()
            self.moments(store, seed)
            return {"cpu_seconds": time.process_time() - started}

        key = {
            "scan": store,
            "corpus": self.corpus.fingerprint,
            "max_topics": self.max_topics,
            "seed": seed,
        }
        return float(self.results.row(key, timed)["cpu_seconds"])

    def key(self, name: str, n_topics: int, seed: int) -> dict[str, object]:
        """Everything that the topics of a method depend on."""
        return {
            "method": name,
            "K": n_topics,
            "seed": seed,
            "corpus": self.corpus.fingerprint,
            "max_topics": self.max_topics,
            "guards": self.guards,
            "iterations": METHODS[name].iterations or self.max_iterations,
            "tolerance": self.tolerance,
        }

    def settings(self, method: Method, n_topics: int) -> InferSettings:
        return InferSettings(
            n_topics,
            rectify="none" if method.rectify in get_args(Experiment) else method.rectify,  # type: ignore[arg-type]
            anchors=method.anchors,
            max_iterations=method.iterations or self.max_iterations,
            tolerance=self.tolerance,
            **({} if self.guards else PAPERS),
        )

    def topics(self, name: str, n_topics: int, seed: int = 0) -> Arrays:
        """Compute the topics of a method, once.

        word_topic (N x K), topic_topic (K x K), topic_probability (K,), anchors (K,) or empty, rectified (N x K) or
        empty, cpu_seconds (eigenpairs, rectification and anchor words, without the scan), iterations and converged.
        """
        seed = seed if METHODS[name].random else 0
        return self.results.arrays(
            self.key(name, n_topics, seed), lambda: _fitted(self, name, n_topics, seed)
        )


def _fitted(setup: Setup, name: str, n_topics: int, seed: int) -> Arrays:
    method = METHODS[name]
    if method.sweeps:
        return _sampled(setup, method.sweeps, n_topics, seed)
    moments = setup.moments(method.store, seed)
    if method.polish:
        return _polished(setup, moments, n_topics, seed)
    with single_blas_thread():
        return _anchored(setup, method, moments, n_topics, seed)


def projected_anchors(matrix: Floats, n_topics: int, seed: int) -> AnchorRules:
    """Anchors of FAW, selected among the row-normalized C times random directions."""
    directions = np.random.default_rng(seed).standard_normal((len(matrix), PROJECTED)) / np.sqrt(PROJECTED)
    rows = matrix / np.maximum(matrix.sum(axis=1), 1e-300)[:, None] @ directions
    return given_anchors(pivoted_anchors(rows, np.arange(len(matrix)), n_topics).words)


def given_anchors(words: NDArray[np.int64]) -> AnchorRules:
    return AnchorRules(given=[[int(word)] for word in words], min_row_sum=0.0)


def _anchored(setup: Setup, method: Method, moments: Moments, n_topics: int, seed: int) -> Arrays:
    settings = setup.settings(method, n_topics)
    started = time.process_time()
    found = _rectified(method, moments, settings, seed)
    rules = anchor_rules(settings, moments.n_documents)
    if method.projected:
        rules = projected_anchors(moments.cooccurrence(), n_topics, seed)
    known = moments.row_sum, moments.document_frequency
    topics: AnchorWordTopics
    if method.whole:
        matrix = moments.cooccurrence() if found.matrix is None else found.matrix
        topics = anchor_words(matrix, *known, n_topics, rules)
    else:
        topics = low_rank_anchor_words(found.rectified, *known, rules)
    seconds = time.process_time() - started
    return _kept(
        topics.word_topic,
        topics.topic_topic,
        seconds,
        topics.anchors.words,
        # Without rectification the anchors are not selected from eigenpairs.
        None if method.rectify == "none" else found.rectified,
        found.iterations,
        found.converged,
        topics.topic_probability,
    )


def _rectified(method: Method, moments: Moments, settings: InferSettings, seed: int) -> Rectification:
    if method.power:
        matrix = moments.cooccurrence()
        times, size = matrix.__matmul__, len(matrix)
        shift = rand_eig.shift_of(times, size)
        pairs = rand_eig.rand_eig(times, size, settings.n_topics, method.power, seed, shift)
    else:
        pairs = moments.eigenpairs(settings.n_topics)
    stop = {"max_iterations": settings.max_iterations, "tolerance": settings.stops_below}
    if method.rectify == "dc":
        return diagonal_completion(moments.cooccurrence(), settings.n_topics, seed=moments.settings.seed)
    if method.rectify == "dykstra":
        return dykstra_projection(moments.cooccurrence(), pairs, settings.n_topics, **stop)
    if method.checked is None:
        return rectify(moments, pairs, settings, 1, silent)
    return epsilon_nonnegative(
        pairs,
        settings.n_topics,
        checked_words=method.checked(settings.n_topics),
        acceleration=method.acceleration,
        **stop,
    )


def _polished(setup: Setup, moments: Moments, n_topics: int, seed: int) -> Arrays:
    """Polished topics of LR-JSMF; anchors and correlations are those before polish."""
    settings = setup.settings(METHODS["LR-JSMF polished"], n_topics)
    models = setup.folder / "models"
    models.mkdir(exist_ok=True)
    start, end = (models / f"k{n_topics}-{seed}-{setup.guards}-{stage}" for stage in ("start", "end"))
    started = time.process_time()
    with single_blas_thread():
        infer(moments, start, settings, workers=1, overwrite=True)
        model = polish(
            start,
            setup.corpus,
            end,
            PolishSettings(held_out=0, seed=seed),
            execution=ONE_THREAD,
            overwrite=True,
        )
    seconds = time.process_time() - started
    arrays = model.arrays
    return _kept(
        arrays["word_topic"],
        arrays["topic_topic"],
        seconds,
        arrays["anchors"],
        topic_probability=arrays["topic_probability"],
    )


def _sampled(setup: Setup, sweeps: int, n_topics: int, seed: int) -> Arrays:
    found = next(peers.gibbs(setup.counts, n_topics, seed, [sweeps]))
    kept = _kept(found.word_topic, found.topic_topic, found.cpu_seconds, iterations=sweeps)
    return kept | {"prior": found.prior}


def _kept(
    word_topic: Floats,
    topic_topic: Floats,
    seconds: float,
    anchors: NDArray[np.int64] | None = None,
    rectified: Floats | None = None,
    iterations: int = 0,
    converged: bool = True,
    topic_probability: Floats | None = None,
) -> Arrays:
    by_pairs = topic_topic.sum(axis=1) / topic_topic.sum()
    return {
        "topic_probability": by_pairs if topic_probability is None else topic_probability,
        "word_topic": word_topic,
        "topic_topic": topic_topic,
        "anchors": np.empty(0, np.int64) if anchors is None else anchors,
        "rectified": np.empty((len(word_topic), 0)) if rectified is None else rectified,
        "cpu_seconds": np.array(seconds),
        "iterations": np.array(iterations),
        "converged": np.array(converged),
    }
