"""Convert a source to a corpus. ``ingest`` plans, reads, chooses words and writes; each step can be resumed.

``readers`` read sources, ``tokens`` tokenizes texts, and ``simulation`` draws corpora with known topics.
"""
