"""The moments of a corpus: scanned in one or two passes, kept in a store that grows and shrinks, read by inference.

``store`` is the Zarr group and its records, ``manifest`` what it was made of, ``stages`` what is computed. ``run``
walks the stages that a store lacks; ``scan`` does so for a new corpus, ``changes`` and ``merge`` after a change of the
manifest, ``integrity`` checks and mends. ``memory`` is planned before. ``reader`` and ``select`` are what inference
sees. Start with ``scan.scan_corpus``, then ``run``, then ``stages``.

May import ``blocks``, ``corpus``, ``jobs``, ``storage`` and ``linalg``; within: manifest, partition, stages, store,
run, and then the others.
"""
