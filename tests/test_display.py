"""What is said and kept: no secret of a URL, and nothing that a terminal would obey."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf.cli.main import OneLine
from streaming_jsmf.display import location, printable
from streaming_jsmf.errors import InputError
from tests.corpora import planted, write_corpus
from tests.outcomes import Command
from tests.processes import command, ended

#: Colour, title of the window, a C1 control sequence, text from right to left, a new line, a tag, half a pair.
ORDERS = ("\x1b[31mred", "\x1b]0;t\x07", "\x9b2J", "\u202eabc", "two\nlines", "\U000e0041x", "caf\u00e9")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ftp://user:S3CRET@host/corpus", "ftp://host/corpus"),
        ("ftp://user:S3@CRET@host:21/c", "ftp://host:21/c"),
        ("sftp://user:my S3'CRET@host/c", "sftp://host/c"),
        ("https://S3CRET@host/a.csv", "https://host/a.csv"),
        ("https://host/a.csv?sig=S3CRET&b=c#S3CRET", "https://host/a.csv"),
        ("s3://bucket/a?X-Amz-Signature=S3CRET", "s3://bucket/a"),
        ("simplecache::ftp://u:S3CRET@host/a", "simplecache::ftp://host/a"),
        ("zip://a@b.csv::https://u:S3CRET@host/b.zip?k=S3CRET", "zip://a@b.csv::https://host/b.zip"),
        ("abfs://u:S3CRET@account.net/a", "abfs://account.net/a"),
        ("cannot open ftp://u:S3CRET@host/x: reason; twice FTP://u:S3CRET@host, so.",
         "cannot open ftp://host/x: reason; twice FTP://host, so."),
    ],
)  # fmt: skip
def test_a_location_has_no_secrets(given: str, said: str) -> None:
    assert location(given) == said
    assert location(said) == said
    assert str(InputError(given)) == said


@pytest.mark.parametrize(
    "name",
    [
        "/local/a@b?c=d::e",
        "s3://bucket/part-?.parquet",
        "s3://arn:aws:s3:eu:12:accesspoint/x/key@2",
        "abfs://container@account.dfs.core.windows.net/a",
        "github://org:repo@branch/a.csv",
        "https://host/a@b.csv",
        "memory://a@b/c",
    ],
)
def test_texts_without_secrets_are_unchanged(name: str) -> None:
    assert location(name) == name


def test_printable_json_stands_for_the_same_values() -> None:
    text = json.dumps([*ORDERS, "\ud800"], ensure_ascii=False)
    shown = printable(text)
    assert json.loads(shown) == [*ORDERS, "\ud800"]
    assert "caf\u00e9" in shown
    assert all(character.isprintable() for character in shown)


def test_log_lines_are_one_line_without_secrets() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "a\x1b[0m\nftp://u:S3CRET@h/c", None, None)
    assert OneLine().format(record) == "a\\u001b[0m\\u000aftp://h/c"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus whose words give orders to terminals."""
    folder = write_corpus(tmp_path_factory.mktemp("hostile") / "c", planted(300, 40, 3, seed=1).counts)
    spoilt = [f"{ORDERS[i % len(ORDERS)]}{i}" for i in range(40)]
    (folder / "vocab.txt").unlink()
    pq.write_table(pa.table({"word": spoilt}), folder / "vocabulary.parquet")
    return folder


def _obeyed(text: str) -> list[str]:
    """Characters that a terminal obeys, but the ends of lines."""
    return [character for character in text if printable(character, keep="\n\t\r") != character]


@pytest.mark.slow
def test_words_of_a_corpus_give_no_orders(hostile: Path, tmp_path: Path, invoke: Command) -> None:
    model = tmp_path / "model"
    fitted = invoke("fit", hostile, model, "--topics", "3", "--no-polish", "--scheduler", "synchronous")
    assert fitted.code == 0, fitted.err
    table = invoke("topics", model)
    assert "\\u001b[31mred" in table.out
    assert "two\\u000alines" in table.out or "two lines" in table.out
    listed = invoke("topics", model, "--json")
    assert "\x1b[31mred0" in {word for row in json.loads(listed.out) for word in row["prominent"]}
    scores = invoke("evaluate", model, "--words", "5")
    wrong = invoke("topics", tmp_path / "none\x1b[31m\nerror: two")
    assert wrong.code == 2
    assert wrong.err.count("\n") == 1
    for said in (fitted, table, listed, scores, wrong, invoke("info", model)):
        assert not _obeyed(said.out + said.err)
    # A terminal that lacks the letters of the words.
    for arguments in (("topics", model), ("topics", model, "--json")):
        said = ended(command(*arguments), PYTHONIOENCODING="ascii")
        assert said.code == 0, said.err
    assert said.out != listed.out
    assert json.loads(said.out) == json.loads(listed.out)
