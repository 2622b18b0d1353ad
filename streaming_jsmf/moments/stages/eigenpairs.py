"""Passes 2 and 3, and the eigenpairs: C Q over all documents, and outside its span the documents that the store holds.

A third pass computes C W, for directions W outside Q, if the store holds a sample and two passes are not accurate.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.config.scan import LARGEST_SAMPLE
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.display import percent
from streaming_jsmf.errors import option
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult
from streaming_jsmf.linalg.csr import apply_gram, rows_of
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, block_width
from streaming_jsmf.linalg.panels import on_each, panels, side_by_side
from streaming_jsmf.linalg.sampled import (
    CorrectedPairs,
    SampleCertificate,
    SampleParts,
    certify,
    corrected_eigenpairs,
    fits_all,
    outside_directions,
)
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.moments.partition import iter_scaled
from streaming_jsmf.moments.records import SAMPLE, SUMS, Records
from streaming_jsmf.moments.stages.base import BasisReduction, Scan, Stage
from streaming_jsmf.storage.arrays import Variable

logger = logging.getLogger(__name__)

#: A third pass is made if not all documents are fitted and the estimated error of the eigenpairs after two is larger.
SMALL_ERROR = 0.001
#: Bytes of a panel of a product in float32. Does not affect the bits of the result.
PANEL_BYTES = 2**30
#: A larger estimated error is logged as a warning, with a way to reduce it.
LARGEST_ERROR = 0.1
#: The row of a word in fewer documents of the sample is noise.
FEW_DOCUMENTS = 5


@dataclass(frozen=True)
class HeldPart:
    """The documents of a partition in a store that holds all, as tasks read them."""

    checkpoints: Checkpoints
    key: str

    def read(self, n_words: int) -> csr_array[Any]:
        """The scaled counts, as of ``load_block``. Raises ``StoreError`` if they are damaged."""
        return rows_of(SAMPLE, self.checkpoints.read_part(self.key).arrays, n_words)


@dataclass(frozen=True)
class ProductReduction(BasisReduction):
    """H'(H Q) of each partition, additive for a given Q: the basis, or the directions W."""

    def compute(self, source: Partition | HeldPart) -> PartialResult:
        basis, product = self.read_basis(), None
        for block in self._documents(source):
            product = apply_gram(block, basis, product)
        assert product is not None, "a partition has units"
        return PartialResult({"projection": product})

    def _documents(self, source: Partition | HeldPart) -> Iterator[csr_array[Any]]:
        """The scaled counts, with one row group in memory at a time."""
        if not isinstance(source, HeldPart):
            yield from iter_scaled(source, self.n_words, self.settings.document_weights)
            return
        yield source.read(self.n_words)


