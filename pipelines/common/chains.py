"""Chains of Gibbs sampling with several checkpoints, stored once and shared by the experiments that read them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from pipelines.common import peers
from pipelines.common.results import Arrays, CellMissing, Results

#: Sweeps after which the topics of a chain are stored.
CHECKPOINTS = (10, 20, 50, 100, 200, 500, 1000)


def chain(
    counts: sparse.csr_array, fingerprint: str, n_topics: int, seed: int, last: int, results: Results
) -> Iterator[tuple[int, Arrays]]:
    """Number of sweeps and topics at each checkpoint up to ``last``; a chain that is not stored whole runs again.

    ``counts`` are the fitted documents, ``fingerprint`` identifies them. Arrays: ``word_topic`` (N x K, float32),
    ``prior`` (K,), ``seconds``. Stored checkpoints are returned if the chain is missing and may not be computed.
    """
    sweeps = [number for number in CHECKPOINTS if number <= last]
    keys = {number: _key(fingerprint, n_topics, seed, number) for number in sweeps}
    if not results.only_kept and not all(results.has_arrays(key) for key in keys.values()):
        for found in peers.gibbs(counts, n_topics, seed, sweeps):
            results.arrays(keys[found.steps], lambda found=found: _arrays(found))  # type: ignore[misc]
    for number in sweeps:
        try:
            yield number, results.arrays(keys[number], dict)
        except CellMissing:
            continue


def _key(fingerprint: str, n_topics: int, seed: int, sweeps: int) -> dict[str, object]:
    return {"corpus": fingerprint, "K": n_topics, "method": f"Gibbs {sweeps}", "seed": seed}


def _arrays(found: peers.PeerTopics) -> Arrays:
    return {
        "word_topic": found.word_topic.astype(np.float32),
        "prior": found.prior,
        "seconds": np.array(found.cpu_seconds),
    }
