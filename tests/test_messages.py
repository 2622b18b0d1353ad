"""Messages name keyword arguments in Python and options on the command line, and say what to write instead."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr

import streaming_jsmf
import streaming_jsmf as sj
from streaming_jsmf import Execution, InputError, ingest
from streaming_jsmf.cli.main import COMMANDS
from streaming_jsmf.config.fields import Settings, declared
from streaming_jsmf.errors import Option, option, options_named, taking
from streaming_jsmf.evaluation.verdicts import CERTIFICATES, warnings_of
from tests.corpora import planted, words
from tests.outcomes import Command, refused
from tests.processes import ended
from tests.test_in_memory import TEXTS

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
        (option.item("a b"), "item='a b'", "--item 'a b'"),
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


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_messages_of_workers_do_so_too(scheduler: str, tmp_path: Path, invoke: Command) -> None:
    texts = tmp_path / "t.jsonl"
    texts.write_text('{"text": "a ship"}\n{"text": 5}\n')
    done = invoke("ingest", texts, tmp_path / "c", "--scheduler", scheduler, "--workers", 1)
    refused(done.without_progress(), 2, "use --on-bad-record quarantine")
    if scheduler == "threads":
        with pytest.raises(InputError, match=r"use on_bad_record='quarantine'"):
            ingest(texts, tmp_path / "c", execution=Execution(scheduler, 1))


def test_a_corpus_of_the_command_is_the_one_of_python(tmp_path: Path, invoke: Command) -> None:
    """What is printed on a file, such as how to change the delimiter, does not tell one request from another."""
    table, options = tmp_path / "t.csv", {"preset": "papers", "min_distinct_words": 1}
    table.write_text("text;n\n" + "".join(f"{text};1\n" for text in TEXTS))
    done = invoke("ingest", table, tmp_path / "c", "--preset", "papers", "--min-distinct-words", 1)
    assert "separated by ';'; --delimiter , changes that" in done.err
    assert ingest(table, tmp_path / "c", **options).n_documents == len(TEXTS)


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


@cache
def _names_of_options() -> list[str]:
    """Those named anywhere in the package."""
    return sorted({name for module in MODULES.values() for name in _named(module)} - OF_MANY_VERBS)


def _named(module: ast.Module) -> set[str]:
    """The names in ``option.NAME``, also in templates."""
    templates = " ".join(text for _, text in _texts(module))
    return {node.attr for node in _options_in(module)} | {*re.findall(r"\{option\.(\w+)", templates)}


def test_messages_name_only_options_that_exist() -> None:
    flags = {flag for command in COMMANDS for part in command.params for flag in part.opts}
    public = [getattr(streaming_jsmf, name) for name in streaming_jsmf.__all__]
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


#: Options that verbs may lack in messages without the name of one that has them: these are of no verb in particular.
OF_MANY_VERBS = {
    *(
        "workers",
        "memory",
        "scheduler",
        "allow_mixed",
        "performance_report",
        "overwrite",
        "corpus",
        "moments",
        "replicas",
    ),
    *(
        "truth",
        "topic",
        "by",
        "similar",
        "outliers",
        "number",
        "words",
        "columns",
        "top",
        "raw",
        "reduce",
        "topics",
    ),
    *("merge_similar", "label", "alpha", "vanished", "steps", "shares", "effects"),
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_an_option_that_a_verb_lacks_is_that_of_a_verb_that_has_it(command: Any) -> None:
    flags = {each.name: {flag for part in each.params for flag in part.opts} for each in COMMANDS}
    own = flags[command.name]
    for name in _names_of_options():
        with options_named(), taking(own):
            flag, _, verb = str(Option(name)).partition(" of ")
        assert flag in (flags[verb] if verb else own), name
        assert not (verb and Option(name).on_command_line in own), name


def test_fit_advises_what_it_has(tmp_path: Path, invoke: Command) -> None:
    table = tmp_path / "t.csv"
    TABLE_OF_TEXTS.to_csv(table, index=False)
    for place in ("m", "n"):
        sj.fit(table, tmp_path / place, 2, polish=False, workers=1, moments=tmp_path / "moments")
        with pytest.raises(sj.InputError, match="give another path, or overwrite=True to replace the store"):
            sj.fit(table, tmp_path / "o", 2, seed=5, moments=tmp_path / "moments", overwrite=True)
    line = ("fit", table, tmp_path / "o", "--topics", 2, "--seed", 5, "--moments", tmp_path / "moments")
    assert "give another path, or --overwrite to replace the store" in invoke(*line).err
    with options_named(), taking(["--topics"]):
        assert (
            f"lower {option.max_topics} or {option.sample_share}"
            == "lower --topics or --sample-share of scan"
        )
        assert f"scan with {option.max_topics(40).alone}" == "scan with --max-topics 40"
    with taking(["n_topics", "workers"]):
        assert f"lower {option.max_topics} or {option.workers}" == "lower n_topics or workers"
        with taking(["max_topics"]):
            assert f"{option.max_topics}" == "n_topics", "what the user has called counts"


def test_what_differs_is_told_in_words(tmp_path: Path, invoke: Command) -> None:
    """Of files, documents and word lists, whose digests say nothing; what follows from them is not repeated."""
    table, corpus, model, shares = (tmp_path / name for name in ("t.csv", "c", "m", "s.parquet"))
    TABLE_OF_TEXTS.to_csv(table, index=False)
    sj.fit(sj.ingest(table, corpus), model, 2, workers=1)
    sj.transform(model, table, shares)
    TABLE_OF_TEXTS[:-3].to_csv(table, index=False)
    files = "(other files were read, or their contents have changed; fingerprint stored "
    refused(invoke("ingest", table, corpus).without_progress(), 2, files)
    documents = "(the documents, or how they are read, are others; fingerprint stored "
    refused(invoke("transform", model, table, shares, "--quiet"), 2, documents)
    seed = "(n_topics: stored 2, asked 3; fingerprint stored "
    refused(invoke("fit", corpus, model, "--topics", 3), 2, seed)
    sj.ingest(table, tmp_path / "d")
    corpora = "(the corpus is another one, or has changed; fingerprint stored "
    refused(invoke("fit", tmp_path / "d", model, "--topics", 2), 2, corpora)


def test_a_limit_of_less_than_a_document_says_so(tmp_path: Path, invoke: Command) -> None:
    TABLE_OF_TEXTS.to_csv(tmp_path / "t.csv", index=False)
    done = invoke("ingest", tmp_path / "t.csv", tmp_path / "c", "--max-df", 0.001, "--quiet")
    refused(done, 2, f"in any document, as 0.10% of {len(TABLE_OF_TEXTS)} is less than one)", "--max-df 100%")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_warnings_about_a_model_name_options_of_the_verb_that_prints_them(command: Any) -> None:
    flags = {each.name: {flag for part in each.params for flag in part.opts} for each in COMMANDS}
    doubtful = {
        each.path: {"value": 9.0, "standard_error": 0.0} if "mass" in each.path else 9.0
        for each in CERTIFICATES
        if each.advice and "." not in each.path
    }
    with options_named(), taking(flags[command.name]):
        for sentence in warnings_of(doubtful, 20):
            for flag, verb in re.findall(r"(--[a-z0-9-]+)(?: [0-9,]+)?(?: of ([a-z-]+))?", sentence):
                assert flag in flags[verb or command.name], sentence
    with options_named(), taking(flags["fit"]):
        assert "(--topics 20,40)" in warnings_of({"ritz_residual": 0.28}, 20)[0]


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
        (("topics", "modell"), "modell: no such file or directory; did you mean model?"),
        (("documents", "modell", "--topic", "0"), "modell: no such file or directory; did you mean model?"),
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


def test_a_way_out_names_what_it_reads(tmp_path: Path, invoke: Command) -> None:
    """A pattern reads one kind of the other files, and none has no suffix."""
    for name in ("a.docx", "b.md", "c.txt", "d"):
        (tmp_path / name).write_bytes(b"PK\3\4" if name == "a.docx" else b"some text")
    done = invoke("ingest", tmp_path, tmp_path.with_name("corpus"))
    refused(
        done,
        2,
        f".docx files are not read; export them as plain text, one file each, or read the .md files "
        f"alone with the pattern '{tmp_path}/**/*.md'",
    )


@pytest.mark.slow
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


# -- What newcomers write first: it works, or one line says what to write instead --


K, N = 3, 40
COUNTS = planted(200, N, K, length=50, seed=2).counts
TABLE = pd.DataFrame({"text": ["a text", "another"], "n": [1, 2]})
TEXT = "the cat sat on the mat " * 300
TABLE_OF_TEXTS = pd.DataFrame({"text": TEXTS})


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A corpus, its moments, a model and shares, as paths and opened."""
    folder = tmp_path_factory.mktemp("mistakes")
    corpus = sj.corpus_from_matrix(COUNTS, words(N), folder / "corpus")
    moments = sj.scan(corpus, folder / "moments", sj.ScanSettings(max_topics=K))
    sj.infer(moments, folder / "model", sj.InferSettings(K))
    shares = sj.transform(folder / "model", corpus, folder / "shares.parquet")
    TABLE.to_parquet(folder / "texts.parquet")
    estimator = sj.LRJSMF(K).fit(COUNTS)
    return SimpleNamespace(folder=folder, corpus=corpus, moments=moments, shares=shares, estimator=estimator)


