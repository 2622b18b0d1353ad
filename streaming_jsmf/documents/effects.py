"""Effects of covariates of documents on their topic shares: linear regressions with robust errors, in three passes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import stdtrit

from streaming_jsmf.config import EffectsRequest, takes
from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.documents.cells import MOST_SUMS
from streaming_jsmf.documents.covariates import Covariate, Covariates, decimal_years
from streaming_jsmf.documents.model_shares import AnyShares, ModelShares
from streaming_jsmf.documents.shares import KNOWN_TOKENS, frame
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.inference.share_draws import draw_shares
from streaming_jsmf.inference.unbiased_shares import estimating
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg.least_squares import NormalEquations, Scores, Solution, pooled
from streaming_jsmf.linalg.panels import panels, ratio
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.topics.store import AnyModel, corpus_beside

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

#: Points of a curve over the range of a number.
POINTS = 50
#: Numbers of responses in memory at a time.
MOST_RESPONSES = 2**21

#: Reads columns: yields a table of them, the responses (M, D G) of its documents, and which documents have any (M,).
Responses: TypeAlias = Callable[[Sequence[str]], Iterator[tuple[Any, Floats, NDArray[np.bool_]]]]


@dataclass(frozen=True)
class Effects:
    """Coefficients of G topics for the p terms of a formula, with their covariances.

    ``coefficients`` are (G, p), zero for the ``dropped`` terms, which depend on others; ``covariances`` are (G, p, p),
    and ``quantile`` is the number of standard errors on each side in an interval of 95 %. ``documents`` were used.
    """

    formula: str
    topics: tuple[int, ...]
    labels: tuple[str, ...]
    terms: tuple[str, ...]
    coefficients: Floats
    covariances: Floats
    documents: int
    quantile: float
    dropped: tuple[str, ...]
    covariates: Covariates = field(repr=False)

    @property
    def errors(self) -> Floats:
        """Standard errors of the coefficients, (G, p)."""
        return np.sqrt(np.diagonal(self.covariances, axis1=1, axis2=2))

    @property
    def frame(self) -> pd.DataFrame:
        """A row per topic and term, with the columns ``topic, label, term, estimate, error, lower, upper, n``.

        Dropped terms have no estimate.
        """
        return frame(self.table())

    def table(self) -> Any:
        """``frame`` as an Arrow table."""
        unknown = np.tile(np.isin(self.terms, self.dropped), len(self.topics))
        columns: dict[str, Any] = self._topics(len(self.terms))
        columns["term"] = pa.array([*self.terms] * len(self.topics), pa.string())
        estimates = {
            "estimate": self.coefficients,
            "error": self.errors,
            **self._interval(self.coefficients, self.errors),
        }
        columns |= {name: pa.array(values.ravel(), mask=unknown) for name, values in estimates.items()}
        return pa.table(columns | {"n": np.full(unknown.size, self.documents)})

    def predicted(self, variable: str, at: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return the expected share of each topic over the values of a covariate, with an interval of 95 %.

        A row per topic and value: ``topic``, ``label``, the value, ``share``, ``lower`` and ``upper``. Values are the
        levels of a class, or 50 from the least to the largest number; those in ``at`` take their place. Other
        covariates have the values of ``at``: one, or a list, whose combinations are then further columns. Without, they
        have their median or their most frequent level. Intervals may reach below 0 and above 1, as a linear model does.
        Raises ``InputError`` if there is no such covariate or level.

        Examples
        --------
        >>> effects.predicted("year", at={"party": ["left", "right"]})  # doctest: +SKIP
        """
        values = self._grid(variable, dict(at or {}))
        columns = self.covariates.columns
        design, finite = self.covariates.design.matrix(
            {name: columns[name].as_factor(own) for name, own in values.items()}
        )
        if not finite.all():
            raise InputError(f"{self.formula!r} is infinite or no number for these values")
        shares = self.coefficients @ design.T
        squares = np.einsum("mi,kij,mj->km", design, self.covariances, design)
        numbers = {"share": shares, **self._interval(shares, np.sqrt(np.maximum(squares, 0.0)))}
        found = self._topics(len(design))
        for name in dict.fromkeys([variable, *(at or {})]):
            found[name] = pa.array([*values[name]] * len(self.topics))
        return frame(pa.table(found | {name: pa.array(own.ravel()) for name, own in numbers.items()}))

    def _grid(self, variable: str, given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """The values of all covariates for which shares are expected."""
        columns = self.covariates.columns
        if unknown := [name for name in (variable, *given) if name not in columns]:
            raise InputError(
                f"{unknown[0]!r} is no covariate of {self.formula!r}; it has {', '.join(columns)}"
            )
        wanted = {name: _values_at(columns[name], values) for name, values in given.items()}
        wanted.setdefault(variable, _values_over(columns[variable]))
        wanted |= {name: [_typical(one)] for name, one in columns.items() if name not in wanted}
        rows = zip(*product(*wanted.values()), strict=True)
        return {
            name: np.array(own, object if columns[name].is_text else float)
            for name, own in zip(wanted, rows, strict=True)
        }

    def _topics(self, repeats: int) -> dict[str, Any]:
        return {
            "topic": pa.array(np.repeat(np.array(self.topics, np.int64), repeats)),
            "label": pa.array([label for label in self.labels for _ in range(repeats)], pa.string()),
        }

    def _interval(self, values: Floats, errors: Floats) -> dict[str, Floats]:
        return {"lower": values - self.quantile * errors, "upper": values + self.quantile * errors}

    def _repr_html_(self) -> str:
        return str(self.frame.to_html(index=False))


def _values_over(covariate: Covariate) -> list[Any]:
    """The levels, or numbers from the least to the largest."""
    return (
        covariate.ordered_levels
        if covariate.has_levels
        else [*np.linspace(covariate.low, covariate.high, POINTS)]
    )


def _typical(covariate: Covariate) -> Any:
    """The most frequent level, or the median."""
    levels = covariate.levels
    return max(sorted(levels), key=lambda level: levels[level]) if covariate.has_levels else covariate.median


def _values_at(covariate: Covariate, given: Any) -> list[Any]:
    """The values of ``at``, each a level or a number."""
    values = [*given] if isinstance(given, list | tuple | np.ndarray | range) else [given]
    found = []
    for value in values:
        known: Any = str(value).lower() if isinstance(value, bool) else value
        if covariate.is_date and isinstance(value, str):
            known = decimal_years(np.array([value], "datetime64[s]"))[0]
        try:
            known = str(known) if covariate.is_text else float(known)
        except (TypeError, ValueError):
            raise InputError(f"the value of {covariate.name!r} is {value!r}; give a number") from None
        if covariate.has_levels and known not in covariate.levels:
            listed = ", ".join(map(str, covariate.ordered_levels[:20]))
            raise InputError(f"{covariate.name!r} has no level {value!r}; it has {listed}")
        found.append(known)
    return found


@takes(EffectsRequest)
def effects(model: AnyModel, shares: AnyShares, formula: str, **options: Any) -> Effects:
    """Return the effects of covariates of documents on topic shares: a linear regression for each topic.

    The expected share of a topic is linear in the terms of the formula. Its coefficients are those of least squares for
    unbiased estimates of the shares, which are linear in the word counts of a document, and their errors those of White
    (HC1) or by ``cluster``; these contain what few words leave unknown about the shares of a document. Shares
    themselves, the means of posteriors, lie between the truth and the prior, and so do effects on them, the more so the
    shorter documents are. With ``draws`` the method of composition is used instead, which does not correct this.

    Three passes over the columns of covariates, the last two also over the corpus, or over the shares with ``draws``.
    Memory grows with topics, terms and clusters, not with documents.

    Parameters
    ----------
    shares
        The file that ``transform`` wrote with the model, with the covariates of its documents.

    Returns
    -------
    Effects
        ``frame`` has the estimates, and ``predicted`` the expected shares over a covariate.

    Raises
    ------
    InputError
        If the shares are of another model or corpus, the formula cannot be read, or there is no such column or topic.
    StoreError
        If the model, shares or corpus are damaged.

    Examples
    --------
    >>> effects("model", "shares.parquet", "party + bs(year, df=4)").frame  # doctest: +SKIP

    Notes
    -----
    Composition: Treier and Jackman (2008); Roberts et al. (2014). Clusters: Liang and Zeger (1986).
    """
    asked = EffectsRequest.of({**options, "formula": formula})
    found = ModelShares.open(model, shares)
    chosen = _chosen(found, asked.topics)
    groups = [found.shown.groups[place] for place in chosen]
    with single_blas_thread():
        responses = _drawn(found, groups, asked) if asked.draws else _unbiased(found, groups, asked.corpus)
        covariates = Covariates.read(found.file, asked.formula, asked.cluster)
        draws = asked.draws or 1
        _require_room(covariates, len(groups) * draws)
        solution, scores = _regressed(responses, covariates, len(groups) * draws)
    return _effects(found, chosen, covariates, solution, scores, draws)


def _chosen(found: ModelShares, topics: Sequence[int] | None) -> list[int]:
    """Positions of topics among the shown ones."""
    numbers = found.shown.numbers
    if topics is not None and not topics:
        raise InputError(f"{option.topics} is empty; give numbers of topics, such as 3,7")
    for topic in topics or ():
        found.shown.edits.members(topic)
        if topic not in numbers:
            raise InputError(f"topic {topic} is hidden; unhide it first")
    return [*range(len(numbers))] if topics is None else [numbers.index(topic) for topic in topics]


def _require_room(covariates: Covariates, responses: int) -> None:
    terms, clusters = len(covariates.design.terms), len(covariates.clusters)
    if covariates.cluster is not None and clusters < 2:
        raise InputError(
            f"column {covariates.cluster!r} has {clusters} value; errors by cluster need two or more"
        )
    numbers = responses * terms * max(terms, clusters)
    if numbers > MOST_SUMS:
        what = f"{clusters:,} clusters" if clusters > terms else f"{terms:,} terms"
        raise InputError(
            f"{what} are too many for {responses:,} regressions of {terms:,} terms ({numbers:,} sums of at most "
            f"{MOST_SUMS:,}); give fewer {option.topics}, draws or terms"
        )


def _unbiased(found: ModelShares, groups: Sequence[Sequence[int]], corpus: Any) -> Responses:
    """Unbiased estimates of shares from the words of the documents; none for documents without known words."""
    opened, topics = _corpus_of(found, corpus), found.topics
    share = np.asarray(found.shown.stored.arrays["topic_probability"], np.float64)
    weights, mixed = estimating(topics.word_topic, share, groups)
    if mixed:
        numbers = ", ".join(str(groups[place][0]) for place in mixed)
        raise InputError(
            f"topics that cannot be told from the others by their words: {numbers}; merge them with those that have "
            "the same words, or leave them out"
        )
    counted = (topics.word_topic.sum(axis=1) > 0).astype(np.float64)

    def read(columns: Sequence[str]) -> Iterator[tuple[Any, Floats, NDArray[np.bool_]]]:
        for counts, _, table in found.documents(opened, columns):
            tokens = counts @ counted
            for part in panels(len(tokens), max(1, MOST_RESPONSES // len(groups))):
                estimates = ratio(counts[part] @ weights, tokens[part, None])
                yield table.slice(part.start, part.stop - part.start), estimates, tokens[part] > 0

    return read


def _corpus_of(found: ModelShares, corpus: Any) -> Corpus:
    """The corpus of the shares: the given one, or that of the model."""
    path, opened = found.shown.path, None
    if corpus is not None:
        opened = open_corpus(corpus)
    elif path != Path():
        opened = corpus_beside(path)
    if opened is not None and opened.fingerprint == found.file.about.corpus:
        return opened
    name = "the corpus that fit made next to the model" if corpus is None or opened is None else opened.root
    raise InputError(
        f"{found.file.path}: these are not shares of {name}; give {option.corpus('CORPUS')}, which transform read, or "
        f"use {option.draws(25)}, which needs none"
    )


def _drawn(found: ModelShares, groups: Sequence[Sequence[int]], asked: EffectsRequest) -> Responses:
    """Draws from the Dirichlet distributions of CVB0; the prior for documents without known words."""
    if found.file.about.top is not None:
        raise InputError(
            f"{found.file.path} has only the {found.file.about.top} largest shares of each document; draws need all: "
            f"run transform without {option.top}"
        )
    draws, about, prior = asked.draws or 1, found.file.about, float(found.topics.prior.sum())
    height = max(1, MOST_RESPONSES // (about.n_topics * draws))
    seed = np.uint64(asked.seed)

    def read(columns: Sequence[str]) -> Iterator[tuple[Any, Floats, NDArray[np.bool_]]]:
        first = 0
        for theta, whole in found.file.dense([*dict.fromkeys([*columns, KNOWN_TOKENS])]):
            tokens = np.asarray(whole.column(KNOWN_TOKENS), np.float64)
            for part in panels(len(theta), height):
                parameters = theta[part] * (tokens[part, None] + prior)
                drawn = np.empty((draws, *parameters.shape))
                for draw in range(draws):
                    draw_shares(parameters, seed, np.uint64(first + part.start), np.uint64(draw), drawn[draw])
                sums = np.stack([drawn[:, :, list(group)].sum(axis=2) for group in groups], axis=2)
                responses = sums.transpose(1, 0, 2).reshape(len(parameters), -1)
                yield whole.slice(part.start, len(parameters)), responses, np.ones(len(parameters), bool)
            first += len(theta)

    return read


def _regressed(responses: Responses, covariates: Covariates, n_responses: int) -> tuple[Solution, Scores]:
    """Coefficients and scores of all responses, in two passes."""
    change = covariates.change
    normal = NormalEquations.zeros(len(change), n_responses)
    wordless = infinite = 0
    for table, values, known in responses(covariates.names):
        wordless += int((~known).sum())
        chosen, rows, _, dropped = covariates.rows(table.filter(pa.array(known)))
        infinite += dropped
        normal.add(rows, change, values[known][chosen])
    _count("without words of the model", wordless)
    _count("for which a term is infinite or no number", infinite)
    if normal.n_rows <= len(change):
        raise InputError(
            f"the formula has {len(change)} terms for {normal.n_rows} documents; give fewer terms"
        )
    solution = normal.solved()
    scores = Scores.zeros(solution, len(covariates.clusters))
    for table, values, known in responses(covariates.names):
        chosen, rows, codes, _ = covariates.rows(table.filter(pa.array(known)))
        scores.add(rows @ change, values[known][chosen], codes)
    return solution, scores


def _count(what: str, documents: int) -> None:
    if documents:
        logger.warning("effects: documents %s, which are left out: %s", what, f"{documents:,}")


def _effects(
    found: ModelShares,
    chosen: Sequence[int],
    covariates: Covariates,
    solution: Solution,
    scores: Scores,
    draws: int,
) -> Effects:
    """The regressions of the draws combined, in terms of the formula."""
    change, terms, n_topics = covariates.change, covariates.design.terms, len(chosen)
    shape = (len(change), draws, n_topics)
    estimates = np.asarray(solution.coefficients).reshape(shape).transpose(1, 0, 2)
    within = scores.covariances().reshape(draws, n_topics, *change.shape).mean(axis=0)
    mean, covariances = pooled(estimates, within)
    dropped = tuple(term for term, kept in zip(terms, solution.kept, strict=True) if not kept)
    if dropped:
        logger.warning(
            "effects: terms that depend on those before them, or that no document has, are left out: %s",
            ", ".join(dropped),
        )
    freedom = scores.n_clusters - 1 if scores.n_clusters else solution.freedom
    return Effects(
        covariates.design.formula.text,
        tuple(found.shown.numbers[place] for place in chosen),
        tuple(found.shown.names[place] for place in chosen),
        terms,
        (change @ mean).T,
        change @ covariances @ change.T,
        solution.n_rows,
        float(stdtrit(freedom, 0.975)),
        dropped,
        covariates,
    )
