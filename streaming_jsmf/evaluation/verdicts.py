"""Thresholds of certificates, and warnings about models and topics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streaming_jsmf.errors import option
from streaming_jsmf.evaluation.inputs import lookup
from streaming_jsmf.inference.completion import Completion
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.topics.edits import EditedTopics

#: The sum of A differs from 1 only by errors of the anchors' rows: 1.00 to 1.05 for news, UN speeches, KOS and NIPS
#: with 3 to 100 topics. The words of topics do not depend on it, nor do the correlations by document shares of polish.
TRUSTED_SUM = (0.8, 1.25)
#: Relative change of Y Y' in the last step of the rectification: ten times the default tolerance.
LARGEST_CHANGE = 1e-4
#: Relative residual of the first K Ritz pairs: three times the value of real corpora at K = 50.
LARGEST_RESIDUAL = 0.25
#: Largest relative change of Y Y' from scan 1 to scan 2.
LARGEST_RANGE_CHANGE = 0.2
#: Below this (lambda_K - lambda_K+1) / lambda_K, K separates nearly equal eigenvalues.
SMALLEST_GAP = 1e-3
#: Share of the co-occurrence mass that remains negative after the rectification.
LARGEST_OMITTED_MASS = 0.01
#: Duality gap of the simplex problems, which are solved to rounding error.
LARGEST_SIMPLEX_GAP = 1e-6
#: Last step of a tensor component (of length 1); a component that moved more has not converged.
LARGEST_STEP = 1e-6
#: Share of the tokens whose words are in no component of the tensor.
LARGEST_MASS_WITHOUT_TOPIC = 0.01


#: Advice that models of few topics do not get, and what few means.
FEWER_TOPICS, FEW_TOPICS = "fewer topics", 10


class Certificate(NamedTuple):
    """A number that an engine reports about its result.

    ``path`` are its keys in the metrics of a model, joined by dots. ``passes`` decides from the value and all metrics
    whether the value is good; if not, ``warning`` is formatted with the value, the metrics and ``option``, and
    ``advice`` lists what to try. ``question``, ``answer`` (a format of the value) and ``good`` are texts of the report,
    empty if it does not show the certificate.
    """

    path: str
    passes: Callable[[Any, Mapping[str, Any]], bool]
    warning: str
    question: str = ""
    answer: str = ""
    good: str = ""
    advice: tuple[str, ...] = ()


def _omitted_mass_passes(omitted: Mapping[str, float], _metrics: Mapping[str, Any]) -> bool:
    """Fails only if the estimate exceeds the threshold by more than its error."""
    return omitted["value"] - 2 * omitted["standard_error"] <= LARGEST_OMITTED_MASS


CERTIFICATES = (
    Certificate(
        "topic_topic_sum",
        lambda total, metrics: "polish" in metrics or TRUSTED_SUM[0] <= total <= TRUSTED_SUM[1],
        "how often topics occur together is uncertain (estimated shares of all pairs add up to {value:.2f} instead "
        "of 1)",
        advice=("to polish the topics", "more {option.max_iterations}", FEWER_TOPICS),
    ),
    Certificate(
        "rectification.change",
        lambda change, metrics: metrics["rectification"].get("converged", True) or change <= LARGEST_CHANGE,
        "the result was still changing by {value:.1e} in the last step and is not final; try more "
        "{option.max_iterations}",
        "Had the computation settled when it stopped?",
        "changed by {value:.0e}",
        f"at most {LARGEST_CHANGE:.0e}",
    ),
    Certificate(
        "rectification.omitted_mass",
        _omitted_mass_passes,
        "{value[value]:.1%} of the pairs of words have impossible (negative) counts in the model: rare words "
        "distort the topics",
        "How many pairs of words have impossible (negative) counts in the model?",
        "{value[value]:.2%}",
        f"at most {LARGEST_OMITTED_MASS:.2%}",
        ("a smaller vocabulary", FEWER_TOPICS),
    ),
    Certificate(
        "ritz_residual",
        lambda residual, _: residual <= LARGEST_RESIDUAL,
        "the summary of the corpus has an error of {value:.0%} where it is least exact: the smallest "
        "topics are uncertain",
        "How exact is the summary of the corpus from which the topics are computed?",
        "error {value:.1%}",
        f"at most {LARGEST_RESIDUAL:.1%}",
        ("a scan for more topics ({wider})", FEWER_TOPICS),
    ),
    Certificate(
        "range_change",
        lambda change, _: change <= LARGEST_RANGE_CHANGE,
        "the second pass over the documents changed their summary by {value:.0%}: the first missed a part",
        "Did the second pass over the documents change much?",
        "{value:.1%}",
        f"at most {LARGEST_RANGE_CHANGE:.1%}",
        ("a scan for more topics ({wider})",),
    ),
    Certificate(
        "eigenvalue_gap",
        lambda gap, _: gap >= SMALLEST_GAP,
        "one topic more would be supported as well as the last one (difference {value:.1e}), so that small topics may "
        "depend on chance; try one topic more or less",
        "How much better is the last topic supported than one more would be?",
        "{value:.2%}",
        f"at least {SMALLEST_GAP:.2%}",
    ),
    Certificate(
        "largest_simplex_gap",
        lambda gap, _: gap <= LARGEST_SIMPLEX_GAP,
        "the topics of some word are not exact (error {value:.1e})",
        "How exactly is each word divided among the topics?",
        "error {value:.0e}",
        f"at most {LARGEST_SIMPLEX_GAP:.0e}",
        ("a higher {option.anchor_min_df}", FEWER_TOPICS),
    ),
    Certificate(
        "effective_rank",
        lambda rank, metrics: rank >= (metrics.get("topics_asked") or 0),
        "the second moment supports {value} topics, {topics_asked} were asked for; use fewer, or a larger corpus",
    ),
    Certificate(
        "discarded",
        lambda number, _: not number,
        "{value} of the topics asked for were not found, {topics_found} were; use fewer topics or "
        "another {option.alpha0}",
    ),
    Certificate("duplicates", lambda number, _: not number, "{value} topics repeat others; use fewer topics"),
    Certificate(
        "largest_step",
        lambda step, _: step <= LARGEST_STEP,
        "a topic still moved by {value:.1g} in its last step: topics may depend on {option.seed}",
        "Had the computation settled when it stopped?",
        "changed by {value:.0e}",
        f"at most {LARGEST_STEP:.0e}",
        ("more {option.iterations}", FEWER_TOPICS),
    ),
    Certificate(
        "alpha0_at_end",
        lambda at_end, _: not at_end,
        "alpha0 is {alpha0:g}, where the search for it ends: give {option.alpha0}, or use fewer topics",
    ),
    Certificate(
        "mass_without_topic",
        lambda mass, _: mass <= LARGEST_MASS_WITHOUT_TOPIC,
        "{value:.1%} of all tokens are of words without a topic, and each topic got the corpus' share of them: "
        "documents of fewer than three tokens do not count, use the engine lr-jsmf; else try a smaller vocabulary",
        "How much of the text consists of words for which no topic was found?",
        "{value:.2%}",
        f"at most {LARGEST_MASS_WITHOUT_TOPIC:.2%}",
    ),
)


def warnings_of(metrics: Mapping[str, Any], n_topics: int | None = None) -> list[str]:
    """Warnings about a model of ``n_topics`` from its ``metrics``, with advice; usually empty."""

    def advice(certificate: Certificate) -> str:
        few = n_topics is not None and n_topics <= FEW_TOPICS
        *others, last = [tip for tip in certificate.advice if not (few and tip == FEWER_TOPICS)] or [""]
        tips = f"; try {', '.join(others)}{' or ' if others else ''}{last}" if last else ""
        wider = option.max_topics if n_topics is None else option.max_topics(2 * n_topics)
        return tips.format(option=option, wider=wider)

    return [
        certificate.warning.format(value=value, option=option, **metrics) + advice(certificate)
        for certificate, value in _reported(metrics)
        if not certificate.passes(value, metrics)
    ]


class Check(NamedTuple):
    """A certificate in plain words: question, answer, which answers are good, and whether this one is."""

    question: str
    answer: str
    good: str
    passed: bool


def checks_of(metrics: Mapping[str, Any]) -> tuple[Check, ...]:
    """The certificates of a model that have an explanation."""
    return tuple(
        Check(
            certificate.question,
            certificate.answer.format(value=value),
            certificate.good,
            certificate.passes(value, metrics),
        )
        for certificate, value in _reported(metrics)
        if certificate.question
    )


def _reported(metrics: Mapping[str, Any]) -> list[tuple[Certificate, Any]]:
    values = [(certificate, lookup(metrics, certificate.path)) for certificate in CERTIFICATES]
    return [(certificate, value) for certificate, value in values if value is not None]


def perplexity_warnings(completion: Completion | None) -> list[str]:
    """A warning if the topics predict documents no better than word frequencies do."""
    if completion is None or completion.perplexity < completion.unigram_perplexity:
        return []
    return [
        f"perplexity {completion.perplexity:.4g} is not below that of the word frequencies alone "
        f"({completion.unigram_perplexity:.4g}): the topics do not predict these documents; try another number of "
        "topics, or documents of the same kind as those of the model"
    ]


#: Number of words of a topic that ``topic_warnings`` checks.
WORDS = 10
#: A topic with at least this share of numbers among its words consists mostly of numbers.
NUMBERS = 0.5
#: Largest median document frequency of the words of a topic that comes from only a few documents, and the largest as a
#: share of all documents: ten corpora have a few sound topics whose median is 1 % of 1,000 to 2,000 documents.
FEW_DOCUMENTS, FEW_OF_ALL = 5, 0.01
#: A word is rare below this multiple of the smallest document frequency of all words. A topic of a few documents also
#: has at least half of its words rare and a median below this share: 0.08 % for uuencoded files, 1 % for sound topics.
RARE, RARE_SHARE = 5, 0.0025
#: Median of ``spelling_ranks`` up to which words are spelled unlike the rest, if half of them occur in at most this
#: share of the documents: 0.004 and 0.08 % for uuencoded files. Of the sound topics of ten corpora
#: (benchmarks/topic_warnings.py), only one of country names in all UN speeches has a lower rank, 0.009, with 13 %.
UNUSUAL_SPELLING, UNUSUAL_SHARE = 0.02, 0.05
#: Number of words, the most frequent ones, whose spelling is compared.
COMPARED_WORDS = 20_000
#: Affinity (Hellinger distance 0.39) from which a topic counts as a copy of a larger one.
COPY = 0.85


@dataclass(frozen=True, eq=False)
class Frequency:
    """How frequent the words of topics are, and how usual their spelling is.

    ``of_words`` (K, n) are document frequencies of the most probable words, ``spelling`` (K, n) their
    ``spelling_ranks``, ``smallest`` is the smallest frequency of any word, and ``n_documents`` is None if unknown.
    """

    of_words: Integers
    spelling: Floats
    smallest: int
    n_documents: int | None = None

    @classmethod
    def of(cls, arrays: Mapping[str, Any], n_documents: int | None) -> Frequency | None:
        """From the arrays of a model; None if it has no document frequencies."""
        if (frequency := arrays.get("document_frequency")) is None:
            return None
        listed = arrays["prominent_words"][:, :WORDS]
        spelling = spelling_ranks(arrays["word"], frequency, listed)
        return cls(frequency[listed], spelling, int(frequency.min()), n_documents)

    def doubts(self, topic: int) -> Iterator[str]:
        """Reasons to doubt the words of a topic."""
        found, total = self.of_words[topic][:WORDS], self.n_documents or math.inf
        half, rare = float(np.median(found)), int((np.asarray(found) < RARE * self.smallest).sum())
        if half <= min(FEW_DOCUMENTS, FEW_OF_ALL * total):
            yield f"half of its words occur in at most {half:g} documents"
        elif total < math.inf and 2 * rare >= len(found) and half < RARE_SHARE * total:
            yield f"half of its words occur in at most {half:g} of {total:,} documents"
        if np.median(self.spelling[topic][:WORDS]) <= UNUSUAL_SPELLING and half <= UNUSUAL_SHARE * total:
            yield "its words are spelled unlike the others (encoded data, or another language)"


def spelling_ranks(words: Sequence[str], frequency: Integers, chosen: Integers) -> Floats:
    """Share of all words, weighted by document frequency, that are spelled less usually than each of the ``chosen``.

    The spelling of a word is the mean log probability of its characters given the one before, counted in the most
    frequent words. Half of the weight of a word counts as below itself. ``chosen`` are ids of words; the result has the
    same shape.
    """
    ids = np.union1d(np.argsort(-frequency, kind="stable")[:COMPARED_WORDS], chosen)
    weight = np.maximum(frequency[ids], 1).astype(float)  # 0 where only documents of one token have a word
    text = "\0" + "".join(str(words[i]).replace("\0", " ") + "\0" for i in ids)
    _, codes = np.unique(
        np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32), return_inverse=True
    )
    before, after = codes[:-1], codes[1:]
    word = np.cumsum(before == 0) - 1
    pairs, pair = np.unique(before * (codes.max() + 1) + after, return_inverse=True)
    of_pair = np.bincount(pair, weight[word], len(pairs))[pair]
    single = np.bincount(after, weight[word])
    # As many occurrences as there are characters are added to each, distributed as the characters.
    smoothing = len(single) * single / single.sum()
    score = np.log((of_pair + smoothing[after]) / (single[before] + len(single)))
    score = np.bincount(word, score) / np.bincount(word)
    order = np.argsort(score, kind="stable")
    ranks = np.empty(len(ids))
    ranks[order] = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    return np.asarray(ranks[np.searchsorted(ids, chosen)])


def topic_warnings(
    words: Sequence[Sequence[str]],
    shares: Floats,
    affinity: Floats | None = None,
    *,
    frequency: Frequency | None = None,
    npmi: Sequence[float | None] | None = None,
    numbers: Sequence[int] | None = None,
) -> list[tuple[str, ...]]:
    """Reasons to doubt each topic, one phrase each; usually empty.

    Reports topics of numbers, topics of a few documents, topics of encoded data, topics whose words do not co-occur,
    and near copies. ``words`` are the most probable words of K topics, ``shares`` (K,) is p(topic), ``affinity`` (K, K)
    the sums over words of sqrt(p(word | i) p(word | j)). ``affinity``, ``frequency`` and ``npmi`` (K,) are used if
    known. ``numbers`` (K,) are the displayed topic numbers, by default from 0.

    Examples
    --------
    >>> words = [["1994", "1995", "may", "2001"], ["ship", "sea"]]
    >>> topic_warnings(words, np.array([0.1, 0.9]))
    [('mostly numbers',), ()]
    """
    warnings = []
    for topic, listed in enumerate(words):
        found = []
        if sum(map(_is_number, listed[:WORDS])) >= NUMBERS * len(listed[:WORDS]):
            found.append("mostly numbers")
        found += [] if frequency is None else frequency.doubts(topic)
        score = None if npmi is None else npmi[topic]
        if score is not None and score < 0:
            found.append("its words occur together less often than by chance")
        larger = [k for k in range(len(words)) if (-shares[k], k) < (-shares[topic], topic)]
        if affinity is not None and larger:
            nearest = max(larger, key=lambda other: (float(affinity[topic, other]), -other))
            if affinity[topic, nearest] >= COPY:
                found.append(f"nearly a copy of topic {nearest if numbers is None else numbers[nearest]}")
        warnings.append(tuple(found))
    return warnings


def doubts_about(
    shown: EditedTopics, npmi: Sequence[float | None] | None = None, affinity: Floats | None = None
) -> list[tuple[str, ...]]:
    """The ``topic_warnings`` about the shown topics of a model, with what is known of them."""
    arrays = {**shown.model.arrays, "word": shown.words}
    return topic_warnings(
        shown.spelled(arrays["prominent_words"]),
        arrays["topic_probability"],
        affinity,
        frequency=Frequency.of(arrays, shown.model.metrics.get("n_documents")),
        npmi=npmi,
        numbers=shown.numbers,
    )


def doubt(topic: int, name: str, warnings: Sequence[str]) -> str:
    """The warnings about a topic as a sentence."""
    return f"topic {topic} ({name}): {'; '.join(warnings)}"


def _is_number(word: str) -> bool:
    return word[:1].isdigit() and 2 * sum(map(str.isdigit, word)) > len(word)
