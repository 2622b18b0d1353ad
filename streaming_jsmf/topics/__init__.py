"""Models: one Zarr group of arrays and JSON for each number of topics.

``fit`` makes models from a source; ``infer`` makes them from a moments store, by anchor words (``anchor_words``) or
tensor decomposition (``tensor``); ``polish`` improves them by passes over documents. ``store`` reads and writes models,
whose arrays ``variables`` describes. ``edits`` keeps labels, merged and hidden topics beside the arrays, and applies
them.
"""
