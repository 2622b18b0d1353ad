"""This package and other libraries on the same documents: time, memory, error of the basis, quality of the topics.

    python -m benchmarks.peers OUT --corpus kos=KOS --corpus nips=data_specs/uci_nips --topics 20,50

Every fifth document is held out. Each method fits the others in its own process with one thread; reading is included,
imports are not (``benchmarks.peers.methods`` describes the methods). A cell is a corpus, a fraction of its documents
(--parts), K, a method and a seed. Cells are stored in OUT, so a second run computes only missing ones; --only-kept
writes the tables without them.

Writes OUT/topics.md and OUT/basis.md, the same as Parquet, a record of their origin, and with --picture
OUT/quality.svg (quality against time) and OUT/time.svg (time against nonzeros). Values are means and deviations over
the seeds that were run; ``load`` is the number of processes that ran or waited on the machine meanwhile. The other
libraries are in the extra ``bench``; a library that is not installed is reported and skipped, and a method that exceeds
--longest has dashes. Compare ratios, not seconds.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from scipy import sparse

from benchmarks.peers.apart import FitError, fit_apart
from benchmarks.peers.bounds import bounds
from benchmarks.peers.methods import METHODS, Arrays
from benchmarks.peers.scores import basis_scores, reference_basis, topic_scores
from benchmarks.peers.tables import COSTS, write_pictures, write_tables
from pipelines.common import options
from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.held_out import Split
from pipelines.common.results import CellMissing, Results, Row
from streaming_jsmf import open_corpus


@dataclass(frozen=True)
class Documents:
    """A corpus or a fraction of it, split in two; ``path`` is the corpus of the fitted documents."""

    name: str
    part: int
    split: Split
    path: Path
    digest: str

    @classmethod
    def of(cls, name: str, part: int, counts: sparse.csr_array, folder: Path) -> Documents:
        """Split ``counts`` and write the fitted documents below ``folder`` unless they exist."""
        split = Split.of(sparse.csr_array(counts[::part]))
        content = hashlib.sha256()
        for array in (split.fitted.indptr, split.fitted.indices, split.fitted.data):
            content.update(array.tobytes())
        digest = content.hexdigest()[:16]
        path = folder / f"{name}-{part}-{digest}"
        if not path.exists():
            beside = path.with_suffix(".part")
            beside.parent.mkdir(parents=True, exist_ok=True)
            write_corpus(beside, split.fitted)
            beside.rename(path)
        return cls(name, part, split, path, digest)

    def key(self, **more: object) -> Row:
        return {"corpus": self.name, "part": self.part, "documents": self.digest, **more}


@dataclass(frozen=True)
class Grid:
    """The grid: ``methods`` for each K and seed, each for at most ``longest`` seconds."""

    results: Results
    methods: list[str]
    topics: list[int]
    seeds: int
    longest: float

    def rows(self, documents: Documents) -> Iterator[Row]:
        for n_topics in self.topics:
            for name in self.methods:
                for seed in range(self.seeds):
                    try:
                        row = self._row(documents, n_topics, name, seed)
                    except CellMissing:
                        continue
                    click.echo(f"{row['corpus']}/{row['part']} K={n_topics} {name}: {_said(row)}", err=True)
                    yield row

    def _row(self, documents: Documents, n_topics: int, name: str, seed: int) -> Row:
        key = documents.key(K=n_topics, method=name, seed=seed)
        measured: Row = {"nonzeros": int(documents.split.fitted.nnz), "makes": METHODS[name].makes}

        def fit() -> Arrays:
            run = fit_apart(name, documents.path, n_topics, seed, self.longest)
            costs = {
                "wall": run.wall_seconds,
                "cpu": run.cpu_seconds,
                "peak": run.peak_bytes,
                "load": run.load,
            }
            self.results.row({**key, "costs": True}, lambda: dict(costs))
            return run.arrays

        try:
            found = self.results.arrays(key, fit)
        except FitError as error:
            return key | measured | {"note": str(error)}
        costs = self.results.row({**key, "costs": True}, lambda: dict.fromkeys(COSTS))
        scores = self.results.row({**key, "scores": True}, lambda: self._scores(documents, name, found))
        return key | measured | costs | scores

    def _scores(self, documents: Documents, name: str, found: Arrays) -> Row:
        if METHODS[name].makes == "topics":
            return dict(topic_scores(found, documents.split))
        n_topics = found["half"].shape[1]
        best = self.results.arrays(
            documents.key(K=n_topics, reference=True),
            lambda: reference_basis(documents.split.fitted, found["half"]),
        )
        return dict(basis_scores(found, best))

    def bounds(self, documents: Documents) -> Iterator[Row]:
        """Lower bounds of this machine, one row per K."""
        for n_topics in self.topics:
            key = documents.key(K=n_topics, bounds=True)
            make = partial(bounds, documents.path, documents.split.fitted, n_topics)
            with suppress(CellMissing):
                yield key | self.results.row(key, make)


def _said(row: Row) -> str:
    if "note" in row:
        return str(row["note"])
    return ", ".join(f"{name} {value:.4g}" for name, value in row.items() if isinstance(value, float))


def _installed(names: list[str]) -> Iterator[str]:
    for name in names:
        if importlib.util.find_spec(METHODS[name].package) is None:
            click.echo(
                f"{name} is left out: {METHODS[name].package} is missing; pip install '.[bench]'", err=True
            )
        else:
            yield name


@click.command(help=__doc__)
@options.OUT
@click.option("--corpus", "corpora", multiple=True, required=True, help="NAME=PATH; may be repeated.")
@options.several("topics", [20, 50])
@options.several("methods", METHODS)
@options.several("parts", [1], help="Use one of every so many documents, such as 16,8,4,2,1.")
@click.option("--seeds", default=1, show_default=True, help="Number of seeds, from 0 on.")
@click.option("--longest", default=3600.0, show_default=True, help="Seconds after which a method is stopped.")
@options.ONLY_KEPT
@options.PICTURE
def main(
    out: Path, corpora: tuple[str, ...], topics: list[int], methods: list[str], parts: list[int], seeds: int,
    longest: float, only_kept: bool, picture: bool,
) -> None:  # fmt: skip
    if unknown := {*methods} - METHODS.keys():
        raise click.ClickException(f"unknown methods {', '.join(unknown)}; there are {', '.join(METHODS)}")
    grid = Grid(Results(out / "cells", only_kept), [*_installed(methods)], topics, seeds, longest)
    rows: list[Row] = []
    best: list[Row] = []
    paths = {name: Path(path) for name, _, path in (corpus.partition("=") for corpus in corpora)}
    for name, path in paths.items():
        counts = read_counts(path)
        for part in parts:
            documents = Documents.of(name, part, counts, out / "corpora")
            rows += grid.rows(documents)
            best += grid.bounds(documents)
    write_tables(out, rows, best, {name: open_corpus(path) for name, path in paths.items()})
    if picture:
        write_pictures(out, rows)


if __name__ == "__main__":
    main()
