"""Tables 1 and 2 of the STOD paper: run time on real corpora by part, with TOD and Gibbs sampling.

    python -m pipelines.stod_tables OUT --corpus nips=data_specs/uci_nips --corpus kos=KOS [--topics 50] [--tod-in-full]

CPU seconds of one thread, means and standard deviations over seeds. STOD: the scans up to the eigenpairs of E2
(*spectral decomposition*), the pass that computes the tensor, the power iterations, and the topics. STOD as printed: K
eigenvectors of E2 by Lanczos iterations over the documents, the tensor, and 30 restarts of 30 power iterations. TOD:
eigenpairs of M2 by Lanczos iterations over the documents, and power iterations that each read all documents,
extrapolated from one unless `--tod-in-full` is given. Gibbs sampling: 1,500 sweeps, extrapolated from 30.

STOD reads the corpus from disk in each pass. The others have it in memory; *not in memory* adds the time to read it for
each pass, as in the second scenario of the paper: two for STOD as printed, which would store E2, one for each power
iteration of TOD, and one for each sweep.

OUT keeps the results, so an interrupted command can be run again; it gets stod_tables.parquet, stod_tables.md and
stod_tables.svg.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from pipelines.common import as_printed, options, peers, pictures
from pipelines.common.bags import read_counts
from pipelines.common.data import NIPS, prepared
from pipelines.common.results import CellMissing, Results, Row, publish
from pipelines.common.tables import markdown, spread
from pipelines.common.tod import DocumentMoments, seconds_a_pass, tod
from streaming_jsmf import ScanSettings, StodSettings, scan
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.inference.stod import core_moments, whiten, whitened_product, whitened_tensor
from streaming_jsmf.inference.stod_recovery import decompose, recover
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.simulation import simulate_lda

#: The paper's sum of the prior and number of Gibbs sweeps; number of sweeps run here.
ALPHA0, SWEEPS, SWEEPS_RUN = 1.0, 1500, 30

#: Columns of a row with the parts of the run time, and their labels.
PARTS = {
    "spectral": "spectral decomposition",
    "tensor": "tensor",
    "power": "power iterations",
    "topics": "topics",
}


class Clock:
    """CPU seconds since construction or the previous lap."""

    def __init__(self) -> None:
        self._last = time.process_time()

    def lap(self) -> float:
        last, self._last = self._last, time.process_time()
        return self._last - last


@cache
def warm_up() -> None:
    """Run both versions of STOD on a few documents, because the first run of a process compiles."""
    with TemporaryDirectory() as name:
        few = simulate_lda(Path(name) / "few", n_documents=50, n_words=40, n_topics=3, mean_length=20)
        stod(few, 3, 0)
        printed(few, 3, 0)


def measured(make: Callable[[int], Row], seed: int) -> Row:
    warm_up()
    return make(seed)


def stod(corpus: Corpus, n_topics: int, seed: int) -> Row:
    """Measure scan, third-moment pass and inference of STOD, by part."""
    settings, plain = StodSettings(n_topics, ALPHA0), ScanSettings(max_topics=n_topics, seed=seed)
    with TemporaryDirectory() as name, single_blas_thread():
        clock = Clock()
        scan(corpus, Path(name) / "moments", plain, options.ONE_THREAD)
        spectral = clock.lap()
        with_tensor = ScanSettings(**{**plain.fields(), "third_moment": True})
        read = scan(corpus, Path(name) / "moments", with_tensor, options.ONE_THREAD).tensor_moments()
        core = core_moments(read)
        tensor = clock.lap()
        whitening = whiten(core, ALPHA0, n_topics)
        small = whitened_tensor(core, whitening, ALPHA0)
        found = decompose(small, restarts=settings.restarts, iterations=settings.iterations, seed=seed)
        power = clock.lap()
        product = whitened_product(read, core, whitening, ALPHA0)
        mean = read.word_mean
        recover(product, found, mean, mean, settings.threshold)
        topics = clock.lap()
    return _row(spectral, tensor, power, topics, passes=0, reading=0.0)


def printed(corpus: Corpus, n_topics: int, seed: int) -> Row:
    """Measure Algorithm 2 as printed, which reads the documents twice."""
    clock = Clock()
    counts = read_counts(Path(corpus.root))
    reading = clock.lap()
    with single_blas_thread():
        moments = DocumentMoments(counts, ALPHA0, "uniform")
        found = as_printed.stod_as_printed(moments, n_topics, seed)
    return _row(found.spectral, found.tensor, found.power, 0.0, 2, reading)


def tod_row(corpus: Corpus, n_topics: int, seed: int, *, in_full: bool) -> Row:
    """Measure TOD in memory; ``reading`` is the additional time per pass if documents are read from disk."""
    settings, clock = StodSettings(n_topics, ALPHA0, seed=seed), Clock()
    counts = read_counts(Path(corpus.root))
    reading = clock.lap()
    with single_blas_thread():
        moments = DocumentMoments(counts, ALPHA0)
        found = tod(moments, settings, by_passes=in_full)
        power, passes = found.power, found.passes
        if not in_full:
            values, vectors = moments.whiten(n_topics)
            passes = n_topics * settings.iterations
            power = passes * seconds_a_pass(moments, vectors / np.sqrt(values), settings.restarts)
    return _row(found.spectral, 0.0, power, 0.0, passes, reading) | {"extrapolated": not in_full}


def gibbs(corpus: Corpus, n_topics: int, seed: int) -> Row:
    """Extrapolate the seconds of the paper's sweeps from a few sweeps."""
    counts, clock = read_counts(Path(corpus.root)), Clock()
    one, some = peers.gibbs(counts, n_topics, seed, [1, 1 + SWEEPS_RUN])
    sweeps = (some.cpu_seconds - one.cpu_seconds) / SWEEPS_RUN * SWEEPS
    clock.lap()
    read_counts(Path(corpus.root))
    return _row(0.0, 0.0, sweeps, 0.0, SWEEPS, clock.lap()) | {"extrapolated": True}


