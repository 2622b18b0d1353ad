"""Write corpora atomically: documents in order, or matrices of counts block by block."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from operator import floordiv
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array, issparse
from upath import UPath

from streaming_jsmf.corpus.bags import BATCH_NONZEROS, LARGEST_COUNT, SMALLEST_COUNT, Bags, Documents
from streaming_jsmf.corpus.format import (
    DOCUMENTS,
    Corpus,
    open_corpus,
    read_manifest,
    require_no_other_shards,
    verify_corpus,
)
from streaming_jsmf.corpus.manifest import (
    MANIFEST_NAME,
    CorpusTotals,
    Dropped,
    Json,
    Manifest,
    ShardEntry,
    VocabularyEntry,
    as_number,
    dump_manifest,
)
from streaming_jsmf.corpus.shards import ShardLimits, ShardWriter
from streaming_jsmf.corpus.vocabulary import VOCABULARY_NAME, WordCounts, write_vocabulary
from streaming_jsmf.errors import InputError, StoreError, as_word, require_unicode
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.storage.lock import sole_writer
from streaming_jsmf.storage.paths import (
    AnyPath,
    StorePath,
    is_free,
    normalize,
    remove_trees,
    sha256_of,
    store_path,
    write_bytes,
)
from streaming_jsmf.storage.replace import (
    file_written,
    new_directory,
    put_files,
    put_in_place,
    store_written,
    temporary_folder,
)
from streaming_jsmf.storage.results import Found, Wanted

#: Key of a request for what a user asked for (``ingestion.ingest``), by which requests are not compared.
ASKED = "asked"

_ADVICE = "remove it, or choose another path"
_BUILD = "build it again, such as with scipy.sparse.csr_array((counts, (rows, columns)))"


@dataclass(frozen=True)
class Origin:
    """Provenance of a corpus, as recorded in its manifest.

    ``dropped`` has the curation steps, ``attribution`` the sentence required by the licence, ``source`` name, licence
    and URL, ``settings`` how the corpus was made, without paths, and ``request`` identifies the command.
    """

    dropped: Sequence[Dropped] = ()
    attribution: str | None = None
    source: Mapping[str, Json] | None = None
    settings: Mapping[str, Json] | None = None
    request: Mapping[str, Any] = field(default_factory=dict)


class CorpusWriter:
    """Write documents, in the given order, as shards, vocabulary and manifest. Makes one pass.

    Files are written to a sibling directory; ``commit`` writes the manifest last and renames the directory to the
    target, unless the same corpus is there already. For a URL each finished shard is uploaded to a sibling prefix, and
    ``commit`` copies them. Leaving the ``with`` block without a commit removes what was written, and the next
    writer of the target removes what a killed process has left. The same documents give the same bytes, however they
    are batched. Memory: one row group, one batch, and two arrays of length N.

    ``words`` are the N words by id. Raises ``InputError`` if the target is not a corpus, or another process is writing
    it.
    """

    def __init__(
        self, target: AnyPath | UPath, words: Sequence[str], limits: ShardLimits | None = None
    ) -> None:
        self._target = corpus_target(target)
        if not is_free(self._target):
            read_manifest(str(self._target))
        self._words = pa.array(words, pa.string())
        self._limits, self._held = limits or ShardLimits(), ExitStack()
        self._uploaded = 0

    def __enter__(self) -> CorpusWriter:
        with ExitStack() as held:
            held.enter_context(sole_writer(self._target))
            if isinstance(self._target, Path):
                self._new = new_directory(self._target)
                held.callback(shutil.rmtree, self._new, ignore_errors=True)
            else:
                self._new = held.enter_context(temporary_folder())
                self._uploads = self._target.with_name(f".{self._target.name}.shards")
                remove_trees(self._uploads)
                held.callback(remove_trees, self._uploads)
            (self._new / DOCUMENTS).mkdir()
            self._shards = ShardWriter(self._new / DOCUMENTS, len(self._words), self._limits)
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shards.abort()
        self._held.close()

    def write(self, documents: Documents) -> None:
        """Write checked documents; see ``ShardWriter.write``."""
        self._shards.write(documents)
        self._upload()

    def _upload(self) -> None:
        """Move finished shards to an object store."""
        if isinstance(self._target, Path):
            return
        for shard in self._shards.shards[self._uploaded :]:
            made = self._new / DOCUMENTS / shard.name
            put_files([(made, self._uploads / shard.name)])
            made.unlink()
            self._uploaded += 1

    def commit(self, origin: Origin | None = None) -> Corpus:
        """Write the vocabulary and the manifest, put all files in place, and open the result.

        Raises ``InputError`` if no document with a word was written, or the target has another corpus.
        """
        shards = self._shards.close()
        if not sum(shard.nonzeros for shard in shards):
            raise InputError(f"{self._target} would be an empty corpus: no document with a word was written")
        self._upload()
        counts = WordCounts(self._words, self._shards.document_frequency, self._shards.term_count)
        manifest = finish_directory(self._new, shards, counts, origin or Origin())
        wanted = wanted_corpus(self._target, {"contents": manifest.fingerprint})
        same = replace(
            wanted, stored=lambda: {"contents": open_corpus(str(self._target)).fingerprint}, advice=_ADVICE
        )
        if (found := same.find()) is not Found.MADE:
            self._put_in_place(shards, found)
        return open_corpus(str(self._target))

    def _put_in_place(self, shards: Sequence[ShardEntry], found: Found) -> None:
        if isinstance(self._target, Path):
            put_in_place(self._new, self._target)
            return
        with store_written(self._target, overwrite=found is not Found.NOTHING) as place:
            put_files([(self._uploads / shard.name, place / DOCUMENTS / shard.name) for shard in shards])
            for name in (VOCABULARY_NAME, MANIFEST_NAME):
                put_files([(self._new / name, place / name)])


def finish_directory(
    directory: StorePath, shards: Sequence[ShardEntry], counts: WordCounts, origin: Origin, forms: Any = None
) -> Manifest:
    """Write the vocabulary, then the manifest, of a directory with shards in ``documents/``; return the manifest.

    Shards are named relative to ``documents/``. ``forms`` are those of ``Vocabulary``.
    """
    documents, n_words = sum(shard.rows for shard in shards), len(counts.words)
    with file_written(directory / VOCABULARY_NAME) as vocabulary:
        write_vocabulary(counts, documents, vocabulary, forms)
        sha256 = sha256_of(vocabulary)
    entries = [shard.model_copy(update={"name": f"{DOCUMENTS}/{shard.name}"}) for shard in shards]
    manifest = Manifest(
        shards=tuple(entries),
        vocabulary=VocabularyEntry(words=n_words, sha256=sha256),
        totals=CorpusTotals(
            documents=documents,
            words=n_words,
            nonzeros=sum(shard.nonzeros for shard in shards),
            tokens=as_number(sum(shard.tokens for shard in shards)),
        ),
        dropped=tuple(origin.dropped),
        attribution=origin.attribution,
        source=dict(origin.source or {}),
        settings=dict(origin.settings or {}),
        request=dict(origin.request),
    )
    write_bytes(directory / MANIFEST_NAME, dump_manifest(manifest))
    return manifest


def corpus_target(target: AnyPath | UPath) -> StorePath:
    """Return the absolute path or the URL of a corpus to be written; errors as ``store_path``."""
    return store_path(target if isinstance(target, UPath) else normalize(target), "a corpus")


def wanted_corpus(target: StorePath, request: Mapping[str, Any], *, overwrite: bool = False) -> Wanted:
    """Return the corpus that a request asks for, which verifies a corpus at ``target`` by the hashes of its files."""

    def stored() -> Mapping[str, Any]:
        manifest = read_manifest(str(target))
        try:
            require_no_other_shards(str(target), manifest)
        except StoreError as error:
            raise InputError(str(error)) from error  # a shard of the user is never replaced
        return without_asked(manifest.request)

    def is_intact() -> bool:
        verify_corpus(open_corpus(str(target)))
        return True

    return Wanted(target, without_asked(request), stored, is_intact, overwrite)


def without_asked(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request without what it is not compared by."""
    return {key: value for key, value in request.items() if key != ASKED}


