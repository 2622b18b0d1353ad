"""The contract of all readers, tested for every format and codec, mostly through the command ``ingest``."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from streaming_jsmf.ingestion.readers import text_files
from streaming_jsmf.ingestion.sources.protocol import BadRecords, limits
from tests.observations import corpus_contents
from tests.outcomes import Command, Outcome, refused
from tests.readers import (
    BAD,
    BY_NAME,
    FORMATS,
    KEEP_ALL,
    MOST,
    NOT_UTF8,
    WORDS,
    Document,
    Format,
    documents,
    pack,
)
from tests.sources import Read, message, put, small

QUIET = ("--preset", "papers", "--quiet", *KEEP_ALL)
QUARANTINE = ("--on-bad-record", "quarantine")


def parquet(columns: dict[str, pa.Array]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def npz(matrix: Any) -> bytes:
    sink = io.BytesIO()
    sp.save_npz(sink, sp.csr_matrix(matrix))
    return sink.getvalue()


@pytest.fixture
def ingest(invoke: Command, tmp_path: Path) -> Command:
    """Ingest a source into ``tmp_path/out``; a refusal must leave nothing there."""

    def call(source: Path, kind: Format, *options: object, out: str = "out") -> Outcome:
        before = sorted(tmp_path.rglob("*"))
        arguments = [source, tmp_path / out, *kind.arguments(), *QUIET, *options]
        outcome = invoke("ingest", "--scheduler", "synchronous", *arguments)
        if outcome.code:
            assert sorted(tmp_path.rglob("*")) == before, "something half written is left"
        return outcome.without_progress()

    return call


def bags(corpus: Path) -> dict[Any, dict[str, int]]:
    """Return the counts of each document by id."""
    words = pq.read_table(corpus / "vocabulary.parquet").column("word").to_pylist()
    shards = [shard["name"] for shard in json.loads((corpus / "manifest.json").read_text())["shards"]]
    rows = pa.concat_tables(pq.read_table(corpus / shard) for shard in shards).to_pylist()
    found = {
        r["document_id"]: {words[i]: c for i, c in zip(r["ids"], r["counts"], strict=True)} for r in rows
    }
    assert len(found) == len(rows)
    return found


def expected(kind: Format, docs: list[Document], *, bad: bool = False) -> dict[Any, dict[str, int]]:
    """Return the expected counts; with ``bad``, without what is quarantined."""
    found: dict[Any, dict[str, int]] = {}
    for document in docs:
        counts = document.counts
        if bad and document.number == BAD:
            if not kind.by_entry:
                continue
            del counts["spoilt"]
        found[kind.id_of(document)] = counts
    return found


def quarantined(corpus: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(corpus / "quarantine.parquet").to_pylist()
    return rows


def named(kinds: list[Format]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.name)


EACH = named(list(FORMATS))


def packed() -> Iterator[Any]:
    """Yield every format with every codec; the default run has one codec per format, in turn."""
    for number, kind in enumerate(f for f in FORMATS if len(f.codecs) > 1):
        codecs = kind.codecs[1:]
        for codec in codecs:
            marks = () if codec == codecs[number % len(codecs)] else pytest.mark.slow
            yield pytest.param(kind, codec, id=f"{kind.name}{codec}", marks=marks)


PACKED = pytest.mark.parametrize(("kind", "codec"), list(packed()))


@EACH
def test_every_document_is_read(kind: Format, ingest: Command, tmp_path: Path) -> None:
    docs = documents()
    outcome = ingest(kind.write(tmp_path / "in", docs), kind)
    assert (outcome.code, outcome.err) == (0, "")
    assert bags(tmp_path / "out") == expected(kind, docs)
    schema = pq.read_schema(tmp_path / "out" / "documents" / "part-00000.parquet")
    assert ("year" in schema.names) == kind.has_metadata


def read_all(kind: Format, source: Path | str, scratch: Path, policy: str = "quarantine") -> Read:
    """Read a source without the rest of an ingest."""
    opened = kind.open(source)
    scratch.mkdir(exist_ok=True)
    return Read(opened, policy, scratch=scratch if hasattr(opened, "scatter") else None)


#: Formats that can only be read from their start.
WHOLE = ("tar", "docword", "matrix-market", "npz", "h5ad")


@EACH
def test_units_and_batches_of_any_size_give_the_same_documents(
    kind: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = kind.write(tmp_path / "in", documents(), bad=not kind.refuses_files)
    whole = read_all(kind, source, tmp_path / "out")
    assert (len(whole.units), len(whole.bad)) == (1, int(not kind.refuses_files))
    monkeypatch.setattr(text_files, "UNIT_FILES", 3)
    for size in (1, 29):
        with small(unit=20 * size, batch=size, values=size):
            cut = read_all(kind, source, tmp_path / "out")
        for name in ("bags", "ids", "metadata", "rows", "places", "bad"):
            assert getattr(cut, name) == getattr(whole, name), name
        assert len(cut.batches) > len(whole.batches)
        assert (len(cut.units) == 1) == (kind.name in WHOLE)


@EACH
def test_a_source_behind_a_url(kind: Format, tmp_path: Path) -> None:
    source = kind.write(tmp_path / "in", documents())
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "in"), "/t_url", recursive=True)
    try:
        url = f"memory://t_url/{source.relative_to(tmp_path / 'in')}".removesuffix("/.")
        found = read_all(kind, url, tmp_path / "out")
    finally:
        memory.rm("/t_url", recursive=True)
    true = read_all(kind, source, tmp_path / "out")
    assert (found.bags, found.ids, found.metadata) == (true.bags, true.ids, true.metadata)


@pytest.mark.parametrize("column", ["doc_id", "place"])
def test_strings_of_bags_are_utf8(column: str, tmp_path: Path) -> None:
    strings = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    columns = {"ids": pa.array([[0]] * 3, pa.list_(pa.int32())), "counts": [[1]] * 3, column: strings}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    (tmp_path / "vocab.txt").write_text("word\n")
    read = read_all(BY_NAME["bags-parquet"], tmp_path, tmp_path / "out")
    assert read.metadata.get(column, read.ids) == ["a", "\ufffd", "c"]
    assert [list(batch.notes) for batch in read.batches] == [[column]]


@named([f for f in FORMATS if f.file.endswith(".parquet")])
@pytest.mark.parametrize("suffix", [".pq", ".parq"])
def test_other_suffixes_of_parquet(kind: Format, suffix: str, ingest: Command, tmp_path: Path) -> None:
    source = kind.write(tmp_path / "in", documents())
    file = kind.file_at(source).rename(kind.file_at(source).with_suffix(suffix))
    for given in {file, file.parent} - ({file} if kind.takes_folder else set()):
        assert ingest(given, kind, out=f"of-{given.name}").code == 0
        assert bags(tmp_path / f"of-{given.name}") == expected(kind, documents())


@PACKED
def test_compressed_files_give_the_same_corpus(
    kind: Format, codec: str, ingest: Command, tmp_path: Path
) -> None:
    docs = documents()
    path = kind.write(tmp_path / "in", docs, codec)
    outcome = ingest(path, kind)
    assert (outcome.code, outcome.err) == (0, "")
    assert ingest(kind.write(tmp_path / "plain", docs), kind, out="expected").code == 0
    contents = corpus_contents(tmp_path / "out")
    assert contents == corpus_contents(tmp_path / "expected")
    if kind.reader != "text-files":  # for which a folder is no folder of archives
        assert ingest(path.parent, kind, out="of-the-folder").code == 0
        assert corpus_contents(tmp_path / "of-the-folder") == contents


@PACKED
def test_records_before_a_truncation_are_kept(
    kind: Format, codec: str, ingest: Command, tmp_path: Path
) -> None:
    if kind.refuses_files:
        return
    docs = documents(MOST)
    whole = pack(kind.content(docs, False), codec)
    # zstd decompresses blocks of 128 KB, of which these files have few.
    cut = len(whole) - 3 if codec == ".zst" else len(whole) * 3 // 4
    path = kind.put(tmp_path / "in", whole[:cut], codec)
    outcome = ingest(path, kind, *QUARANTINE)
    assert (outcome.code, outcome.err) == (0, "")
    found, true = bags(tmp_path / "out"), expected(kind, docs)
    assert (
        0 < sum(sum(bag.values()) for bag in found.values()) < sum(sum(bag.values()) for bag in true.values())
    )
    assert all(bag.items() <= true[key].items() for key, bag in found.items())
    if kind.reader not in ("triples", "ratings"):  # whose rows come in any order
        assert list(found) == list(true)[: len(found)]
        assert [key for key, bag in found.items() if bag != true[key]] in ([], [list(found)[-1]])
    bad = quarantined(tmp_path / "out")
    assert {Path(each["file"]) for each in bad} == {path}
    assert any("fetch" in each["reason"] for each in bad)


def flipped(data: bytes) -> bytes:
    """Return the data with changed bytes in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes(255 - byte for byte in data[middle : middle + 40]) + data[middle + 40 :]


