"""Corpora drawn from latent Dirichlet allocation, with topics that are known."""

from streaming_jsmf.simulation.truth import Truth, simulate_truth
from streaming_jsmf.simulation.truth_store import read_truth
from streaming_jsmf.simulation.write import simulate_lda

__all__ = ["Truth", "read_truth", "simulate_lda", "simulate_truth"]
