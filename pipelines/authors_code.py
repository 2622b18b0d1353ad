"""The authors' MATLAB code compared with this package on the same C: anchors, topics and metrics.

    git clone https://github.com/moontae/JSMF AUTHORS
    python -m pipelines.authors_code AUTHORS OUT --corpus nips=data_specs/uci_nips [--words 2000] [--topics 10,20]

Requires GNU Octave. C of Eq. 1 (uniform weights) is passed to their functions in a file: rectification by AP, DC, DP,
ENN (`trunEig`) and PALM, anchors among all words, active-set solver. Our methods run on the same C without the guards
of `infer`, until they converge or have made as many steps. Their PALM takes the signs of the eigenvectors as they come,
and their code uses the first of its factors; `PALM our start` runs it from our signs and takes the second factor, as
ours does. Both sets of metrics are computed for their topics. Their LAW does not run under Octave (it divides a sparse
matrix by a row), so after ENN and PALM their anchor word algorithm gets Y Y'.

This project contains none of their code: the driver that calls their functions by name is written in each run. OUT
keeps the results, so an interrupted command can be run again; it gets authors.parquet and authors.md.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
from scipy.io import loadmat, savemat

from pipelines.common import options
from pipelines.common.authors_metrics import authors_metrics
from pipelines.common.data import NIPS, prepared
from pipelines.common.matching import match_topics
from pipelines.common.methods import Setup
from pipelines.common.results import Arrays, Row, publish
from pipelines.common.scores import Scorer, distances
from pipelines.common.tables import markdown, number
from streaming_jsmf.evaluation.topic_shape import DISSIMILARITY_WORDS
from streaming_jsmf.inference.words import prominent_words

RECTIFIERS = ("AP", "DC", "DP", "ENN", "PALM", "PALM our start", "baseline")

#: Their metric -> ours, and the factor for ours (their metrics are in bits).
COMPARED = {
    "recoveryError": ("recovery", 1.0),
    "approximationError": ("approximation", 1.0),
    "diagonalDominancy": ("dominancy", 1.0),
    "clusterSpecificity": ("specificity_2021", 1.0 / np.log(2.0)),
    "clusterDissimilarity_hard": ("dissimilarity", 1.0),
    "clusterCoherence": ("coherence", 1.0),
    "distributionLegality": ("sum_A", 1.0),
    "marginalValidity": ("validity", 1.0),
    "normalizedEntropy": ("entropy", 1.0),
    "basisRank_hard": ("basis_rank_hard", 1.0),
    "basisRank_soft": ("basis_rank_soft", 1.0),
    "basisQuality_hard": ("basis_quality_hard", 1.0),
    "basisQuality_soft": ("basis_quality_soft", 1.0),
}

#: Our driver, which calls their functions by name; a metric that fails is NaN, and its error is printed.
DRIVER = r"""
function jsmf_driver(input, output)
  in = load(input); C = in.C; K = in.K; T = in.T;
  started = cputime;
  switch in.rectifier
    case 'AP', [R, ~, ~] = rectification.rectifyC_AP(C, K, T);
    case 'DC', [R, ~, ~] = rectification.rectifyC_DC(C, K);
    case 'DP', [R, ~, ~] = rectification.rectifyC_DP(C, K, T);
    case 'baseline', R = C;
    case 'ENN', Y = compression.rectify_ENN(C, K, 'trunEig', T);
    case 'PALM', Y = compression.rectify_PALM(C, K, 1e-4, T);
    case 'PALM our start', [~, Y] = compression.rectify_PALM(C, K, 1e-4, T, in.V, in.D);
  end
  if exist('Y', 'var'), R = Y * Y'; else, Y = []; end
  sums = sum(R, 2);
  Rbar = bsxfun(@rdivide, R, sums);
  S = inference.findS(Rbar, K);
  [B, Bt] = inference.recoverB(Rbar, sums, S, 'activeSet');
  A = inference.recoverA(R, B, S);
  P = Bt * sums;
  seconds = cputime - started;
  u = sum(C, 2);
  Cbar = bsxfun(@rdivide, C, u);
  names = {'recoveryError', 'approximationError', 'diagonalDominancy', 'clusterSpecificity', ...
           'clusterDissimilarity_hard', 'clusterCoherence', 'distributionLegality', 'marginalValidity', ...
           'normalizedEntropy', 'basisRank_hard', 'basisRank_soft', 'basisQuality_hard', 'basisQuality_soft'};
  arguments = {{Cbar, S, Bt}, {C, B, A}, {A}, {B, u}, {B, 20}, {B, in.D1, in.D2, 20}, {A}, {B, A, Bt, u}, ...
               {Bt}, {B, S}, {B, S}, {B, S}, {B, S}};
  metrics = struct();
  for m = 1:numel(names)
    try
      value = evaluation.evaluateClusters(names{m}, arguments{m}{:});
    catch problem
      fprintf(2, '%s: %s\n', names{m}, problem.message);
      value = NaN;
    end
    metrics.(names{m}) = value;
  end
  save('-v7', output, 'S', 'B', 'A', 'P', 'Y', 'seconds', 'metrics');
