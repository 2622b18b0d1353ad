"""Corpora on disk: specs, readers, vocabulary, manifest, curation, and simulated ones."""

from streaming_jsmf.corpus.curation import Curation
from streaming_jsmf.corpus.format import Corpus, Shard, open_corpus
from streaming_jsmf.corpus.ingest.run import IngestSettings, ingest_source
from streaming_jsmf.corpus.simulate import Truth, read_truth, simulate_lda, simulate_truth
from streaming_jsmf.corpus.sources.registry import open_source
from streaming_jsmf.corpus.spec import load_spec
from streaming_jsmf.corpus.vocabulary import Vocabulary
from streaming_jsmf.corpus.write import CorpusWriter

__all__ = [
    "Corpus",
    "CorpusWriter",
    "Curation",
    "IngestSettings",
    "Shard",
    "Truth",
    "Vocabulary",
    "ingest_source",
    "load_spec",
    "open_corpus",
    "open_source",
    "read_truth",
    "simulate_lda",
    "simulate_truth",
]
