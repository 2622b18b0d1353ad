"""This package beside its peers on the same documents, each method in a process of its own: cost, error, quality.

``methods`` has them all, ``apart`` runs one and measures it, ``scores`` says how good its result is, ``bounds`` what
the machine could do at best, ``tables`` what is written; ``__main__`` goes through the grid.
"""
