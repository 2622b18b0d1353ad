"""Effect of the defaults for texts: topics of the same documents with each default reverted, and with manual settings.

    python -m benchmarks.text_defaults news.parquet mail.parquet [--topics 20] [--variants 'papers;text']

Each file is Parquet with a column ``text``. Every fifth document is held out. The others are ingested once per variant
(see ``VARIANTS``) and fitted with the same seed. Prints a table per file: documents and words that are left; mean NPMI
of the ten most probable words per topic among the fitted documents, over the variant's own corpus and over all words of
the texts without duplicates and boilerplate, which are the same for all variants (a phrase counts where its words are
adjacent); the share of distinct words; and perplexity of the held-out documents (one half given the other) over the
words that all variants have.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from pipelines.common.bags import read_counts
from pipelines.common.held_out import is_held_out
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.corpus.vocabulary import word_ids
from streaming_jsmf.evaluation.coherence import distinct_share, npmi
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.interface.fit import fit
from streaming_jsmf.topics.parameters import NEEDED, OPTIONAL, TopicParameters
from streaming_jsmf.topics.store import read_model

TOP = 10
KEEP_ALL = {"min_distinct_words": 0, "min_tokens": 0}

VARIANTS: Mapping[str, IngestRequest] = {
    "papers": IngestRequest(preset="papers"),
    "text": IngestRequest(),
    "numbers kept": IngestRequest(curation={"numbers": "keep"}),
    "words of 1 letter": IngestRequest(curation={"min_word_length": 1}),
    "words of 2 letters": IngestRequest(curation={"min_word_length": 2}),
    "words in 1 document": IngestRequest(curation={"min_document_frequency": 1}),
    "in 3": IngestRequest(curation={"min_document_frequency": 3}),
    "in 10": IngestRequest(curation={"min_document_frequency": 10}),
    "in 20": IngestRequest(curation={"min_document_frequency": 20}),
    "words in all documents": IngestRequest(curation={"max_document_frequency": 1_000_000_000}),
    "in .5": IngestRequest(curation={"max_document_frequency": 0.5}),
    "in .3": IngestRequest(curation={"max_document_frequency": 0.3}),
    "in .1": IngestRequest(curation={"max_document_frequency": 0.1}),
    "copies kept": IngestRequest(curation={"duplicates": "keep"}),
    "boilerplate kept": IngestRequest(options={"boilerplate": "keep"}),
    "stop words kept": IngestRequest(curation={"stop_words": "none"}),
    **{f"phrases from {least:g}": IngestRequest(options={"phrases": least}) for least in (0.3, 0.5, 0.7)},
    **{
        f"tuned: in {least} to {most:g}" + (f", {size} words" if size else ""): IngestRequest(
            curation={
                "min_document_frequency": least,
                "max_document_frequency": most,
                "vocabulary_size": size,
            }
        )
        for least, most, size in (
            (10, 0.3, None),
            (10, 0.2, None),
            (20, 0.2, None),
            (5, 0.3, 5000),
            (10, 0.2, 5000),
            (10, 0.1, 3000),
        )
    },
}


@dataclass(frozen=True)
class Variant:
    """A corpus and the most probable words of its model, ``top`` (K, 10)."""

    corpus: Corpus
    topics: TopicParameters

    @property
    def top(self) -> list[list[str]]:
        order = np.argsort(-self.topics.word_topic, axis=0, kind="stable")[:TOP].T
        return [[self.topics.words[i] for i in row] for row in order.tolist()]


def split(texts: Path, folder: Path) -> tuple[Path, Path]:
    """Split texts into files to fit and held-out files, every fifth text."""
    table = pq.read_table(texts, columns=["text"])
    held = is_held_out(table.num_rows)
    paths = folder / "fitted.parquet", folder / "held.parquet"
    for path, mask in zip(paths, (~held, held), strict=True):
        pq.write_table(table.filter(pa.array(mask)), path)
    return paths


def coherence_in(corpus: Corpus, top: Sequence[Sequence[str]]) -> float:
    """Mean NPMI of lists of words; words missing from the corpus occur in no document."""
    ids = {word: number for number, word in enumerate(corpus.vocabulary().words)}
    counts = read_counts(Path(corpus.root))
    lacking = counts.shape[1]
    widened = sparse.csr_array((counts.data, counts.indices, counts.indptr), (counts.shape[0], lacking + 1))
    lists = np.array([[ids.get(word, lacking) for word in words] for words in top])
    chosen = np.unique(lists)
    present = sparse.csr_array(widened[:, chosen] > 0, dtype=np.int64)
    together = (present.T @ present).toarray()
    places = np.searchsorted(chosen, lists)
    return float(np.mean(npmi(together.diagonal(), together, counts.shape[0], places)))


def perplexity_over(words: Sequence[str], variant: Variant, held_out: Corpus) -> float:
    """Perplexity of held-out documents and the variant's topics, both restricted to these words."""
    columns = {word: number for number, word in enumerate(held_out.vocabulary().words)}
    counts = read_counts(Path(held_out.root))[:, [columns[word] for word in words]].tocsr()
    places = word_ids(words, variant.topics.words)
    topics = variant.topics.word_topic[places]
    completer = Completer.of(
        np.ascontiguousarray(topics / topics.sum(axis=0)),
        variant.topics.prior,
        variant.topics.term_count[places],
    )
    return completer.complete(sparse.csr_array(counts)).perplexity