def test_common_calls_work(at: Any, tmp_path: Path) -> None:
    model = sj.infer(at.moments, tmp_path / "z", K)
    assert model.arrays["word_topic"].shape == (N, K)
    np.testing.assert_array_equal(
        sj.open_model(tmp_path / "z")["word_topic"].values,
        sj.open_model(at.folder / "model")["word_topic"].values,
    )
    found = sj.evaluate(sj.open_model(at.folder / "model"), at.corpus)
    assert found["corpus"]["training"]
    assert found["metrics"]["npmi"] is not None
    assert sj.evaluate(at.folder / "model", str(at.folder / "corpus"))["metrics"] == found["metrics"]
    assert isinstance(sj.fit(at.corpus, tmp_path / "m", K), sj.TopicModel)
    assert len(sj.documents_of_topic(at.folder / "model", at.shares, 1, 5)) == 5
    assert sj.to_dask_array(at.folder / "corpus").shape == (200, N)
    assert sj.InferSettings(np.int64(3)) == sj.InferSettings(3)
    assert len(repr(model)) < 1000
    assert len(repr(at.moments)) < 300
    assert sj.transform(sj.open_model(tmp_path / "z"), at.corpus, tmp_path / "s.parquet").about.n_topics == K


#: What is written, and what is answered.
MISTAKES = [
    ("sj.infer(moments, new, [3, 4])", r"settings is '\[3, 4\]' \(list\); give Inf"),
    ("sj.infer(corpus, new, 3)", "is a corpus, not a moments store; streaming-jsmf scan .* MOMENTS makes"),
    ("sj.infer(model, new, 3)", "is a model, not a moments store; give"),
    ("sj.fit(corpus, K)", "where the model goes; write n_topics=3"),
    ("sj.fit(corpus, new, '20')", "n_topics is '20'; give a whole number, or several"),
    ("sj.fit(corpus, new, 0)", "n_topics is 0; give a whole number of at least 1"),
    ("sj.fit(moments, new)", "a moments store, not documents; streaming-jsmf infer .* makes a model"),
    ("sj.fit(model, new)", "is a model, not documents; give texts, a table or a corpus"),
    ("sj.fit(COUNTS)", r"is a matrix \(ndarray\); corpus_from_matrix\(matrix"),
    ("sj.fit('the cat sat on the mat')", "the mat: no such file or directory; check the path, or give texts"),
    ("sj.fit(TEXT)", r"can be named 'the cat sat .{40,50}'\.\.\. \(6,900 char.*; .* give texts as a list"),
    ("sj.fit('a\\0b')", r"no file or directory can be named 'a\\x00b'; check the path"),
    ("sj.fit('see http://x.y for the rest')", "no such file or directory; check the path, or give texts"),
    ("sj.open_corpus(TEXT)", "no file or directory can be named"),
    ("sj.open_model(TEXT)", "no file or directory can be named"),
    ("sj.fit('two lines\\nof a text')", r"two lines\\u000aof a text: no such file .*, or give texts"),
    ("sj.fit([{'a'}, {'c'}])", "rows of type set; give texts, lists of tokens"),
    ("sj.fit(TABLE[['n']])", "^the DataFrame has the columns n; say which"),
    ("sj.scan(TABLE, new)", r"not as a DataFrame; make a corpus of it with ingest\("),
    (
        "sj.scan(folder / 'texts.parquet', new)",
        "texts.parquet is a file, not a corpus; streaming-jsmf ingest",
    ),
    ("sj.scan(corpus, new, 20)", r"settings is '20' \(int\); give ScanSettings\(...\)"),
    ("sj.evaluate(estimator.model_)", "Dataset was not opened from a model store"),
    ("sj.open_model(folder / 'moments')", "is a moments store, not a model; streaming-jsmf infer"),
    (
        "sj.open_model(folder / 'corpus')",
        "is a corpus, not a model; streaming-jsmf fit .* makes a model of it",
    ),
    ("sj.ingest(moments.path, new)", "is a moments store, not documents"),
    (
        "sj.choose_k(corpus, [2, 3], folder / 'corpus')",
        "is a corpus, not a folder of models of several K, and is not replaced",
    ),
    ("sj.open_model(TABLE)", "a model or a fitted estimator, not a DataFrame"),
    ("sj.open_corpus(model)", "is a model, not a corpus"),
    ("sj.transform(model, 'some text', new)", "give texts as a list"),
    ("sj.shares_by(model, TABLE)", "topic shares is named by its path or URL"),
    ("sj.documents_of_topic(model, shares, '1')", "topic is '1'; give a whole number"),
    ("sj.choose_k(corpus, 5)", "a single number of topics is given; give several"),
]


