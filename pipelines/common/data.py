"""Corpora of the experiments: any source with a vocabulary of given size, and simulated corpora."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipelines.common.bags import read_counts, write_corpus
from streaming_jsmf import StreamingJSMFError, open_corpus
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.simulation import read_truth, simulate_lda

Floats = NDArray[np.float64]

#: The corpus that ships with the project.
NIPS = Path(__file__).parents[2] / "data_specs" / "uci_nips"

#: Probabilities of 1 to 10 half stars: few low ratings, and more whole than half stars.
HALF_STARS = np.array([0.01, 0.03, 0.01, 0.07, 0.03, 0.22, 0.08, 0.29, 0.06, 0.20])


@dataclass(frozen=True)
class Simulated:
    """Parameters of simulated documents; their topics are stored in ``truth.zarr``."""

    documents: int
    words: int
    topics: int
    mean_length: float
    alpha: float
    zipf: float


#: Corpora that are accepted by name. Popularity is a power of the rank.
SIMULATED = {
    "ratings": Simulated(6000, 1000, 20, 60, 0.1, 0.7),
    "baskets": Simulated(20_000, 3000, 20, 15, 0.1, 0.8),
    # As many documents and words as the New York Times corpus of the papers.
    "nytimes": Simulated(300_000, 15_000, 50, 230, 0.1, 0.9),
}


def prepared(named: str, folder: Path, words: int, **read: object) -> tuple[str, Corpus]:
    """Name and corpus of NAME=SOURCE, ingested into ``folder`` unless it exists; ``read`` are options of the reader.

    Raises ``click.ClickException`` if the source cannot be ingested.
    """
    name, _, source = named.partition("=")
    if not source:
        raise click.BadParameter(f"{named!r} is not of the form NAME=SOURCE")
    if source.startswith("simulated:"):
        return name, simulated(source.partition(":")[2], folder / name)
    target = folder / f"{name}-{words}"
    if target.exists():
        return name, open_corpus(target)
    # Documents of the papers have at least five tokens.
    request = IngestRequest(options=read, curation={"vocabulary_size": words})
    try:
        return name, ingest(source, target, request)
    except StreamingJSMFError as error:
        raise click.ClickException(str(error)) from error


def simulated(kind: str, target: Path, seed: int = 0) -> Corpus:
    """Simulate documents with known topics (LDA).

    In ``ratings`` each item occurs once with its half stars as the count; the others are the tokens as drawn.
    """
    if kind not in SIMULATED:
        raise click.BadParameter(f"simulated:{kind} is none of simulated:{', simulated:'.join(SIMULATED)}")
    law = SIMULATED[kind]
    drawn = _drawn(kind, target)
    if not drawn.exists():
        simulate_lda(
            drawn,
            n_documents=law.documents,
            n_words=law.words,
            n_topics=law.topics,
            mean_length=law.mean_length,
            alpha=law.alpha,
            zipf=law.zipf,
            seed=seed,
        )
    if not target.exists():
        counts = read_counts(drawn)
        random = np.random.Generator(np.random.Philox(key=np.array([seed, 1], np.uint64)))
        counts.data = random.choice(np.arange(1, 11, dtype=np.int32), size=counts.nnz, p=HALF_STARS)
        write_corpus(target, counts)
    return open_corpus(target)


def planted_topics(kind: str, target: Path) -> Floats:
    return read_truth(_drawn(kind, target)).word_topic


def _drawn(kind: str, target: Path) -> Path:
    """The simulated corpus, from which ``target`` is made if it has ratings."""
    return target.with_name(target.name + "-drawn") if kind == "ratings" else target


def draw_documents(
    word_topic: Floats, shares: Floats, lengths: Sequence[int] | NDArray[np.integer[Any]], seed: int = 0
) -> sparse.csr_array:
    """Draw documents of given lengths from topics (N x K, columns sum to 1) and topic shares (M x K).

    As in the semi-synthetic corpora of JSMF 2015; tokens of a document are independent given its shares.
    """
    random = np.random.Generator(np.random.Philox(key=np.array([seed, 2], np.uint64)))
    cumulative = np.cumsum(word_topic / word_topic.sum(axis=0), axis=0)
    cumulative[-1] = 1.0
    ids, ends = [], [0]
    for share, length in zip(shares, lengths, strict=True):
        per_topic = random.multinomial(length, share / share.sum())
        draws = [
            np.searchsorted(cumulative[:, k], random.random(number), side="right")
            for k, number in enumerate(per_topic)
            if number
        ]
        ids.append(np.concatenate(draws) if draws else np.empty(0, np.int64))
        ends.append(ends[-1] + ids[-1].size)
    words = np.concatenate(ids)
    counts = sparse.csr_array(
        (np.ones(words.size, np.int32), words, np.array(ends)), shape=(len(lengths), len(word_topic))
    )
    counts.sum_duplicates()
    return counts
