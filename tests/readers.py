"""The same documents in every format and codec that ``ingest`` reads: one row of ``FORMATS`` per format."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import re
import tarfile
import tempfile
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from streaming_jsmf.config import ReaderName, check_options
from streaming_jsmf.ingestion.readers.guess import open_source

WORDS = (*(f"word{i:02d}" for i in range(20)), "naïve", "हिन्दी", "spoilt")
#: Number of the document with the word "spoilt", which a format can write as bad bytes.
BAD = 5
#: Bytes that are not UTF-8, as many as "spoilt" has, so that no length in a file changes.
NOT_UTF8 = b"\xff" * len("spoilt")

#: Maximum number of documents of a test.
MOST = 3000

PLAIN = ("",)
PACKED = ("", ".gz", ".bz2", ".xz", ".zst")


@dataclass(frozen=True)
class Document:
    """Number from 0, and words in order; the last document repeats the first."""

    number: int
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"d{self.number:02d}"

    @property
    def year(self) -> int:
        return 1990 + self.number % 3

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(self.words))


def documents(n: int = 24) -> list[Document]:
    """Return documents that do not depend on a random generator."""
    made = []
    for i in range(n):
        words = [WORDS[(3 + 7 * i * j + j * j + i) % 22] for j in range(5 + i % 7)]
        words[2:2] = ["spoilt"] * (i == BAD)
        made.append(Document(i, tuple(words)))
    made[-1] = Document(n - 1, made[0].words)
    return made


def pack(data: bytes, codec: str) -> bytes:
    """Compress by suffix; returns the same bytes every time."""
    if codec == ".zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        return bytes(sink.getvalue())
    return {
        "": lambda: data,
        ".gz": lambda: gzip.compress(data, mtime=0),
        ".bz2": lambda: bz2.compress(data, 1),
        ".xz": lambda: lzma.compress(data),
    }[codec]()


Content = Callable[[Sequence[Document], bool], bytes]


@dataclass(frozen=True)
class Format:
    """A file format and its reader.

    Attributes
    ----------
    file
        File name without the suffix of a codec; with a slash at its end a folder (see ``_members``).
    content
        The bytes of documents; with True, those of document ``BAD`` are bad at the word "spoilt".
    place, reason
        What the message about the bad record says after the file name.
    beside
        Word lists and the like.
    id_of
        The document's id; its number from 0, where the format has no ids.
    by_entry
        Whether the quarantine takes the one count, and not the document.
    refuses_files
        Whether a bad record refuses its file.
    has_metadata
        Whether the year of a document becomes a column of the corpus.
    takes_folder
        Whether the reader is given the folder of the file, with what lies beside it.
    has_end
        Whether a file that is cut can be told from a whole one, without any codec.
    """

    name: str
    reader: ReaderName
    file: str
    content: Content
    place: str
    reason: str
    options: tuple[str, ...] = ()
    beside: Mapping[str, bytes] = field(default_factory=dict)
    codecs: tuple[str, ...] = PLAIN
    id_of: Callable[[Document], Any] = lambda document: document.name
    by_entry: bool = False
    refuses_files: bool = False
    has_metadata: bool = False
    takes_folder: bool = False
    has_end: bool = False

    def write(self, folder: Path, docs: Sequence[Document], codec: str = "", *, bad: bool = False) -> Path:
        """Write the documents to a new folder; return the source to read."""
        if self.file.endswith("/"):
            return _write_folder(folder / self.file, docs, bad)
        return self.put(folder, pack(self.content(docs, bad), codec), codec)

    def put(self, folder: Path, data: bytes, codec: str = "") -> Path:
        """Write bytes as the file, with its word list and the like; return the source to read."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.beside.items():
            (folder / name).write_bytes(content)
        path = folder / f"{self.file}{codec}"
        path.write_bytes(data)
        return folder if self.takes_folder else path

    def file_at(self, source: Path) -> Path:
        """Return the file of a source that ``write`` or ``put`` returned."""
        return source / self.file if self.takes_folder else source

    def open(self, source: Path | str) -> Any:
        """Open the reader on a source."""
        options = dict(option.split("=", 1) for option in self.options)
        return open_source(source, self.reader, check_options(self.reader, options))

    def arguments(self) -> list[str]:
        pairs = (option.split("=", 1) for option in self.options)
        named = (part for key, value in pairs for part in (f"--{key.replace('_', '-')}", value))
        return ["--reader", self.reader, *named]


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    # Neither compressed nor dictionary-encoded, so that the bytes of a word are in the file.
    pq.write_table(table, sink, row_group_size=10, compression="NONE", use_dictionary=False)
    return sink.getvalue()


