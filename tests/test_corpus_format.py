"""The corpus directory: what `open_corpus` accepts and refuses, and what the writer's bytes depend on."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_jsmf.corpus import Corpus, CorpusWriter, open_corpus
from streaming_jsmf.corpus.bags import Bags, Documents
from streaming_jsmf.corpus.format import read_manifest, verify_corpus
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD, ShardLimits
from streaming_jsmf.corpus.units import list_units
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.interface.describe import describe
from tests.corpora import iter_documents

SHIPPED = Path(__file__).parent.parent / "data_specs" / "uci_nips"
WORDS = ("ant", "bee", "cat", "dog", "eel")
BAGS = ({0: 1, 2: 3}, {}, {1: 2, 2: 1, 4: 7}, {0: 1}, {3: 4, 4: 1})


def lists(bags, ids_type=None, counts_type=None):
    return {
        "ids": pa.array([sorted(bag) for bag in bags], ids_type or pa.list_(pa.int32())),
        "counts": pa.array(
            [[bag[i] for i in sorted(bag)] for bag in bags], counts_type or pa.list_(pa.int32())
        ),
    }


def documents_of(bags, dtype=np.int32, first=0) -> Documents:
    indptr = np.cumsum([0, *map(len, bags)]).astype(np.int64)
    ids = np.array([i for bag in bags for i in sorted(bag)], np.int32)
    counts = np.array([bag[i] for bag in bags for i in sorted(bag)], dtype)
    return Documents(
        Bags(indptr, ids, counts),
        pa.array(np.arange(first, first + len(bags))),
        {"year": pa.array([str(1990 + first + i) for i in range(len(bags))])},
    )


def bags_of(corpus: Corpus):
    found = []
    for block in (documents.bags for documents in iter_documents(corpus)):
        for low, high in zip(block.indptr[:-1], block.indptr[1:], strict=True):
            pairs = zip(block.ids[low:high].tolist(), block.counts[low:high].tolist(), strict=True)
            found.append(dict(pairs))
    return tuple(found)


def write(target, bags=BAGS, sizes=(1000,), dtype=np.int32, **limits) -> Corpus:
    with CorpusWriter(target, WORDS, ShardLimits(**limits)) as writer:
        start = turn = 0
        while start < len(bags):
            stop = start + sizes[turn % len(sizes)]
            writer.write(documents_of(bags[start:stop], dtype, start))
            start, turn = stop, turn + 1
        return writer.commit()


def in_place(directory: Path, columns, **options) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), directory / "a.parquet", **options)
    (directory / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return directory


def hashes(root: Path):
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_written_corpus_reads_back(tmp_path):
    corpus = write(tmp_path / "c", documents_per_shard=2)
    assert [shard.name for shard in corpus.shards] == [f"documents/part-0000{i}.parquet" for i in range(3)]
    assert (corpus.n_documents, corpus.nonzeros, corpus.n_words) == (5, 8, 5)
    assert bags_of(corpus) == BAGS
    vocabulary = corpus.vocabulary()
    assert vocabulary.words == WORDS
    assert vocabulary.document_frequency.tolist() == [2, 1, 2, 1, 2]
    assert vocabulary.term_count.tolist() == [2, 2, 4, 4, 8]
    # floor(5 / df) is 2 or 5
    tf_idf = pq.read_table(Path(corpus.root) / "vocabulary.parquet").column("tf_idf")
    np.testing.assert_allclose(tf_idf, np.log([2, 5, 2, 5, 2]) * [2, 2, 4, 4, 8], rtol=1e-15)
    totals = read_manifest(tmp_path / "c").totals
    assert (totals.documents, totals.nonzeros, totals.tokens) == (5, 8, 20)
    verify_corpus(corpus)
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    table = pq.read_table(corpus.shard_path(corpus.shards[1]))
    assert table.schema.names == ["ids", "counts", "document_id", "year"]
    assert table.column("document_id").to_pylist() == [2, 3]
    assert table.column("year").to_pylist() == ["1992", "1993"]


def test_fingerprint_is_the_hash_of_hashes_and_does_not_depend_on_the_place(tmp_path):
    corpus = write(tmp_path / "c", documents_per_shard=2)
    text = "\n".join([corpus.vocabulary_sha256, *(shard.sha256 for shard in corpus.shards)])
    assert corpus.fingerprint == hashlib.sha256(text.encode()).hexdigest()
    shutil.move(tmp_path / "c", tmp_path / "d")
    assert open_corpus(tmp_path / "d").fingerprint == corpus.fingerprint
    assert write(tmp_path / "e", BAGS[:4], documents_per_shard=2).fingerprint != corpus.fingerprint


bag_lists = st.lists(
    st.dictionaries(st.integers(0, 4), st.sampled_from([1, 2, 0.1, 0.7, 1e6]), max_size=5),
    min_size=1,
    max_size=30,
).filter(any)


@settings(max_examples=25, deadline=None)
@given(
    bags=bag_lists,
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    tokens=st.integers(1, 40),
    nonzeros=st.integers(1, 12),
)
def test_batches_do_not_change_the_bytes(tmp_path_factory, bags, sizes, tokens, nonzeros):
    limits = {"tokens_per_shard": tokens, "nonzeros_per_row_group": nonzeros, "dtype": np.float32}
    tmp_path = tmp_path_factory.mktemp("bytes")
    whole = write(tmp_path / "a", bags, **limits)
    write(tmp_path / "b", bags, sizes=sizes, **limits)
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")
    assert bags_of(whole) == tuple({i: float(np.float32(c)) for i, c in bag.items()} for bag in bags)
    for shard in whole.shards:
        metadata = pq.read_metadata(whole.shard_path(shard))
        for g in range(metadata.num_row_groups):
            group = metadata.row_group(g)
            pairs = group.column(0).num_values - group.column(0).statistics.null_count
            assert pairs <= nonzeros or group.num_rows == 1


def test_writer_refuses_and_cleans_up(tmp_path):
    write(tmp_path / "c")
    write(tmp_path / "c")
    with pytest.raises(InputError, match=r"c: exists already.*; remove it"):
        write(tmp_path / "c", [*BAGS, *BAGS])
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="is an empty folder, not a corpus, and is not replaced"):
        CorpusWriter(tmp_path / "mine", WORDS)
    (tmp_path / "mine").rmdir()
    with pytest.raises(InputError, match="at least 1"):
        CorpusWriter(tmp_path / "d", WORDS, ShardLimits(documents_per_shard=-1))
    with pytest.raises(InputError, match="empty corpus"):
        write(tmp_path / "d", [{}, {}])
    with CorpusWriter(tmp_path / "d", WORDS) as writer:
        writer.write(documents_of(BAGS))
        with pytest.raises(InputError, match=r"counts: list<element: float not null>.*those before them"):
            writer.write(documents_of(BAGS, np.float32))
        assert not (tmp_path / "d").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("statistics", [True, False])
def test_directory_is_used_in_place(tmp_path, statistics):
    columns = lists(BAGS, pa.large_list(pa.int64()), pa.list_(pa.float64()))
    root = in_place(tmp_path / "c", columns, write_statistics=statistics)
    corpus = open_corpus(root)
    # Without statistics a footer cannot tell the one empty list from a list of one.
    assert (corpus.n_documents, corpus.nonzeros) == (5, 8 if statistics else 9)
    assert corpus.shards[0].sha256 == hashlib.sha256((root / "a.parquet").read_bytes()).hexdigest()
    assert corpus.vocabulary_sha256 == hashlib.sha256((root / "vocab.txt").read_bytes()).hexdigest()
    assert bags_of(corpus) == BAGS
    vocabulary = corpus.vocabulary()
    assert vocabulary.words == WORDS
    assert vocabulary.document_frequency is None
    assert vocabulary.term_count is None


def test_vocabulary_argument_and_documents_folder(tmp_path):
    root = in_place(tmp_path / "c" / "documents", lists(BAGS)).parent
    with pytest.raises(
        InputError,
        match=r"is a folder without a vocabulary .*, not a corpus; .*streaming-jsmf ingest ",
    ):
        open_corpus(root)
    corpus = open_corpus(root, root / "documents" / "vocab.txt")
    assert [shard.name for shard in corpus.shards] == ["documents/a.parquet"]
    pq.write_table(pa.table({"word": WORDS}), root / "words.parquet")
    assert open_corpus(root, root / "words.parquet").vocabulary().words == WORDS
    with pytest.raises(InputError, match="no vocabulary at"):
        open_corpus(root, root / "none.txt")


def test_url_gives_the_same_fingerprint(tmp_path):
    local = write(tmp_path / "c", documents_per_shard=2)
    fs = fsspec.filesystem("memory")
    fs.put(str(tmp_path / "c"), "/corpus", recursive=True)
    try:
        remote = open_corpus("memory://corpus/")
        assert remote.fingerprint == local.fingerprint
        assert remote.shard_path(remote.shards[0]) == "memory://corpus/documents/part-00000.parquet"
        assert bags_of(remote) == BAGS
        fs.rm("/corpus/manifest.json")
        assert open_corpus("memory://corpus").fingerprint == local.fingerprint
        fs.pipe("/corpus/documents/part-00000.parquet", b"PAR1")
        with pytest.raises(StoreError, match="part-00000"):
            open_corpus("memory://corpus")
    finally:
        fs.rm("/corpus", recursive=True)
    with pytest.raises(InputError, match="cannot open nosuch://x"):
        open_corpus("nosuch://x")
    assert open_corpus(f"file://{tmp_path}/c").root == str(tmp_path / "c")


INT, FLOAT = pa.list_(pa.int32()), pa.list_(pa.float32())
REFUSED = [
    ({"counts": pa.array([[1]], INT)}, "no column 'ids'"),
    ({"ids": pa.array([[1]], INT)}, "no column 'counts'"),
    ({"ids": pa.array([1]), "counts": pa.array([[1]], INT)}, "'ids' is int64; it must be a list of integers"),
    (
        {"ids": pa.array([[1.0]], FLOAT), "counts": pa.array([[1]], INT)},
        "'ids' is list.*must be a list of integers",
    ),
    ({"ids": pa.array([[1]], INT), "counts": pa.array([["x"]])}, "'counts' is list.*integers or floats"),
    (lists([{5: 1}]), r"a\.parquet, row group 0: word id 5 is outside 0\.\.4.*row by row"),
    (lists([{-1: 1}]), r"word id -1 is outside"),
    (lists([{0: 1}, {0: 1}, {7: 1}]), "row group 1: word id 7"),
    (lists([{1: 0}]), r"a\.parquet, row group 0: a count is 0; .*row by row"),
    (lists([{1: np.inf}], None, FLOAT), "a count is inf"),
    (lists([], INT, INT), "hold no documents"),
    (lists([{}, {}], INT, INT), "none of its documents has a word"),
]


@pytest.mark.parametrize(("columns", "message"), REFUSED)
def test_footers_refuse(tmp_path, columns, message):
    root = in_place(tmp_path / "c", columns, row_group_size=2)
    with pytest.raises(InputError, match=message) as caught:
        open_corpus(root)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "has no words"),
        (b"ant\n\nbee\n", "empty word at id 1"),
        (b"ant\nbee\nant\n", "'ant' 2 times"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_bad_vocabulary_is_refused(tmp_path, text, message):
    root = in_place(tmp_path / "c", lists(BAGS))
    (root / "vocab.txt").write_bytes(text)
    with pytest.raises(InputError, match=message):
        open_corpus(root)


def test_changed_vocabulary_is_noticed(tmp_path):
    corpus = open_corpus(in_place(tmp_path / "c", lists(BAGS)))
    (tmp_path / "c" / "vocab.txt").write_text("a\nb\nc\nd\ne\n")
    with pytest.raises(StoreError, match="changed or damaged"):
        corpus.vocabulary()


def test_wrong_paths(tmp_path):
    with pytest.raises(InputError, match="none: no such file or directory; check the path"):
        open_corpus(tmp_path / "none")
    with pytest.raises(InputError, match="is an empty folder, not a corpus"):
        open_corpus(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        open_corpus(tmp_path / "file")


def cut(path: Path):
    path.write_bytes(path.read_bytes()[:-1])


def scramble_footer(path: Path):
    data = path.read_bytes()
    path.write_bytes(data[:-60] + b"\xff" * 52 + data[-8:])


def add_shard(path: Path):
    shutil.copy(path, path.with_name("part-00009.parquet"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, "part-00001.parquet is missing"),
        (cut, "part-00001.parquet has .* bytes, its manifest says"),
        (scramble_footer, "part-00001.parquet cannot be read as Parquet"),
        (add_shard, r"part-00009.parquet is not in manifest.json"),
    ],
)
def test_damaged_shard_is_named(tmp_path, damage, message):
    write(tmp_path / "c", documents_per_shard=2)
    damage(tmp_path / "c" / "documents" / "part-00001.parquet")
    with pytest.raises(StoreError, match=message) as caught:
        bags_of(open_corpus(tmp_path / "c"))
    assert caught.value.exit_code == 3


def test_a_manifest_without_row_groups_is_opened_by_the_footers(tmp_path):
    """As corpora of version 0.1 have them."""
    made = write(tmp_path / "c", documents_per_shard=3, nonzeros_per_row_group=2)
    path = tmp_path / "c" / "manifest.json"
    manifest = {**json.loads(path.read_bytes())}
    assert [len(shard.pop("row_groups")) for shard in manifest["shards"]] == [2, 2]
    del manifest["sha256"]
    path.write_text(json.dumps(manifest))
    assert (found := open_corpus(tmp_path / "c")) == made
    assert list_units(found) == list_units(made)
    assert [shard.row_groups for shard in found.shards] == [shard.row_groups for shard in made.shards]
    scramble_footer(tmp_path / "c" / "documents" / "part-00001.parquet")
    with pytest.raises(StoreError, match=r"part-00001\.parquet cannot be read as Parquet"):
        open_corpus(tmp_path / "c")


def test_row_groups_without_all_rows_are_refused(tmp_path):
    write(tmp_path / "c")
    path = tmp_path / "c" / "manifest.json"
    manifest = {**json.loads(path.read_bytes())}
    manifest["shards"][0]["row_groups"] = [[4, 9]]
    del manifest["sha256"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(
        StoreError, match=r"the row groups of documents/part-00000\.parquet do not have its 5 rows"
    ):
        open_corpus(tmp_path / "c")


def test_damaged_page_is_noticed(tmp_path):
    corpus = write(tmp_path / "c")
    path = Path(corpus.shard_path(corpus.shards[0]))
    data = bytearray(path.read_bytes())
    group = pq.read_metadata(path).row_group(0).column(0)
    data[group.data_page_offset + group.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    assert describe(tmp_path / "c")["documents"] == 5, "a footer that is whole is enough"
    with pytest.raises(StoreError, match=r"part-00000\.parquet has sha256"):
        describe(tmp_path / "c", verify=True)
    with pytest.raises(StoreError, match=r"part-00000\.parquet cannot be read"):
        bags_of(corpus)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"format_version": 2}, InputError, "format version 2; this package knows 1"),
        ({"format_version": True}, InputError, "format version True"),
        ({"kind": "moments"}, InputError, "kind 'moments', not 'corpus'"),
        ("not JSON", StoreError, "manifest.json"),
        ("[]", StoreError, "manifest.json"),
        ({"extra": 1}, StoreError, "unknown key extra; allowed: attribution, dropped, format_version"),
        ({"shards": []}, StoreError, "totals.documents"),
        (
            {"totals": {"documents": 5, "words": 5, "nonzeros": 9, "tokens": 20}},
            StoreError,
            "totals.nonzeros is 9",
        ),
        ({"shard name": "../c/documents/part-00000.parquet"}, InputError, "leaves its directory"),
        ({"shard name": "/etc/passwd"}, InputError, "leaves its directory"),
        ({"shard name": "documents/../../x.parquet"}, InputError, "leaves its directory"),
        ({"shard name": "s3://bucket/x.parquet"}, InputError, "leaves its directory"),
        ({"shard name": "documents\\x.parquet"}, InputError, "leaves its directory"),
    ],
)
def test_manifest_is_checked(tmp_path, change, error, message):
    write(tmp_path / "c")
    path = tmp_path / "c" / "manifest.json"
    manifest = json.loads(path.read_text())
    if isinstance(change, str):
        path.write_text(change)
    else:
        change = dict(change)
        manifest["shards"][0]["name"] = change.pop("shard name", manifest["shards"][0]["name"])
        del manifest["sha256"]
        path.write_text(json.dumps({**manifest, **change}))
    with pytest.raises(error, match=message) as caught:
        open_corpus(tmp_path / "c")
    assert "\n" not in str(caught.value)


def test_shipped_corpus_is_whole():
    corpus = open_corpus(SHIPPED)
    verify_corpus(corpus)
    manifest = read_manifest(SHIPPED)
    assert (corpus.n_documents, corpus.n_words, corpus.nonzeros) == (1493, 5000, 554_281)
    found = list(iter_documents(corpus))
    blocks = [documents.bags for documents in found]
    assert sum(block.counts.sum() for block in blocks) == manifest.totals.tokens == 1_328_681
    assert min(np.diff(block.indptr).min() for block in blocks) == 3
    vocabulary = corpus.vocabulary()
    ids = np.concatenate([block.ids for block in blocks])
    assert np.array_equal(np.bincount(ids), vocabulary.document_frequency)
    numbers = np.concatenate([np.asarray(documents.document_id) for documents in found])
    assert len(set(numbers.tolist())) == 1493
    assert list(vocabulary.words) == sorted(vocabulary.words)
    dropped = sum(step.tokens for step in manifest.dropped)
    assert dropped + manifest.totals.tokens == 1_870_706
    assert sum(step.words for step in manifest.dropped) + 5000 == 7605
    assert sum(step.documents for step in manifest.dropped) + 1493 == 1500
    assert "10.24432/C5ZG6P" in manifest.attribution
    assert "CC BY 4.0" in manifest.attribution
    assert sum(shard.bytes for shard in corpus.shards) < 1_500_000
    assert TOKENS_PER_SHARD > manifest.totals.tokens > 3 * manifest.shards[0].tokens
