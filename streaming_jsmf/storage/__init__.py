"""Local files and objects behind URLs: naming, listing, atomic writes, locks, and Zarr arrays with digests.

Four ideas: a *path* or URL that users name (``paths``; ``local`` and ``objects`` are its two kinds); a *write* that
readers see as one step, by one writer at a time (``replace``, ``lock``); an *array* or table that is verified when it
is read (``arrays``, ``tables``); and a *result*, which stores the request that it answers (``results``).
"""
