"""Readers of users' files: documents as batches of bags, with a location for every record.

``base`` defines what a reader provides, ``registry`` lists the readers with their options, and ``guess`` chooses one
for a source. Only ``files`` opens and decompresses files. Readers share ``units`` (row groups and byte ranges),
``lines``, ``values`` (text and columns) and ``limits``. A new reader is one module and one line in ``registry``.
"""
