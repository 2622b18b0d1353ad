"""How good topics are: the metrics of the papers and others. Arrays in, numbers out; no files.

Start with ``summary``, whose text has the shape of all results; ``inputs`` says what the metrics are given. One
module for a kind of metric; ``perplexity`` is on documents, and ``matching`` pairs topics with a truth or with
others. Imports ``inference`` and below.
"""
