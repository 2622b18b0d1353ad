"""Passes 2 and 3, and the eigenpairs: C Q over all documents, and outside its span the documents that the store holds.

A third pass computes C W, for directions W outside Q, if the store holds a sample and two passes are not accurate.
"""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.config.scan import LARGEST_SAMPLE
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.errors import option
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.linalg.csr import apply_gram
from streaming_jsmf.linalg.eigen import DENSE_WORDS, GUARD_VECTORS, block_width
from streaming_jsmf.linalg.panels import each, on_each, panels
from streaming_jsmf.linalg.sampled import (
    OUTSIDE_STEPS,
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
from streaming_jsmf.moments.stages.base import BasisReduction, Scan, Stage, SumStage
from streaming_jsmf.moments.stages.range import SAMPLE, HeldPart, read_fitted, read_sample
from streaming_jsmf.storage.arrays import Variable
from streaming_jsmf.timing import span

if TYPE_CHECKING:
    from streaming_jsmf.moments.store import Moments

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
        with span("read"):
            block = source.read(self.n_words)
        yield block


class ProductStage(SumStage):
    """A pass of a store with documents: the product of C with one of its bases.

    A store that holds all documents reads them instead of the corpora. A product that is too large for a worker is
    computed in panels of columns, each in a scan of its own.
    """

    reads: ClassVar = (SAMPLE,)
    needs = "has_projection"

    def sources(self, store: Moments, load: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        if store.sample_share < 1:
            return load()
        checkpoints = store.checkpoints("range")
        return [HeldPart(checkpoints, key) for key in store.manifest.part_keys]

    @abstractmethod
    def width(self, settings: ScanSettings) -> int:
        """The largest number of columns."""

    def reduction(self, store: Moments, columns: slice | None = None) -> ProductReduction:
        (basis,) = self.inputs
        return ProductReduction.of(store, basis, columns)

    def scans(self, store: Moments) -> Sequence[Scan]:
        """One scan for each panel, none without columns; keys of parts include the columns if there are several."""
        (digest,) = map(store.array_digest, self.inputs)
        cut = [*column_panels(*digest.shape)] if digest.shape[1] else []
        salts = [[f"columns {columns.start} to {columns.stop}"] if len(cut) > 1 else [] for columns in cut]
        return [
            (self.reduction(store, columns), store.order_with(digest.sha256, *salt))
            for columns, salt in zip(cut, salts, strict=True)
        ]

    def final(self, store: Moments, folded: Iterator[PartialResult]) -> PartialResult:
        (basis,) = self.inputs
        return PartialResult({self.name: _product(store, folded, basis)})

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        """Peak bytes of a panel when it is folded: two sums."""
        widest = next(column_panels(n_words, min(self.width(settings), n_words)))
        return 16 * n_words * int(widest.stop)


class ProjectionStage(ProductStage):
    """Pass 2: C Q for the basis Q."""

    name = "projection"
    variables: ClassVar = {
        "projection": Variable(("word", "component"), "C times the basis, from scan 2", "C Q"),
    }
    inputs = ("basis",)

    def width(self, settings: ScanSettings) -> int:
        return settings.basis_width


class DirectionsStage(Stage):
    """Directions W: the parts of the leading eigenvectors that are orthogonal to the basis. No scan.

    W is empty if the eigenpairs are accurate without it, or if it cannot make them accurate. Like the basis, it is kept
    when documents are added.
    """

    name = "directions"
    variables: ClassVar = {
        "directions": Variable(
            ("word", "direction"), "parts of the eigenvectors outside the basis, orthonormal", "W"
        )
    }
    inputs = ("basis",)
    reads: ClassVar = (SAMPLE,)
    of_base = True
    needs = "has_projection"

    def final(self, store: Moments, folded: Iterator[PartialResult]) -> PartialResult:
        """W (N x r, r <= ``block_width(K + 10)``) if needed, and the estimated error that decides it."""
        del folded
        corrected, certificate = _corrected(store, ("basis",), ("projection",))
        error, vectors = certificate.estimated_error, corrected.pairs.vectors
        with span("basis"):
            # Without a third pass W has no columns. It is of no use where the eigenpairs come from all documents.
            held = int(store.scalars("range")["n_held"])
            wanted = error > SMALL_ERROR and not fits_all((held, store.n_words), store.sample_share)
            directions = outside_directions(store.read("basis"), vectors if wanted else vectors[:, :0])
        return PartialResult({"directions": directions}, {"estimated_error": error})

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        return _eigenpairs_memory(n_words, settings, settings.basis_width)


class RefinementStage(ProductStage):
    """Pass 3 of a sampled store that has directions W: C W."""

    name = "refinement"
    variables: ClassVar = {
        "refinement": Variable(("word", "direction"), "C times the directions, from scan 3", "C W"),
    }
    inputs = ("directions",)

    def width(self, settings: ScanSettings) -> int:
        return settings.max_topics + GUARD_VECTORS


class EigenpairsStage(Stage):
    """Eigenpairs from C Q and C W and, outside their span, the documents that the store holds. No scan."""

    name = "eigenpairs"
    variables: ClassVar = {
        "eigenvectors": Variable(("word", "eigenpair"), "leading algebraic eigenvectors", "V"),
        "eigenvalues": Variable(("eigenpair",), "their eigenvalues"),
    }
    inputs = ("basis", "projection", "directions", "refinement")
    reads: ClassVar = (SAMPLE,)
    needs = "has_projection"

    def final(self, store: Moments, folded: Iterator[PartialResult]) -> PartialResult:
        """Eigenpairs for the largest number of topics plus ten, with an error estimate."""
        del folded
        names = ["basis", "projection"], ["directions", "refinement"]
        used = names if store.array_digest("directions").shape[1] else names[:1]
        corrected, certificate = _corrected(store, *zip(*used, strict=True))
        pairs = corrected.pairs.leading(store.settings.max_topics + GUARD_VECTORS)
        if certificate.estimated_error > LARGEST_ERROR:
            logger.warning("%s", _advice(store, certificate.estimated_error))
        return PartialResult(
            {"eigenvectors": pairs.vectors, "eigenvalues": pairs.values},
            {**asdict(certificate), **_shares_hardly_seen(store)},
        )

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        """The columns of Q and W are also held separately while they are joined."""
        more = settings.max_topics + GUARD_VECTORS
        return _eigenpairs_memory(n_words, settings, settings.basis_width + more)


def column_panels(n_words: int, width: int) -> Iterator[slice]:
    """Columns whose products a task computes together: as few panels as ``PANEL_BYTES`` allow, of about equal width."""
    count = max(1, math.ceil(width / max(1, PANEL_BYTES // (4 * n_words))))
    return panels(width, math.ceil(width / count))


def _product(store: Moments, folded: Iterator[PartialResult], name: str) -> Floats:
    """C Q of Eq. 1 from the sums of ``ProductReduction`` over all partitions, in the memory of a single panel."""
    basis, sums = store.read(name), [total.arrays["projection"] for total in folded]
    if not sums:
        return basis  # without columns
    product: Floats = _joined(sums)
    weight, diagonal = store.scalars("range")["total_weight"], store.read("diagonal")[:, None]
    on_each(
        lambda rows: np.subtract(product[rows] / weight, diagonal[rows] * basis[rows], out=product[rows]),
        panels(len(product)),
    )
    return product


def _corrected(
    store: Moments, bases: Sequence[str], products: Sequence[str]
) -> tuple[CorrectedPairs, SampleCertificate]:
    """Eigenpairs from the fitted documents and C times the named bases, and their error estimate."""
    # Without directions, all documents are fitted if the store holds all of the corpus, unless the basis is that of an
    # earlier state, for which there were no directions because little is outside its span. Stages that ask for the same
    # bases, without a scan in between, share one computation.
    share, most = store.sample_share, store.settings.max_topics

    def compute() -> tuple[CorrectedPairs, SampleCertificate]:
        diagonal = store.read("diagonal")
        # A dense eigensolver has found everything, so nothing is known about what is outside the basis.
        few = store.manifest.base is not None and store.n_words > DENSE_WORDS
        exact = share == 1 and len(bases) == 1 and not few
        parts = SampleParts.whole(read_sample(store)) if exact else read_fitted(store)
        basis, product = (_joined([*each(store.read, names)]) for names in (bases, products))
        with span("basis"):
            # Products with a full block cost no more than those with K + 10 columns.
            count = block_width(most + GUARD_VECTORS)
            corrected = corrected_eigenpairs(parts.fitted, diagonal, basis, product, count)
            width, checked = store.array_digest("basis").shape[1], corrected.leading(most + GUARD_VECTORS)
            return corrected, certify(parts, share, basis, checked, most, width)

    return store.once(f"eigenpairs in {', '.join(bases)}", compute)


def _joined(arrays: Sequence[Floats]) -> Floats:
    return arrays[0] if len(arrays) == 1 else np.hstack(arrays)


def _eigenpairs_memory(n_words: int, settings: ScanSettings, width: int) -> int:
    """Peak bytes with ``width`` columns Q: Q and C Q in float64 and float32, the blocks outside Q, their products."""
    block = block_width(settings.max_topics + GUARD_VECTORS)
    return n_words * (24 * min(width, n_words) + 8 * (OUTSIDE_STEPS + 3) * min(block, n_words))


def hardly_seen(store: Moments) -> Integers:
    """Ids of the words in ``FEW_DOCUMENTS`` of the corpus but in fewer of the sample, by falling document frequency."""
    if store.sample_share == 1:
        return np.zeros(0, np.int64)
    frequency = store.read("document_frequency")
    in_sample = np.bincount(read_sample(store).indices, minlength=store.n_words)
    few = np.flatnonzero((frequency >= FEW_DOCUMENTS) & (in_sample < FEW_DOCUMENTS))
    return np.asarray(few[np.argsort(-frequency[few], kind="stable")])


def _shares_hardly_seen(store: Moments) -> dict[str, float]:
    """Shares of the words ``hardly_seen`` in all words of ``FEW_DOCUMENTS``, and in the tokens of those."""
    there, few = store.read("document_frequency") >= FEW_DOCUMENTS, hardly_seen(store)
    tokens: Floats = store.read("term_count")
    return {
        "words_hardly_seen": few.size / max(int(np.count_nonzero(there)), 1),
        "tokens_hardly_seen": float(tokens[few].sum()) / max(float(tokens[there].sum()), 1.0),
    }


def _advice(store: Moments, error: float) -> str:
    told = f"{store.path}: the eigenpairs have an error of about {error:.2g}"
    if store.manifest.base is not None:
        advice = f"make the basis of all of them with scan {option.rebase(True).alone}"
        return f"{told}, since documents were added; {advice}"
    share, topics = store.sample_share, store.settings.max_topics
    if share < LARGEST_SAMPLE:
        wider = min(share * (error / LARGEST_ERROR) ** 2, LARGEST_SAMPLE)
        sampled = (
            f"{option.range_finder('sample').alone} and {option.sample_share(float(f'{wider:.2g}')).alone}"
        )
        return f"{told}; scan into another path with {sampled}"
    # More documents hardly help then.
    return (
        f"{told}; scan into another path with {option.max_topics(2 * topics).alone}, which makes models "
        f"with up to {topics} "
        "topics more accurate"
    )