end
"""

#: Octave may print this on exit, whatever was run.
NOISE = "while preparing to exit"


def theirs(codes: Path, setup: Setup, rectifier: str, n_topics: int) -> Arrays:
    """Results of the authors' code under the names of ``Setup.topics``, and their metrics as ``theirs_<metric>``."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "jsmf_driver.m").write_text(DRIVER)
        pairs = (setup.counts > 0).astype(np.int64)
        together = (pairs.T @ pairs).toarray().astype(np.float64)
        given = {
            "C": setup.moments().cooccurrence(),
            "K": float(n_topics),
            "T": float(setup.max_iterations),
            "rectifier": rectifier,
            **start(setup, n_topics),
            "D1": np.diag(together).copy(),
            "D2": together,
        }
        savemat(work / "in.mat", given)
        command = f"addpath('{codes.resolve()}'); addpath('{work}'); jsmf_driver('{work}/in.mat', '{work}/out.mat');"
        done = subprocess.run(
            ["octave-cli", "--no-gui", "--quiet", "--eval", command],
            capture_output=True,
            text=True,
            check=False,
            cwd=work,
            env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PATH": "/usr/bin:/bin:/usr/local/bin"},
        )
        for line in done.stderr.splitlines():
            if NOISE not in line:
                click.echo(f"octave, {rectifier}, K = {n_topics}: {line}", err=True)
        if done.returncode != 0:
            raise click.ClickException(f"octave ended with {done.returncode} on {rectifier}, K = {n_topics}")
        found = loadmat(work / "out.mat", squeeze_me=False)
    return read_back(found)


def start(setup: Setup, n_topics: int) -> dict[str, np.ndarray]:
    """Eigenvectors V with the signs of our PALM, which keeps the longer part of each column, and eigenvalues D."""
    pairs = setup.moments().eigenpairs(n_topics).leading(n_topics)
    squares = [np.sum(part(pairs.vectors, 0.0) ** 2, axis=0) for part in (np.maximum, np.minimum)]
    return {"V": pairs.vectors * np.where(squares[1] > squares[0], -1.0, 1.0), "D": np.diag(pairs.values)}


def read_back(found: dict[str, np.ndarray]) -> Arrays:
    metrics = found["metrics"][0, 0]
    arrays = {
        "word_topic": np.asarray(found["B"], dtype=np.float64),
        "topic_topic": np.asarray(found["A"], dtype=np.float64),
        "topic_probability": np.asarray(found["P"], dtype=np.float64).ravel(),
        "anchors": found["S"].ravel().astype(np.int64) - 1,
        "rectified": np.asarray(found["Y"], dtype=np.float64)
        if found["Y"].size
        else np.empty((len(found["B"]), 0)),
        "cpu_seconds": np.array(float(found["seconds"].item())),
        "iterations": np.array(0),
        "converged": np.array(True),
    }
    return arrays | {f"theirs_{name}": np.array(float(metrics[name].item())) for name in COMPARED}


