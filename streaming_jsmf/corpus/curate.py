"""Curation as the papers' authors do it: the words that carry a subject, no documents too short to tell one.

Stop words go first; the rest is ranked by tf-idf and the best N are kept; documents that became too short are
dropped. Word ids keep the order of the source, so an alphabetical vocabulary stays alphabetical.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.documents import Documents, iter_documents
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.manifest import Dropped, Json, as_number
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.corpus.stop_words import load_stop_words
from streaming_jsmf.corpus.storage import AnyPath
from streaming_jsmf.corpus.vocabulary import tf_idf
from streaming_jsmf.corpus.write import CorpusWriter
from streaming_jsmf.errors import InputError


@dataclass(frozen=True)
class Curation:
    """What to keep of a corpus. The defaults are those of the papers, but for ``vocabulary_size``.

    Attributes
    ----------
    stop_words
        "english", "none", or the path of a list (see ``load_stop_words``).
    vocabulary_size
        N, the words kept; None keeps all that pass the other rules.
    min_document_frequency
        A word must be in this many documents of the source.
    min_distinct_words
        A document must keep this many distinct words,
    min_tokens
        and this many tokens.
    """

    stop_words: str = "english"
    vocabulary_size: int | None = None
    min_document_frequency: int = 1
    min_distinct_words: int = 3
    min_tokens: int = 5

    def __post_init__(self) -> None:
        numbers = {name: value for name, value in asdict(self).items() if name != "stop_words"}
        for name, value in numbers.items():
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")


@dataclass(frozen=True, eq=False)
class WordCounts:
    """Counts of one pass over a corpus: float64 and int64 arrays of length N, and M."""

    term_count: NDArray[np.float64]
    document_frequency: NDArray[np.int64]
    n_documents: int


@dataclass
class _ShortDocuments:
    """Documents and tokens left out of the copy, by the rule that failed first."""

    distinct_documents: int = 0
    distinct_tokens: float = 0.0
    token_documents: int = 0
    token_tokens: float = 0.0


def count_words(corpus: Corpus, id_column: str | None = None) -> WordCounts:
    """Term counts and document frequencies. One pass; memory: two arrays of N and one batch.

    Raises
    ------
    InputError
        For the first bad record (see ``iter_documents``).
    """
    term_count = np.zeros(corpus.n_words, np.float64)
    document_frequency = np.zeros(corpus.n_words, np.int64)
    n_documents = 0
    for documents in iter_documents(corpus, id_column):
        np.add.at(term_count, documents.ids, documents.counts.astype(np.float64))
        np.add.at(document_frequency, documents.ids, 1)
        n_documents += documents.n_documents
    return WordCounts(term_count, document_frequency, n_documents)


def select_words(
    words: tuple[str, ...], counts: WordCounts, curation: Curation
) -> tuple[NDArray[np.bool_], list[Dropped]]:
    """Mask (N) of the words kept, and what each rule removed.

    A word is compared with the stop words in lower case. The best ``vocabulary_size`` by
    term_count * ln(floor(M / document_frequency)) are kept, equal scores by the smaller id; a word in more
    than half of the documents scores 0 and so comes last.
    """
    stop_words = load_stop_words(curation.stop_words)
    dropped: list[Dropped] = []
    keep = np.ones(len(words), bool)

    def drop(mask: NDArray[np.bool_], step: str, reason: str) -> None:
        gone = keep & mask
        tokens = as_number(counts.term_count[gone].sum())
        dropped.append(Dropped(step=step, reason=reason, words=int(gone.sum()), tokens=tokens))
        keep[gone] = False

    is_stop_word = np.fromiter((word.lower() in stop_words for word in words), bool, len(words))
    drop(is_stop_word, "stop_words", f"in the list of {len(stop_words)} stop words")
    minimum = curation.min_document_frequency
    rare = counts.document_frequency < minimum
    drop(
        rare,
        "min_document_frequency",
        f"in fewer than {minimum} documents" if minimum > 1 else "in no document",
    )
    if curation.vocabulary_size is not None:
        score = tf_idf(counts.term_count, counts.document_frequency, counts.n_documents)
        candidates = np.flatnonzero(keep)
        ranked = candidates[np.argsort(-score[candidates], kind="stable")]
        below = np.zeros(len(words), bool)
        below[ranked[curation.vocabulary_size :]] = True
        drop(below, "vocabulary_size", f"not among the {curation.vocabulary_size} best by tf-idf")
    return keep, dropped


def curate_corpus(
    corpus: Corpus,
    target: AnyPath,
    curation: Curation,
    *,
    id_column: str | None = None,
    tokens_per_shard: float = TOKENS_PER_SHARD,
    attribution: str | None = None,
    source: Mapping[str, Json] | None = None,
) -> Corpus:
    """Write the curated copy of a corpus; document ids and metadata columns are kept, in the same order.

    Two passes: one counts, one writes. The words kept decide which documents are dropped, which may leave a
    word in no document; then the copy is written once more without such words. That settles it, since a word
    in no kept document changes none of them. All counts in the new vocabulary are over the documents kept.
    The manifest's ``dropped`` adds up: tokens of the source = tokens kept + tokens dropped, step by step.

    Memory: a few arrays of N, one batch and one row group.

    Raises
    ------
    InputError
        For a bad record, a target that exists, or nothing left.
    """
    words = corpus.vocabulary().words
    counts = count_words(corpus, id_column)
    keep, dropped = select_words(words, counts, curation)
    settings = _settings(corpus, curation)
    unused, first_copy = 0, None
    while True:
        if not keep.any():
            raise InputError(f"no word of {corpus.root} is left after the curation; loosen its settings")
        kept = np.flatnonzero(keep)
        kept_words = [words[i] for i in kept]
        with CorpusWriter(target, kept_words, tokens_per_shard=tokens_per_shard) as writer:
            short = _copy(corpus, writer, keep, curation, id_column)
            # The tokens of a word found to be unused left with the documents that the first copy dropped.
            first_copy = first_copy or short
            empty = writer.document_frequency == 0
            if not empty.all() and empty.any():
                unused += int(empty.sum())
                keep[kept[empty]] = False
                continue
            steps = [*dropped, *_document_steps(first_copy, curation, unused)]
            return writer.commit(dropped=steps, attribution=attribution, source=source, settings=settings)


def _copy(
    corpus: Corpus,
    writer: CorpusWriter,
    keep: NDArray[np.bool_],
    curation: Curation,
    id_column: str | None,
) -> _ShortDocuments:
    """One pass: write the long enough documents with the kept words, count the others."""
    new_ids = (np.cumsum(keep) - 1).astype(np.int32)
    short = _ShortDocuments()
    for documents in iter_documents(corpus, id_column):
        nonzeros = keep[documents.ids]
        rows = documents.rows[nonzeros]
        distinct = np.bincount(rows, minlength=documents.n_documents)
        tokens = np.bincount(rows, weights=documents.counts[nonzeros], minlength=documents.n_documents)
        few_words = distinct < curation.min_distinct_words
        few_tokens = ~few_words & (tokens < curation.min_tokens)
        short.distinct_documents += int(few_words.sum())
        short.distinct_tokens += float(tokens[few_words].sum())
        short.token_documents += int(few_tokens.sum())
        short.token_tokens += float(tokens[few_tokens].sum())
        _write_kept(writer, documents, ~(few_words | few_tokens), nonzeros, new_ids)
    return short


def _write_kept(
    writer: CorpusWriter,
    documents: Documents,
    rows: NDArray[np.bool_],
    nonzeros: NDArray[np.bool_],
    new_ids: NDArray[np.int32],
) -> None:
    if rows.any():
        writer.write(documents.keep(rows, nonzeros, new_ids))


def _document_steps(short: _ShortDocuments, curation: Curation, unused: int) -> list[Dropped]:
    return [
        Dropped(
            step="min_distinct_words",
            reason=f"documents with fewer than {curation.min_distinct_words} distinct kept words",
            documents=short.distinct_documents,
            tokens=as_number(short.distinct_tokens),
        ),
        Dropped(
            step="min_tokens",
            reason=f"documents with fewer than {curation.min_tokens} tokens of kept words",
            documents=short.token_documents,
            tokens=as_number(short.token_tokens),
        ),
        Dropped(step="unused_words", reason="in none of the documents kept", words=unused),
    ]


def _settings(corpus: Corpus, curation: Curation) -> dict[str, Json]:
    """What made this corpus, without paths: the stop words by hash, the source by fingerprint."""
    listed = "\n".join(sorted(load_stop_words(curation.stop_words)))
    known = curation.stop_words if curation.stop_words in ("english", "none") else "file"
    return {
        **asdict(curation),
        "stop_words": known,
        "stop_words_sha256": hashlib.sha256(listed.encode()).hexdigest(),
        "source_fingerprint": corpus.fingerprint,
    }
