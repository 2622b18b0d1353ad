"""How much of a source is held in memory, split into units or refused.

Modules look these up where they use them (``limits.BATCH_BYTES``), so that tests can change them in one place.
"""

from __future__ import annotations

#: Bytes of text held at once: enough for Arrow and numba to be fast, little beside the words.
BATCH_BYTES = 8 << 20
#: Numbers (document, word, count) held at once.
BATCH_VALUES = 1_000_000
#: Rows of a Parquet table held at once.
BATCH_ROWS = 1 << 18
#: Bytes for one task, of a file that can be split.
UNIT_BYTES = 64 << 20
#: Bytes of a line and characters of a CSV field. The longest books are below 10 MB; anything longer has no line ends.
LONGEST_LINE = 64 << 20
#: Bytes of a document that is a file.
LARGEST_FILE = 256 << 20
#: Bytes of a header in a tar file, which tarfile reads whole; real ones take a few KB.
LARGEST_TAR_HEADER = 1 << 20
#: Bytes of a file of names, which is read whole.
LARGEST_NAMES = 64 << 20
#: Bytes of the small arrays of a matrix (shape and format), which are read whole.
LARGEST_SCALAR = 4096
#: Bytes that one compressed byte may stand for; deflate reaches 1032, on zeros.
LARGEST_PACKING = 1100
#: Documents without counts in a file of counts: a wrong digit in its header must not create billions. The largest
#: known file has 6.8 million of them, the largest UCI set 8.2 million documents.
EMPTY_DOCUMENTS = 10_000_000
#: The same for each byte of the file, which is 600 for each line of counts.
EMPTY_DOCUMENTS_PER_BYTE = 100