def _spoil(data: bytes, bad: bool) -> bytes:
    return data.replace(b"spoilt", NOT_UTF8) if bad else data


def _text(document: Document) -> str:
    return " ".join(document.words)


def _text_parquet(docs: Sequence[Document], bad: bool) -> bytes:
    columns = {
        "text": [_text(d) for d in docs],
        "id": [d.name for d in docs],
        "year": pa.array([d.year for d in docs], pa.int16()),
    }
    return _spoil(_parquet(pa.table(columns)), bad)


def _json_lines(docs: Sequence[Document], bad: bool) -> bytes:
    records = [{"id": d.name, "text": _text(d), "year": d.year} for d in docs]
    return _spoil("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records).encode(), bad)


def _table_of_texts(delimiter: str) -> Content:
    def content(docs: Sequence[Document], bad: bool) -> bytes:
        rows = [("id", "text", "year"), *((d.name, f'"{_text(d)}"', str(d.year)) for d in docs)]
        return _spoil("".join(delimiter.join(row) + "\n" for row in rows).encode(), bad)

    return content


def _members(docs: Sequence[Document], bad: bool) -> dict[str, bytes]:
    return {f"{d.year}/{d.name}.txt": _spoil(_text(d).encode(), bad) for d in docs}


def _write_folder(folder: Path, docs: Sequence[Document], bad: bool) -> Path:
    for name, data in _members(docs, bad).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def _tar(docs: Sequence[Document], bad: bool) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in _members(docs, bad).items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def _zip(docs: Sequence[Document], bad: bool) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _members(docs, bad).items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return stream.getvalue()


def _entries(docs: Sequence[Document], bad: bool) -> list[tuple[int, int, bytes]]:
    """Return document and word, from 1, and count; the bad count is not a number."""
    return [
        (row, 1 + WORDS.index(word), NOT_UTF8 if bad and word == "spoilt" else str(count).encode())
        for row, document in enumerate(docs, 1)
        for word, count in document.counts.items()
    ]


def _docword(docs: Sequence[Document], bad: bool, head: bytes = b"%d\n%d\n%d\n") -> bytes:
    entries = _entries(docs, bad)
    lines = [b"%d %d %s\n" % entry for entry in entries]
    return head % (len(docs), len(WORDS), len(entries)) + b"".join(lines)


def _matrix_market(docs: Sequence[Document], bad: bool) -> bytes:
    return _docword(docs, bad, b"%%%%MatrixMarket matrix coordinate integer general\n%d %d %d\n")


def _matrix(docs: Sequence[Document], bad: bool) -> sp.csr_matrix:
    dense = np.zeros((len(docs), len(WORDS)), np.int32)
    for row, document in enumerate(docs):
        for word, count in document.counts.items():
            dense[row, WORDS.index(word)] = -1 if bad and word == "spoilt" else count
    return sp.csr_matrix(dense)


def _npz(docs: Sequence[Document], bad: bool) -> bytes:
    stream = io.BytesIO()
    sp.save_npz(stream, _matrix(docs, bad))
    return stream.getvalue()


def _h5ad(docs: Sequence[Document], bad: bool) -> bytes:
    import anndata
    import pandas as pd

    data = anndata.AnnData(
        _matrix(docs, bad),
        obs=pd.DataFrame({"year": [d.year for d in docs]}, index=[d.name for d in docs]),
        var=pd.DataFrame(index=list(WORDS)),
    )
    with tempfile.TemporaryDirectory() as folder:
        data.write_h5ad(Path(folder) / "x.h5ad")
        return (Path(folder) / "x.h5ad").read_bytes()


def _bags_parquet(docs: Sequence[Document], bad: bool) -> bytes:
    matrix = _matrix(docs, bad)
    rows = [matrix[i] for i in range(len(docs))]
    columns = {
        "ids": pa.array([row.indices.tolist() for row in rows], pa.list_(pa.int32())),
        "counts": pa.array([row.data.tolist() for row in rows], pa.list_(pa.int32())),
        "doc_id": [d.name for d in docs],
        "year": pa.array([d.year for d in docs], pa.int16()),
    }
    return _parquet(pa.table(columns))


def _basket_lines(docs: Sequence[Document], bad: bool) -> bytes:
    return _spoil("".join(_text(d) + "\n" for d in docs).encode(), bad)


def _basket_parquet(docs: Sequence[Document], bad: bool) -> bytes:
    return _spoil(_parquet(pa.table({"items": [list(d.words) for d in docs]})), bad)


def _scattered(docs: Sequence[Document]) -> list[tuple[Document, str, int]]:
    """Return (document, word, count) in an order in which documents are not grouped."""
    rows = [(d, word, count) for d in docs for word, count in d.counts.items()]
    return rows[::3] + rows[1::3] + rows[2::3]


#: Row of the word "spoilt" among the scattered ones, from 0.
_AT = [word for _, word, _ in _scattered(documents())].index("spoilt")


def _entry_table(header: Sequence[str], suffix: str) -> Content:
    """Return a writer of triples, or of ratings, which have numbers as users and half the counts."""

    def content(docs: Sequence[Document], bad: bool) -> bytes:
        found, words, counts = zip(*_scattered(docs), strict=True)
        keys = [d.name if header[0] == "document" else d.number + 1 for d in found]
        values = list(counts) if header[2] == "count" else [count / 2 for count in counts]
        columns = dict(zip(header, (keys, list(words), values), strict=True))
        if suffix == ".parquet":
            return _spoil(_parquet(pa.table(columns)), bad)
        rows = [header, *(map(str, row) for row in zip(*columns.values(), strict=True))]
        return _spoil("".join(",".join(row) + "\n" for row in rows).encode(), bad)

    return content


def _place(document: Document) -> int:
    return document.number


def _from_one(document: Document) -> int:
    return document.number + 1


def _member(document: Document) -> str:
    return f"{document.year}/{document.name}.txt"


def _entry_line(head: int) -> int:
    """Return the line of the bad count, from 1, after a header of ``head`` lines."""
    words = [word for d in documents() for word in d.counts]
    return head + 1 + words.index("spoilt")


_LIST = ("\n".join(WORDS) + "\n").encode()
_ROW = f", row group 0, row {BAD} from 0: "
_LINE, _AFTER_HEADER = f", line {BAD + 1}: ", f", line {BAD + 2}: "
_ENTRY_ROW, _ENTRY_LINE = f", row group {_AT // 10}, row {_AT % 10} from 0: ", f", line {_AT + 2}: "
_MEMBER, _NUMBER = f"/{_member(documents()[BAD])}: ", f", file {BAD + 1}: "
_MATRIX_ROW = f", row {BAD} from 0: "
_AFTER_2, _AFTER_3 = f": line {_entry_line(2)} ", f": line {_entry_line(3)} "
_UTF8, _CHARACTER = "not UTF-8", "a byte that is not UTF-8"
_NO_NUMBER, _COUNT = "is not 3 numbers", "count -1 is not in"

_ENDED: dict[str, Any] = {"has_end": True}
_YEARS: dict[str, Any] = {"has_metadata": True}
_PACKED: dict[str, Any] = {"codecs": PACKED}
_MEMBERS: dict[str, Any] = {"id_of": _member}
_PLACES: dict[str, Any] = {"id_of": _place}
_NUMBERS: dict[str, Any] = {"refuses_files": True, **_PACKED, **_ENDED}
_ENTRIES: dict[str, Any] = {"by_entry": True}
_RATINGS: dict[str, Any] = {"by_entry": True, "id_of": _from_one}
_VOCAB: dict[str, Any] = {"beside": {"vocab.txt": _LIST}}
_DOCWORD: dict[str, Any] = {"beside": {"vocab.t.txt": _LIST}, "id_of": _from_one, **_NUMBERS}
_MARKET: dict[str, Any] = {**_VOCAB, "id_of": _place, **_NUMBERS}
_CELLS: dict[str, Any] = {"options": ("metadata=year",), **_YEARS, **_ENDED}
_BAGS: dict[str, Any] = {**_VOCAB, **_YEARS, **_ENDED, "takes_folder": True}

_CSV, _TSV = _table_of_texts(","), _table_of_texts("\t")
_TRIPLE, _RATING = ("document", "word", "count"), ("user", "item", "rating")
_TRIPLES, _TRIPLES_PQ = _entry_table(_TRIPLE, ".csv"), _entry_table(_TRIPLE, ".parquet")
_RATED, _RATED_PQ = _entry_table(_RATING, ".csv"), _entry_table(_RATING, ".parquet")

#: Options that keep every word and document.
KEEP_ALL = ("--stop-words", "none", "--min-distinct-words", "0", "--min-tokens", "0")

FORMATS = (
    Format("text-parquet", "text", "t.parquet", _text_parquet, _ROW, _CHARACTER, **_YEARS, **_ENDED),
    Format("text-json", "text", "t.jsonl", _json_lines, _LINE, _UTF8, **_PACKED, **_YEARS),
    Format("text-csv", "text", "t.csv", _CSV, _AFTER_HEADER, _CHARACTER, **_PACKED, **_YEARS),
    Format("text-tsv", "text", "t.tsv", _TSV, _AFTER_HEADER, _CHARACTER, **_PACKED, **_YEARS),
    Format("folder", "text-files", "texts/", _tar, _MEMBER, _UTF8, **_MEMBERS),
    Format("tar", "text-files", "t.tar", _tar, _NUMBER, _UTF8, **_PACKED, **_MEMBERS, **_ENDED),
    Format(
        "zip", "text-files", "t.zip", _zip, f": {_member(documents()[BAD])}: ", _UTF8, **_MEMBERS, **_ENDED
    ),
    Format("lines", "lines", "t.txt", _basket_lines, _LINE, _UTF8, **_PACKED, **_PLACES),
    Format("docword", "docword", "docword.t.txt", _docword, _AFTER_3, _NO_NUMBER, **_DOCWORD),
    Format("matrix-market", "matrix-market", "t.mtx", _matrix_market, _AFTER_2, _NO_NUMBER, **_MARKET),
    Format("npz", "npz", "t.npz", _npz, _MATRIX_ROW, _COUNT, **_VOCAB, **_PLACES, **_ENDED),
    Format("h5ad", "h5ad", "t.h5ad", _h5ad, _MATRIX_ROW, _COUNT, **_CELLS),
    Format("bags-parquet", "bag-of-words-parquet", "t.parquet", _bags_parquet, _ROW, _COUNT, **_BAGS),
    Format("baskets", "baskets", "t.baskets", _basket_lines, _LINE, _UTF8, **_PACKED, **_PLACES),
    Format("baskets-parquet", "baskets", "t.parquet", _basket_parquet, _ROW, _CHARACTER, **_PLACES, **_ENDED),
    Format("triples", "triples", "t.csv", _TRIPLES, _ENTRY_LINE, _UTF8, **_PACKED, **_ENTRIES),
    Format("triples-parquet", "triples", "t.parquet", _TRIPLES_PQ, _ENTRY_ROW, _UTF8, **_ENTRIES, **_ENDED),
    Format("ratings", "ratings", "t.csv", _RATED, _ENTRY_LINE, _UTF8, **_PACKED, **_RATINGS),
    Format("ratings-parquet", "ratings", "t.parquet", _RATED_PQ, _ENTRY_ROW, _UTF8, **_RATINGS, **_ENDED),
)
BY_NAME = {each.name: each for each in FORMATS}


#: Default-ignorable characters but the space of width zero.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u0640\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def words_of(text: str, form: Any = "NFC") -> list[str]:
    """Return the runs of letters, digits and marks from the first letter or digit, character by character."""
    kind = lambda character: unicodedata.category(character)[0]  # noqa: E731
    normal = unicodedata.normalize(form, INVISIBLE.sub("", text))
    runs = ("".join(run) for inside, run in itertools.groupby(normal, lambda c: kind(c) in "LNM") if inside)
    words = ("".join(itertools.dropwhile(lambda c: kind(c) == "M", run)) for run in runs)
    return [unicodedata.normalize(form, word.replace("İ", "i").lower()) for word in words if word]
