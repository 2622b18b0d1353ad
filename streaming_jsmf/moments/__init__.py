"""The moments of a corpus: computed in one or two passes and kept in a store that can grow and shrink.

Read ``scan.scan`` first, then ``run``, then one of ``stages``. ``store`` defines the Zarr group with its records and
what a stage provides, ``manifest`` describes its contents; ``changes`` and ``merge`` change it, ``integrity`` verifies
it, and ``reader`` and ``select`` serve inference. Imports ``corpus``, ``jobs``, ``storage`` and ``linalg``.
"""
