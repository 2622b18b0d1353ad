"""Options that several verbs share, and the values they parse to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from streaming_jsmf.cli.anchor_words import anchor_word_groups
from streaming_jsmf.config import (
    ANCHOR_ROW_SUM,
    Acceleration,
    AnchorMethod,
    CorrelationMethod,
    DocumentWeights,
    InferSettings,
    MissingMass,
    PolishSettings,
    RangeFinder,
    Rectifier,
    Refinement,
    ScanSettings,
    SimplexMethod,
    StodSettings,
)
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import parse_memory

Function = TypeVar("Function", bound=Callable[..., Any])

_DEFAULTS = ScanSettings()


def _all(*decorators: Callable[[Any], Any]) -> Callable[[Function], Function]:
    def apply(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


scan_options = _all(
    click.option("--scans", type=click.IntRange(1, 3), default=_DEFAULTS.scans, show_default=True,
                 help="Passes over the data; the second halves the error at a tenth of the time. "
                      "3: with --range sample."),
    click.option("--range", "range_finder", type=click.Choice(get_args(RangeFinder)),
                 default=_DEFAULTS.range_finder, show_default=True,
                 help="factors: merged factors. sample: factors of a sample of the documents, for corpora of many. "
                      "halko: the single-view sketch of the paper, to compare with."),
    click.option("--sample-share", type=float, default=None, metavar="SHARE",
                 help="Documents that --range sample multiplies, as a share of all.  "
                      "[default: 60,000 documents, or one a word]"),
    click.option("--document-weights", type=click.Choice(get_args(DocumentWeights)),
                 default=_DEFAULTS.document_weights, show_default=True,
                 help="capped: min(length, 200). uniform: as in the papers. length: tokens."),
    click.option("--partition-nonzeros", type=int, default=None,
                 help="Nonzeros of a partition.  [default: total / 64 or 200 a word, from 8 M to 64 M]"),
    click.option("--partition-by", default=None, metavar="COLUMN",
                 help="Metadata column whose values get partitions of their own, such as year."),
    click.option("--power-steps", type=int, default=_DEFAULTS.power_steps, show_default=True,
                 help="Multiplications of a partition by itself, in memory."),
    click.option("--exact", is_flag=True,
                 help="Count all co-occurrences, words x words, where they fit in memory; --rectify ap needs them."),
    click.option("--seed", type=int, default=_DEFAULTS.seed, show_default=True, help="Of the probes."),
)  # fmt: skip

execution_options = _all(
    click.option("--scheduler", default="threads", show_default=True,
                 help="threads, processes, synchronous, cluster (local worker processes) or tcp://HOST:PORT."),
    click.option("--workers", type=int, default=None, help="Tasks at once.  [default: one for each core]"),
    click.option("--memory", default=None, metavar="SIZE",
                 help="Most that may be used, such as 4GB: partitions are made to fit, or the scan is refused."),
    click.option("--performance-report", type=click.Path(), default=None, metavar="FILE.html",
                 help="Dask's plots of the job; with --scheduler cluster or tcp:// only."),
)  # fmt: skip

log_option = click.option(
    "--log-json", default=None, metavar="FILE",
    help="Add a line of JSON to FILE for each event; - is standard error, then without the usual progress.",
)  # fmt: skip

infer_options = _all(
    click.option("--rectify", type=click.Choice(get_args(Rectifier)), default="enn", show_default=True,
                 help="enn: epsilon non-negative. palm, ipalm: non-negative factors. none: eigenpairs as they are. "
                      "Of a scan with --exact: ap and dykstra, alternating projections; dc, diagonal completion."),
    click.option("--max-iterations", type=int, default=150, show_default=True, help="Of the rectification."),
    click.option("--tolerance", type=float, default=1e-5, show_default=True,
                 help="Relative change at which the rectification stops."),
    click.option("--acceleration", type=click.Choice(get_args(Acceleration)), default="momentum", show_default=True,
                 help="Of ENN. none: the steps of the paper."),
    click.option("--missing-mass", type=click.Choice(get_args(MissingMass)), default="uniform", show_default=True,
                 help="How ENN spreads the mass that is missing: evenly (the paper), or by row sums of C."),
    click.option("--left-out", type=float, default=None, metavar="SHARE",
                 help="Let ENN check more words until it leaves out at most this share.  [default: 10 K + 1000 words]"),
    click.option("--anchor-min-df", type=float, default=None,
                 help="Documents an anchor must occur in; below 1 a share of all, 0 no guard.  "
                      "[default: 1 %, at least 20]"),
    click.option("--anchors", type=click.Choice(get_args(AnchorMethod)), default="pivoted-qr", show_default=True,
                 help="pivoted-qr: rows far from the span of the others. soft-clique: words that hardly meet."),
    click.option("--anchor-shrinkage", type=float, default=None, metavar="DOCUMENTS",
                 help="How strongly words of many documents are preferred as anchors; 0 not at all.  "
                      "[default: twice the square root of all documents]"),
    click.option("--anchor-row-sum", type=float, default=ANCHOR_ROW_SUM, show_default=True, metavar="SHARE",
                 help="Share of its row sum that an anchor must keep in the rectified matrix; 0 no guard."),
    click.option("--anchor-words", default=None, metavar="FILE|W1,W2,...", callback=anchor_word_groups,
                 help="Words to be anchors, one for a topic; of a FILE a line for each topic, where several "
                      "words with commas between count as one. Topics without one get theirs as usual."),
    click.option("--simplex", type=click.Choice(get_args(SimplexMethod)), default="auto", show_default=True,
                 help="How words are written as mixtures of anchors. auto: active-set where numba is installed."),
    click.option("--correlations", type=click.Choice(get_args(CorrelationMethod)), default="diagonal",
                 show_default=True,
                 help="diagonal: from the anchors alone. refined: what fits all words best, with sum 1."),
    click.option("--overwrite", is_flag=True, help="Replace a model that exists."),
)  # fmt: skip

_POLISH = PolishSettings()

polish_options = _all(
    click.option("--steps", type=int, default=_POLISH.steps, show_default=True,
                 help="polish: passes over the documents, all but the last five over a sample of a large corpus; "
                      "40 are thorough."),
    click.option("--rounds", type=int, default=_POLISH.rounds, show_default=True,
                 help="polish: iterations within a document at each step."),
    click.option("--held-out", type=int, default=_POLISH.held_out, show_default=True,
                 help="polish: documents kept out of it, which tell the perplexity; at most a twentieth of all."),
)  # fmt: skip

_STOD = StodSettings(1)

engine_options = _all(
    click.option("--engine", type=click.Choice((InferSettings.engine, StodSettings.engine)),
                 default=InferSettings.engine, show_default=True,
                 help="lr-jsmf: anchor words. stod: tensor decomposition, which needs the third moment."),
    click.option("--alpha0", default=str(_STOD.alpha0), show_default=True, metavar="auto|shares|X",
                 help="stod: sum of the Dirichlet prior of topic shares. auto: what anchor words tell, for any K. "
                      "shares: by the tensor, right where K is the truth only."),
    click.option("--restarts", type=int, default=_STOD.restarts, show_default=True,
                 help="stod: random starts of the power method for each topic."),
    click.option("--iterations", type=int, default=_STOD.iterations, show_default=True,
                 help="stod: most steps of each start."),
    click.option("--threshold", type=float, default=_STOD.threshold, show_default=True,
                 help="stod: word lists go by what is above so many times the noise; 0: by probability."),
    click.option("--refine", type=click.Choice(get_args(Refinement)), default=_STOD.refine, show_default=True,
                 help="stod: als fits components that need not be orthogonal."),
)  # fmt: skip


#: Settings of each engine. Both have ``n_topics``; the seed is that of the scan, too, where a verb scans.
_OWN_SETTINGS = {
    kind.engine: tuple(field.name for field in fields(kind) if field.name not in ("n_topics", "seed"))
    for kind in (InferSettings, StodSettings)
}


def take_inference(
    context: click.Context, given: dict[str, Any], n_topics: int, *, scan_seed: int | None = None
) -> InferSettings | StodSettings:
    """Take the values of ``infer_options`` and ``engine_options`` (but ``--overwrite``) out of a verb's options.

    Parameters
    ----------
    scan_seed
        What ``--seed`` says in a verb that scans, for the tensor engine too; None: ``--seed`` is an option of that
        engine alone.

    Raises
    ------
    InputError
        For an option of the other engine on the command line, and for a value that the settings refuse.
    """
    engine = given.pop("engine")
    own = {name: {key: given.pop(key) for key in keys} for name, keys in _OWN_SETTINGS.items()}
    if scan_seed is None:
        own[StodSettings.engine]["seed"] = given.pop("seed")
    for other in own.keys() - {engine}:
        for key in own[other]:
            if were_given(context, [key]):
                raise InputError(
                    f"--{key.replace('_', '-')} belongs to --engine {other}; leave it out, or change --engine"
                )
    if engine == InferSettings.engine:
        return InferSettings(n_topics, **own[engine])
    chosen = {"seed": scan_seed, **own[engine], "alpha0": _alpha0(own[engine]["alpha0"])}
    return StodSettings(n_topics, **chosen)


def take_polish(given: dict[str, Any], seed: int) -> PolishSettings:
    """Take the values of ``polish_options`` out of a verb's options; ``InputError`` if the settings refuse them."""
    own = {field.name: given.pop(field.name) for field in fields(PolishSettings) if field.name != "seed"}
    return PolishSettings(**own, seed=seed)


def _alpha0(text: str) -> float | str:
    """The number that a text says, or the text for the settings to judge."""
    try:
        return float(text)
    except ValueError:
        return text


def take_execution(given: dict[str, Any]) -> Execution:
    """Take the values of ``execution_options`` out of a verb's options, and return how to run.

    Raises
    ------
    InputError
        For a value that ``Execution`` or ``parse_memory`` refuses.
    """
    scheduler, workers, memory, report = (
        given.pop(name) for name in ("scheduler", "workers", "memory", "performance_report")
    )
    return Execution(
        scheduler,
        workers,
        parse_memory(memory) if memory else None,
        None if report is None else Path(report),
    )


def topic_numbers(text: str) -> list[int]:
    """Parse ``20`` or ``5,10,20``; raise ``InputError`` for anything else."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise InputError(
            f"--topics is {text!r}; give a number such as 20, or several different ones: 5,10,20"
        )
    return numbers


def were_given(context: click.Context, names: Iterable[str]) -> bool:
    """Whether one of these options stands on the command line, rather than having its default."""
    return any(context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE for name in names)
