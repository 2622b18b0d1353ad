"""Corpora on disk: Parquet shards of bags of words, a vocabulary, and a manifest.

``format`` opens a corpus, ``write`` creates one, ``units`` partitions it, and ``curation`` chooses words.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Imported lazily: workers that read shards do not need the writer, and Dask imports ``sizeof`` in every process.
_EXPORTS = {
    "Corpus": "streaming_jsmf.corpus.format",
    "CorpusWriter": "streaming_jsmf.corpus.write",
    "ShardLimits": "streaming_jsmf.corpus.shards",
    "open_corpus": "streaming_jsmf.corpus.format",
}

__all__ = [*sorted(_EXPORTS)]

if TYPE_CHECKING:
    from streaming_jsmf.corpus.format import Corpus as Corpus
    from streaming_jsmf.corpus.format import open_corpus as open_corpus
    from streaming_jsmf.corpus.shards import ShardLimits as ShardLimits
    from streaming_jsmf.corpus.write import CorpusWriter as CorpusWriter


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
