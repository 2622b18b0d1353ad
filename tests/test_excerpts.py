"""The beginnings of texts in a corpus, in topic shares, in answers and in reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streaming_jsmf as sj
from tests.outcomes import Command
from tests.test_in_memory import TEXTS


def excerpts_of(corpus: Path) -> list[str] | None:
    table = pq.read_table(corpus / "documents")
    return table.column("excerpt").to_pylist() if "excerpt" in table.column_names else None


@pytest.mark.parametrize("suffix", [".parquet", ".txt"])
def test_the_beginning_of_each_text_is_stored(suffix: str, tmp_path: Path) -> None:
    texts = [f"{text}  {'and so on ' * 50}" for text in TEXTS[:30]]
    path = tmp_path / f"texts{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"text": texts, "year": list(range(30))}), path)
    else:
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    keep: dict[str, Any] = {"min_df": 1, "max_df": 1.0, "stop_words": "none"}
    reader: dict[str, Any] = {"reader": "lines"} if suffix == ".txt" else {}
    for name, options, length in (("a", {}, 300), ("b", {"excerpt": 7}, 7), ("c", {"excerpt": 0}, 0)):
        sj.ingest(path, tmp_path / name, **keep, **options, **reader)
        expected = [" ".join(text.split())[:length] for text in texts]
        assert excerpts_of(tmp_path / name) == (expected if length else None)
    sj.ingest(path, tmp_path / "papers", preset="papers", **reader)
    assert excerpts_of(tmp_path / "papers") is None


def test_excerpts_are_shown_with_the_words_of_the_topic(tmp_path: Path, invoke: Command) -> None:
    texts = [f"From: someone\nSubject: hello\n\n{text} <script>x</script>" for text in TEXTS]
    table = pd.DataFrame({"text": [*texts, None], "excerpt": "a column of the source"})
    model = sj.fit(table.drop(columns="excerpt"), tmp_path / "m", 3, polish=False)
    shares = tmp_path / "s.parquet"
    sj.transform(model, model.corpus, shares)
    top = model.documents(shares, topic=1, number=2)
    assert [*top.columns] == ["document_id", "share", "excerpt"]
    assert not top["excerpt"].str.contains("Subject").any(), "boilerplate is left out"
    first = top["excerpt"][0]
    shown = invoke("documents", model.path, shares, "--topic", 1, "--number", 2).out
    assert "".join(first.split()) in "".join(shown.split())
    assert "excerpt" not in shown.splitlines()[0]
    assert first in invoke("documents", model.path, shares, "--topic", 1, "--json").out
    own = model.documents(topic=1, number=2)
    pd.testing.assert_frame_equal(own, top)
    assert first in invoke("documents", model.path, "--topic", 1, "--json").out
    page = sj.report(model, tmp_path / "page.html", shares=shares).read_text(encoding="utf-8")
    assert first.split("<")[0].strip() in page
    assert "<script>x" not in page
    sj.ingest(table, tmp_path / "own")
    assert set(excerpts_of(tmp_path / "own") or []) == {"a column of the source"}
    new = model.transform(texts[:2])
    assert new.shape == (2, 3)
    sj.transform(model, texts[:2], tmp_path / "new.parquet", excerpt=5)
    assert {len(text) for text in pq.read_table(tmp_path / "new.parquet")["excerpt"].to_pylist()} == {5}


def test_words_that_the_model_dropped_are_not_reported_as_unknown(tmp_path: Path, invoke: Command) -> None:
    model = sj.fit(TEXTS, tmp_path / "m", 3, polish=False)
    lines = [f"the {text} xylophone{number}" for number, text in enumerate(TEXTS[:20])]
    (tmp_path / "new.txt").write_text("\n".join([*lines, "nothing known"]) + "\n", encoding="utf-8")
    done = invoke("transform", model.path, tmp_path / "new.txt", tmp_path / "s.parquet", "--reader", "lines")
    assert done.code == 0
    assert "not in the model" not in done.err
    assert "1 of 21 documents have no word of the model" in done.err
