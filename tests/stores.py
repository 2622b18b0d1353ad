"""Moments stores of small corpora scanned in one thread, which follow them; and topic shares of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.documents.share_files import open_shares, write_parquet
from streaming_jsmf.documents.shares import SharesFile
from streaming_jsmf.inference.stod import unpacked
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.run import write_empty_store
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.store import Moments, read_store
from tests import reference, reference_stod

SYNCHRONOUS = Execution("synchronous")
SMALL = ScanSettings(max_topics=5, partition_nonzeros=4000)


def scanned(
    corpus: Path,
    store: Path,
    settings: ScanSettings | None = SMALL,
    *,
    execution: Execution = SYNCHRONOUS,
) -> Moments:
    return scan(corpus, store, settings, execution)


def followed(corpus: Path, store: Path, *, execution: Execution = SYNCHRONOUS, **options: Any) -> Moments:
    """Let a store follow its corpus, with its own settings but for these ``options``."""
    return scan(corpus, store, None, execution, follow=True, **options)


def made_anew(corpus: Path, store: Path, path: Path) -> Moments:
    """A new store at ``path`` with the partitions of ``store``, which nothing else is taken from."""
    moments = read_store(store)
    path.mkdir()
    write_empty_store(path, moments.manifest, moments.words)
    return scanned(corpus, path, moments.settings)


def digests(store: Path) -> dict[str, str]:
    return read_store(store).digests(third_moment=True)


def write_shares(path: Path, table: pa.Table, like: Path) -> None:
    """Write topic shares with other rows and columns of metadata than those at ``like``."""
    known = open_shares(like).about
    about = replace(known, totals=replace(known.all_totals, documents=table.num_rows))
    columns = tuple(name for name in table.column_names if name not in about.columns)
    made = SharesFile(path, about, columns, lambda names: iter([table.select(list(names))]))
    write_parquet(path, made, table.schema)


def rename_words(corpus: Path, words: Sequence[str]) -> Path:
    (corpus / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return corpus


def dense(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return reference.cooccurrence(counts, reference.document_weights(counts.sum(axis=1), "capped"))


def half(moments: Moments, k: int) -> NDArray[np.float64]:
    pairs = moments.eigenpairs(k, extra=0)
    return pairs.vectors * np.sqrt(np.maximum(pairs.values, 0))


def partial_names(store: Path, kind: str = "sums-") -> list[str]:
    return sorted(p.name for p in (store / "partials").iterdir() if p.is_dir() and p.name.startswith(kind))


def require_moments(moments: Moments, counts: NDArray[np.int64]) -> None:
    """The stored moments are those of the documents, in the basis of the store."""
    weights = reference_stod.tensor_weights(counts, moments.settings.document_weights)
    exact, found = reference_stod.dense_moments(counts, weights), moments.tensor_moments()
    basis = found.basis
    third = np.einsum("xyz,xi,yj,zk->ijk", exact.third, basis, basis, basis, optimize=True)
    np.testing.assert_allclose(found.word_mean, exact.first, rtol=1e-6)
    projected = exact.second @ basis
    assert np.linalg.norm(found.pair_projection - projected) < 1e-6 * np.linalg.norm(projected)
    difference = unpacked(found.third, basis.shape[1]) - third
    assert np.linalg.norm(difference) < 1e-6 * np.linalg.norm(third)
