"""Corpora drawn from latent Dirichlet allocation, with known topics.

``law`` checks the parameters, ``documents`` draws batches of documents, ``truth`` has the topics and their store beside
a corpus, and ``simulate`` is the verb.
"""

from streaming_jsmf.ingestion.simulation.simulate import simulate_lda
from streaming_jsmf.ingestion.simulation.truth import Truth, read_truth, simulate_truth

__all__ = ["Truth", "read_truth", "simulate_lda", "simulate_truth"]