def _row(spectral: float, tensor: float, power: float, topics: float, passes: int, reading: float) -> Row:
    parts = {"spectral": spectral, "tensor": tensor, "power": power, "topics": topics}
    total = sum(parts.values())
    return {**parts, "seconds": total, "passes": passes, "not_in_memory": total + passes * reading}


def groups(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows by corpus and method, one per seed."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["corpus"], row["method"]), []).append(row)
    return found


def tables(rows: Sequence[Row]) -> str:
    total, shares = [], []
    for (corpus, method), several in groups(rows).items():
        told = [_told(several, name) for name in ("seconds", "not_in_memory")]
        total.append([corpus, method, len(several), *told])
        if not method.startswith("Gibbs"):
            shares.append([corpus, method, *(f"{share:.1f}" for share in _shares(several))])
    first = markdown(["corpus", "method", "seeds", "in memory, s", "not in memory, s"], total, text=2)
    return (
        first + "\n\n" + markdown(["corpus", "method", *(f"{p}, %" for p in PARTS.values())], shares, text=2)
    )


def _told(several: Sequence[Row], column: str) -> str:
    return ("~" if several[0].get("extrapolated") else "") + spread([row[column] for row in several])


def _shares(several: Sequence[Row]) -> list[float]:
    """Percentage of each part in the seconds of all seeds."""
    whole = sum(row["seconds"] for row in several)
    return [100 * sum(row[part] for row in several) / whole for part in PARTS]


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw mean seconds of each method, a group of bars per corpus, and the parts of both versions of STOD."""
    found = groups(rows)
    corpora, methods = (list(dict.fromkeys(name[place] for name in found)) for place in (0, 1))
    figure, [[total, parts]] = pictures.panels(1, 2, width=3.2, height=2.2)
    for place, method in enumerate(methods):
        here = {corpora.index(name[0]): several for name, several in found.items() if name[1] == method}
        at = [corpus + 0.2 * (place - (len(methods) - 1) / 2) for corpus in here]
        heights = [float(np.mean([row["seconds"] for row in several])) for several in here.values()]
        total.bar(at, heights, 0.18, color=pictures.LOOKS[method].colour, label=method)
    total.set(yscale="log", ylabel="processor seconds")
    total.set_xticks(range(len(corpora)), corpora)
    total.legend(fontsize=7, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    own = {
        f"{corpus}\n{method.removeprefix('STOD ')}": _shares(several)
        for (corpus, method), several in found.items()
        if method.startswith("STOD")
    }
    bottom = np.zeros(len(own))
    for part, (shade, label) in enumerate(
        zip(("#4c2a3f", "#8a4f73", "#cc79a7", "#ecd0df"), PARTS.values(), strict=True)
    ):
        height = np.array([shares[part] for shares in own.values()])
        parts.bar([*own], height, 0.5, bottom, color=shade, label=label)
        bottom += height
    parts.set(ylabel="per cent of the seconds of STOD")
    parts.tick_params(axis="x", labelsize=6)
    parts.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    pictures.save(figure, path)


@click.command(help=__doc__)
@options.DRAWN_OUT
@options.corpora(words=10_000)
@click.option("--topics", default=50, show_default=True)
@click.option("--tod-in-full", is_flag=True, help="Run all power iterations of TOD (minutes to hours).")
@options.SEEDS
@click.option("--no-gibbs", is_flag=True, help="Omit Gibbs sampling, which requires tomotopy.")
@options.quick("the shipped corpus, 300 words")
@options.ONLY_KEPT
def main(
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    topics: int,
    tod_in_full: bool,
    seeds: int,
    no_gibbs: bool,
    quick: bool,
    only_kept: bool,
) -> None:
    if quick:
        corpora, words, topics, tod_in_full, seeds, no_gibbs = (f"nips={NIPS}",), 300, 3, True, 2, True
    results, rows = Results(out / "stod_tables", only_kept), []
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        makers: dict[str, Callable[[int], Row]] = {
            "STOD": partial(stod, corpus, topics),
            "STOD as printed": partial(printed, corpus, topics),
            "TOD": partial(tod_row, corpus, topics, in_full=tod_in_full),
            "Gibbs": partial(gibbs, corpus, topics),
        }
        for method, make in makers.items():
            if method == "Gibbs" and no_gibbs:
                continue
            in_full = {"in_full": tod_in_full} if method == "TOD" else {}
            for seed in range(seeds):
                key = {"corpus": corpus.fingerprint, "K": topics, "method": method, "seed": seed, **in_full}
                try:
                    row = results.row(key, partial(measured, make, seed))
                except CellMissing:
                    continue
                rows.append({"corpus": name, "method": method, "K": topics, "seed": seed, **row})
    text = tables(rows)
    publish(out, "stod_tables", rows, text, used)
    draw(rows, out / "stod_tables.svg")
    click.echo(text)


if __name__ == "__main__":
    main()
