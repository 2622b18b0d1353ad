"""Messages name keyword arguments in Python, and options on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_jsmf import InputError, infer
from streaming_jsmf.errors import in_python, options_named
from tests.outcomes import Command, refused


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("it exists; use --overwrite", "it exists; use overwrite=True"),
        ("lower --topics or --anchor-min-df", "lower n_topics or anchor_min_df"),
        ("--topics is 5,000 and", "n_topics is 5,000 and"),
        ("use --max-df 100%, or --workers 4; or", "use max_df='100%', or workers=4; or"),
        ("scan with --exact, or use --rectify enn", "scan with exact=True, or use rectify='enn'"),
        ("ingest it with --vocabulary MODEL", "ingest it with vocabulary=MODEL"),
        ("run streaming-jsmf scan A B --exact; or", "run streaming-jsmf scan A B --exact; or"),
        ("a--b.csv -- x, s3://a/--b", "a--b.csv -- x, s3://a/--b"),
    ],
)
def test_options_become_keyword_arguments(message: str, said: str) -> None:
    error = InputError(message)
    assert (in_python(message), str(error)) == (said, said)
    with options_named():
        assert str(error) == message
    assert str(error) == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ingest", "neews.csv", "c"), "{}/neews.csv: no such file or directory; did you mean news.csv?"),
        (("topics", "modell"), "modell: no model is here; did you mean model?"),
    ],
)
def test_a_missing_path_suggests_similar_names(
    arguments: tuple[str, ...], said: str, tmp_path: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "news.csv").touch()
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    refused(invoke(*arguments), 2, said.format(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "news.csv"]


def test_messages_name_options_on_the_command_line_and_keywords_in_python(
    tmp_path: Path, invoke: Command
) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="overwrite=True to replace"):
        infer(tmp_path / "none", tmp_path / "model", 5)
    refused(
        invoke("infer", tmp_path / "none", tmp_path / "model", "--topics", 5), 2, "--overwrite to replace"
    )
