"""Corpora on disk: specs, readers, vocabulary, manifest, curation, and simulated ones."""

from streaming_jsmf.corpus.format import Corpus, Shard, open_corpus
from streaming_jsmf.corpus.spec import build_corpus, load_spec
from streaming_jsmf.corpus.synthetic import simulate_lda, simulate_truth
from streaming_jsmf.corpus.vocabulary import Vocabulary
from streaming_jsmf.corpus.write import CorpusWriter

__all__ = [
    "Corpus",
    "CorpusWriter",
    "Shard",
    "Vocabulary",
    "build_corpus",
    "load_spec",
    "open_corpus",
    "simulate_lda",
    "simulate_truth",
]