@PACKED
def test_truncated_and_damaged_compressed_files(
    kind: Format, codec: str, ingest: Command, tmp_path: Path
) -> None:
    plain = kind.content(documents(), False)
    whole = pack(plain, codec)
    # After the last file of a tar archive there are only zeros, which may be lost.
    most = len(whole) * 3 // 4 if kind.reader == "text-files" else len(whole) - 3
    damaged = {"start": whole[:6], "half": whole[: len(whole) // 2], "most": whole[:most], "plain": plain}
    for name, data in {**damaged, "flipped": flipped(whole)}.items():
        path = kind.put(tmp_path / name, data, codec)
        # Changed bytes may give a bad record before the damage is detected.
        refused(ingest(path, kind), 2, str(path), "" if name == "flipped" else "fetch")


@named([f for f in FORMATS if f.has_end])
def test_truncated_plain_files(kind: Format, ingest: Command, tmp_path: Path) -> None:
    whole = kind.content(documents(), False)
    for length in (len(whole) // 2, len(whole) * 3 // 4):
        path = kind.put(tmp_path / f"{length}", whole[:length])
        outcome = ingest(path, kind)
        refused(outcome, 2, str(kind.file_at(path)))
        assert re.search("ends early|damaged|truncated|the header says", outcome.err), outcome.err


@EACH
def test_a_bad_record_is_located_or_quarantined(kind: Format, ingest: Command, tmp_path: Path) -> None:
    docs = documents()
    for codec in {"", ".gz"} & set(kind.codecs):
        source = kind.write(tmp_path / f"in{codec}", docs, codec, bad=True)
        place = f"{kind.file_at(source)}{kind.place}"
        corpus = tmp_path / f"out{codec}"
        if kind.refuses_files:
            refused(ingest(source, kind), 2, place, kind.reason, "correct the file")
            continue
        refused(ingest(source, kind, out=corpus.name), 2, place, kind.reason, "--on-bad-record quarantine")
        assert ingest(source, kind, *QUARANTINE, out=corpus.name).code == 0
        assert bags(corpus) == expected(kind, docs, bad=True)
        [bad] = quarantined(corpus)
        assert Path(bad["file"]) == kind.file_at(source)
        assert kind.reason in bad["reason"]
        assert isinstance(bad["row"], int)
        assert NOT_UTF8 in bad["record"] or b"-1" in bad["record"]


@EACH
def test_empty_and_missing_sources(kind: Format, ingest: Command, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / ("" if kind.takes_folder else kind.file.strip("/"))
    refused(
        ingest(path, kind), 2, f"error: {str(path).rstrip('/')}: no such file or directory; check the path"
    )
    if kind.file.endswith("/"):
        path = tmp_path / "in"
        path.mkdir()
        refused(ingest(path, kind), 2, f"there are no files at {path}")
        return
    path = kind.put(tmp_path / "in", b"")
    refused(ingest(path, kind), 2, str(kind.file_at(path)))
    if ".gz" in kind.codecs:
        for name, content in (("packed", pack(b"", ".gz")), ("nothing", b"")):
            path = kind.put(tmp_path / name, content, ".gz")
            refused(ingest(path, kind), 2, str(path))


# A folder is listed again when it is read.
@named([f for f in FORMATS if f.name != "folder"])
def test_a_file_that_disappears(kind: Format, tmp_path: Path) -> None:
    source = kind.write(tmp_path / "in", documents())
    opened = kind.open(source)
    unit = opened.units()[0]
    kind.file_at(source).unlink()

    def read(bad: BadRecords) -> None:
        if hasattr(opened, "scatter"):
            opened.scatter(unit, bad, tmp_path / "0.arrow", 1)
        else:
            assert not list(opened.read(unit, bad))

    found = message(lambda: read(BadRecords("fail", unit, opened.place)))
    assert str(kind.file_at(source)) in found
    assert "check the path" in found
    if kind.name != "h5ad":  # whose words are in the file
        bad = BadRecords("quarantine", unit, opened.place)
        read(bad)
        assert "No such file" in bad.records[0].reason


@EACH
def test_tasks_do_not_contain_the_words(kind: Format, tmp_path: Path) -> None:
    """A task does not carry the words; each reads them for itself."""
    opened = kind.open(kind.write(tmp_path / "in", documents()))
    opened.units()
    data = pickle.dumps(opened)
    assert len(data) < 1500
    assert WORDS[0].encode() not in data
    assert pickle.loads(data) == opened


# An AnnData file contains its words, which must be compared with those of the other files. Empty files of texts are
# left out.
@named([f for f in FORMATS if f.reader not in ("text-files", "h5ad") and not re.match("text-[^p]", f.name)])
def test_unreadable_files_among_others_are_quarantined(kind: Format, ingest: Command, tmp_path: Path) -> None:
    docs = documents()
    folder = tmp_path / "in"
    kind.write(folder, docs)
    empty = []
    for letter in "su":  # before and after t
        for name, content in kind.beside.items():
            (folder / re.sub(r"\bt\.", f"{letter}.", name)).write_bytes(content)
        empty.append(folder / re.sub(r"\bt\.", f"{letter}.", kind.file))
        empty[-1].write_bytes(b"")
    outcome = ingest(folder, kind)
    refused(outcome, 2, str(folder))
    assert any(str(path) in outcome.err for path in empty)
    assert ingest(folder, kind, *QUARANTINE).code == 0
    assert bags(tmp_path / "out") == expected(kind, docs)
    found = [(Path(bad["file"]), bad["row"]) for bad in quarantined(tmp_path / "out")]
    assert sorted(found) == [(path, None) for path in empty]


_HEAD = b"%%MatrixMarket matrix coordinate integer general\n"
_TEXTS = pa.array([b"ant", b"", b"\xff", b"cat"])
_NPZ = np.array([[1, 0], [0, 0], [-1, 0], [0, 1]])

#: By reader: two files without ids. The first one has four records, of which the second is empty and the third bad
#: (where that does not refuse the file), and blank lines where they are no records.
WITHOUT_IDS: dict[str, tuple[str, bytes, bytes]] = {
    "text": (".csv", b'text,a\n"ant\nbee",1\n\n,2\n\xff,3\ncat,4\n\n', b"text,a\ndog,5\n"),
    "text-json": (
        ".jsonl",
        b'{"text": "ant"}\n\n{"text": ""}\n\n{"te\n{"text": "cat"}\n\n\n',
        b'{"text": "dog"}\n',
    ),
    "text-parquet": (
        ".parquet",
        parquet({"text": _TEXTS.view(pa.string())}),
        parquet({"text": pa.array(["dog"])}),
    ),
    "lines": (".txt", b"\nant\n\n?!\n\xff\ncat\n\n", b"dog\n"),
    "baskets": (".baskets", b"ant\n\n\xff\ncat\n", b"dog\n"),
    "npz": (".npz", npz(_NPZ), npz(_NPZ[:1])),
    "matrix-market": (".mtx", _HEAD + b"4 2 3\n1 1 1\n3 1 1\n4 2 1\n", _HEAD + b"1 2 1\n1 1 1\n"),
    "docword": (".txt", b"4\n2\n3\n1 1 1\n3 1 1\n4 2 1\n", b"1\n2\n1\n1 1 1\n"),
}


@pytest.mark.parametrize("unit", [8, 8 << 20])
@pytest.mark.parametrize("name", WITHOUT_IDS)
def test_documents_without_ids_have_the_numbers_of_their_records(
    name: str, unit: int, invoke: Command, tmp_path: Path
) -> None:
    """Records are counted from 0 over all files (from 1 for docword, as in its files), bad and empty ones as well."""
    suffix, first, second = WITHOUT_IDS[name]
    folder, reader = tmp_path / "in", name.partition("-")[0] if name.startswith("text") else name
    stem = "docword." * (name == "docword")
    put(folder / f"{stem}a{suffix}", first)
    put(folder / f"{stem}b{suffix}", second)
    for words in ("vocab.txt", "vocab.a.txt", "vocab.b.txt"):
        put(folder / words, "ant\ncat\n")
    command = ("ingest", folder, tmp_path / "c", "--reader", reader, *QUIET, *QUARANTINE)
    with small(unit=unit):
        assert invoke(*command, "--scheduler", "synchronous").code == 0
    numbers = {"docword": [1, 2, 3, 4, 5], "matrix-market": [0, 1, 2, 3, 4]}
    assert list(bags(tmp_path / "c")) == numbers.get(name, [0, 1, 3, 4])


@named([f for f in FORMATS if f.beside])
def test_a_word_list_that_is_not_utf8(kind: Format, ingest: Command, tmp_path: Path) -> None:
    source = kind.write(tmp_path / "in", documents())
    [name] = kind.beside
    path = tmp_path / "in" / name
    path.write_bytes(path.read_bytes().replace(b"spoilt", NOT_UTF8))
    refused(ingest(source, kind), 2, str(path), "UTF-8")


@named([f for f in FORMATS if ".gz" in f.codecs and f.reader != "text-files"])
def test_a_line_without_end_is_quarantined(
    kind: Format, ingest: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few compressed bytes give a line that is longer than allowed and spans many batches."""
    for name in ("LONGEST_LINE", "BATCH_BYTES"):
        monkeypatch.setattr(limits, name, getattr(limits, name) >> 5)
    docs, line = documents(), pack(b"1" * (limits.LONGEST_LINE + limits.BATCH_BYTES), ".gz")
    path = kind.put(tmp_path / "in", pack(kind.content(docs, False), ".gz") + line, ".gz")
    refused(ingest(path, kind), 2, str(path), "longer than")
    if kind.refuses_files:
        return
    assert ingest(path, kind, *QUARANTINE).code == 0
    assert bags(tmp_path / "out") == expected(kind, docs)
    for bad in quarantined(tmp_path / "out"):
        assert len(bad["record"] or b"") <= 1 << 20
