"""Options that several verbs share, and the values they parse to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from streaming_jsmf.cli.anchor_words import anchor_word_groups
from streaming_jsmf.cli.verb import option
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

if TYPE_CHECKING:
    # With Dask every command, and every completion in the shell, would start a second later.
    from streaming_jsmf.jobs.execution import Execution

Function = TypeVar("Function", bound=Callable[..., Any])

_SCAN, _INFER, _POLISH, _STOD = ScanSettings(), InferSettings(1), PolishSettings(), StodSettings(1)

#: Headings of options that several verbs share.
SCAN, RECTIFICATION, ANCHORS, POLISH = "Scan", "Rectification", "Anchor words and topics", "Polish"
STOD, EXECUTION = "Engine stod", "Execution (changes no bit of the result)"


def _all(*decorators: Callable[[Any], Any]) -> Callable[[Function], Function]:
    def apply(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


scan_options = _all(
    option("--document-weights", group=SCAN, rare=True, type=click.Choice(get_args(DocumentWeights)),
           default=_SCAN.document_weights, show_default=True,
           help="How much a document counts. capped: its length in tokens, 200 at most. uniform: all alike, as in the "
                "papers. length: its length."),
    option("--scans", group=SCAN, rare=True, type=click.IntRange(1, 2), default=_SCAN.scans, show_default=True,
           help="Passes over the data. The second halves the error of the eigenpairs at a tenth of the time."),
    option("--range", "range_finder", group=SCAN, rare=True, type=click.Choice(get_args(RangeFinder)),
           default=_SCAN.range_finder, show_default=True,
           help="How the range of the co-occurrences is found. factors: merged factors of all documents. sample: from "
                "some of them, which the store keeps. auto: sample for corpora of many documents, unless partitions "
                "are kept. halko: the single-view sketch of the paper, to compare with."),
    option("--sample-share", group=SCAN, rare=True, type=float, default=None, metavar="SHARE",
           help="Documents of the sample, as a share of all.  [default: 80,000 documents or one a word, all of fewer "
                "than twice as many]"),
    option("--partition-nonzeros", group=SCAN, rare=True, type=int, default=None,
           help="Nonzeros of a partition, the unit of work and of resumption.  [default: total / 64 or 200 a word, "
                "from 8 M to 64 M, in an even number of them]"),
    option("--partition-by", group=SCAN, rare=True, default=None, metavar="COLUMN",
           help="A metadata column, such as year, whose values get partitions of their own.  [default: none]"),
    option("--power-steps", group=SCAN, rare=True, type=int, default=_SCAN.power_steps, show_default=True,
           help="Multiplications of a partition by itself, or of a sample, in memory. More: smaller error, more time."),
    option("--exact", group=SCAN, rare=True, is_flag=True,
           help="Count all co-occurrences, words x words, 8 bytes each, where they fit in memory. --rectify ap, "
                "dykstra and dc need them."),
    option("--seed", type=int, default=_SCAN.seed, show_default=True,
           help="Number that decides all random draws: the same one gives the same topics."),
)  # fmt: skip

topics_option = option(
    "--topics", required=True, metavar="K[,K...]",
    help="Number of topics K, such as 20; of several, as 5,10,20, one model each.",
)  # fmt: skip

overwrite_option = option(
    "--overwrite", is_flag=True, help="Replace what is at the path of the result, if it is of the same kind."
)

execution_options = _all(
    option("--scheduler", group=EXECUTION, default="threads", show_default=True,
           help="threads, processes, synchronous, cluster (of local processes) or tcp://HOST:PORT."),
    option("--workers", group=EXECUTION, type=int, default=None,
           help="Tasks at once.  [default: one for each core]"),
    option("--memory", group=EXECUTION, default=None, metavar="SIZE",
           help="Most memory that may be used, such as 4GB; what needs more is refused.  [default: all there is]"),
    option("--performance-report", group=EXECUTION, rare=True, type=click.Path(), default=None, metavar="FILE.html",
           help="Keep Dask's plots of the job; with --scheduler cluster or tcp:// only.  [default: none]"),
)  # fmt: skip

log_option = option(
    "--log-json", group=EXECUTION, default=None, metavar="FILE",
    help="Add a line of JSON to FILE for each event; - is standard error, then without bars.  [default: none]",
)  # fmt: skip

infer_options = _all(
    option("--anchor-words", group=ANCHORS, default=None, metavar="FILE|W1,W2,...", callback=anchor_word_groups,
           help="Words to be anchors, one for a topic; others are found. A FILE has a line for each topic; words with "
                "commas between count as one there.  [default: all are found]"),
    option("--rectify", group=RECTIFICATION, rare=True, type=click.Choice(get_args(Rectifier)), default=_INFER.rectify,
           show_default=True,
           help="How noise is taken out of the co-occurrences. enn: as in the paper of 2021. palm, ipalm: non-negative "
                "factors. none: not at all. After scan --exact: ap, dykstra (alternating projections), dc (diagonal "
                "completion); minutes and gigabytes for 20,000 words."),
    option("--max-iterations", group=RECTIFICATION, rare=True, type=int, default=_INFER.max_iterations,
           show_default=True, help="Most steps of the rectification."),
    option("--tolerance", group=RECTIFICATION, rare=True, type=float, default=_INFER.tolerance, show_default=True,
           help="Relative change in a step at which the rectification stops."),
    option("--acceleration", group=RECTIFICATION, rare=True, type=click.Choice(get_args(Acceleration)),
           default=_INFER.acceleration, show_default=True,
           help="Of enn. momentum: the same end in a quarter of the steps. none: the steps of the paper."),
    option("--missing-mass", group=RECTIFICATION, rare=True, type=click.Choice(get_args(MissingMass)),
           default=_INFER.missing_mass, show_default=True,
           help="How enn spreads the mass that is missing: uniform (the paper), or marginals, by row sums."),
    option("--left-out", group=RECTIFICATION, rare=True, type=float, default=None, metavar="SHARE",
           help="Let enn check more words until what it leaves out is at most this share of the whole.  "
                "[default: 10 K + 1000 words]"),
    option("--anchor-min-df", group=ANCHORS, rare=True, type=float, default=None, metavar="NUMBER|SHARE",
           help="Documents an anchor must occur in; below 1 a share of all, 0 no such guard.  "
                "[default: 1 % of all, at least 20]"),
    option("--anchors", group=ANCHORS, rare=True, type=click.Choice(get_args(AnchorMethod)), default=_INFER.anchors,
           show_default=True,
           help="How anchors are found. pivoted-qr: rows far from the span of the others. soft-clique: words that "
                "hardly meet."),
    option("--cliques", group=ANCHORS, rare=True, type=int, default=_INFER.cliques, show_default=True,
           help="Searches of soft-clique from different words; the model lists all cliques that they find."),
    option("--clique", group=ANCHORS, rare=True, type=int, default=_INFER.clique, show_default=True,
           help="Which of these has the anchors, 1 for the lightest."),
    option("--anchor-shrinkage", group=ANCHORS, rare=True, type=float, default=None, metavar="DOCUMENTS",
           help="How strongly words of many documents are preferred as anchors; 0 not at all.  "
                "[default: twice the square root of all documents]"),
    option("--anchor-row-sum", group=ANCHORS, rare=True, type=float, default=ANCHOR_ROW_SUM, show_default=True,
           metavar="SHARE", help="Share of its row sum that an anchor must keep when rectified; 0 no such guard."),
    option("--simplex", group=ANCHORS, rare=True, type=click.Choice(get_args(SimplexMethod)), default=_INFER.simplex,
           show_default=True,
           help="How words are written as mixtures of anchors. auto: active-set where numba is installed."),
    option("--correlations", group=ANCHORS, rare=True, type=click.Choice(get_args(CorrelationMethod)),
           default=_INFER.correlations, show_default=True,
           help="Of the topics. diagonal: from the anchors alone. refined: those that fit all words best."),
    overwrite_option,
)  # fmt: skip

polish_options = _all(
    option("--steps", group=POLISH, type=int, default=_POLISH.steps, show_default=True,
           help="Passes over the documents, all but the last five over a sample of a large corpus. 40 are thorough."),
    option("--rounds", group=POLISH, rare=True, type=int, default=_POLISH.rounds, show_default=True,
           help="Iterations within a document at each step, 2 or more."),
    option("--held-out", group=POLISH, rare=True, type=int, default=_POLISH.held_out, show_default=True,
           help="Documents kept out of the steps, which tell the perplexity; a fiftieth of all at most, 0 none."),
)  # fmt: skip

engine_options = _all(
    option("--engine", type=click.Choice((InferSettings.engine, StodSettings.engine)),
           default=InferSettings.engine, show_default=True,
           help="lr-jsmf: topics by anchor words. stod: by tensor decomposition, after scan --third-moment."),
    option("--stod-alpha0", "alpha0", former="--alpha0", group=STOD, rare=True, default=str(_STOD.alpha0),
           show_default=True, metavar="auto|shares|X",
           help="Sum of the Dirichlet prior of topic shares. auto: what anchor words tell, for any K. shares: by the "
                "tensor, right where K is the truth only."),
    option("--stod-restarts", "restarts", former="--restarts", group=STOD, rare=True, type=int,
           default=_STOD.restarts, show_default=True, help="Random starts of the power method for each topic."),
    option("--stod-iterations", "iterations", former="--iterations", group=STOD, rare=True, type=int,
           default=_STOD.iterations, show_default=True, help="Most steps of each start."),
    option("--stod-threshold", "threshold", former="--threshold", group=STOD, rare=True, type=float,
           default=_STOD.threshold, show_default=True,
           help="Word lists go by what of a probability is above so many times its noise; 0: by all of it."),
    option("--stod-refine", "refine", former="--refine", group=STOD, rare=True,
           type=click.Choice(get_args(Refinement)), default=_STOD.refine, show_default=True,
           help="als: fit the tensor by components that need not be orthogonal."),
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
                    f"{_spelled(context, key)} belongs to --engine {other}; leave it out, or change --engine"
                )
    if engine == InferSettings.engine:
        return InferSettings(n_topics, **own[engine])
    chosen = {"seed": scan_seed, **own[engine], "alpha0": _alpha0(own[engine]["alpha0"])}
    return StodSettings(n_topics, **chosen)


def _spelled(context: click.Context, name: str) -> str:
    """An option as it may be on the command line."""
    return next("/".join(parameter.opts) for parameter in context.command.params if parameter.name == name)


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
    from streaming_jsmf.jobs.execution import Execution
    from streaming_jsmf.jobs.memory import parse_memory

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
    """Parse ``20`` or ``5,10,20``; raise ``click.UsageError`` for anything else."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise click.UsageError(
            f"--topics is {text!r}; give a number such as 20, or several different ones: 5,10,20"
        )
    return numbers


def were_given(context: click.Context, names: Iterable[str]) -> bool:
    """Whether one of these options stands on the command line, rather than having its default."""
    return any(context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE for name in names)
