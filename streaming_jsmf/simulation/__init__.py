"""Simulate corpora from latent Dirichlet allocation, with known topics. The entry point is ``simulate``."""

from streaming_jsmf.simulation.simulate import simulate_lda
from streaming_jsmf.simulation.truth import Truth, read_truth

__all__ = ["Truth", "read_truth", "simulate_lda"]
