"""Corpora on disk: Parquet shards of bags of words, a vocabulary, and a manifest.

``format`` opens a corpus, ``write`` creates one, ``units`` partitions it, and ``curation`` chooses words.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Imported lazily, because workers that read shards need neither curation nor the writer.
_EXPORTS = {
    "Corpus": "streaming_jsmf.corpus.format",
    "CorpusWriter": "streaming_jsmf.corpus.write",
    "Curation": "streaming_jsmf.config",
    "Shard": "streaming_jsmf.corpus.format",
    "Vocabulary": "streaming_jsmf.corpus.vocabulary",
    "open_corpus": "streaming_jsmf.corpus.format",
}

__all__ = [*sorted(_EXPORTS)]

if TYPE_CHECKING:
    from streaming_jsmf.config import Curation as Curation
    from streaming_jsmf.corpus.format import Corpus as Corpus
    from streaming_jsmf.corpus.format import Shard as Shard
    from streaming_jsmf.corpus.format import open_corpus as open_corpus
    from streaming_jsmf.corpus.vocabulary import Vocabulary as Vocabulary
    from streaming_jsmf.corpus.write import CorpusWriter as CorpusWriter


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
