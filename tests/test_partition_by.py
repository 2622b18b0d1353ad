"""Partitions made by a metadata column, and topics of some of them without a scan."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from pipelines.common.matching import yy_error
from streaming_jsmf import infer
from streaming_jsmf.cli.main import run
from streaming_jsmf.config import InferSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.units import list_units, plan_partitions
from streaming_jsmf.errors import InputError
from streaming_jsmf.evaluation.evaluate import evaluate
from streaming_jsmf.moments.partition import load_partition
from streaming_jsmf.moments.select import labels_named, select_partitions
from streaming_jsmf.moments.store import Moments, open_moments
from tests import reference, reference_metrics
from tests.corpora import as_lists, planted, words
from tests.outcomes import invoked, refused
from tests.stores import SMALL, digests, followed, half, made_anew, scanned

COUNTS = planted(600, 60, 4, seed=9).counts
# The documents of one year are much longer than the others of their row groups.
COUNTS[::6] *= 1 + (np.arange(60) % 3 == 0)
COUNTS[::6] += np.arange(60) % 2
YEARS: list[Any] = [None if i % 11 == 7 else 1990 + i % 6 for i in range(600)]
NAMES: list[Any] = [None if year is None else f"year {year}" for year in YEARS]

BY_YEAR, BY_NAME = (replace(SMALL, partition_by=column) for column in ("year", "name"))


def write_labelled(path: Path, rows: NDArray[np.int64]) -> Path:
    """The given documents, in order, with their metadata; two shards, small row groups."""
    path.mkdir()
    for number, part in enumerate(np.array_split(rows, 2)):
        ids, counts = as_lists(COUNTS[part])
        table = pa.table(
            {
                "ids": pa.array(ids, pa.list_(pa.int32())),
                "counts": pa.array(counts, pa.list_(pa.int32())),
                "year": pa.array([YEARS[i] for i in part], pa.int16()),
                "name": pa.array([NAMES[i] for i in part], pa.string()).dictionary_encode(),
                "share": pa.array([[0.5]] * len(part)),
            }
        )
        pq.write_table(table, path / f"part-{number}.parquet", row_group_size=70)
    (path / "vocab.txt").write_text("\n".join(words(60)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("by")
    write_labelled(root / "c", np.arange(600))
    scanned(root / "c", root / "plain", SMALL)
    scanned(root / "c", root / "years", BY_YEAR)
    scanned(root / "c", root / "names", BY_NAME)
    return root


@pytest.fixture(scope="module")
def years(folder: Path) -> Moments:
    return scanned(folder / "c", folder / "years", BY_YEAR)


@pytest.mark.parametrize(("column", "labels"), [("year", YEARS), ("name", NAMES)])
def test_each_partition_holds_just_the_documents_of_its_value(
    column: str, labels: list[Any], folder: Path
) -> None:
    partitions = plan_partitions(list_units(open_corpus(folder / "c")), 700, column)
    order = list(dict.fromkeys(partition.label for partition in partitions))
    assert order == [*sorted({label for label in labels if label is not None}), None]
    for label in order:
        held = [p for p in partitions if p.label == label]
        assert len(held) > 1, "the budget must bite"
        wanted = COUNTS[[i for i, found in enumerate(labels) if found == label]]
        loaded = [load_partition(p, 60, "capped") for p in held]
        assert sum(block.shape[0] for block, _ in loaded) == len(wanted)
        found = sum(sums.arrays["term_count"] for _, sums in loaded)
        np.testing.assert_array_equal(found, wanted.sum(axis=0))
        pattern = np.vstack([block.toarray() > 0 for block, _ in loaded])
        np.testing.assert_array_equal(pattern, wanted > 0)


def test_partitions_of_every_nth_row(folder: Path) -> None:
    partitions = plan_partitions(list_units(open_corpus(folder / "c")), 10**9, "rows % 4")
    assert [partition.label for partition in partitions] == [0, 1, 2, 3]
    remainders = np.concatenate([np.arange(n) % 4 for n in (70, 70, 70, 70, 20) * 2])
    for partition in partitions:
        _, sums = load_partition(partition, 60, "capped")
        wanted = COUNTS[remainders == partition.label].sum(axis=0)
        np.testing.assert_array_equal(sums.arrays["term_count"], wanted)


@pytest.mark.parametrize("name", ["years", "names"])
def test_the_sums_are_those_without_the_column(name: str, folder: Path) -> None:
    plain, by = (open_moments(folder / store) for store in ("plain", name))
    np.testing.assert_allclose(by.row_sum, plain.row_sum, rtol=1e-12)
    np.testing.assert_allclose(by.diagonal, plain.diagonal, rtol=1e-12)
    np.testing.assert_array_equal(by.term_count, plain.term_count)
    np.testing.assert_array_equal(by.document_frequency, plain.document_frequency)
    assert by.n_documents == plain.n_documents
    assert yy_error(half(by, 4), half(plain, 4)) < 1e-4


@pytest.mark.parametrize(
    ("column", "said"),
    [("decade", r"no column 'decade'.* it has ids, counts, year, name, share"), ("share", "holds list")],
)
def test_an_unusable_column_is_refused(column: str, said: str, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said) as error:
        scanned(folder / "c", tmp_path / "m", replace(SMALL, partition_by=column))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "m").exists()


@pytest.mark.slow
def test_a_store_follows_by_labels_too(folder: Path, tmp_path: Path) -> None:
    first, second = (
        write_labelled(tmp_path / n, rows) for n, rows in zip("ab", np.split(np.arange(600), 2), strict=True)
    )
    scanned(first, tmp_path / "m", BY_YEAR)
    before = digests(tmp_path / "m")
    both = shutil.copytree(first, tmp_path / "both")
    for shard in second.glob("*.parquet"):
        shutil.copy(shard, both / f"second-{shard.name}")
    moments = followed(both, tmp_path / "m")
    made_anew(both, tmp_path / "m", tmp_path / "anew")
    assert digests(tmp_path / "m") == digests(tmp_path / "anew")
    chosen = select_partitions(moments, "1990..1991")
    whole = select_partitions(open_moments(folder / "years"), "1990..1991")
    np.testing.assert_allclose(chosen.row_sum, whole.row_sum, rtol=1e-12)
    followed(first, tmp_path / "m")
    assert digests(tmp_path / "m") == before


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("1990..1992", {1990, 1991, 1992}),
        ("1991", {1991}),
        ("1990, 1994..1995", {1990, 1994, 1995}),
        ("null", {None}),
        ("1993,null", {1993, None}),
        ("1900..2100", set(range(1990, 1996))),
    ],
)
def test_a_selection_is_the_scan_of_its_documents(
    expression: str, chosen: set[Any], years: Moments, tmp_path: Path
) -> None:
    rows = np.array([i for i, year in enumerate(YEARS) if year in chosen])
    alone = scanned(write_labelled(tmp_path / "c", rows), tmp_path / "m", SMALL)
    selected = select_partitions(years, expression)
    np.testing.assert_allclose(selected.row_sum, alone.row_sum, rtol=1e-6)
    np.testing.assert_allclose(selected.diagonal, alone.diagonal, rtol=1e-6)
    np.testing.assert_array_equal(selected.term_count, alone.term_count)
    np.testing.assert_array_equal(selected.document_frequency, alone.document_frequency)
    assert selected.n_documents == alone.n_documents == len(rows)
    assert yy_error(half(selected, 4), half(alone, 4)) < 1e-4


def test_models_of_two_selections_differ_and_say_which_they_are(years: Moments, tmp_path: Path) -> None:
    settings = InferSettings(3, anchor_min_df=0)
    models = [
        infer(years, tmp_path / name, settings, partitions=name) for name in ("1990..1992", "1993..1995")
    ]
    assert [model.provenance["partitions"] for model in models] == ["1990..1992", "1993..1995"]
    assert models[0].provenance["fingerprint"] != models[1].provenance["fingerprint"]
    assert not np.array_equal(models[0].arrays["word_topic"], models[1].arrays["word_topic"])


@pytest.mark.parametrize("exact", [False, True])
def test_errors_of_a_selection_are_those_of_its_documents(exact: bool, folder: Path, tmp_path: Path) -> None:
    """Also if the store has C, which is that of all documents."""
    moments = scanned(folder / "c", tmp_path / "m", replace(BY_YEAR, exact=exact))
    arrays = infer(
        moments, tmp_path / "model", InferSettings(3, anchor_min_df=0), partitions="1990..1992"
    ).arrays
    rows = COUNTS[[i for i, year in enumerate(YEARS) if year in (1990, 1991, 1992)]]
    C = reference.cooccurrence(rows, reference.document_weights(rows.sum(axis=1), "capped"))
    shares = reference_metrics.topic_given_word(arrays["word_topic"], arrays["topic_probability"])
    expected = reference_metrics.recovery(C, C.sum(axis=1), shares, arrays["anchors"])
    assert evaluate(tmp_path / "model")["metrics"]["recovery"] == pytest.approx(expected, rel=1e-6)


def test_strings_are_selected_by_name(folder: Path) -> None:
    named, numbered = (open_moments(folder / store) for store in ("names", "years"))
    by_name = select_partitions(named, "year 1990,year 1991")
    np.testing.assert_allclose(by_name.row_sum, select_partitions(numbered, "1990..1991").row_sum, rtol=1e-12)
    with pytest.raises(InputError, match=r"there are year 1990, year 1991, .*, null"):
        select_partitions(named, "1990..1991")
    for one_of_two in ("year 1990,year 19991", "year 1990,7..9"):
        with pytest.raises(InputError, match=f"no partition has \\w+ {one_of_two[10:]}; there are"):
            select_partitions(named, one_of_two)
    assert [*labels_named('"Smith, John",b')] == ["Smith, John", "b"]


@pytest.mark.parametrize("expression", ["", " , ", "1990..", "a..b", "1990..1995..2000", ["1990"]])
def test_an_expression_that_names_nothing(expression: Any) -> None:
    with pytest.raises(InputError, match="partitions"):
        labels_named(expression)


def infer_line(store: Path, model: Path, *more: str) -> list[str]:
    return ["infer", str(store), str(model), "--topics", "3", "--anchor-min-df", "0", *more]


def test_infer_on_the_command_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model"
    assert run(infer_line(folder / "years", model, "--partitions", "1990..1992,null")) == 0
    capsys.readouterr()
    assert run(["info", str(model), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["provenance"]["partitions"] == "1990..1992,null"
    assert shown["metrics"]["n_documents"] == sum(y in (None, 1990, 1991, 1992) for y in YEARS)


@pytest.mark.parametrize(
    ("store", "labels", "said"),
    [
        ("plain", "1990", ["--partition-by"]),
        ("years", "1890..1899", ["1890..1899", "1990, 1991, 1992", "null"]),
    ],
)
def test_what_cannot_be_selected_is_refused_with_what_can(
    store: str, labels: str, said: list[str], folder: Path, tmp_path: Path
) -> None:
    refused(invoked(*infer_line(folder / store, tmp_path / "model", "--partitions", labels)), 2, *said)
    assert not (tmp_path / "model").exists()
