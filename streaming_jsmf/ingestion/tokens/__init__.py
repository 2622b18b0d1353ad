"""Conversion of texts to tokens: flat arrays of codes into the distinct words of a batch.

Start with ``tokenizer``; ``split`` is the fast path from text to words.
"""
