"""Readers of sources, one for each kind of content; ``guess`` lists them, chooses one and opens it.

A new reader is one module and one line in ``guess``. Readers use ``formats``, and both use ``sources``.
"""
