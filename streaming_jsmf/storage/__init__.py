"""Local files and objects behind URLs: naming, listing, atomic writes, locks, and Zarr arrays with digests.

``paths`` handles both kinds of paths; ``objects`` provides atomic writes on object stores, which lack renames.
"""
