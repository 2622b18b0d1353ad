"""Texts to tokens: flat arrays of codes over the distinct words of a batch.

Start with ``tokenizer``, the choice that a user makes; ``split`` is the fast path from text to words, ``lists`` the
arrays, their runs of words and counts, ``stop_words`` the lists. Imports nothing of readers or of the corpus.
"""
