"""Recovery error and time of STOD on the simulated corpora of its paper, with Gibbs sampling beside it if wanted.

    python pipelines/stod_reproduction.py OUT --vary documents --vary words --vary topics --gibbs 200,1000

Each row is the mean over several corpora and its standard deviation. The error is the L1 distance (of 2) between a
topic found and the true one that it is matched with, in the mean over topics. Seconds are processor time, of the scans
and the inference of STOD, and of the sampling. Gibbs sampling needs tomotopy, which is not a dependency, and --chart
needs matplotlib, of the extra `notebook`.

OUT keeps what each method made of each corpus, so that the same command goes on after an interruption and prints the
tables again from what is there.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from streaming_jsmf import Execution, ScanSettings, StodSettings, fit, open_corpus, open_model
from streaming_jsmf.blocks.csr import iter_blocks
from streaming_jsmf.blocks.units import list_units
from streaming_jsmf.config import AUTO, SHARES
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.simulation import read_truth, simulate_lda

Floats = NDArray[np.float64]

#: What the paper draws in its Fig. 1.
PAPER_VALUES = {
    "documents": "5000,20000,50000,100000",
    "words": "3000,10000,30000,100000",
    "topics": "10,25,50,100",
}

MEAN_LENGTH, DIRICHLET_MASS = 100, 200


@dataclass(frozen=True)
class Setting:
    """One point of a curve."""

    documents: int
    words: int
    topics: int


@dataclass(frozen=True)
class Outcome:
    """Mean L1 error of a method on one corpus, and its processor seconds; NaN where there are none."""

    error: float
    seconds: float = float("nan")


def recovery_error(word_topic: Floats, truth: Floats) -> float:
    """Mean L1 distance of matched topics; a topic that was not found counts as the uniform distribution."""
    n, k = truth.shape
    missing = k - word_topic.shape[1]
    padded = np.hstack([word_topic, np.full((n, missing), 1 / n)])
    return match_topics(padded, truth).mean_l1


def stod(corpus: Corpus, folder: Path, setting: Setting, settings: StodSettings, truth: Floats) -> Outcome:
    """Scan and infer with defaults, in one thread."""
    started = time.process_time()
    fit(
        corpus.root,
        folder / "model",
        [setting.topics],
        scan_settings=ScanSettings(),
        infer_settings=replace(settings, n_topics=setting.topics),
        execution=Execution("synchronous"),
        threads=1,
    )
    seconds = time.process_time() - started
    found = open_model(folder / "model")["word_topic"].values
    return Outcome(recovery_error(found, truth), seconds)


def gibbs(corpus: Corpus, sweeps: int, setting: Setting, seed: int, truth: Floats) -> Outcome:
    """Collapsed Gibbs sampling with the true hyperparameters, in one thread."""
    import tomotopy

    model = tomotopy.LDAModel(
        k=setting.topics, alpha=1 / setting.topics, eta=DIRICHLET_MASS / setting.words, seed=seed
    )
    for tokens in documents(corpus):
        model.add_doc(tokens)
    started = time.process_time()
    model.train(sweeps, workers=1, parallel=tomotopy.ParallelScheme.NONE)
    seconds = time.process_time() - started
    found = np.zeros_like(truth)
    ids = np.array([int(word) for word in model.used_vocabs])
    for topic in range(setting.topics):
        found[ids, topic] = model.get_topic_word_dist(topic)
    return Outcome(recovery_error(found, truth), seconds)


def documents(corpus: Corpus) -> Iterator[list[str]]:
    """The tokens of each document, as word ids in letters."""
    names = np.array([str(i) for i in range(corpus.n_words)])
    for block in iter_blocks(list_units(corpus), corpus.n_words):
        for first, last in zip(block.indptr[:-1], block.indptr[1:], strict=True):
            words = np.repeat(block.indices[first:last], block.data[first:last].astype(int))
            if words.size:
                yield names[words].tolist()


@dataclass(frozen=True)
class Experiment:
    """What is compared at each point: STOD on ``corpora`` corpora, Gibbs sampling on the first ``sampled`` of them.

    With ``only_kept`` nothing is worked out that an earlier run has not left.
    """

    stod: StodSettings
    sweeps: tuple[int, ...]
    corpora: int
    sampled: int
    seed: int
    only_kept: bool = False


def methods(
    setting: Setting, seed: int, experiment: Experiment, sampled: bool, kept: dict[str, Outcome]
) -> Iterator[tuple[str, Outcome]]:
    """The outcomes on one corpus, which is simulated and thrown away; none is worked out that is ``kept``."""
    wanted = ["uniform", "STOD", *(f"Gibbs {number}" for number in experiment.sweeps if sampled)]
    missing = [name for name in wanted if name not in kept]
    if not missing or experiment.only_kept:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulate_lda(
            folder / "corpus",
            n_documents=setting.documents,
            n_words=setting.words,
            n_topics=setting.topics,
            mean_length=MEAN_LENGTH,
            seed=seed,
        )
        corpus, truth = open_corpus(folder / "corpus"), read_truth(folder / "corpus").word_topic
        makers: dict[str, Callable[[], Outcome]] = {
            "uniform": lambda: Outcome(recovery_error(np.full_like(truth, 1 / setting.words), truth)),
            "STOD": lambda: stod(corpus, folder, setting, experiment.stod, truth),
        }
        for number in experiment.sweeps:
            makers[f"Gibbs {number}"] = lambda n=number: gibbs(corpus, n, setting, seed, truth)  # type: ignore[misc]
        for method in missing:
            yield method, makers[method]()


def outcomes(setting: Setting, experiment: Experiment, out: Path) -> dict[str, list[Outcome]]:
    """All methods on all corpora of a setting, read from OUT or worked out and kept there."""
    found: dict[str, list[Outcome]] = {}
    for number in range(experiment.corpora):
        seed = experiment.seed + number
        path = (
            out / f"{setting.documents}-{setting.words}-{setting.topics}-{experiment.stod.alpha0}-{seed}.json"
        )
        kept = {}
        if path.exists():
            kept = {name: Outcome(**fields) for name, fields in json.loads(path.read_text()).items()}
        for name, outcome in methods(setting, seed, experiment, number < experiment.sampled, kept):
            kept[name] = outcome
            text = json.dumps({name: asdict(outcome) for name, outcome in kept.items()}, indent=1)
            path.write_text(text + "\n")
        for name, outcome in kept.items():
            found.setdefault(name, []).append(outcome)
    return found


def cell(found: Sequence[Outcome]) -> str:
    """Error with its standard deviation, and seconds where there are some; empty where nothing was found."""
    if not found:
        return ""
    errors = [outcome.error for outcome in found]
    spread = f" ± {np.std(errors, ddof=1):.4f}" if len(errors) > 1 else ""
    seconds = float(np.mean([outcome.seconds for outcome in found]))
    return f"{np.mean(errors):.4f}{spread}" + ("" if np.isnan(seconds) else f", {seconds:.1f} s")


#: Of one curve: by value of what varies, then by method.
Curve = Mapping[int, Mapping[str, Sequence[Outcome]]]


def draw(curves: Mapping[str, Curve], path: Path) -> None:
    """A panel for each curve: mean error with its spread, a line for each method."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "stod", "svg.fonttype": "none", "font.size": 9})
    figure = Figure(figsize=(3.4 * len(curves) + 0.6, 3.4), layout="constrained")
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for panel, (vary, curve) in zip(panels, curves.items(), strict=True):
        for name in next(iter(curve.values())):
            points = {
                x: [outcome.error for outcome in point[name]] for x, point in curve.items() if name in point
            }
            means, spreads = [[f(values) for values in points.values()] for f in (np.mean, np.std)]
            width = 2.2 if name == "STOD" else 1.2
            panel.errorbar(
                list(points), means, spreads, marker="o", markersize=3, linewidth=width, label=name
            )
        panel.set(xscale="log", yscale="log", xlabel=vary)
    panels[0].set_ylabel("L1 of matched topics (of 2)")
    panels[-1].legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})


