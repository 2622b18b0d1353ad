"""The commands from counts to a report, on simulated corpora with the shape of the UCI PubMed abstracts.

    python -m benchmarks.whole_chain OUT [--documents 100000,1000000,8200000] [--topics 100] [--workers 2]

Documents are drawn from LDA with Zipf's law (141,043 words; 8.2 million documents have 480 million nonzeros, as the
abstracts), and written as one docword file, in which a tenth of the words do not depend on the topics. Every stage is a
command in its own process, measured by the operating system: user and system time including the start of the
interpreter, wall time, and peak resident memory. *Planned* is what ``plan`` says for the corpus. L1 (at most 2) is the
mean distance of the topics from the simulated ones that match them best.

OUT gets whole_chain.parquet, whole_chain.md and whole_chain.json. A stage is measured once: after an interruption the
same command goes on, if ``--folder`` is given, which keeps the results of each stage: up to 30 GB for 8.2 million
documents, and twice as much for more. Run a small size first, so that later ones compile nothing.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.stage_times import ROOT, measured, program
from pipelines.common import options
from pipelines.common.matching import match_topics
from pipelines.common.results import Results, Row, publish
from pipelines.common.tables import markdown, number
from streaming_jsmf import open_corpus, open_model, plan
from streaming_jsmf.simulation import read_truth

#: Words and mean length of the abstracts, and an exponent that gives as many distinct words for a document.
WORDS, LENGTH, ZIPF = 141_043, 91, 1.1
#: Share of the words that are drawn from Zipf's law whatever the topic; without them most rare words do not occur.
EVERYWHERE = 0.1

#: Command line of each stage after the simulation, with the place of its result.
STAGES: dict[str, tuple[tuple[str, ...], str]] = {
    "ingest": (("ingest", "docword.pubmed.txt", "corpus"), "corpus"),
    "scan": (("scan", "corpus", "moments", "--max-topics", "K"), "moments"),
    "infer": (("infer", "moments", "model", "--topics", "K"), "model"),
    "polish": (("polish", "model", "corpus", "polished"), "polished"),
    "transform": (("transform", "polished", "corpus", "shares"), "shares"),
    "evaluate": (("evaluate", "polished", "--corpus", "corpus"), ""),
    "report": (("report", "polished", "page.html", "--shares", "shares"), "page.html"),
}
#: Stages that run in one thread.
SERIAL = ("report",)


def write_docword(source: Path, target: Path) -> None:
    """A corpus as docword.NAME.txt, with its words in vocab.NAME.txt beside it, and a part of them drawn anew."""
    corpus, kinds = open_corpus(source), dict.fromkeys(("document", "word", "count"), pa.int64())
    words = "".join(f"{word}\n" for word in corpus.vocabulary().words)
    target.with_name(target.name.replace("docword", "vocab")).write_text(words, encoding="utf-8")
    cumulative, schema = np.cumsum(law(corpus.n_words)), pa.schema(kinds.items())
    plain, first = pa_csv.WriteOptions(include_header=False, delimiter=" "), 0
    with target.open("wb") as file:
        file.write(f"{corpus.n_documents}\n{corpus.n_words}\n{corpus.nonzeros}\n".encode())
        with pa_csv.CSVWriter(file, schema, write_options=plain) as writer:
            for shard in corpus.shards:
                reader = pq.ParquetFile(corpus.shard_path(shard))
                for batch in reader.iter_batches(50_000, columns=["ids", "counts"]):
                    ids, counts = (
                        batch[name].flatten().to_numpy().astype(np.int64) for name in ("ids", "counts")
                    )
                    random = np.random.default_rng(first)
                    others = np.flatnonzero(random.random(len(ids)) < EVERYWHERE)
                    ids[others] = np.searchsorted(cumulative[:-1], random.random(len(others)))
                    documents = np.arange(first, first := first + len(batch)) + 1
                    of_entry = np.repeat(documents, batch["ids"].value_lengths().to_numpy())
                    writer.write_table(pa.table([of_entry, ids + 1, counts], schema=schema))


def law(words: int) -> NDArray[np.float64]:
    """Zipf's law."""
    weights: NDArray[np.float64] = np.arange(1.0, words + 1) ** -ZIPF
    weights /= weights.sum()
    return weights


