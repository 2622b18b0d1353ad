"""Readers of users' files: documents as batches of bags, with a location for every record.

``protocol`` defines readers and formats, ``listing`` finds files, ``probe`` looks at their start, and ``guess`` lists
the readers and chooses one. Only ``streams`` opens and decompresses files. ``adapter`` makes documents of records. A
new reader is one module and one line in ``guess``.
"""
