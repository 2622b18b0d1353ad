"""Messages name keyword arguments in Python, and options on the command line."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import streaming_jsmf
from streaming_jsmf import Execution, InputError, ingest
from streaming_jsmf.cli.main import COMMANDS
from streaming_jsmf.config.fields import Settings, declared
from streaming_jsmf.errors import Option, option, options_named
from streaming_jsmf.moments.changes import Changes
from tests.outcomes import Command, refused
from tests.processes import ended

PACKAGE = Path(streaming_jsmf.__file__).parent
#: An option in a message, and a complete command, which may have any.
RAW_OPTION, WHOLE_COMMAND = (
    re.compile(r"(?<![\w/-])--[a-z]"),
    re.compile(r"(?:streaming-jsmf|zstd) [-\w][^,;]*"),
)
#: Modules whose texts are for the command line only.
COMMAND_LINE = PACKAGE / "cli"

MODULES = {
    path: ast.parse(path.read_text())
    for path in sorted(PACKAGE.rglob("*.py"))
    if COMMAND_LINE not in path.parents and path.name != "errors.py"
}


@pytest.mark.parametrize(
    ("shown", "keyword", "flag"),
    [
        (option.n_topics, "n_topics", "--topics"),
        (option.overwrite(True), "overwrite=True", "--overwrite"),
        (option.workers(4), "workers=4", "--workers 4"),
        (option.vocabulary("MODEL"), "vocabulary=MODEL", "--vocabulary MODEL"),
        (option.read({"user": "who", "item": "a b"}), "read={'user': 'who', 'item': 'a b'}",
         "--read user=who --read 'item=a b'"),
    ],
)  # fmt: skip
def test_an_option_is_a_keyword_argument_in_python(shown: Option, keyword: str, flag: str) -> None:
    assert f"lower {shown}, or" == f"lower {keyword}, or"
    with options_named():
        assert f"{shown}" == flag


def test_the_texts_of_users_are_shown_as_they_are(tmp_path: Path, invoke: Command) -> None:
    source = "x.csv --topics file.csv --overwrite"
    with pytest.raises(InputError) as caught:
        ingest(source, tmp_path / "c")
    assert source in str(caught.value)
    refused(invoke("ingest", source, tmp_path / "c"), 2, source)


def test_messages_on_the_command_line_name_options_only(tmp_path: Path, invoke: Command) -> None:
    texts = tmp_path / "t.csv"
    texts.write_text("text\na\n")
    given = ("--min-word-length", "0", "--scheduler", "synchronous")
    refused(invoke("ingest", texts, tmp_path / "c", *given).without_progress(), 2, "--min-word-length is 0")
    with pytest.raises(InputError, match=r"^min_word_length is 0"):
        ingest(texts, tmp_path / "c", min_word_length=0)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_messages_of_workers_do_so_too(scheduler: str, tmp_path: Path, invoke: Command) -> None:
    texts = tmp_path / "t.jsonl"
    texts.write_text('{"text": "a ship"}\n{"text": 5}\n')
    done = invoke("ingest", texts, tmp_path / "c", "--scheduler", scheduler)
    refused(done.without_progress(), 2, "use --on-bad-record quarantine")
    with pytest.raises(InputError, match=r"use on_bad_record='quarantine'"):
        ingest(texts, tmp_path / "c", execution=Execution(scheduler))


def _texts(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts of a module with their lines, except for docstrings and declared names of options."""
    skipped = set[int]()
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield node.lineno, "".join(str(getattr(part, "value", "")) for part in node.values)
        elif isinstance(node, ast.Expr) or (isinstance(node, ast.keyword) and node.arg == "flags"):
            skipped |= {id(part) for part in ast.walk(node) if isinstance(part, ast.Constant)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def test_no_message_has_an_option_as_text() -> None:
    found = [
        f"{path}:{line}: {text}"
        for path, module in MODULES.items()
        for line, text in _texts(module)
        if RAW_OPTION.search(WHOLE_COMMAND.sub("", text))
    ]
    assert not found, "write {option.NAME} (streaming_jsmf.errors)"


def _options_in(module: ast.Module) -> list[ast.Attribute]:
    """All ``option.NAME``."""
    attributes = [node for node in ast.walk(module) if isinstance(node, ast.Attribute)]
    return [node for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "option"]


def _named(module: ast.Module) -> set[str]:
    """The names in ``option.NAME``, also in templates."""
    templates = " ".join(text for _, text in _texts(module))
    return {node.attr for node in _options_in(module)} | {*re.findall(r"\{option\.(\w+)", templates)}


def test_messages_name_only_options_that_exist() -> None:
    flags = {flag for command in COMMANDS for part in command.params for flag in part.opts}
    public = [Changes, *(getattr(streaming_jsmf, name) for name in streaming_jsmf.__all__)]
    keywords = {name for item in public if callable(item) for name in inspect.signature(item).parameters}
    keywords |= {
        alias
        for kind in Settings.__subclasses__()
        for field in declared(kind).values()
        for alias in field.names
    }
    names = {name for module in MODULES.values() for name in _named(module)}
    assert len(names) > 50
    assert {Option(name).on_command_line for name in names} - flags == set()
    assert names - keywords == set()


def test_no_constant_names_options() -> None:
    """What is made when a module is imported does not know yet whether messages name options."""
    for path, module in MODULES.items():
        functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
        later = {id(part) for function in functions for part in ast.walk(function)}
        assert [node.lineno for node in _options_in(module) if id(node) not in later] == [], path


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


def test_a_locale_that_cannot_name_a_file_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "m\u00f6").mkdir()
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = ended((sys.executable, "-m", "streaming_jsmf", "topics", "m\u00f6"), folder=tmp_path, **ascii_only)
    refused(done, 2, "names of files in ASCII; set LC_ALL=C.UTF-8")
    open_it = (
        "import pathlib, streaming_jsmf as sj\n"
        "for place in ('m\\xf6', pathlib.Path('m\\xf6')):\n"
        "    try: sj.open_model(place)\n"
        "    except sj.InputError as error: print(ascii(str(error)))\n"
    )
    done = ended((sys.executable, "-c", open_it), folder=tmp_path, **ascii_only)
    assert done.out.count("names of files in ASCII; set LC_ALL=C.UTF-8") == 2, done