def curve_of(vary: str, values: Sequence[int], base: Setting, experiment: Experiment, out: Path) -> Curve:
    """Work out one curve and print its table, row by row."""
    header = [vary, "uniform", "STOD", *(f"Gibbs {number}" for number in experiment.sweeps)]
    click.echo("| " + " | ".join(header) + " |\n" + "|---:" * len(header) + "|")
    curve = {}
    for value in values:
        curve[value] = outcomes(replace(base, **{vary: value}), experiment, out)
        cells = [cell(curve[value].get(name, [])) for name in header[1:]]
        click.echo("| " + " | ".join([f"{value:,}", *cells]) + " |")
    click.echo("")
    return curve


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between."""
    return tuple(int(number) for number in text.split(",") if number)


@click.command(help=__doc__)
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--vary", type=click.Choice(list(PAPER_VALUES)), multiple=True, default=["documents"])
@click.option("--values", default=None, help="Of what varies.  [default: those of the paper]")
@click.option("--documents", "n_documents", default=20_000, show_default=True, help="Where they do not vary.")
@click.option("--words", default=10_000, show_default=True)
@click.option("--topics", default=50, show_default=True)
@click.option("--corpora", default=5, show_default=True, type=click.IntRange(1), help="For each value.")
@click.option("--gibbs", "sweeps", default="", metavar="N[,N...]", help="Sweeps of Gibbs sampling.")
@click.option("--gibbs-corpora", "sampled", default=1, show_default=True, help="Of them for Gibbs sampling.")
@click.option("--alpha0", default="auto", show_default=True, metavar="auto|shares|X")
@click.option("--seed", default=0, show_default=True, help="Of the first corpus.")
@click.option("--only-kept", is_flag=True, help="Print and draw what earlier runs left in OUT.")
@click.option("--chart", type=click.Path(dir_okay=False, path_type=Path), default=None)
def main(
    out: Path,
    vary: tuple[str, ...],
    values: str | None,
    n_documents: int,
    words: int,
    topics: int,
    corpora: int,
    sweeps: str,
    sampled: int,
    alpha0: str,
    seed: int,
    only_kept: bool,
    chart: Path | None,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    base = Setting(n_documents, words, topics)
    settings = StodSettings(topics, alpha0 if alpha0 in (AUTO, SHARES) else float(alpha0))
    experiment = Experiment(settings, numbers(sweeps), corpora, sampled, seed, only_kept)
    curves = {
        name: curve_of(name, numbers(values or PAPER_VALUES[name]), base, experiment, out) for name in vary
    }
    if chart is not None:
        draw(curves, chart)


if __name__ == "__main__":
    main()
