"""Limits on how much of a source is held in memory, read per unit, or accepted.

Modules look these up at use (``limits.BATCH_BYTES``), so that tests can change them in one place.
"""

from __future__ import annotations

#: Bytes of text held at once: enough for Arrow and numba to be fast, but small compared with the vocabulary.
BATCH_BYTES = 8 << 20
#: Rows (document, word, count) held at once.
BATCH_VALUES = 1_000_000
#: Bytes per task of a file that can be split.
UNIT_BYTES = 64 << 20
#: Bytes of a line or characters of a CSV field. The longest books are below 10 MB; longer lines lack line ends.
LONGEST_LINE = 64 << 20
#: Bytes of a file that is one document.
LARGEST_FILE = 256 << 20
#: Bytes of a tar header, which tarfile reads whole; real headers take a few KB.
LARGEST_TAR_HEADER = 1 << 20
#: Bytes of a file of names, which is read whole.
LARGEST_NAMES = 64 << 20
#: Columns of metadata that the first records of a source lack. Values as names would need one column for each record.
LATE_COLUMNS = 200
#: Bytes of the small arrays of a matrix (shape and format), which are read whole.
LARGEST_SCALAR = 4096
#: Maximum compression ratio; deflate reaches 1032 on zeros.
LARGEST_PACKING = 1100
#: Empty documents in a file of counts, so that a wrong digit in its header does not create billions. The largest
#: known file has 6.8 million; the largest UCI data set has 8.2 million documents.
EMPTY_DOCUMENTS = 10_000_000
#: The same per byte of the file, which is about 600 per line of counts.
EMPTY_DOCUMENTS_PER_BYTE = 100
