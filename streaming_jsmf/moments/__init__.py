"""The moments of a corpus: computed in one to three passes and kept in a store that follows the corpus.

Read ``scan.scan`` first, then ``run``, then ``stages``, whose modules follow the papers. ``records.Records`` is what is
committed in a store and ``manifest`` what it is made from; ``store.Moments`` serves inference, ``select`` opens parts
of it, ``memory`` has the bytes of each pass, and ``integrity`` verifies it. Imports ``corpus``, ``jobs``, ``storage``
and ``linalg``.
"""
