"""Local files and objects behind URLs: naming, listing, atomic writes, locks, and Zarr arrays with digests.

``paths`` handles both kinds of paths; ``objects`` emulates renames on object stores. Of this package it imports only
``errors``, ``display`` and ``validation``.
"""