@pytest.mark.parametrize(("written", "line"), MISTAKES)
def test_mistakes_are_refused_in_one_line(written: str, line: str, at: Any, tmp_path: Path) -> None:
    with pytest.raises(sj.InputError, match=line) as raised:
        eval(written, globals(), {**vars(at), "model": at.folder / "model", "new": tmp_path / "new"})
    assert len(str(raised.value).splitlines()) == 1
    assert "streaming-jsmf-" not in str(raised.value), "no temporary path"


# -- What is at a path: every verb says the same of it, what it wants, and the command that makes that --


#: What is there, and what the commands that make something of it are, by what is wanted.
THERE = {
    "nothing": ("no such file or directory", {}),
    "memory://nothing/here": ("no such file or directory", {}),
    "empty": ("an empty folder", {}),
    "texts": ("a folder", {"a corpus": "ingest", "a model": "fit", "topic shares": "transform"}),
    "words.txt": ("a file", {"a corpus": "ingest", "a model": "fit", "topic shares": "transform"}),
    "page.html": ("a report", {}),
    "corpus": ("a corpus", {"a moments store": "scan", "a model": "fit", "topic shares": "transform"}),
    "moments": ("a moments store", {"a model": "infer", "documents": "infer"}),
    "model": ("a model", {"topic shares": "transform"}),
    "models": ("a folder of models of several K (k=2)", {}),
    "shares.parquet": ("topic shares", {}),
    "shares": ("topic shares", {}),
    "shares.zarr": ("topic shares", {}),
    "foreign.zarr": ("a Zarr group of another program", {}),
}
MAKES = {"a corpus": "ingest", "a moments store": "scan", "a model": "fit", "topic shares": "transform"}
TAKING = {
    "scan {} new": "a corpus",
    "polish model {} new": "a corpus",
    "evaluate model --corpus {}": "a corpus",
    "infer {} new --topics 2": "a moments store",
    "evaluate model --moments {}": "a moments store",
    "choose-k {} --topics 2,3": "a corpus or a moments store",
    "polish {} corpus new": "a model",
    "transform {} corpus new": "a model",
    "update {} corpus": "a model",
    "documents {} shares.parquet": "a model",
    "over-time {} shares.parquet --by year": "a model",
    "topics {} --words 3": "a model",
    "over-time model {} --by year": "topic shares",
    "effects {} shares.parquet --formula year": "a model",
    "effects model {} --formula year": "topic shares",
    "report model new.html --shares {}": "topic shares",
    "info {}": "a corpus, a moments store, a model or topic shares",
    "fit {} new --topics 2": "documents",
    "ingest {} new": "documents",
    "transform model {} new": "documents",
    "update model {}": "documents",
    "ingest words.txt new --vocabulary {} --reader lines": "a file of words, a corpus or a model",
    "evaluate model --truth {}": "a simulated corpus",
}


