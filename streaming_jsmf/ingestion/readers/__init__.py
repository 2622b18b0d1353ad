"""Readers of users' files: documents as batches of bags, with a location for every record.

``base`` defines readers and formats, ``sources`` lists the readers and chooses one for a source. Only
``files`` opens and decompresses files. A new reader is one module and one line in ``sources``.
"""
