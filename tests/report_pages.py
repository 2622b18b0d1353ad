"""Contents of a report with everything in it, by hand, for any number of topics; and a model with edits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.documents.groups import Groups
from streaming_jsmf.evaluation.metrics import Row
from streaming_jsmf.evaluation.verdicts import Check
from streaming_jsmf.interface.topic_model import TopicModel
from streaming_jsmf.reporting.contents import Contents, Document, DocumentLists, Level, Levels
from streaming_jsmf.reporting.document_map import DocumentMap
from streaming_jsmf.reporting.topics import Topic, Word, WordLists
from streaming_jsmf.topics.store import Model, read_model, write_model
from tests.corpora import planted
from tests.stores import write_shares
from tests.test_report_values import saved, shares_beside
from tests.test_transform import N

#: Periods of the documents of ``edited_model``, and how many documents have none.
YEARS, UNDATED = tuple(range(1990, 1995)), 30


def edited_model(folder: Path) -> tuple[TopicModel, Path]:
    """A model of six topics that shows 2, 3, 4 (merged with 1) and 5, and shares, a third without a year."""
    found = read_model(saved(folder / "plain", planted(90, N, 6, length=30, seed=3).word_topic))
    theta = np.random.default_rng(0).dirichlet(np.full(6, 0.3), size=200)
    arrays = {**found.arrays, "topic_": np.arange(6), "topic_topic": theta.T @ theta / 200}
    write_model(folder / "model", Model(arrays, found.settings, found.metrics, found.provenance))
    model = TopicModel(folder / "model").merge([4, 1]).hide(0).label(3, "elections")
    shares = shares_beside(folder / "model")
    table = pq.read_table(shares)
    years = pa.array([YEARS[row % 5] if row % 3 else None for row in range(len(table))])
    dated = table.set_column(table.schema.get_field_index("year"), "year", years)
    write_shares(shares, dated, shares)
    return model, shares


def full_contents(n_topics: int, vocabulary: Sequence[str] | None = None, seed: int = 0) -> Contents:
    """A page of ``n_topics`` with all parts; the words are ``vocabulary``, or 2,000 plain ones."""
    generator = np.random.default_rng(seed)
    words = tuple(vocabulary or (f"word{number}" for number in range(2000)))
    word_topic = generator.dirichlet(np.full(len(words), 0.05), size=n_topics).T
    shares = generator.dirichlet(np.full(n_topics, 5.0))
    order = np.argsort(-word_topic, axis=0, kind="stable")[:1000].T
    topics = tuple(
        Topic(
            number,
            float(shares[number]),
            tuple(Word(words[word], float(word_topic[word, number])) for word in order[number][:10]),
            tuple(words[word] for word in order[number][:10]),
            tuple(words[word] for word in order[number][:3]),
            words[order[number][0]],
            alpha=0.1,
            npmi=float(generator.uniform(-0.1, 0.4)),
            warnings=("mostly numbers",) if number == 1 else (),
            name_words=tuple(words[word] for word in order[number][:3]),
        )
        for number in range(n_topics)
    )
    root = np.sqrt(word_topic)
    theta = generator.dirichlet(np.full(n_topics, 0.1), size=400)
    lists = WordLists(
        words,
        word_topic @ shares,
        tuple(order.astype(np.int64)),
        tuple(np.take_along_axis(word_topic.T, order, axis=1)),
    )
    return Contents(
        "lr-jsmf",
        len(words),
        400,
        topics,
        root.T @ root,
        lists,
        theta.T @ theta / 400,
        (f"a warning about {words[0]}",),
        (Row("npmi", "0.2", "higher", "words meet"),),
        "counted",
        {"a": "b"},
        {"Settings": {"n_topics": str(n_topics)}},
        {"words": {"seconds": 1.5, "peak_memory": 2**21}},
        (Check("Is it so?", "yes", "yes", True),),
        words[0],
        "2026-11-22",
        _documents(n_topics, words),
        _groups(n_topics, generator),
        _levels(n_topics, topics, shares),
        scatter=_scatter(theta, words),
    )


def lists_of(topics: Sequence[Topic]) -> WordLists:
    """The words of the topics alone."""
    numbers: dict[str, int] = {}
    ids = [[numbers.setdefault(word.text, len(numbers)) for word in topic.words] for topic in topics]
    probability = np.zeros(len(numbers))
    for topic, own in zip(topics, ids, strict=True):
        np.add.at(probability, own, [word.probability * topic.share for word in topic.words])
    return WordLists(
        tuple(numbers),
        probability,
        tuple(np.array(own, dtype=np.int64) for own in ids),
        tuple(np.array([word.probability for word in topic.words]) for topic in topics),
    )


def _documents(n_topics: int, words: Sequence[str]) -> DocumentLists:
    listed = tuple(Document(f"d{place} {words[0]}", 0.9 - 0.05 * place, (words[-1],)) for place in range(10))
    return DocumentLists((words[0],), (listed,) * n_topics)


def _scatter(theta: NDArray[np.float64], words: Sequence[str]) -> DocumentMap:
    """A map of 60 documents, which a t-SNE would place."""
    theta, rows = theta[:60], range(60)
    table = pa.table(
        {
            "document_id": [f"d{row}" for row in rows],
            words[0]: [f"{words[row % 3]}" for row in rows],
            "year": [None if row == 7 else 1900 + row for row in rows],
            "excerpt": [f"{words[row]} {words[-1]}" for row in rows],
        }
    )
    points = np.random.default_rng(0).uniform(size=(60, 2))
    return DocumentMap(points, theta.argmax(axis=1), theta.max(axis=1), table, theta)


def _groups(n_topics: int, generator: np.random.Generator) -> Groups:
    shares = generator.dirichlet(np.full(n_topics, 1.0), size=12)
    years = tuple(str(2000 + place) for place in range(12))
    return Groups("year", years, np.full(12, 30), shares, shares / 10)


def _levels(n_topics: int, topics: Sequence[Topic], shares: NDArray[np.float64]) -> Levels:
    few = max(n_topics // 4, 1)
    weights = (np.arange(n_topics) % few == np.arange(few)[:, None]) * shares
    models = (
        Level(tuple(topic.name for topic in topics[:few]), weights.sum(axis=1), (("npmi", "0.1"),)),
        Level(tuple(topic.name for topic in topics), shares, (("npmi", "0.2"),)),
    )
    return Levels(models, (weights,), 1)
