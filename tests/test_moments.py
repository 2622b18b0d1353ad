"""Moments: the whole of a scan and of an exact one, blocks and chunks of documents, and the memory they take."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from dask.sizeof import sizeof
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, csr_matrix, vstack

from benchmarks.s3_requests import write_corpus as written
from streaming_jsmf import scan
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import footer as footer_module
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.units import (
    Partition,
    WorkUnit,
    iter_blocks,
    list_units,
    partition_units,
    plan_partitions,
    read_block,
    to_dask_array,
)
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.interface.infer import infer
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg import csr, eigen
from streaming_jsmf.moments import needs as planning
from streaming_jsmf.moments.manifest import new_manifest
from streaming_jsmf.moments.needs import scan_memory
from streaming_jsmf.moments.partition import load_partition
from streaming_jsmf.moments.select import select_partitions
from streaming_jsmf.moments.stages import cooccurrence as stage_module
from streaming_jsmf.moments.stages.eigenpairs import ProductReduction
from streaming_jsmf.moments.stages.sums import SumsReduction
from streaming_jsmf.moments.store import Moments, open_moments, read_store
from streaming_jsmf.storage import arrays, large_arrays
from streaming_jsmf.storage.arrays import read_array, write_array
from streaming_jsmf.topics.store import read_model
from tests import reference
from tests.cases import first_cases
from tests.corpora import BAD_BAGS, Planted, planted, write_corpus, write_lists
from tests.outcomes import Command, Outcome, called, refused
from tests.processes import command, ended
from tests.stores import SMALL, dense, digests, partial_names, scanned


@pytest.mark.parametrize("scheme", ["capped", "uniform", "length"])
def test_sums_are_exact(scheme: str, tmp_path: Path) -> None:
    counts = planted(120, 40, 4, length=9, seed=5).counts
    counts[3] = 0
    counts[4] = np.eye(40, dtype=int)[7]
    counts[5] = 300 * np.eye(40, dtype=int)[2]
    path = write_corpus(tmp_path / "c", counts, row_group_rows=11)
    settings = ScanSettings(max_topics=3, partition_nonzeros=250, document_weights=scheme)  # type: ignore[arg-type]
    moments = scanned(path, tmp_path / "m", settings)
    lengths = counts.sum(axis=1)
    weights, kept = reference.document_weights(lengths, scheme), counts[lengths >= 2]
    np.testing.assert_allclose(
        moments.row_sum, reference.cooccurrence(counts, weights).sum(axis=1), atol=1e-15
    )
    np.testing.assert_allclose(moments.row_sum, reference.mean_of_shares(counts, weights), atol=1e-15)
    n, w = lengths[lengths >= 2].astype(float), weights[lengths >= 2]
    np.testing.assert_allclose(moments.diagonal, (w / (n * (n - 1))) @ kept / w.sum(), atol=1e-15)
    np.testing.assert_array_equal(moments.term_count, kept.sum(axis=0))
    np.testing.assert_array_equal(moments.document_frequency, (kept > 0).sum(axis=0))
    assert moments.n_documents == len(kept)
    assert moments.words[7] == "word0007"


def test_the_largest_eigenvalues_are_algebraic_not_by_magnitude(tmp_path: Path) -> None:
    counts = planted(400, 30, 3, length=2.5, seed=2).counts
    c = reference.cooccurrence(counts, reference.document_weights(counts.sum(axis=1), "uniform"))
    values = np.linalg.eigvalsh(c)
    assert np.sort(values[np.argsort(-np.abs(values))[:6]])[0] < 0, "the case must bite"
    settings = ScanSettings(max_topics=6, document_weights="uniform", partition_nonzeros=300)
    moments = scanned(write_corpus(tmp_path / "c", counts), tmp_path / "m", settings)
    np.testing.assert_allclose(moments.eigenpairs(3, extra=0).values, values[::-1][:3], rtol=0.02)


def test_a_partition_has_the_same_bits_anywhere(corpus_path: Path) -> None:
    corpus = open_corpus(corpus_path)
    stage, partitions = SumsReduction(corpus.n_words, SMALL), plan_partitions(list_units(corpus), 3000)
    a, again = (stage.compute(p) for p in (partitions[0], Partition(17, partitions[0].units)))
    for name, values in again.arrays.items():
        np.testing.assert_array_equal(a.arrays[name], values)


@given(st.integers(1, 40), st.integers(1, 600))
def test_sums_and_blocks_do_not_depend_on_how_units_are_split(rows: int, budget: int) -> None:
    counts = planted(60, 25, 3, length=12, seed=rows).counts
    with tempfile.TemporaryDirectory() as folder:
        corpus = open_corpus(write_corpus(Path(folder) / "c", counts, row_group_rows=rows))
        units = list_units(corpus)
        block, sums = load_partition(Partition(0, units), 25, "capped")
        parts = [load_partition(p, 25, "capped") for p in plan_partitions(units, budget)]
    for name in ("row_sum", "diagonal"):
        added = sum(part.arrays[name] for _, part in parts)
        np.testing.assert_allclose(added, sums.arrays[name], rtol=1e-13)
    stacked = np.vstack([part.toarray() for part, _ in parts])
    np.testing.assert_array_equal(stacked, block.toarray())


def test_projected_memory_grows_by_the_documents_alone(documents: Planted, tmp_path: Path) -> None:
    sizes = []
    for copies in (1, 4):
        path = write_corpus(tmp_path / f"c{copies}", np.vstack([documents.counts] * copies))
        partitions = plan_partitions(list_units(open_corpus(path)), 3000)
        sizes.append([scan_memory(120, SMALL, partitions, 2, share) for share in (None, 0.0, 1.0)])
    assert sizes[1][:2] == pytest.approx(sizes[0][:2], rel=0.01)
    assert sizes[1][2] - sizes[0][2] == pytest.approx(3 * 16 * (documents.counts > 0).sum(), rel=0.1)


# -- Stores with the whole C: counted in panels, committed and changed like the rest, refused where it does not fit --


EXACT = replace(SMALL, exact=True)


@pytest.fixture(scope="module")
def store(corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exact") / "m"
    scanned(corpus_path, path, EXACT)
    return path


def test_the_matrix_is_that_of_equation_1(store: Path, documents: Planted) -> None:
    c = open_moments(store).cooccurrence()
    expected = dense(documents.counts)
    np.testing.assert_allclose(c, expected, atol=2e-7 * expected.max())
    np.testing.assert_array_equal(c, c.T)
    assert c.min() == 0.0
    np.testing.assert_allclose(c.sum(axis=1), open_moments(store).row_sum, rtol=1e-6)
    assert partial_names(store, "cooccurrence") == [], "what the panels were made of is gone"


def test_eigenpairs_are_those_of_the_matrix(store: Path, documents: Planted) -> None:
    pairs = open_moments(store).eigenpairs(5)
    expected = reference.truncated_eig(dense(documents.counts), 15)
    np.testing.assert_allclose(pairs.values, expected.values, rtol=1e-5, atol=1e-9)
    overlap = np.abs(np.sum(pairs.vectors[:, :5] * expected.vectors[:, :5], axis=0))
    np.testing.assert_allclose(overlap, 1, atol=1e-5)


def test_characteristic_words_come_from_exact_rows(store: Path) -> None:
    moments = open_moments(store)
    np.testing.assert_array_equal(moments.cooccurrence_rows([7, 3]), moments.cooccurrence()[[7, 3]])


def test_lanczos_gives_the_dense_eigenpairs_and_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.standard_normal((600, 600)))
    # The negative end is the larger in magnitude, where the wrong kind of solver would look.
    spectrum = np.concatenate([np.linspace(1, 0.5, 12), np.zeros(580), np.linspace(-1.5, -2, 8)])
    matrix = (left * spectrum) @ left.T
    matrix = (matrix + matrix.T) / 2
    first, second = (eigen.symmetric_eigenpairs(matrix, 12) for _ in range(2))
    np.testing.assert_allclose(first.values, spectrum[:12], atol=1e-9)
    np.testing.assert_allclose(matrix @ first.vectors, first.vectors * first.values, atol=1e-8)
    np.testing.assert_array_equal(first.vectors, second.vectors)


@pytest.mark.parametrize("scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_panels_and_workers_change_no_bit(
    scheduler: str, corpus_path: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned(corpus_path, tmp_path / "workers", EXACT, execution=Execution(scheduler, 2))
    assert digests(tmp_path / "workers") == digests(store)
    # 120 words in panels of 17 rows.
    monkeypatch.setattr(stage_module, "PANEL_BYTES", 8 * 120 * 17)
    assert len(list(stage_module.row_panels(120))) == 8
    scanned(corpus_path, tmp_path / "panels", EXACT, execution=Execution("threads", 2))
    assert digests(tmp_path / "panels") == digests(store)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [pytest.param(3000, marks=pytest.mark.slow), 500])
def test_documents_multiplied_in_several_chunks(
    pairs: int, corpus_path: Path, documents: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distinct = np.count_nonzero(documents.counts, axis=1)
    assert 500 < distinct.max() ** 2 < 3000, "fewer pairs than those of a document, and more"
    monkeypatch.setattr(csr, "PAIRS_AT_ONCE", pairs)
    scanned(corpus_path, tmp_path / "m", EXACT)
    expected = dense(documents.counts)
    np.testing.assert_allclose(
        open_moments(tmp_path / "m").cooccurrence(), expected, atol=2e-7 * expected.max()
    )


def test_a_matrix_that_does_not_fit_is_refused_before_the_scan(
    corpus_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"exact=True needs about .*MiB.*memory allows 95.37 MiB; .*enn"):
        scanned(corpus_path, tmp_path / "m", EXACT, execution=Execution("synchronous", memory=100_000_000))
    monkeypatch.setattr(planning, "machine_memory", lambda: 10_000_000)
    with pytest.raises(InputError, match=r"120 x 120 co-occurrences and this machine has 9.54 MiB"):
        scanned(corpus_path, tmp_path / "m", EXACT)
    assert not (tmp_path / "m").exists()


def test_a_store_without_the_matrix_says_how_to_add_it(corpus_path: Path, tmp_path: Path) -> None:
    moments = scanned(corpus_path, tmp_path / "m")
    with pytest.raises(InputError, match=r"exact=True, or use rectify='enn'"):
        moments.cooccurrence()
    with pytest.raises(SettingsMismatchError, match="exact: stored False, asked True"):
        scanned(corpus_path, tmp_path / "m", EXACT)


def test_some_partitions_have_no_matrix_of_their_own(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    corpus = write_corpus(tmp_path / "corpus", planted(120, 60, 3, seed=1).counts, shards=1)
    [shard] = corpus.glob("part-*.parquet")
    table = pq.read_table(shard)
    pq.write_table(table.append_column("year", pa.array([1990 + i % 2 for i in range(120)])), shard)
    settings = replace(EXACT, max_topics=3, partition_by="year")
    selected = select_partitions(scanned(corpus, tmp_path / "m", settings), "1990")
    with pytest.raises(InputError, match=r"not of 1990; use rectify='enn'"):
        selected.cooccurrence()
    assert selected.cooccurrence_rows([1, 2]).shape == (2, 60)
    assert selected.eigenpairs(3).positive >= 3


@pytest.mark.parametrize(
    "settings", [EXACT, replace(SMALL, document_weights="uniform", seed=3)], ids=["exact", "one scan"]
)
def test_the_error_names_a_command_that_adds_the_third_moment(
    settings: ScanSettings, corpus_path: Path, tmp_path: Path, invoke: Command
) -> None:
    store = tmp_path / "my moments"
    scanned(corpus_path, store, settings)
    before = digests(store)
    infer = ("infer", store, tmp_path / "model", "--topics", 4, "--engine", "stod")
    outcome = invoke(*infer)
    refused(outcome, 2, "third moment", str(store))
    program, *arguments = shlex.split(outcome.err.partition("add it with ")[2])
    assert program == "streaming-jsmf"
    log = invoke(*arguments, "--scheduler", "synchronous").err
    assert "counting triples of words: 1 of" in log
    assert not re.search("(range|cooccurrence): partition", log), "one pass, for the third moment alone"
    assert {name: value for name, value in digests(store).items() if name in before} == before
    assert invoke(*infer).code == 0


# -- What does not fit a memory budget is refused with settings that fit; nothing is chosen quietly --


#: A corpus of 300 M nonzeros in row groups of 1 M, as its footers describe it.
UNITS = tuple(WorkUnit(f"part-{i:05d}", 0, 10_000, 1_000_000, f"{i:064x}") for i in range(300))
MIB = 2**20

#: Settings on which the memory of a scan depends.
SIZES = ("--sample-share", "--partition-nonzeros")


@pytest.mark.parametrize(
    ("verb", "budget", "workers"),
    [
        *first_cases([("scan", 440, 3), ("fit", 400, 2), ("scan", 380, 1), ("choose-k", 500, 3)]),
    ],
)
def test_what_does_not_fit_is_refused_with_what_fits(
    verb: str,
    budget: int,
    workers: int,
    corpus_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    invoke: Command,
) -> None:
    # As if each nonzero were a thousand.
    monkeypatch.setattr(planning, "BYTES_PER_NONZERO", 8000)
    monkeypatch.setattr(planning, "held_bytes", lambda share, nonzeros: int(9000 * (share or 0) * nonzeros))
    for name, nonzeros in (
        ("SMALLEST_PARTITION", 5000),
        ("LARGEST_PARTITION", 5000),
        ("NONZEROS_PER_ENTRY", 0),
    ):
        monkeypatch.setattr(f"streaming_jsmf.config.scan.{name}", nonzeros)
    rest = {
        "scan": ["--max-topics", 4],
        "fit": ["--topics", 4],
        "choose-k": ["--topics", "3,4", "--replicas", 0],
    }[verb]

    def run(place: str, *options: object) -> Outcome:
        target = ["--out", tmp_path / place] if verb == "choose-k" else [tmp_path / place]
        return invoke(verb, corpus_path, *target, *rest, "--scheduler", "threads", *options)

    def store(place: str) -> Moments:
        inner = {"scan": place, "fit": f"{place}.moments", "choose-k": f"{place}/moments"}[verb]
        return open_moments(tmp_path / inner)

    limited = ("--workers", workers, "--memory", f"{budget}MiB")
    outcome = run("refused", *limited)
    assert outcome.code == 2
    assert [*tmp_path.iterdir()] == []
    message = outcome.err.splitlines()[-1]
    assert re.search(
        rf"the scan needs about [0-9.]+ MiB and --memory allows {budget}.00 MiB; use --", message
    )
    advice = re.split(", | or ", message.partition("; use ")[2])
    assert run("usual").code == 0
    for number, advised in enumerate(advice):
        chosen = advised.replace(" with ", " ").split()
        assert run(f"fits{number}", *limited, *chosen).code == 0, advised
        settings = [
            part for name in SIZES if name in chosen for part in (name, chosen[chosen.index(name) + 1])
        ]
        assert run(f"same{number}", *settings).code == 0
        assert store(f"fits{number}").digests() == store(f"same{number}").digests()
        assert (store(f"same{number}").digests() == store("usual").digests()) == (not settings)
        # The budget is no part of the request.
        assert run(f"fits{number}", *settings, "--memory", "9GB", "--workers", 1).code == 0
        assert run(f"fits{number}", *settings, "--memory", "300MiB").code == 0, "it is there"
    assert advice[-1].startswith("--memory")


@pytest.mark.parametrize(("n_words", "share"), [(20_000, 1.0), (100_000, None)])
@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("part", [0.2, 0.6, 0.95])
def test_the_largest_settings_that_fit_are_advised(
    n_words: int,
    share: float | None,
    workers: int,
    part: float,
    corpus_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = ScanSettings(sample_share=share)
    held = settings.held_share(3_000_000, n_words, 300_000_000)
    budget = settings.partition_budget(300_000_000, n_words)

    def needed(tasks: int, share: float = held, size: int = budget) -> int:
        return scan_memory(n_words, settings, plan_partitions(UNITS, size), tasks, share)

    manifest = new_manifest(open_corpus(corpus_path), settings).changed(
        n_words=n_words, partition_budget=budget, sample_share=held
    )
    monkeypatch.setattr(planning, "load_partitions", lambda *_: plan_partitions(UNITS, budget))
    memory = int(needed(1, 0.01, 1_000_000) * (1 - part) + part * needed(workers))
    with pytest.raises(InputError, match="the scan needs about") as refused:
        planning.require_scan_memory(
            manifest,
            corpus_path,
            Execution("threads", workers, memory),
            open_corpus(corpus_path),
            is_new=True,
        )
    *advice, last = re.split(", | or ", str(refused.value).partition("; use ")[2])
    assert last == f"memory='{-(-needed(workers) // MIB)}MiB'"
    for advised in advice:
        values = dict(re.findall(r"(\w+)=([0-9.]+)", advised))
        tasks = int(values.get("workers", workers))
        share, size = float(values.get("sample_share", held)), int(values.get("partition_nonzeros", budget))
        assert needed(tasks, share, size) <= memory
        if "sample_share" in values:
            assert needed(tasks, 1.11 * share) > memory
        elif "partition_nonzeros" in values:
            assert needed(tasks, share, size + size // 9 + 2_000_000) > memory
        else:
            assert needed(tasks + 1) > memory
    least = max(n_words / 3_000_000, 0.0067)
    assert advice or needed(1, least) > memory
    assert all(" with " not in advised for advised in advice) or needed(workers, least) > memory


@pytest.mark.parametrize("budget", ["--memory", None])
def test_a_corpus_in_place_is_hashed_once_and_each_footer_read_once(
    budget: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = planted(300, 60, 4, length=60, seed=1).counts
    corpus = write_corpus(tmp_path / "c", counts, row_group_rows=50, shards=3)
    hashed, opened = Counter[str](), Counter[str]()
    sha256_of, parquet_file = footer_module.sha256_of, footer_module.pq.ParquetFile

    def hash_and_count(path: str) -> str:
        hashed[path] += 1
        return sha256_of(path)

    def open_and_count(path: str, **options: Any) -> Any:
        opened[path] += 1
        return parquet_file(path, **options)

    monkeypatch.setattr(footer_module, "sha256_of", hash_and_count)
    monkeypatch.setattr(footer_module.hash_of_shard, "__defaults__", (hash_and_count, None))
    monkeypatch.setattr(footer_module.pq, "ParquetFile", open_and_count)
    execution = Execution("synchronous", memory=None if budget is None else 4000 * MIB)
    scan(corpus, tmp_path / "m", ScanSettings(max_topics=4), execution)
    assert sorted(hashed.values()) == [1, 1, 1]
    # Once to know the row groups, and once to read them.
    assert sorted(opened.values()) == [2, 2, 2]


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_nothing_of_a_shard_with_another_hash_is_committed(scheduler: str, tmp_path: Path) -> None:
    """Several partitions read it, and one task hashes it before."""
    written(tmp_path / "c", 400, 2500)
    settings, execution = ScanSettings(max_topics=2, partition_nonzeros=2500), Execution(scheduler, 2)
    scan(tmp_path / "c", tmp_path / "whole", settings, execution)
    first = min((tmp_path / "c" / "documents").glob("*"))
    intact = first.read_bytes()
    # No page checksum covers the name of the writer.
    first.write_bytes(intact.replace(b"parquet-cpp", b"parquet-c++"))
    with pytest.raises(StoreError, match="has sha256"):
        scan(tmp_path / "c", tmp_path / "m", settings, execution)
    store = read_store(tmp_path / "m")
    keys, partitions = store.manifest.part_keys, store.manifest.partitions
    reading = {
        key
        for key, partition in zip(keys, partitions, strict=True)
        if any(first.name in shard for shard, _ in partition.units)
    }
    assert 1 < len(reading) < len(keys)
    assert not reading & store.checkpoints("sums").committed().parts
    first.write_bytes(intact)
    scan(tmp_path / "c", tmp_path / "m", settings, execution)
    assert open_moments(tmp_path / "m").digests() == open_moments(tmp_path / "whole").digests()


@pytest.mark.parametrize(
    ("documents", "n_words", "topics", "expected"),
    [
        (10**10, 100_000, 100, 10_000),  # ten for each of 1,000 workers
        (10**10, 50_000, 50, 10_000),
        (10**11, 50_000, 50, 10_000),
        (10**10, 1_000_000, 100, 1_250),
        (10**11, 1_000_000, 500, 2_500),
        (10**10, 1_000_000, 500, 64),
        (10**9, 1_000_000, 100, 64),
        (10**9, 100_000, 100, 1_172),
        (10**9, 1_000_000, 500, 64),
    ],
)
def test_large_corpora_have_partitions_for_many_workers(
    documents: int, n_words: int, topics: int, expected: int
) -> None:
    """Committing and folding moves ten bytes an entry of their results, reading 1.8 a nonzero."""
    settings, nonzeros = ScanSettings(max_topics=topics), 75 * documents
    partitions = -(-nonzeros // settings.partition_budget(nonzeros, n_words))
    assert partitions == expected
    assert partitions == 64 or 10 * n_words * settings.basis_width * partitions <= 2 * 1.8 * nonzeros


@given(
    nonzeros=st.integers(0, 64 * 64_000_000),
    n_words=st.integers(1, 2_000_000),
    topics=st.integers(1, 500),
    range_finder=st.sampled_from(["sample", "halko"]),
)
def test_partitions_of_corpora_below_four_billion_nonzeros_stay(
    nonzeros: int, n_words: int, topics: int, range_finder: Any
) -> None:
    """They are part of what determines the bits of a store."""
    settings = ScanSettings(max_topics=topics, range_finder=range_finder)
    most = max(nonzeros // 64, 200 * n_words, 8_000_000)
    width = settings.basis_width if range_finder == "sample" else settings.sketch_width
    most = min(most, max(64_000_000, 32 * n_words * width))
    count = -(-nonzeros // most)
    expected = most if count == 1 or count % 2 == 0 else -(-nonzeros // (count + 1))
    assert settings.partition_budget(nonzeros, n_words) == expected


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (ScanSettings(max_topics=5, partition_nonzeros=4000, sample_share=0.5), {"correlations": "refined"}),
        (EXACT, {"rectify": "ap"}),
        *first_cases(
            [
                (ScanSettings(max_topics=5, partition_nonzeros=4000), {"anchors": "soft-clique"}),
                (ScanSettings(max_topics=5, range_finder="halko"), {}),
            ],
            0,
        ),
    ],
    ids=["sampled", "exact", "whole", "halko"],
)
def test_arrays_in_files_have_the_bits_of_those_in_memory(
    settings: ScanSettings, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(tmp_path / "c", planted(900, 450, 6, length=60, seed=2).counts, row_group_rows=200)
    made, mapped = list[Any](), np.memmap

    def noting(*arguments: Any, **named: Any) -> Any:
        made.append(mapped(*arguments, **named))
        return made[-1]

    def results(name: str) -> Any:
        store = scan(corpus, tmp_path / name, settings, Execution("threads", 2))
        model = infer(store, tmp_path / f"{name}-model", 4, max_iterations=8, **options)
        return (
            store.digests(),
            {name: values.tolist() for name, values in model.arrays.items()},
            model.metrics,
        )

    in_memory = results("memory")
    monkeypatch.setattr(np, "memmap", noting)
    monkeypatch.setattr(large_arrays, "FILE_BYTES", 4000)
    assert results("files") == in_memory
    assert len(made) > 8


def test_a_full_temporary_folder_is_named(
    corpus_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(large_arrays, "FILE_BYTES", 4000)
    monkeypatch.setattr(os, "posix_fallocate", full)
    outcome = called("scan", corpus_path, tmp_path / "m", "--max-topics", 5)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].endswith("set TMPDIR to a folder on a larger disk")
    monkeypatch.undo()
    assert called("scan", corpus_path, tmp_path / "m", "--max-topics", 5).code == 0


@pytest.mark.parametrize(
    ("n_words", "topics"),
    [
        pytest.param(30_000, 100, marks=pytest.mark.slow),
        *(pytest.param(*sizes, marks=pytest.mark.campaign) for sizes in ((30_000, 50), (60_000, 50))),
    ],
)
def test_the_memory_of_an_inference_is_known_before_the_scan(
    n_words: int, topics: int, tmp_path: Path
) -> None:
    """A preflight names it before the scan; the process that infers records its peak in the model.

    Arrow keeps freed memory for longer on some machines: the estimate was .92 to 1.02 of the peak on one machine and
    1.13 to 1.15 on another.
    """
    corpus, sizes = tmp_path / "c", ("--vocabulary-size", n_words, "--topics", 60, "--zipf", 1)
    assert called("simulate", corpus, "--documents", 150_000, *sizes).code == 0
    outcome = called("fit", corpus, tmp_path / "f", "--topics", topics, "--memory", "1MB", "--no-polish")
    assert outcome.code == 2
    found = re.search(
        r"the inference of \d+ topics needs about ([0-9.]+) MiB and --memory allows", outcome.err
    )
    assert found is not None, outcome.err
    assert called("scan", corpus, tmp_path / "m", "--max-topics", topics).code == 0
    run = command("infer", tmp_path / "m", tmp_path / "model", "--topics", topics, "--max-iterations", 7)
    # Compiling its kernels is part of what the process needs.
    assert ended(run, NUMBA_CACHE_DIR=str(tmp_path / "kernels")).code == 0
    stages = read_model(tmp_path / "model", ()).provenance["stages"]
    peak = max(stage["peak_memory"] for stage in stages.values()) / MIB
    assert 0.85 < float(found[1]) / peak < 1.25


def test_a_product_in_panels_has_the_bits_of_a_whole_one(
    corpus_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a sample there are three passes; each is made once for each panel, also in a repair."""
    sampled = ScanSettings(max_topics=5, partition_nonzeros=4000, sample_share=0.5)
    whole = scan(corpus_path, tmp_path / "whole", sampled, Execution("synchronous"))
    n_words, width = whole.n_words, sampled.basis_width
    before = scan_memory(n_words, sampled, plan_partitions(UNITS, 10**9), 1, 0.5)
    monkeypatch.setattr("streaming_jsmf.moments.stages.eigenpairs.PANEL_BYTES", 4 * n_words * 4)
    assert scan_memory(n_words, sampled, plan_partitions(UNITS, 10**9), 1, 0.5) < before
    compute, columns = ProductReduction.compute, set[tuple[int, int]]()

    def noting(self: ProductReduction, source: Any) -> Any:
        if self.basis_name == "basis":
            columns.add(self.columns)
        return compute(self, source)

    monkeypatch.setattr(ProductReduction, "compute", noting)
    for execution in (Execution("threads", 2), Execution("synchronous")):
        columns.clear()
        made = scan(corpus_path, tmp_path / "panels", sampled, execution)
        assert made.digests() == whole.digests()
        assert len(columns) == -(-width // 4)
        (tmp_path / "panels" / "projection" / "c" / "0" / "0").unlink()


def test_two_workers_find_an_even_number_of_partitions() -> None:
    for millions, expected in ((3, 1), (8, 1), (9, 2), (17, 4), (33, 6), (500, 64), (9000, 142)):
        budget = ScanSettings().partition_budget(millions * 10**6, 1000)
        assert -(-millions * 10**6 // budget) == expected
    assert ScanSettings().partition_budget(0, 1000) == 8_000_000
    assert ScanSettings(partition_nonzeros=7).partition_budget(21, 10) == 7


# -- Uncompressed local chunks written without Zarr are those that Zarr writes; folds in memory are handed out once --


DTYPES = ("float64", "float32", "int64", "int32", "bool")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 256)


def files_of(array: Path) -> dict[str, bytes]:
    """The files of the chunks of an array."""
    files = (path for path in (array / "c").rglob("*") if path.is_file())
    return {str(file.relative_to(array)): file.read_bytes() for file in files}


@pytest.mark.usefixtures("small_chunks")
@given(st.lists(st.integers(0, 40), min_size=1, max_size=2), st.sampled_from(DTYPES), st.booleans())
@settings(deadline=None, max_examples=25)
def test_zarr_reads_what_is_written_and_the_other_way_round(
    shape: list[int], dtype: str, turned: bool
) -> None:
    # Zarr omits chunks of zeros, and arrays of ours have all chunks.
    values = (np.arange(np.prod(shape)).reshape(shape) % 7 + 1).astype(dtype)
    values = values.T if turned else values
    with tempfile.TemporaryDirectory() as folder:
        place, names = Path(folder), ("a", "b")[: values.ndim]
        digest = write_array(place, "ours", values, names)
        read = zarr.open_array(str(place / "ours"), mode="r")
        np.testing.assert_array_equal(read[...], values)
        again = zarr.create_array(
            str(place / "zarr"), shape=values.shape, dtype=dtype, chunks=read.chunks, compressors=None
        )
        again[...] = values
        for name in ("ours", "zarr"):
            found = read_array(place, name, digest)
            assert found.dtype == values.dtype
            np.testing.assert_array_equal(found, values)
        assert files_of(place / "zarr") == files_of(place / "ours")


@pytest.mark.parametrize("size", [10**30, 0])
def test_a_chunk_size_that_no_array_can_have_is_damage(size: int, tmp_path: Path) -> None:
    digest = write_array(tmp_path, "a", np.arange(100.0), ["x"])
    metadata = tmp_path / "a" / "zarr.json"
    described = json.loads(metadata.read_text(encoding="utf-8"))
    described["chunk_grid"]["configuration"]["chunk_shape"] = [size]
    metadata.write_text(json.dumps(described), encoding="utf-8")
    with pytest.raises(StoreError, match="damaged"):
        read_array(tmp_path, "a", digest)


# -- Units, partitions and blocks: documents are read as they were written, and bad records are named --


def test_blocks_hold_the_documents_in_order(corpus_path: Path, documents: Planted) -> None:
    corpus = open_corpus(corpus_path)
    units = list_units(corpus)
    assert len(units) == 12
    blocks = list(iter_blocks(units, corpus.n_words))
    assert [block.shape[0] for block in blocks] == [unit.rows for unit in units]
    np.testing.assert_array_equal(vstack(blocks).toarray(), documents.counts)


def test_blocks_are_views_of_what_arrow_read(corpus_path: Path) -> None:
    corpus = open_corpus(corpus_path)
    block = read_block(list_units(corpus)[0], corpus.n_words)
    assert block.data.dtype == np.int32
    assert block.indices.dtype == np.int32
    # Arrow's buffers are read-only; a copy would not be.
    assert not block.data.flags.writeable
    assert not block.indices.flags.writeable


def test_the_dask_array_is_lazy_blocks_of_csr(corpus_path: Path, documents: Planted) -> None:
    h = to_dask_array(open_corpus(corpus_path))
    assert h.shape == documents.counts.shape
    assert h.numblocks == (12, 1)
    assert isinstance(h._meta, csr_array)
    lengths = h.map_blocks(
        lambda block: np.asarray(block.sum(axis=1))[:, None],
        dtype=np.int64,
        chunks=(h.chunks[0], (1,)),
        meta=np.empty((0, 0), np.int64),
    )
    np.testing.assert_array_equal(
        lengths.compute(scheduler="synchronous").ravel(), documents.counts.sum(axis=1)
    )
    whole = h.compute(scheduler="synchronous")
    np.testing.assert_array_equal(whole.toarray(), documents.counts)


@pytest.mark.parametrize("make", [csr_array, csr_matrix, coo_array])
def test_dask_measures_the_size_of_a_sparse_array(make: type) -> None:
    array = make(np.eye(1000))
    held = sum(value.nbytes for value in vars(array).values() if isinstance(value, np.ndarray))
    assert sizeof(array) >= max(held, 8000)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=80), st.integers(1, 3000))