@pytest.fixture(scope="module")
def places(at: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("places")
    for name in ("corpus", "moments", "model", "shares.parquet"):
        (folder / name).symlink_to(at.folder / name)
    for name in ("shares", "shares.zarr"):
        sj.transform(at.folder / "model", at.corpus, folder / name)
    for name in ("empty", "texts", "models"):
        (folder / name).mkdir()
    (folder / "models" / "k=2").symlink_to(at.folder / "model")
    (folder / "texts" / "a.txt").write_text("some words\n")
    (folder / "texts" / "k=3").mkdir()  # no model
    (folder / "words.txt").write_text("some\nwords\n")
    sj.report(folder / "model", folder / "page.html")
    zarr.create_group(folder / "foreign.zarr", zarr_format=3)
    return folder


@pytest.mark.parametrize(("line", "wanted"), TAKING.items())
def test_every_verb_says_the_same_of_what_is_at_a_path(
    line: str, wanted: str, places: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(places)
    before = sorted(places.rglob("*"))
    # These are read, or shown, or refused for what they contain.
    sources = {"texts", "words.txt", "page.html", "empty", "foreign.zarr", "corpus"}
    taken = sources if wanted == "documents" else set()
    taken |= {name for name, (what, _) in THERE.items() if what in wanted.replace("file of words", "file")}
    taken |= {"models"} if line.startswith(("info", "update {}", "topics")) else set()
    taken |= {"page.html", "shares.parquet"} if "--vocabulary" in line else set()
    if line != next(other for other, kind in TAKING.items() if kind == wanted):
        taken |= THERE.keys() - {"nothing", "empty", "corpus", "model", "shares"}
    for name, (there, commands) in THERE.items():
        if name in taken:
            continue
        kind = next((kind for kind in [*MAKES, "documents"] if wanted.startswith(kind)), "")
        done = invoke(*line.format(name).split(), *(["--workers", "1"] if "new" in line.split() else []))
        missing = there.startswith("no such")
        verb = commands.get(kind, MAKES.get(kind, "give" if not missing else "check the path"))
        if name == "models" and kind == "a model":
            verb = "give one of them, such as models/k=2"
        said = there if missing else f"{there}, not {wanted}; "
        refused(done.without_progress(), 2, name, said, verb)
    assert sorted(places.rglob("*")) == before
