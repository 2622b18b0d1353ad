"""What people have their documents in, read as batches of bags with a place for every record.

``base``
    What a reader promises: ``Unit``, ``SourceBatch``, ``BadRecords``, ``Source``. Start here.
``registry``, ``guess``
    The readers by name with their options, and which one a source is for.
``listing``, ``fetch``
    Which files a source is made of, and how those of a data set are brought here.
``streams``
    The only place where files are opened and unpacked.
``lines``, ``parquet``, ``record_files``, ``delimited``, ``records``, ``limits``
    What readers share: lines and row groups, the rule for quotes, what a record may hold, how much of anything.
``hashing``
    128 bits of an id, a word or a bag.
``text``, ``counts``, ``tables``
    The readers: texts to be cut into words, bags that are counted, rows that have to come together first.

A new reader is one module in one of the last three rooms, which knows bytes and records, and a line in ``registry``.
It may import what is named above, ``tokens`` and ``corpus``; of opening, packing, sizes and UTF-8 it knows nothing.
"""
