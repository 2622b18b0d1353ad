"""Parameters -> a corpus whose topics are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming_jsmf.config import settings_of, takes
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.ingestion.simulation import simulate_lda
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution


@takes(Execution)
def simulate(
    corpus: str | Path,
    *,
    documents: int,
    vocabulary_size: int,
    topics: int,
    alpha: float | Sequence[float] | None = None,
    beta: float | None = None,
    mean_length: float = 100,
    seed: int = 0,
    separable: bool = False,
    zipf: float | None = None,
    documents_per_shard: int | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    **options: Any,
) -> Corpus:
    """Draw ``documents`` documents over ``vocabulary_size`` words from ``topics`` topics into the path ``corpus``.

    The other arguments, the result and what is left by an interruption are those of ``simulate_lda``.

    Raises
    ------
    InputError, StoreError
        See ``simulate_lda``.
    """
    return simulate_lda(
        corpus,
        n_documents=documents,
        n_words=vocabulary_size,
        n_topics=topics,
        mean_length=mean_length,
        alpha=alpha,
        beta=beta,
        separable=separable,
        zipf=zipf,
        seed=seed,
        documents_per_shard=documents_per_shard,
        execution=settings_of("execution", Execution, execution, options),
        listener=listener,
    )
