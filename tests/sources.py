"""Read sources with checks of every batch, and check messages about bad records."""

from __future__ import annotations

import gzip
import io
import itertools
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf.config import READER_OPTIONS, TokenOptions
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.sources.protocol import BadRecords, Unit, limits
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer

BUCKET = Unit("the bucket")


def tokenizing(
    name: str = "arrow", stop_words: str = "none", phrases: tuple[str, ...] = (), **options: Any
) -> Tokenizer:
    """Return a tokenizer with these options."""
    return Tokenizer(TokenOptions(tokenizer=name, **options), stop_words, phrases)


def opened(kind: Any, *paths: Any, **options: Any) -> Any:
    """Open a reader on files."""
    return kind.open("", tuple(map(str, paths)), READER_OPTIONS[kind.reader](**options), Tokenizer())


class Read:
    """Documents of a source, which is pickled first; every batch is checked.

    Attributes
    ----------
    bags, ids, metadata
        Counts by word of each document, its id, and the columns.
    rows, places
        Of each document within its file.
    bad
        (row within its file or None, reason, record) of each bad record.
    """

    def __init__(
        self,
        source: Any,
        policy: Any = "fail",
        *,
        scratch: Path | None = None,
        n_buckets: int = 3,
        order: Any = list,
    ) -> None:
        self.source = pickle.loads(pickle.dumps(source))
        self.bags: list[dict[str, Any]] = []
        self.ids: list[Any] = []
        self.metadata: dict[str, list[Any]] = {}
        self.rows: list[int] = []
        self.places: list[str] = []
        self.bad: list[tuple[int | None, str, bytes | None]] = []
        self.batches: list[Any] = []
        self.scattered: list[Path] = []
        self.units = self.source.units()
        for number, unit in enumerate(self.units):
            with self._checked(policy, unit) as bad:
                if scratch is None:
                    self._take(unit, self.source.read(unit, bad))
                else:
                    self.scattered.append(scratch / f"{number}.arrow")
                    self.source.scatter(unit, bad, self.scattered[-1], n_buckets)
        for bucket in range(n_buckets if scratch else 0):
            with self._checked(policy, BUCKET) as bad:
                self._take(BUCKET, self.source.gather(order(self.scattered), bucket, n_buckets, bad))

    @contextmanager
    def _checked(self, policy: Any, unit: Unit) -> Iterator[BadRecords]:
        bad = BadRecords(policy, unit, self.source.place)
        yield bad
        for record in bad.records:
            row = None if record.row is None else self.source.first_row(unit) + record.row
            self.bad.append((row, record.reason, record.record))

    def _take(self, unit: Unit, batches: Any) -> None:
        rows: list[int] = []
        for batch in batches:
            bags = batch.bags
            assert batch.n_documents == len(batch.rows) == len(bags)
            assert (bags.indptr.dtype, bags.ids.dtype, bags.indptr[0]) == (np.int64, np.int32, 0)
            assert bags.counts.dtype in (np.int32, np.float32)
            assert bags.indptr[-1] == len(bags.ids) == len(bags.counts)
            words = self.source.vocabulary if bags.words is None else bags.words.to_pylist()
            assert len(set(words)) == len(words)
            for start, stop in itertools.pairwise(bags.indptr):
                bag = dict(zip(bags.ids[start:stop].tolist(), bags.counts[start:stop].tolist(), strict=True))
                assert len(bag) == stop - start
                assert all(count > 0 for count in bag.values())
                self.bags.append({words[code]: count for code, count in bag.items()})
            for name, values in {"": batch.document_id, **batch.metadata}.items():
                if values is not None:
                    assert len(values) == batch.n_documents
                    values.validate(full=True)
                    (self.metadata.setdefault(name, []) if name else self.ids).extend(values.to_pylist())
            rows += batch.rows.tolist()
            self.batches.append(batch)
        assert rows == sorted(rows)
        if rows and unit is not BUCKET:
            first = self.source.first_row(unit)
            self.rows += [first + row for row in rows]
            self.places += [self.source.place(unit, row) for row in rows]

    @property
    def documents(self) -> dict[Any, dict[str, Any]]:
        """Bags by id."""
        assert len(set(self.ids)) == len(self.ids) == len(self.bags)
        return dict(zip(self.ids, self.bags, strict=True))

    @property
    def words(self) -> list[str]:
        return [" ".join(bag) for bag in self.bags]


def message(call: Callable[[], Any]) -> str:
    """Return the message of an InputError, which must be one line that says what to do."""
    with pytest.raises(InputError) as caught:
        call()
    found = str(caught.value)
    assert len(found.splitlines()) == 1
    assert any(part in found for part in (";", "--delimiter", "--encoding", "check the path")), found
    return found


def refused_by(source: Any, *parts: str, **options: Any) -> Read:
    """Check the message about a bad record, and return what is read with quarantine."""
    found = message(lambda: Read(source, **options))
    for part in parts:
        assert part in found, found
    read = Read(source, "quarantine", **options)
    assert read.bad
    return read


@contextmanager
def small(**values: int) -> Iterator[None]:
    """Small limits: ``unit``, ``batch`` (bytes), ``values``, ``line``, ``file``, ``names``."""
    names = {"unit": "UNIT_BYTES", "batch": "BATCH_BYTES", "values": "BATCH_VALUES"}
    names |= {"line": "LONGEST_LINE", "file": "LARGEST_FILE", "names": "LARGEST_NAMES"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(limits, names[name], value)
        yield


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
    return path


def put_parquet(path: Path, columns: Any, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
    return path


def in_tar(files: Mapping[str, bytes], mode: str = "w:gz", prefix: str = "") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        folder = tarfile.TarInfo(f"{prefix}en")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        link = tarfile.TarInfo(f"{prefix}link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
        for name, data in files.items():
            entry = tarfile.TarInfo(prefix + name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    # Without the time, so that the bytes, and names of tests with them, are always the same.
    return gzip.compress(stream.getvalue(), mtime=0) if mode == "w:gz" else stream.getvalue()


def in_zip(files: Mapping[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        # At a fixed time, so that the bytes are always the same.
        archive.writestr(zipfile.ZipInfo("en/"), b"")
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return stream.getvalue()
