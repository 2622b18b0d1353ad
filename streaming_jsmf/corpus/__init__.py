"""Corpora on disk: specs, readers, vocabulary, manifest, curation, and simulated ones.

Names are imported when they are first used: whoever reads shards, as each worker of a scan does, needs neither the
readers of other sources nor what fetches them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "Corpus": "streaming_jsmf.corpus.format",
    "CorpusWriter": "streaming_jsmf.corpus.write",
    "Curation": "streaming_jsmf.corpus.curation",
    "IngestSettings": "streaming_jsmf.corpus.ingest.run",
    "Shard": "streaming_jsmf.corpus.format",
    "Truth": "streaming_jsmf.corpus.simulate",
    "Vocabulary": "streaming_jsmf.corpus.vocabulary",
    "ingest_source": "streaming_jsmf.corpus.ingest.run",
    "load_spec": "streaming_jsmf.corpus.spec",
    "open_corpus": "streaming_jsmf.corpus.format",
    "open_source": "streaming_jsmf.corpus.sources.registry",
    "read_truth": "streaming_jsmf.corpus.simulate",
    "simulate_lda": "streaming_jsmf.corpus.simulate",
    "simulate_truth": "streaming_jsmf.corpus.simulate",
}

__all__ = [*sorted(_EXPORTS)]

if TYPE_CHECKING:
    from streaming_jsmf.corpus.curation import Curation as Curation
    from streaming_jsmf.corpus.format import Corpus as Corpus
    from streaming_jsmf.corpus.format import Shard as Shard
    from streaming_jsmf.corpus.format import open_corpus as open_corpus
    from streaming_jsmf.corpus.ingest.run import IngestSettings as IngestSettings
    from streaming_jsmf.corpus.ingest.run import ingest_source as ingest_source
    from streaming_jsmf.corpus.simulate import Truth as Truth
    from streaming_jsmf.corpus.simulate import read_truth as read_truth
    from streaming_jsmf.corpus.simulate import simulate_lda as simulate_lda
    from streaming_jsmf.corpus.simulate import simulate_truth as simulate_truth
    from streaming_jsmf.corpus.sources.registry import open_source as open_source
    from streaming_jsmf.corpus.spec import load_spec as load_spec
    from streaming_jsmf.corpus.vocabulary import Vocabulary as Vocabulary
    from streaming_jsmf.corpus.write import CorpusWriter as CorpusWriter


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
