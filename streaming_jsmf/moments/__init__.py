"""The moments of a corpus: computed in one or two passes and kept in a store that can grow and shrink.

Read ``scan.scan`` first, then ``run``, then ``stages``, whose modules follow the papers. ``store.Moments`` is an open
store, which serves inference; ``manifest`` describes its contents, ``select`` opens parts of it, ``changes``
changes it, and ``integrity`` verifies it. Imports ``corpus``, ``jobs``, ``storage`` and ``linalg``.
"""
