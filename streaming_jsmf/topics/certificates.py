"""The certificates of a model that make it doubtful, their thresholds in one place, and a plain sentence for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The sum of A is 1 but for errors of the anchors' rows; real corpora with the default guards stay within a tenth.
TRUSTED_SUM = (0.9, 1.1)

#: Relative change of Y Y' in the last step of the rectification: ten times the default tolerance.
LARGEST_CHANGE = 1e-4

#: Relative residual of a Ritz pair among the first K: three times what real corpora show at K = 50.
LARGEST_RESIDUAL = 0.25

#: How far scan 2 may move Y Y' from that of scan 1.
LARGEST_RANGE_CHANGE = 0.2

#: (lambda_K - lambda_K+1) / lambda_K below which K cuts through equal eigenvalues.
SMALLEST_GAP = 1e-3

#: Share of all co-occurrence that the rectification leaves negative.
LARGEST_OMITTED_MASS = 0.01

#: Duality gap of the simplex problems, which are solved to rounding.
LARGEST_SIMPLEX_GAP = 1e-6

#: Last step of a component of the tensor, of length 1: one that moved more has not been found.
LARGEST_STEP = 1e-6

#: Share of the tokens whose words no component of the tensor has.
LARGEST_MASS_WITHOUT_TOPIC = 0.01


def warnings_of(metrics: Mapping[str, Any]) -> list[str]:
    """What makes a model doubtful, by its ``metrics``, and what to try; empty as a rule.

    Certificates that an engine does not have are passed over.
    """
    rectification = metrics.get("rectification") or {}
    found = [
        _of_sum(metrics.get("topic_topic_sum")),
        _of_change(rectification),
        _of_omitted(rectification.get("omitted_mass")),
        _of_residual(metrics.get("ritz_residual")),
        _of_range(metrics.get("range_change")),
        _of_gap(metrics.get("eigenvalue_gap")),
        _of_simplex(metrics.get("largest_simplex_gap")),
        _of_rank(metrics),
        _of_discarded(metrics),
        _of_duplicates(metrics.get("duplicates")),
        _of_step(metrics.get("largest_step")),
        _of_alpha0(metrics),
        _of_mass(metrics.get("mass_without_topic")),
    ]
    return [sentence for sentence in found if sentence]


def _of_sum(total: float | None) -> str:
    low, high = TRUSTED_SUM
    if total is None or low <= total <= high:
        return ""
    return (
        f"sum of topic correlations {total:.2f}, not near 1: anchors or rectification unreliable; try more "
        "--max-iterations, a higher --anchor-min-df or fewer topics"
    )


def _of_change(rectification: Mapping[str, Any]) -> str:
    change = rectification.get("change")
    if change is None or rectification.get("converged", True) or change <= LARGEST_CHANGE:
        return ""
    return (
        f"the rectification was still changing by {change:.1e} in its last step: topics not settled; try more "
        "--max-iterations"
    )


def _of_omitted(omitted: Mapping[str, float] | None) -> str:
    # The estimate must be above the threshold beyond its own error.
    if omitted is None or omitted["value"] - 2 * omitted["standard_error"] <= LARGEST_OMITTED_MASS:
        return ""
    return (
        f"{omitted['value']:.1%} of all co-occurrence stays negative after rectification: rare words pull the topics; "
        "try a smaller vocabulary or fewer topics"
    )


def _of_residual(residual: float | None) -> str:
    if residual is None or residual <= LARGEST_RESIDUAL:
        return ""
    return (
        f"residual of the eigenpairs {residual:.0%} of their eigenvalue: the last topics are uncertain; scan with a "
        "larger --max-topics or more --power-steps, or ask for fewer topics"
    )


def _of_range(change: float | None) -> str:
    if change is None or change <= LARGEST_RANGE_CHANGE:
        return ""
    return (
        f"the second scan moved the eigenpairs by {change:.0%}: the first missed part of the range; scan with a larger "
        "--max-topics or larger --partition-nonzeros"
    )


def _of_gap(gap: float | None) -> str:
    if gap is None or gap >= SMALLEST_GAP:
        return ""
    return (
        f"the next eigenvalue is within {max(gap, 0.0):.1e} of the last one used: K cuts through equals; try one topic "
        "more or less"
    )


def _of_simplex(gap: float | None) -> str:
    if gap is None or gap <= LARGEST_SIMPLEX_GAP:
        return ""
    return (
        f"duality gap {gap:.1e} in the shares of some word: its topics are not exact; try fewer topics or a higher "
        "--anchor-min-df"
    )


def _of_rank(metrics: Mapping[str, Any]) -> str:
    rank, asked = metrics.get("effective_rank"), metrics.get("topics_asked")
    if rank is None or asked is None or rank >= asked:
        return ""
    return f"the second moment carries {rank} topics, {asked} were asked for; use fewer, or a larger corpus"


def _of_discarded(metrics: Mapping[str, Any]) -> str:
    discarded = metrics.get("discarded")
    if not discarded:
        return ""
    return (
        f"{discarded} of {metrics['topics_found'] + discarded} components are no topics and were left out; use fewer "
        "topics, or another --alpha0"
    )


def _of_duplicates(duplicates: int | None) -> str:
    return f"{duplicates} topics repeat others; use fewer topics" if duplicates else ""


def _of_step(step: float | None) -> str:
    if step is None or step <= LARGEST_STEP:
        return ""
    return f"a component still moved by {step:.1g} in its last step: topics may depend on --seed; use fewer topics"


def _of_alpha0(metrics: Mapping[str, Any]) -> str:
    if not metrics.get("alpha0_at_end"):
        return ""
    return (
        f"alpha0 is {metrics['alpha0']:g}, where the search for it ends: give --alpha0, or use fewer topics"
    )


def _of_mass(mass: float | None) -> str:
    if mass is None or mass <= LARGEST_MASS_WITHOUT_TOPIC:
        return ""
    return (
        f"{mass:.1%} of all tokens are of words that no topic was found for, each topic got the corpus' share of them: "
        "documents of fewer than three tokens do not count, use --engine lr-jsmf; else try a smaller vocabulary"
    )
