"""Thresholds of the certificates of a model, and a warning for each certificate that exceeds its threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Metrics = Mapping[str, Any]

#: The sum of A is 1 up to errors of the anchor rows; real corpora with the default guards stay within a tenth.
TRUSTED_SUM = (0.9, 1.1)

#: Relative change of Y Y' in the last step of the rectification: ten times the default tolerance.
LARGEST_CHANGE = 1e-4

#: Relative residual of a Ritz pair among the first K: three times that of real corpora at K = 50.
LARGEST_RESIDUAL = 0.25

#: How far scan 2 may move Y Y' from that of scan 1.
LARGEST_RANGE_CHANGE = 0.2

#: (lambda_K - lambda_K+1) / lambda_K below which K separates nearly equal eigenvalues.
SMALLEST_GAP = 1e-3

#: Share of all co-occurrence that the rectification leaves negative.
LARGEST_OMITTED_MASS = 0.01

#: Duality gap of the simplex problems, which are solved to rounding.
LARGEST_SIMPLEX_GAP = 1e-6

#: Last step of a component of the tensor, of length 1, above which the component has not converged.
LARGEST_STEP = 1e-6

#: Share of the tokens whose words are in no component of the tensor.
LARGEST_MASS_WITHOUT_TOPIC = 0.01


def warnings_of(metrics: Metrics) -> list[str]:
    """Why a model is doubtful, by its ``metrics``, and what to try; usually empty.

    Certificates that the engine does not have are skipped.
    """
    warnings = []
    for find, is_doubtful, text in _WARNINGS:
        value = find(metrics)
        if value is not None and is_doubtful(value):
            warnings.append(text.format(value, **metrics))
    return warnings


def _last_change(metrics: Metrics) -> float | None:
    rectification = metrics.get("rectification") or {}
    return None if rectification.get("converged", True) else rectification.get("change")


def _omitted_mass(metrics: Metrics) -> float | None:
    """The estimate, if it exceeds the threshold by more than its own error."""
    omitted = (metrics.get("rectification") or {}).get("omitted_mass")
    if omitted is None or omitted["value"] - 2 * omitted["standard_error"] <= LARGEST_OMITTED_MASS:
        return None
    return float(omitted["value"])


def _gap(metrics: Metrics) -> float | None:
    gap = metrics.get("eigenvalue_gap")
    return None if gap is None or gap >= SMALLEST_GAP else max(gap, 0.0)


def _missing_rank(metrics: Metrics) -> int | None:
    rank, asked = metrics.get("effective_rank"), metrics.get("topics_asked")
    return None if rank is None or asked is None or rank >= asked else rank


def _components(metrics: Metrics) -> int | None:
    discarded = metrics.get("discarded")
    return metrics["topics_found"] + discarded if discarded else None


def _metric(name: str) -> Callable[[Metrics], Any]:
    return lambda metrics: metrics.get(name)


def _above(limit: float) -> Callable[[Any], bool]:
    return lambda value: value > limit


def _always(_: Any) -> bool:
    return True


#: How to find a value in the metrics, whether it is doubtful, and the warning, which may name other metrics.
_WARNINGS: tuple[tuple[Callable[[Metrics], Any], Callable[[Any], bool], str], ...] = (
    (
        _metric("topic_topic_sum"),
        lambda total: not TRUSTED_SUM[0] <= total <= TRUSTED_SUM[1],
        "sum of topic correlations {:.2f}, not near 1: anchors or rectification unreliable; try more "
        "--max-iterations, a higher --anchor-min-df or fewer topics",
    ),
    (
        _last_change,
        _above(LARGEST_CHANGE),
        "the rectification did not converge and changed by {:.1e} in its last step; try more --max-iterations",
    ),
    (
        _omitted_mass,
        _always,
        "{:.1%} of all co-occurrence stays negative after rectification: rare words distort the topics; "
        "try a smaller vocabulary or fewer topics",
    ),
    (
        _metric("ritz_residual"),
        _above(LARGEST_RESIDUAL),
        "residual of the eigenpairs {:.0%} of their eigenvalue: the last topics are uncertain; scan with a "
        "larger --max-topics or more --power-steps, or use fewer topics",
    ),
    (
        _metric("range_change"),
        _above(LARGEST_RANGE_CHANGE),
        "the second scan moved the eigenpairs by {:.0%}: the first missed part of the range; scan with a larger "
        "--max-topics or larger --partition-nonzeros",
    ),
    (
        _gap,
        _always,
        "the next eigenvalue is within {:.1e} of the last one used: K separates nearly equal eigenvalues; try one "
        "topic more or less",
    ),
    (
        _metric("largest_simplex_gap"),
        _above(LARGEST_SIMPLEX_GAP),
        "duality gap {:.1e} in the topic shares of a word, which are not exact; try fewer topics or a higher "
        "--anchor-min-df",
    ),
    (
        _missing_rank,
        _always,
        "the second moment carries {} topics, {topics_asked} were asked for; use fewer, or a larger corpus",
    ),
    (
        _components,
        _always,
        "{discarded} of {} components are not topics and were discarded; use fewer topics, or another --alpha0",
    ),
    (_metric("duplicates"), bool, "{} topics repeat others; use fewer topics"),
    (
        _metric("largest_step"),
        _above(LARGEST_STEP),
        "a component still moved by {:.1g} in its last step: topics may depend on --seed; use fewer topics",
    ),
    (
        _metric("alpha0_at_end"),
        bool,
        "alpha0 is {alpha0:g}, at the end of the range that is searched: give --alpha0, or use fewer topics",
    ),
    (
        _metric("mass_without_topic"),
        _above(LARGEST_MASS_WITHOUT_TOPIC),
        "{:.1%} of all tokens are of words without a topic, which every topic got by their share of the corpus: "
        "documents of fewer than three tokens do not count, use --engine lr-jsmf; else try a smaller vocabulary",
    ),
)
