"""This package and other libraries on the same documents: cost, error and quality.

``methods`` defines the methods, ``apart`` runs one in its own process and measures it, ``scores`` rates its result,
``bounds`` measures what the machine can do at best, ``tables`` writes the results; ``__main__`` runs the grid.
"""