class ProductStage(Stage):
    """A pass of a store with documents: the product of C with one of its bases.

    A store that holds all documents reads them instead of the corpus. A product that is too large for a worker is
    computed in panels of columns, each in a scan of its own.
    """

    reads: ClassVar[tuple[str, ...]] = (SAMPLE,)

    def sources(self, store: Records, load: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        if store.sample_share < 1:
            return load()
        checkpoints = store.checkpoints(SUMS)
        return [HeldPart(checkpoints, key) for key in store.manifest.part_keys]

    def scans(self, store: Records) -> Sequence[Scan]:
        """One scan for each panel, none without columns; keys of parts include the columns if there are several."""
        (basis,) = self.inputs
        digest = store.array_digest(basis)
        cut = [*column_panels(*digest.shape)] if digest.shape[1] else []
        salts = [[f"columns {columns.start} to {columns.stop}"] if len(cut) > 1 else [] for columns in cut]
        return [
            (ProductReduction.of(store, basis, columns), store.order_with(digest.sha256, *salt))
            for columns, salt in zip(cut, salts, strict=True)
        ]


#: The eigenpairs, from pass 2 or pass 3.
EIGENPAIRS = {
    "eigenvectors": Variable(("word", "eigenpair"), "leading algebraic eigenvectors", "V"),
    "eigenvalues": Variable(("eigenpair",), "their eigenvalues"),
}


class ProjectionStage(ProductStage):
    """Pass 2: C Q for the basis Q, and the eigenpairs, or directions W for a third pass if these are not accurate.

    W are the parts of the leading eigenvectors that are orthogonal to the basis. It has no columns if the eigenpairs
    are accurate without it, or if it cannot make them accurate.
    """

    name = "projection"
    variables: ClassVar = {
        "projection": Variable(("word", "component"), "C times the basis, from scan 2", "C Q"),
        "directions": Variable(
            ("word", "direction"), "parts of the eigenvectors outside the basis, orthonormal", "W"
        ),
        **EIGENPAIRS,
    }
    inputs = ("basis",)

    def final(self, store: Records, folded: Iterator[PartialResult]) -> PartialResult:
        """C Q, W (N x r, r <= ``block_width(K + 10)``), and without W the eigenpairs and their estimated error."""
        share, basis, documents = store.sample_share, store.read("basis"), store.sample()
        product = _product(store, folded, "basis")
        parts = SampleParts.whole(documents) if share == 1 else SampleParts.of(documents, share)
        corrected, certificate = _corrected(store, parts, basis, product)
        # W is of no use where the eigenpairs come from all documents.
        wanted = certificate.estimated_error > SMALL_ERROR and not fits_all(documents.shape, share)
        vectors = corrected.pairs.vectors
        directions = outside_directions(basis, vectors if wanted else vectors[:, :0])
        arrays = {"projection": product, "directions": directions}
        if directions.shape[1]:
            return PartialResult(arrays, {"estimated_error": certificate.estimated_error})
        found = _eigenpairs(store, corrected, certificate)
        return PartialResult({**arrays, **found.arrays}, found.scalars)


class RefinementStage(ProductStage):
    """Pass 3 of a sampled store that has directions W: C W, and the eigenpairs from both products."""

    name = "refinement"
    variables: ClassVar = {
        "refinement": Variable(("word", "direction"), "C times the directions, from scan 3", "C W"),
        **EIGENPAIRS,
    }
    inputs = ("directions",)
    reads = ("basis", "projection", SAMPLE)

    def final(self, store: Records, folded: Iterator[PartialResult]) -> PartialResult:
        """C W, and the eigenpairs if W has columns."""
        refinement = _product(store, folded, "directions")
        if not refinement.shape[1]:
            return PartialResult({"refinement": refinement})
        basis = side_by_side(store.read("basis"), store.read("directions"))
        product = side_by_side(store.read("projection"), refinement)
        parts = SampleParts.of(store.sample(), store.sample_share)
        found = _eigenpairs(store, *_corrected(store, parts, basis, product))
        return PartialResult({"refinement": refinement, **found.arrays}, found.scalars)


def column_panels(n_words: int, width: int) -> Iterator[slice]:
    """Columns whose products a task computes together: as few panels as ``PANEL_BYTES`` allow, of about equal width."""
    count = max(1, math.ceil(width / max(1, PANEL_BYTES // (4 * n_words))))
    return panels(width, math.ceil(width / count))


def _product(store: Records, folded: Iterator[PartialResult], name: str) -> Floats:
    """C Q of Eq. 1 from the sums of ``ProductReduction`` over all partitions, in the memory of a single panel."""
    basis, sums = store.read(name), [total.arrays["projection"] for total in folded]
    if not sums:
        return basis  # without columns
    product: Floats = sums[0] if len(sums) == 1 else side_by_side(*sums)
    weight, diagonal = store.scalars(SUMS)["total_weight"], store.read("diagonal")[:, None]
    on_each(
        lambda rows: np.subtract(product[rows] / weight, diagonal[rows] * basis[rows], out=product[rows]),
        panels(len(product)),
    )
    return product


def _corrected(
    store: Records, parts: SampleParts, basis: Floats, product: Floats
) -> tuple[CorrectedPairs, SampleCertificate]:
    """Eigenpairs from the fitted documents and C times a basis, and their error estimate."""
    most, diagonal = store.settings.max_topics, store.read("diagonal")
    # Products with a full block cost no more than those with K + 10 columns.
    count = block_width(most + GUARD_VECTORS)
    corrected = corrected_eigenpairs(parts.fitted, diagonal, basis, product, count)
    width, checked = store.array_digest("basis").shape[1], corrected.leading(most + GUARD_VECTORS)
    return corrected, certify(parts, store.sample_share, basis, checked, most, width)


def _eigenpairs(store: Records, corrected: CorrectedPairs, certificate: SampleCertificate) -> PartialResult:
    """Eigenpairs for the largest number of topics plus ten, with an error estimate."""
    pairs = corrected.pairs.leading(store.settings.max_topics + GUARD_VECTORS)
    if certificate.estimated_error > LARGEST_ERROR:
        logger.warning("%s", _advice(store, certificate.estimated_error))
    return PartialResult(
        {"eigenvectors": pairs.vectors, "eigenvalues": pairs.values},
        {**asdict(certificate), **_shares_hardly_seen(store)},
    )


def hardly_seen(store: Records) -> Integers:
    """Ids of the words in ``FEW_DOCUMENTS`` of the corpus but in fewer of the sample, by falling document frequency."""
    if store.sample_share == 1:
        return np.zeros(0, np.int64)
    frequency = store.read("document_frequency")
    in_sample = np.bincount(store.sample().indices, minlength=store.n_words)
    few = np.flatnonzero((frequency >= FEW_DOCUMENTS) & (in_sample < FEW_DOCUMENTS))
    return np.asarray(few[np.argsort(-frequency[few], kind="stable")])


def _shares_hardly_seen(store: Records) -> dict[str, float]:
    """Shares of the words ``hardly_seen`` in all words of ``FEW_DOCUMENTS``, and in the tokens of those."""
    there, few = store.read("document_frequency") >= FEW_DOCUMENTS, hardly_seen(store)
    tokens: Floats = store.read("term_count")
    return {
        "words_hardly_seen": few.size / max(int(np.count_nonzero(there)), 1),
        "tokens_hardly_seen": float(tokens[few].sum()) / max(float(tokens[there].sum()), 1.0),
    }


def _advice(store: Records, error: float) -> str:
    told = f"{store.path}: the summary of the corpus has an error of about {percent(error)}"
    share, topics = store.sample_share, store.settings.max_topics
    if share < LARGEST_SAMPLE:
        wider = min(share * (error / LARGEST_ERROR) ** 2, LARGEST_SAMPLE)
        sampled = f"{option.range_finder('sample')} and {option.sample_share(float(f'{wider:.2g}'))}"
        return f"{told}; scan into another path with {sampled}"
    # More documents hardly help then.
    return (
        f"{told}; scan into another path with {option.max_topics(2 * topics)}, which makes models "
        f"with up to {topics} "
        "topics more accurate"
    )
