"""Texts to tokens: flat arrays of codes over the distinct words of a batch.

Start with ``tokenizer``. ``split`` is the fast path from text to words, ``lists`` has the arrays of tokens and their
counts, ``stop_words`` the lists of stop words.
"""
