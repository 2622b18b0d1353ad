"""The certificates of a model as questions and answers that need no paper beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streaming_jsmf.evaluation.glossary import lookup
from streaming_jsmf.reporting.contents import Check
from streaming_jsmf.topics import certificates as limits

#: By the path of a certificate: question, largest value that is good, and how a value is said.
_AT_MOST: dict[str, tuple[str, float, Callable[[float], str]]] = {
    "ritz_residual": (
        "How far are the eigenvectors, which everything is computed from, from exact?",
        limits.LARGEST_RESIDUAL,
        lambda value: f"{value:.1%} of the eigenvalue",
    ),
    "range_change": (
        "By how much did the second look at the documents change what the first had found?",
        limits.LARGEST_RANGE_CHANGE,
        lambda value: f"{value:.1%}",
    ),
    "rectification.omitted_mass.value": (
        "How much of the matrix still says that words meet less often than never?",
        limits.LARGEST_OMITTED_MASS,
        lambda value: f"{value:.2%}",
    ),
    "largest_simplex_gap": (
        "How far are the words from the best mixtures of topics that they can be written as?",
        limits.LARGEST_SIMPLEX_GAP,
        lambda value: f"{value:.0e}",
    ),
    "largest_step": (
        "Had the tensor's components come to rest?",
        limits.LARGEST_STEP,
        lambda value: f"{value:.0e} in the last step",
    ),
    "mass_without_topic": (
        "How much of the text is of words that no topic was found for?",
        limits.LARGEST_MASS_WITHOUT_TOPIC,
        lambda value: f"{value:.2%}",
    ),
}


def checks_of(metrics: Mapping[str, Any]) -> tuple[Check, ...]:
    """The certificates that a model has, in plain words; thresholds are those of its warnings.

    Examples
    --------
    >>> [check] = checks_of({"topic_topic_sum": 1.2})
    >>> check.answer, check.good, check.passed
    ('1.20', '0.9 to 1.1', False)
    """
    found = [
        _of_sum(metrics.get("topic_topic_sum")),
        _of_rest(metrics.get("rectification") or {}),
        *(_at_most(lookup(metrics, path), *of) for path, of in _AT_MOST.items()),
        _of_gap(metrics.get("eigenvalue_gap")),
    ]
    return tuple(check for check in found if check)


def _at_most(value: float | None, question: str, limit: float, text: Callable[[float], str]) -> Check | None:
    if value is None:
        return None
    return Check(question, text(value), f"at most {text(limit)}", value <= limit)


def _of_sum(total: float | None) -> Check | None:
    if total is None:
        return None
    low, high = limits.TRUSTED_SUM
    question = "Do the shares of all pairs of topics add up to one, as shares should?"
    return Check(question, f"{total:.2f}", f"{low:g} to {high:g}", low <= total <= high)


def _of_rest(rectification: Mapping[str, Any]) -> Check | None:
    change = rectification.get("change")
    if change is None:
        return None
    passed = bool(rectification.get("converged", True)) or change <= limits.LARGEST_CHANGE
    question = "Had the rectification, which takes out what no counts could be, come to rest?"
    return Check(question, f"{change:.0e} in the last step", f"at most {limits.LARGEST_CHANGE:.0e}", passed)


def _of_gap(gap: float | None) -> Check | None:
    if gap is None:
        return None
    question = "Is there a step behind the last eigenvalue that was used, or does K cut through equals?"
    good = f"at least {limits.SMALLEST_GAP:.2%}"
    return Check(question, f"{gap:.2%}", good, gap >= limits.SMALLEST_GAP)
