"""The stages of a moments store, one module for each: the whole of it from its scan to its final arrays.

A module has a *reduction*, which travels to the workers (``compute`` a partition, ``fold`` two results), and a *stage*:
which settings ask for it, its scans with the keys of their parts and folds, its final arrays with their axes, the
memory that it needs and how it is mended. ``base`` says what each of these is; read ``projection`` first, the shortest.

What runs, checks, mends or describes a store walks ``registry.STAGES`` and names none of them. So another stage is a
module here and a line there.

A stage sees its store through ``base.Store`` alone; it may import what lies below the moments, and of them
``checkpoints``, ``manifest`` and ``partition``.
"""
