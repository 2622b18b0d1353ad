"""Corpora drawn from latent Dirichlet allocation, with topics that are known.

Reads top to bottom: ``law`` (the parameters, checked), ``documents`` (batches drawn from them), ``truth`` (the topics,
and the store beside a corpus), ``run`` (``simulate_lda``: a job of independent parts). Knows ``corpus`` and ``jobs``.
"""

from streaming_jsmf.ingestion.simulation.run import simulate_lda
from streaming_jsmf.ingestion.simulation.truth import Truth, read_truth, simulate_truth

__all__ = ["Truth", "read_truth", "simulate_lda", "simulate_truth"]
