"""Corpora on disk: Parquet shards of bags of words, a vocabulary, and a manifest that tells what they hold.

Start with ``format``, which opens a corpus and checks it as far as footers tell; ``manifest``, ``vocabulary`` and
``footer`` know one file each. ``records`` checks documents and holds them in memory, ``shards`` writes them, ``write``
makes a directory of shards a corpus, all at once. ``curation`` chooses words and documents from counts. Where documents
come from is in ``sources``, how they become a corpus in ``ingestion``, and blocks of H in ``blocks``. Imports
``storage``, ``validation`` and ``errors``.

Names are imported when they are first used: a worker that reads shards needs neither curation nor the writer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
