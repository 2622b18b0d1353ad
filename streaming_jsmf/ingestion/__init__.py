"""From a source to a corpus. Start at ``ingest``: plan, read, choose words, write; each step can be resumed.

``plan`` turns a request into an ``Ingest`` (``work``), ``read`` puts documents into ``pieces``, ``choose`` selects
words and finds repeated documents, ``write`` makes shards. ``readers`` read the sources, ``tokens`` makes words of
texts, and ``simulation`` draws corpora with known topics.
"""