def prepare(folder: Path, documents: int, words: int, topics: int, workers: int) -> None:
    """Simulate the documents and write them, unless that is done."""
    source = folder / "docword.pubmed.txt"
    if not source.exists():
        folder.mkdir(parents=True, exist_ok=True)
        size = ("--documents", documents, "--vocabulary-size", words, "--topics", topics)
        shape = ("--mean-length", LENGTH, "--zipf", ZIPF, "--workers", workers)
        measured(ROOT, program("simulate", "drawn", *size, *shape), folder)
        write_docword(folder / "drawn", part := folder / "docword.part.txt")
        part.with_name("vocab.part.txt").replace(folder / "vocab.pubmed.txt")
        part.replace(source)


def disk_of(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def stage_row(folder: Path, stage: str, topics: int, workers: int) -> Row:
    """Run a stage in the folder of the earlier ones, from its beginning."""
    words, result = STAGES[stage]
    for left in (folder / result, folder / f"{result}.partial") if result else ():
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    line = [str(topics) if word == "K" else word for word in words]
    if stage not in SERIAL:
        line += ["--workers", str(workers)]
    load, began = [os.getloadavg()[0]], time.perf_counter()
    used = measured(ROOT, program(*line), folder)
    wall = time.perf_counter() - began
    load.append(os.getloadavg()[0])
    corpus, memory = open_corpus(folder / "corpus"), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    stages = {each.stage: each for each in plan(folder / "corpus", topics, workers=workers).stages}
    planned = stages.get(stage)
    return {
        "nonzeros": corpus.nonzeros,
        "kept_words": corpus.n_words,
        "cpu": used.cpu,
        "seconds": wall,
        "memory": used.memory,
        "disk": disk_of(folder / result) if result else None,
        "planned_cpu": planned and planned.cpu_seconds,
        "planned_memory": planned and planned.memory,
        "l1": distance(folder, result) if result in ("model", "polished") else None,
        "load": float(np.mean(load)),
        "source": disk_of(folder / "docword.pubmed.txt"),
        "machine": f"{os.cpu_count()} cores, {memory >> 30} GiB, Python {platform.python_version()}",
    }


def distance(folder: Path, model: str) -> float:
    """Mean L1 distance of topics from the true ones."""
    drawn = read_truth(folder / "drawn").word_topic
    truth = (1 - EVERYWHERE) * drawn + EVERYWHERE * law(len(drawn))[:, None]
    with open_model(folder / model) as found:
        words = [int(str(word)[1:]) for word in found["word"].values]
        topics = np.zeros_like(truth)
        topics[words] = found["word_topic"].values
    return float(match_topics(topics, truth).l1.mean())


def table(rows: Sequence[Row]) -> str:
    """A row for each size and stage."""
    header = [
        *("documents", "stage", "nonzeros, M", "CPU s", "s", "peak MB", "disk MB"),
        *("CPU µs per nonzero", "planned CPU s", "planned MB", "L1", "load"),
    ]

    def shown(row: Row, name: str, unit: float = 1, digits: int = 3) -> str:
        return number(None if row[name] is None else row[name] / unit, digits)

    lines = [
        [
            f"{row['documents']:,}", row["stage"], shown(row, "nonzeros", 1e6), shown(row, "cpu"),
            shown(row, "seconds"), shown(row, "memory", 1e6), shown(row, "disk", 1e6),
            number(1e6 * row["cpu"] / row["nonzeros"]), shown(row, "planned_cpu", digits=2),
            shown(row, "planned_memory", 1e6), shown(row, "l1"), shown(row, "load", digits=2),
        ]
        for row in rows
    ]  # fmt: skip
    return markdown(header, lines, text=2)


@click.command(help=__doc__)
@options.OUT
@options.several("documents", [100_000, 1_000_000, 8_200_000])
@click.option("--words", default=WORDS, show_default=True)
@click.option("--topics", default=100, show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where results are kept.  [default: removed]")
@options.ONLY_KEPT
def main(
    out: Path,
    documents: list[int],
    words: int,
    topics: int,
    workers: int,
    folder: Path | None,
    only_kept: bool,
) -> None:
    rows, results = [], Results(out / "cells", only_kept)
    for size in documents:
        with tempfile.TemporaryDirectory() as temporary:
            place = (folder or Path(temporary)).resolve() / str(size)
            for stage in STAGES:
                key = {"documents": size, "stage": stage, "words": words, "K": topics, "workers": workers}
                if not only_kept and not results.has_row(key):
                    prepare(place, size, words, topics, workers)
                rows.append({**key, **results.row(key, partial(stage_row, place, stage, topics, workers))})
                click.echo(f"{size:,} {stage}: {rows[-1]}", err=True)
    publish(out, "whole_chain", rows, table(rows))


if __name__ == "__main__":
    main()
