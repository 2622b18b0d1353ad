"""Eigenpairs of a sampled store, from C Q and C W over all documents and, outside their span, from the sample."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.config.scan import LARGEST_SAMPLE
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.linalg.eigen import GUARD_VECTORS
from streaming_jsmf.linalg.panels import each
from streaming_jsmf.linalg.sampled import SampleParts, certify, corrected_eigenpairs
from streaming_jsmf.moments.stages.directions import eigenpairs_memory
from streaming_jsmf.moments.stages.sample import WORDS, read_sample
from streaming_jsmf.moments.store import Stage, Store
from streaming_jsmf.storage.arrays import Variable
from streaming_jsmf.timing import span

logger = logging.getLogger(__name__)

#: A larger estimated error is logged as a warning, with a way to reduce it.
LARGEST_ERROR = 0.1

#: The row of a word in fewer documents of the sample is noise.
FEW_DOCUMENTS = 5


class EigenpairsStage(Stage):
    """Eigenpairs of a sampled store; no scan."""

    name = "eigenpairs"
    variables: ClassVar = {
        "eigenvectors": Variable(
            ("word", "eigenpair"), "leading algebraic eigenvectors, from the sample and C Q", "V"
        ),
        "eigenvalues": Variable(("eigenpair",), "their eigenvalues"),
    }
    inputs = ("basis", "projection", "directions", "refinement")
    reads_corpora = False

    def wanted(self, settings: ScanSettings) -> bool:
        """True with a sample and C Q."""
        return settings.range_finder == "sample" and settings.scans > 1

    def final(self, store: Store, folded: Iterator[PartialResult]) -> PartialResult:
        """Eigenpairs for the largest number of topics plus ten, with an error estimate."""
        del folded
        share = store.manifest.sample_share
        assert share is not None, "a sampled store"
        parts = SampleParts.of(read_sample(store))
        diagonal = store.read("diagonal")
        basis, product = _exact_products(store)
        most, seen = store.settings.max_topics, words_seen(store)
        with span("basis"):
            corrected = corrected_eigenpairs(parts.fitted, diagonal, basis, product, most + GUARD_VECTORS)
            width = store.array_digest("basis").shape[1]
            certificate = certify(parts, share, basis, product, corrected, most, width)
        pairs, _ = corrected
        if certificate.estimated_error > LARGEST_ERROR:
            logger.warning("%s", _advice(store, certificate.estimated_error))
        return PartialResult(
            {"eigenvectors": pairs.vectors, "eigenvalues": pairs.values},
            {**asdict(certificate), **asdict(seen)},
        )

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        """See ``eigenpairs_memory``; the columns of Q and W are also held separately while they are joined."""
        more = settings.max_topics + GUARD_VECTORS
        return eigenpairs_memory(n_words, settings, settings.basis_width + more)


def _exact_products(store: Store) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[Q, W] and [C Q, C W], whose last columns are the directions and their products, if any."""
    names = ("basis", "directions", "projection", "refinement")
    basis, directions, product, refinement = each(store.read, names)
    return np.hstack([basis, directions]), np.hstack([product, refinement])


@dataclass(frozen=True)
class WordsSeen:
    """Words in ``FEW_DOCUMENTS`` or more documents of the corpus but in fewer of the sample.

    Their shares of all words in at least ``FEW_DOCUMENTS`` documents, and of the tokens of those.
    """

    words_hardly_seen: float
    tokens_hardly_seen: float


def words_seen(store: Store) -> WordsSeen:
    """Shares of the words that the sample says little about."""
    there, few = store.read("document_frequency") >= FEW_DOCUMENTS, hardly_seen(store)
    tokens: NDArray[np.float64] = store.read("term_count")
    return WordsSeen(
        few.size / max(int(np.count_nonzero(there)), 1),
        float(tokens[few].sum()) / max(float(tokens[there].sum()), 1.0),
    )


def hardly_seen(store: Store) -> NDArray[np.int64]:
    """Ids of the words that ``WordsSeen`` counts, by decreasing document frequency."""
    frequency = store.read("document_frequency")
    in_sample = np.bincount(store.read(WORDS), minlength=store.n_words)
    few = np.flatnonzero((frequency >= FEW_DOCUMENTS) & (in_sample < FEW_DOCUMENTS))
    return np.asarray(few[np.argsort(-frequency[few], kind="stable")])


def _advice(store: Store, error: float) -> str:
    told = f"{store.path}: the sample leaves the eigenpairs an error of about {error:.2g}"
    if store.manifest.base is not None:
        return f"{told}, since documents were added; make the basis of all of them with scan --rebase"
    share = store.manifest.sample_share or 1.0
    wider = min(share * (error / LARGEST_ERROR) ** 2, 1.0)
    hint = "--range factors" if wider > LARGEST_SAMPLE else f"--sample-share {wider:.2g}"
    return f"{told}; scan into another path with {hint}"
