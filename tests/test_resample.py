"""Bootstrap samples of kept partitions: the moments of the documents that were drawn, and the same ones each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.common.matching import yy_error
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.select import drawn_parts, resampled
from streaming_jsmf.moments.store import Moments
from tests import reference
from tests.corpora import Planted, planted, write_corpus
from tests.stores import half

#: A partition for each row group.
N_WORDS, PARTS, ROWS = 40, 6, 20


@pytest.fixture(scope="module")
def documents() -> Planted:
    return planted(PARTS * ROWS, N_WORDS, 3, seed=3)


@pytest.fixture(scope="module")
def corpus(documents: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("resample")
    return write_corpus(root / "corpus", documents.counts, shards=PARTS, row_group_rows=ROWS)


def scanned(corpus: Path, name: str, **settings: object) -> Moments:
    chosen = ScanSettings(**{"max_topics": 3, "partition_nonzeros": 1, **settings})  # type: ignore[arg-type]
    return scan(corpus, corpus.parent / name, chosen, Execution("synchronous"))


@pytest.fixture(scope="module")
def moments(corpus: Path) -> Moments:
    found = scanned(corpus, "kept")
    assert len(found.manifest.part_keys) == PARTS
    return found


def test_draws_are_a_function_of_seed_and_number() -> None:
    first = drawn_parts(50, 1, 2)
    np.testing.assert_array_equal(first, drawn_parts(50, 1, 2))
    assert first.sum() == 50
    assert first.max() > 1
    for other in (drawn_parts(50, 1, 3), drawn_parts(50, 2, 2)):
        assert (other != first).any()


def test_every_part_is_drawn_once_on_average() -> None:
    mean = np.mean([drawn_parts(8, 0, replica) for replica in range(2000)], axis=0)
    # A count has variance 7/8: five standard errors.
    np.testing.assert_allclose(mean, 1.0, atol=5 * np.sqrt(7 / 8 / 2000))


def test_a_sample_has_the_moments_of_the_documents_drawn(moments: Moments, documents: Planted) -> None:
    times = drawn_parts(PARTS, 4, 1)
    assert (times > 1).any()
    assert (times == 0).any()
    parts = documents.counts.reshape(PARTS, ROWS, N_WORDS)
    drawn = np.concatenate([part for part, n in zip(parts, times, strict=True) for _ in range(n)])
    sample = resampled(moments, 4, 1)
    assert sample.n_documents == PARTS * ROWS
    np.testing.assert_array_equal(sample.document_frequency, (drawn > 0).sum(axis=0))
    np.testing.assert_array_equal(sample.term_count, drawn.sum(axis=0))
    exact = reference.cooccurrence(drawn, reference.document_weights(drawn.sum(axis=1), "capped"))
    np.testing.assert_allclose(sample.row_sum, exact.sum(axis=1), rtol=1e-10)
    np.testing.assert_allclose(sample.cooccurrence_rows(np.arange(N_WORDS)), exact, atol=2e-6 * exact.max())
    expected = reference.truncated_eig(exact, 3)
    assert yy_error(half(sample, 3), expected.vectors * np.sqrt(expected.values)) < 1e-5


def test_moments_that_cannot_be_drawn_from_say_why(corpus: Path) -> None:
    with pytest.raises(InputError, match="has 1 partitions, 4 are needed"):
        resampled(scanned(corpus, "one", partition_nonzeros=10**6), 0, 0)
    with pytest.raises(InputError, match="holds sketches"):
        resampled(scanned(corpus, "sketch", range_finder="halko"), 0, 0)