def matrix_blocks(X: Any) -> Iterator[csr_array[Any]]:
    """Yield the rows of a CSR or dense matrix (documents x words), about a million nonzeros at a time."""
    nonzeros = X.size  # of a sparse matrix its stored values
    step = max(1, int(BATCH_NONZEROS * X.shape[0] / max(nonzeros, 1)))
    for rows in panels(X.shape[0], step):
        yield tidy_rows(X[rows])


def column_words(given: Any, n_columns: int, name: str) -> list[str]:
    """Return the words of the columns, from a list or a transformer with ``get_feature_names_out``.

    Raises ``InputError``, with the argument ``name``, if there is not one word for each column.
    """
    listed = given.get_feature_names_out() if hasattr(given, "get_feature_names_out") else given
    if isinstance(listed, str | Mapping | Set) or not isinstance(listed, Iterable):
        advice = "give a list of words in the order of the columns, or the vectorizer that has them"
        raise InputError(f"{name} is of type {type(listed).__name__}; {advice}")
    words = [as_word(word, name) for word in listed]
    if len(words) != n_columns:
        raise InputError(
            f"{name} has {len(words)} words and the matrix has {n_columns} columns; give one word for each column"
        )
    return words


def write_corpus(
    blocks: Iterable[csr_array[Any]], words: Sequence[str], path: AnyPath | UPath, first: int = 0
) -> Corpus:
    """Write blocks of documents as a corpus, keeping all words and empty documents. Removes zeros in place.

    Integers become int32 and other numbers float32. Documents are numbered from ``first``. The bytes do not depend on
    the blocks. Raises ``InputError`` if a count is too large, a block does not have one column per word, words are
    repeated, empty or not Unicode, or no document has a word.
    """
    word, times = next(iter(Counter(words).most_common(1)), ("", 0))
    if times > 1:
        raise InputError(f"the words have {word!r} {times} times; give each column its own word")
    for text in words:
        require_unicode(text, "a word")
    with CorpusWriter(path, words) as writer:
        for block in blocks:
            if block.shape[1] != len(words):
                raise InputError(
                    f"the rows from {first} on have {block.shape[1]} columns, and there are {len(words)} words; "
                    "give one word for each column"
                )
            writer.write(_documents(block, first))
            first += block.shape[0]
        return writer.commit()