def test_partitions_cover_all_units_in_order_and_keep_the_budget(sizes: list[int], budget: int) -> None:
    ranges = partition_units(sizes, budget)
    assert [number for group in ranges for number in group] == list(range(len(sizes)))
    assert all(len(group) for group in ranges)
    assert max(sum(sizes[i] for i in group) for group in ranges) < budget + max(max(sizes), 1)
    assert len(ranges) <= max(1, -(-sum(sizes) // budget))


def test_a_partition_is_known_by_its_content(corpus_path: Path, tmp_path: Path) -> None:
    first = plan_partitions(list_units(open_corpus(corpus_path)), 2000)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for path in corpus_path.iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    second = plan_partitions(list_units(open_corpus(moved)), 2000)
    assert [p.content for p in first] == [p.content for p in second]
    assert len({p.content for p in first}) == len(first) > 1


GOOD_IDS, GOOD_COUNTS = [[0, 2], [1], [0, 1, 2]], [[1, 1], [4], [1, 2, 3]]


def bad_corpus(directory: Path, ids: list[object], counts: list[object], *, statistics: bool = False) -> Path:
    """Two good row groups of three rows, then one with the given lists; no statistics that would give it away."""
    table = pa.table(
        {
            "ids": pa.array([*GOOD_IDS, *GOOD_IDS, *ids], pa.list_(pa.int32())),
            "counts": pa.array([*GOOD_COUNTS, *GOOD_COUNTS, *counts], pa.list_(pa.float32())),
        }
    )
    directory.mkdir()
    pq.write_table(table, directory / "a.parquet", row_group_size=3, write_statistics=statistics)
    (directory / "vocab.txt").write_text("x\ny\nz\n", encoding="utf-8")
    return directory


@pytest.mark.parametrize("kind", BAD_BAGS)
def test_a_bad_record_is_named_with_file_row_group_and_row(kind: str, tmp_path: Path) -> None:
    ids, counts, reason = BAD_BAGS[kind]
    corpus = open_corpus(bad_corpus(tmp_path / "c", [[0], ids, [1]], [[1], counts, [1]]))
    with pytest.raises(InputError) as caught:
        list(iter_blocks(list_units(corpus), corpus.n_words))
    assert f"a.parquet, row group 2, row 1 from 0: {reason}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_empty_documents_at_every_place_are_rows_of_zeros(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    directory.mkdir()
    write_lists(
        directory / "a.parquet", [[], [0, 1], [], [0], []], [[], [1, 2], [], [3], []], row_group_rows=2
    )
    (directory / "vocab.txt").write_text("x\ny\n", encoding="utf-8")
    corpus = open_corpus(directory)
    blocks = vstack(list(iter_blocks(list_units(corpus), 2))).toarray()
    np.testing.assert_array_equal(blocks, [[0, 0], [1, 2], [0, 0], [3, 0], [0, 0]])
