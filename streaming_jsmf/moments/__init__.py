"""The moments of a corpus: computed in one or two passes and kept in a store that can grow and shrink.

Read ``scan.scan`` first, then ``run``, then ``stages``. ``store`` holds the Zarr group and its records, ``manifest``
its description; ``changes`` and ``merge`` change it, ``integrity`` verifies it, and ``reader`` and ``select`` serve
inference. Imports ``corpus``, ``jobs``, ``storage`` and ``linalg``.
"""