def compared(codes: Path, setup: Setup, rectifier: str, n_topics: int) -> Row:
    """A row: comparison of both results, and both implementations of the metrics on their topics."""
    method = rectifier.removesuffix(" our start")
    key = {"authors": rectifier, "compared": len(COMPARED), **setup.key(method, n_topics, 0)}
    found = setup.results.arrays(key, lambda: theirs(codes, setup, rectifier, n_topics))
    scorer = Scorer(setup)
    ours = setup.topics(method, n_topics)
    row: Row = {"rectifier": rectifier, "K": n_topics, **distances(ours, found)}
    row |= {"their_seconds": float(found["cpu_seconds"]), "our_seconds": float(ours["cpu_seconds"])}
    measured = setup.results.row(
        {**key, "metrics": 1}, lambda: scorer.metrics(found) | authors_metrics(found)
    )
    own = scorer.row(method, n_topics, first="") | authors_metrics(ours)
    for name, (metric, factor) in COMPARED.items():
        row[f"{metric}: theirs of theirs"] = float(found[f"theirs_{name}"])
        row[f"{metric}: ours of theirs"] = _times(measured[metric], factor)
        row[f"{metric}: ours of ours"] = _times(own[metric], factor)
    return row | {"words_shared": words_shared(ours, found)}


def words_shared(ours: Arrays, found: Arrays) -> float:
    """Mean number of shared words among the 20 top words of matched topics."""
    order = match_topics(ours["word_topic"], found["word_topic"]).permutation
    first, second = (prominent_words(arrays["word_topic"], DISSIMILARITY_WORDS) for arrays in (ours, found))
    shared = [len({*a} & {*b}) for a, b in zip(first.tolist(), second[order].tolist(), strict=True)]
    return float(np.mean(shared))


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def tables(rows: Sequence[Row]) -> str:
    head = [
        "K",
        "rectification",
        "anchors shared",
        "mean L1",
        "median L1",
        "top words shared (of 20)",
        "Y Y' off",
    ]
    columns = (
        "anchors_shared",
        "l1",
        "median_l1",
        "words_shared",
        "yy_error",
        "their_seconds",
        "our_seconds",
    )
    first = [[row["K"], row["rectifier"], *(number(row[name]) for name in columns)] for row in rows]
    # Earlier results have fewer metrics.
    names = [name for name, _ in COMPARED.values() if f"{name}: ours of ours" in rows[0]]
    kinds = ("theirs of theirs", "ours of theirs", "ours of ours")
    second = [
        [
            row["K"],
            row["rectifier"],
            kind,
            *(number(row[f"{name}: {kind}"], 4) for name in names),
        ]
        for row in rows
        for kind in kinds
    ]
    return "\n\n".join(
        [
            markdown([*head, "their seconds", "our seconds"], first, text=2),
            markdown(["K", "rectification", "metric, of", *names], second, text=3),
        ]
    )


@click.command(help=__doc__)
@click.argument("authors", type=click.Path(exists=True, file_okay=False, path_type=Path))
@options.OUT
@options.corpora(words=2000)
@options.several("topics", [10, 20])
@options.several("rectifiers", RECTIFIERS)
@click.option("--iterations", default=150, show_default=True, help="Steps of their methods; maximum of ours.")
@click.option("--tolerance", default=1e-5, show_default=True, help="Tolerance of our methods.")
@click.option("--quick", is_flag=True, help="Trial run of a minute: 200 words, 20 steps.")
def main(
    authors: Path,
    out: Path,
    corpora: tuple[str, ...],
    words: int,
    topics: list[int],
    rectifiers: list[str],
    iterations: int,
    tolerance: float,
    quick: bool,
) -> None:
    if quick:
        corpora, words, topics, iterations = (f"nips={NIPS}",), 200, [5], 20
    codes = authors / "codes" if (authors / "codes").is_dir() else authors
    if not (codes / "+rectification").is_dir():
        raise click.BadParameter(f"{authors} is no checkout of the authors' code: it has no +rectification")
    rows: list[Row] = []
    used = {}
    for named in corpora:
        name, corpus = prepared(named, out / "corpora", words)
        used[name] = corpus
        # Their code runs all steps; ours stops at convergence.
        setup = Setup(
            corpus,
            out / Path(corpus.root).name,
            max(20, *topics),
            max_iterations=iterations,
            tolerance=tolerance,
        )
        for n_topics in topics:
            for rectifier in rectifiers:
                rows.append({"corpus": name, **compared(codes, setup, rectifier, n_topics)})
    publish(out, "authors", rows, tables(rows), used)
    click.echo(tables(rows))


if __name__ == "__main__":
    main()
