"""Models: fit them from a source (``fit``) or moments (``infer``), polish, store and edit them."""
