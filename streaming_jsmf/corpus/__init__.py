"""Corpora on disk: the format of a corpus, what reads and writes it, its vocabulary, and its curation.

``format`` opens a corpus, ``write`` makes one, ``shards`` and ``footer`` know the Parquet files, ``records`` checks
what they hold. Where documents come from is in ``sources``, how they become a corpus in ``ingestion``. Imports ``jobs``
and below.

Names are imported when they are first used: a worker that reads shards needs neither curation nor the writer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "Corpus": "streaming_jsmf.corpus.format",
    "CorpusWriter": "streaming_jsmf.corpus.write",
    "Curation": "streaming_jsmf.corpus.curation",
    "Shard": "streaming_jsmf.corpus.format",
    "Vocabulary": "streaming_jsmf.corpus.vocabulary",
    "open_corpus": "streaming_jsmf.corpus.format",
}

__all__ = [*sorted(_EXPORTS)]

if TYPE_CHECKING:
    from streaming_jsmf.corpus.curation import Curation as Curation
    from streaming_jsmf.corpus.format import Corpus as Corpus
    from streaming_jsmf.corpus.format import Shard as Shard
    from streaming_jsmf.corpus.format import open_corpus as open_corpus
    from streaming_jsmf.corpus.vocabulary import Vocabulary as Vocabulary
    from streaming_jsmf.corpus.write import CorpusWriter as CorpusWriter


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
