"""``--csv``: no cell of it is a formula to a spreadsheet, and ``--raw`` gives the cells as they are."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf import Execution, fit, transform
from streaming_jsmf.display import csv_text
from tests.corpora import planted
from tests.outcomes import Command, refused
from tests.test_transform import write_named

ALONE = Execution("synchronous")
FORMULA = "=HYPERLINK(\"http://example.org\",'x')"


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize(
    "text", ["=2+3", "+cmd", "-1+2", "@SUM(A1)", "\tx", "\rx", "\nx", "-", "--1", "-1e", "\uff1d2+3", FORMULA]
)
def test_a_text_that_a_spreadsheet_would_evaluate_gets_an_apostrophe(text: str) -> None:
    assert cells(csv_text([[text, 1, text]], raw=False)) == [[f"'{text}", "1", f"'{text}"]]
    assert cells(csv_text([[text]], raw=True)) == [[text]]


@pytest.mark.parametrize(
    "cell",
    [-2, -0.5, "-2", "+3.25", "-1.5e-07", "-.5", "a=b", "'tis", "", True, "2024-01-01", "a\r=2+3", "a\n=2"],
)
def test_numbers_and_other_texts_stay_as_they_are(cell: object) -> None:
    assert cells(csv_text([[cell, None]], raw=False)) == [[str(cell), ""]]


@given(st.lists(st.lists(st.text("=+-@\t\r\n,\"'1.e x"), min_size=2, max_size=2), max_size=4))
def test_nothing_but_an_apostrophe_is_added(rows: list[list[str]]) -> None:
    written, raw = cells(csv_text(rows, raw=False)), cells(csv_text(rows, raw=True))
    assert raw == rows
    for row, given_row in zip(written, rows, strict=True):
        for cell, given_cell in zip(row, given_row, strict=True):
            assert cell in (given_cell, f"'{given_cell}")
            if cell == given_cell and cell[:1] in set("=+-@\t\r\n"):
                float(cell)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and shares of documents whose words, titles and columns are formulas."""
    folder = tmp_path_factory.mktemp("formulas")
    spelled = [f"=cmd{number}" for number in range(40)]
    corpus = write_named(folder / "corpus", planted(150, 40, 3, length=40, seed=3).counts, spelled)
    for part in corpus.glob("*.parquet"):
        table = pq.read_table(part)
        renamed = ["@title" if name == "title" else name for name in table.column_names]
        pq.write_table(table.rename_columns(renamed), part)
    fit(corpus, folder / "model", n_topics=3, execution=ALONE)
    transform(folder / "model", corpus, folder / "shares", execution=ALONE)
    return folder / "model", folder / "shares"


def test_topics_and_documents_print_no_formula(fitted: tuple[Path, Path], invoke: Command) -> None:
    model, shares = fitted
    for arguments in (("topics", model), ("documents", model, shares, "--topic", 1)):
        printed = {raw: cells(invoke(*arguments, "--csv", *raw).out) for raw in ((), ("--raw",))}
        texts, raw_texts = ([cell for row in rows for cell in row] for rows in printed.values())
        assert not any(text.startswith(("=", "@")) for text in texts)
        assert any(text.startswith(("=", "@")) for text in raw_texts)
        escaped = [f"'{text}" if text[:1] in ("=", "@") else text for text in raw_texts]
        assert texts == escaped
        refused(invoke(*arguments, "--raw"), 2, "--raw is for --csv")


def test_a_label_that_is_a_formula(fitted: tuple[Path, Path], invoke: Command) -> None:
    rows = cells(invoke("topics", fitted[0], "--csv", "--label", f"0={FORMULA}").out)
    labels = {row[0]: row[2] for row in rows[1:]}
    assert labels["0"] == f"'{FORMULA}"
