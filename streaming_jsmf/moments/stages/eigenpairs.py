"""Eigenpairs from C Q and C W over all documents and, outside their span, from the documents that the store holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.config.scan import LARGEST_SAMPLE
from streaming_jsmf.errors import option
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.linalg.eigen import GUARD_VECTORS
from streaming_jsmf.moments.stages.base import SampledStage
from streaming_jsmf.moments.stages.directions import corrected_in, eigenpairs_memory
from streaming_jsmf.moments.stages.sample import read_sample, share_of
from streaming_jsmf.moments.store import Store
from streaming_jsmf.storage.arrays import Variable

logger = logging.getLogger(__name__)

#: A larger estimated error is logged as a warning, with a way to reduce it.
LARGEST_ERROR = 0.1

#: The row of a word in fewer documents of the sample is noise.
FEW_DOCUMENTS = 5


class EigenpairsStage(SampledStage):
    """Eigenpairs of a store that holds documents; no scan."""

    name = "eigenpairs"
    variables: ClassVar = {
        "eigenvectors": Variable(("word", "eigenpair"), "leading algebraic eigenvectors", "V"),
        "eigenvalues": Variable(("eigenpair",), "their eigenvalues"),
    }
    inputs = ("basis", "projection", "directions", "refinement")

    def reads_corpora(self, store: Store) -> bool:
        """False: it has no scan."""
        del store
        return False

    def final(self, store: Store, folded: Iterator[PartialResult]) -> PartialResult:
        """Eigenpairs for the largest number of topics plus ten, with an error estimate."""
        del folded
        has_directions = store.array_digest("directions").shape[1] > 0
        bases, products = ("basis", "directions"), ("projection", "refinement")
        corrected, certificate = corrected_in(
            store, *((bases, products) if has_directions else (bases[:1], products[:1]))
        )
        pairs = corrected.pairs.leading(store.settings.max_topics + GUARD_VECTORS)
        if certificate.estimated_error > LARGEST_ERROR:
            logger.warning("%s", _advice(store, certificate.estimated_error))
        return PartialResult(
            {"eigenvectors": pairs.vectors, "eigenvalues": pairs.values},
            {**asdict(certificate), **asdict(words_seen(store))},
        )

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        """See ``eigenpairs_memory``; the columns of Q and W are also held separately while they are joined."""
        more = settings.max_topics + GUARD_VECTORS
        return eigenpairs_memory(n_words, settings, settings.basis_width + more)


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
    in_sample = np.bincount(read_sample(store).indices, minlength=store.n_words)
    few = np.flatnonzero((frequency >= FEW_DOCUMENTS) & (in_sample < FEW_DOCUMENTS))
    return np.asarray(few[np.argsort(-frequency[few], kind="stable")])


def _advice(store: Store, error: float) -> str:
    told = f"{store.path}: the eigenpairs have an error of about {error:.2g}"
    if store.manifest.base is not None:
        return f"{told}, since documents were added; make the basis of all of them with scan {option.rebase(True)}"
    share, topics = share_of(store), store.settings.max_topics
    if share < LARGEST_SAMPLE:
        wider = min(share * (error / LARGEST_ERROR) ** 2, LARGEST_SAMPLE)
        sampled = f"{option.range_finder('sample')} and {option.sample_share(float(f'{wider:.2g}'))}"
        return f"{told}; scan into another path with {sampled}"
    # More documents hardly help then.
    return (
        f"{told}; scan into another path with {option.max_topics(2 * topics)}, which makes models with up to {topics} "
        "topics more accurate"
    )
