"""Local files and objects behind URLs: naming, listing, atomic writes, locks, and Zarr arrays with digests.

``paths`` handles single files of both kinds, ``replace`` whole stores, and ``objects`` connects to object stores.
"""
