"""How much of a source is held, cut off or refused: each number once, with its reason.

Modules look these up where they use them (``limits.BATCH_BYTES``), so that one place decides, for tests too.
The limits of a count are those of the corpus (``corpus.records``).
"""

from __future__ import annotations

#: Bytes of text or lines that a reader holds at once: enough for Arrow and numba to be quick, little beside the words.
BATCH_BYTES = 8 << 20
#: Numbers (document, word, count) that a reader holds at once, for the same reason.
BATCH_VALUES = 1_000_000
#: Rows of a table in Parquet that are held at once.
BATCH_ROWS = 1 << 18
#: Bytes for one task, of a file that can be cut.
UNIT_BYTES = 64 << 20
#: Bytes of a line, and characters of a CSV field. The longest books are below 10 MB; what goes on for longer has no
#: line ends and must not fill the memory. (The csv module's own limit, 128 KB, is less than a long speech.)
LONGEST_LINE = 64 << 20
#: Bytes of a document that is a file; more has strayed into the folder.
LARGEST_FILE = 256 << 20
#: Bytes of a header in a tar file, which tarfile reads whole: names and their like, a few KB when they are honest.
LARGEST_TAR_HEADER = 1 << 20
#: Bytes of a file of names, which is read whole.
LARGEST_NAMES = 64 << 20
#: Bytes of the small arrays of a matrix (its shape and format), which are read whole.
LARGEST_SCALAR = 4096
#: How many bytes one byte of a packed array may stand for; deflate, of zeros alone, comes to 1032.
LARGEST_PACKING = 1100
#: Documents of a file of counts that no line speaks of. They cost nothing in the file and something here, so a wrong
#: digit in a header must not make billions. The largest list of barcodes that cells are counted over has 6.8 million,
#: most of them empty; the largest UCI set 8.2 million documents, whose parts keep their numbers.
EMPTY_DOCUMENTS = 10_000_000
#: But a small file must not make that many: so many for each byte, which is 600 for each line of counts.
EMPTY_DOCUMENTS_PER_BYTE = 100
