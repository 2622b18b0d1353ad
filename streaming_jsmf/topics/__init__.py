"""Models: making them from a source (``fit``) or moments (``infer``), improving them (``polish``), storing and
editing.
"""
