"""Readers of bags that are counted already, over words that a file or a list beside it names.

``docword`` and ``matrix_market`` are headers for ``number_lines``, which are gathered by ``entries``; ``npz`` and
``h5ad`` give ``matrix_rows``; ``bags`` are corpora. ``word_lists`` is what files with one vocabulary share.
"""