def measure(
    texts: Path, n_topics: int, variants: Mapping[str, IngestRequest], folder: Path
) -> list[list[str]]:
    fitted, held = split(texts, folder)
    everything = IngestRequest(
        preset="papers",
        options={"boilerplate": "drop"},
        curation={"duplicates": "drop", "stop_words": "none", **KEEP_ALL},
    )
    # Words and, if a variant uses phrases, all pairs of neighbours, so that phrases are counted too.
    phrases = any("phrases" in request.options for request in variants.values())
    with_pairs = replace(everything, options={**everything.options, "ngrams": 2 if phrases else 1})
    reference = ingest(fitted, folder / "reference", with_pairs)
    held_out = ingest(held, folder / "held_out", everything)
    made: dict[str, Variant] = {}
    for number, (name, request) in enumerate(variants.items()):
        corpus = ingest(fitted, folder / f"corpus-{number}", request)
        model = folder / f"model-{number}"
        fit(corpus.root, model, [n_topics], moments=folder / f"moments-{number}")
        made[name] = Variant(
            open_corpus(corpus.root), TopicParameters.of(read_model(model, NEEDED, OPTIONAL))
        )
    common = set(held_out.vocabulary().words)
    for variant in made.values():
        common &= set(variant.topics.words)
    return [_row(name, variant, reference, held_out, sorted(common)) for name, variant in made.items()]


def _row(
    name: str, variant: Variant, reference: Corpus, held_out: Corpus, common: Sequence[str]
) -> list[str]:
    top: Any = variant.top
    flat = {word: number for number, word in enumerate(sorted({word for words in top for word in words}))}
    distinct = distinct_share(np.array([[flat[word] for word in words] for words in top]))
    return [
        name,
        f"{variant.corpus.n_documents:,}",
        f"{variant.corpus.n_words:,}",
        f"{coherence_in(variant.corpus, top):.3f}",
        f"{coherence_in(reference, top):.3f}",
        f"{distinct:.2f}",
        f"{perplexity_over(common, variant, held_out):,.0f}",
    ]


@click.command()
@click.argument("texts", nargs=-1, type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--topics", default=20, show_default=True)
@click.option("--variants", default=None, help="Names, separated by semicolons.  [default: all]")
def main(texts: tuple[Path, ...], topics: int, variants: str | None) -> None:
    """Print a table for each file of texts."""
    logging.getLogger("streaming_jsmf").setLevel(logging.ERROR)
    chosen = {name: VARIANTS[name] for name in (variants.split(";") if variants else VARIANTS)}
    for path in texts:
        with tempfile.TemporaryDirectory() as folder:
            rows = measure(path, topics, chosen, Path(folder))
        click.echo(
            f"\n{path.stem}\n\n| variant | documents | words | NPMI | over all words | distinct | perplexity |"
        )
        click.echo("|---|---:|---:|---:|---:|---:|---:|")
        for row in rows:
            click.echo(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