def _documents(block: csr_array[Any], first: int) -> Documents:
    block.data[block.data < SMALLEST_COUNT] = 0
    block.eliminate_zeros()
    ids = pa.array(np.arange(first, first + block.shape[0], dtype=np.int64))
    return Documents(Bags.of_matrix(block).narrow(), ids)


def wide(X: Any) -> Any:
    """Return a sparse matrix of integers with 64 bits, for sums of repeated entries; others as given.

    Raises ``InputError`` if values are masked, since other libraries would read what is behind the mask, or if the
    arrays of a sparse matrix do not fit together.
    """
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise InputError("the matrix has masked values; replace them, such as by X.filled(0)")
    is_sparse: bool = issparse(X)
    if is_sparse:
        # Other formats are converted in Python, which may copy what does not fit.
        X = X if X.format in ("csr", "csc", "bsr", "coo") else X.tocsr()
        _require_sound(X)
    return _widened(X)


def _widened(X: Any) -> Any:
    if hasattr(X, "tocsr") and X.dtype.kind in "bui":
        return X.astype(np.uint64 if X.dtype.kind == "u" else np.int64, copy=False)
    return X


def _require_sound(X: Any) -> None:
    """Raise ``InputError`` if the arrays of a sparse matrix do not fit together; SciPy would read beyond them."""
    if X.ndim != 2:
        return
    axes = [*zip(X.coords, X.shape, ("row", "column"), strict=True)] if X.format == "coo" else []
    n_values = [len(index) for index, *_ in axes]
    if X.format != "coo":
        major, sizes = int(X.format == "csc"), [*map(floordiv, X.shape, getattr(X, "blocksize", (1, 1)))]
        ends, stored = X.indptr, min(len(X.indices), len(X.data))
        falls = ends.dtype.kind not in "iu" or (ends[1:] < ends[:-1]).any()
        if len(ends) != sizes[major] + 1 or falls or ends[0] != 0 or ends[-1] > stored:
            raise InputError(
                f"the indptr of the matrix does not go up from 0 to at most its {stored} values in {sizes[major] + 1} "
                f"steps; {_BUILD}"
            )
        axes = [(X.indices[: int(ends[-1])], sizes[1 - major], ("column", "row")[major])]
    if any(n != len(X.data) for n in n_values):
        raise InputError(f"the matrix has {len(X.data)} values at {n_values} rows and columns; {_BUILD}")
    for index, size, name in axes:
        low, high = (int(index.min()), int(index.max())) if len(index) else (0, -1)
        if index.dtype.kind not in "iu" or low < 0 or high >= size:
            raise InputError(
                f"the matrix has the {name} {low if low < 0 else high}, outside 0..{size - 1}; {_BUILD}"
            )


def tidy_rows(rows: Any) -> csr_array[Any]:
    """Copy rows to CSR with sorted, distinct words and without zeros; ``InputError`` if a count is too large."""
    block: csr_array[Any] = _widened(csr_array(wide(rows), copy=True))
    block.sum_duplicates()
    block.eliminate_zeros()
    if block.data.max(initial=0) > LARGEST_COUNT:
        raise InputError(f"X has the count {block.data.max()}; the largest allowed is {LARGEST_COUNT}")
    return block
