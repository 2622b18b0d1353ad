"""The public features of the program: ``python -m tests.features --write`` records them in features.json.

They are the verbs with their options, public Python names with their parameters, readers with their keys, and names and
types in outputs (``golden`` has those of arrays and tables), but no texts (help, messages, headings). They are found
through public interfaces only (command line, ``import streaming_jsmf``, files in open formats), so the list does not
depend on the structure of the package.
"""

from __future__ import annotations

import csv
import inspect
import json
import re
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
import zarr

import streaming_jsmf as sj
from tests.outcomes import called, printed, run
from tests.readers import BY_NAME, documents

RECORDED = Path(__file__).with_name("features.json")
ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "data" / "golden" / "first"

Features = dict[str, str | list[str]]
Found = Iterator[tuple[str, str | list[str]]]


# The command line


def command_line(_folder: Path) -> Found:
    """Verbs, arguments and options of the root command, wherever it is defined."""
    roots: list[click.Group] = []
    with patch.object(click.Command, "main", lambda group, *_, **__: roots.append(group)):
        run([])
    [group] = roots
    context = click.Context(group, info_name="streaming-jsmf")
    verbs = group.list_commands(context)
    yield "verbs", sorted(verbs)
    yield from _options(group, context)
    for verb in verbs:
        found = group.get_command(context, verb)
        assert found is not None
        for name, value in _options(found, click.Context(found, info_name=verb, parent=context), verb):
            yield f"{verb} {name}", value


def _options(owner: click.Command, context: click.Context, *verb: str) -> Iterator[tuple[str, str]]:
    short, full = (called(*verb, flag).out for flag in ("--help", "--help-all"))
    for option in owner.get_params(context):
        if "--help" in option.opts:
            continue  # click creates it for the first context of a process, and its names depend on that
        words = ["required"] * option.required
        if not isinstance(option, click.Option):
            yield option.make_metavar(context), ", ".join(["argument", *words])
            continue
        name, *others = [*option.opts, *option.secondary_opts]
        listed = re.compile(rf"^  (.*, )?{name}\b", re.MULTILINE)
        words = [
            _kind(option),
            *(f"also {other}" for other in others),
            *words,
            *["repeated"] * option.multiple,
        ]
        words += _default(option, context)
        words += (
            [] if listed.search(short) else ["only in --help-all" if listed.search(full) else "in no help"]
        )
        yield name, ", ".join(words)


def _kind(option: click.Option) -> str:
    """Kind of value; names of other types are implementation details."""
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    kinds = {click.types.IntParamType: "integer", click.types.FloatParamType: "number"}
    number = next((kind for base, kind in kinds.items() if isinstance(option.type, base)), "value")
    return "flag" if option.is_flag else number


def _default(option: click.Option, context: click.Context) -> list[str]:
    """The default shown by the help, if it is a value and not a description."""
    record = option.get_help_record(context)
    shown = re.findall(r"\[default: ([^\];]*)", record[1] if record else "")
    values = {*_kind(option).split("|"), str(option.get_default(context))}
    literal = values.intersection(shown) or re.fullmatch(r"[\d.]+(e-\d+)?", "".join(shown))
    return [f"default {shown[0]}" if literal else "default described"] * len(shown)


# Python

#: Classes with public fields but no public methods.
SETTINGS = ("Settings", "Request", "Execution")

#: Public methods of estimators from scikit-learn's base classes; the others differ between versions.
CONVENTIONS = (
    *("fit", "transform", "fit_transform", "partial_fit", "inverse_transform", "score"),
    *("get_params", "set_params", "set_output", "get_feature_names_out"),
)


def python_names(_folder: Path) -> Found:
    for name in sorted(sj.__all__):
        found = getattr(sj, name)
        yield name, _signature(found) if callable(found) else type(found).__name__
        if inspect.isclass(found) and not name.endswith(SETTINGS):
            own = [base for base in found.__mro__ if base.__module__.partition(".")[0] == "streaming_jsmf"]
            public = sorted({base.__name__ for base in own} & set(sj.__all__) - {name})
            builtin = [base.__name__ for base in found.__mro__[:-1] if base.__module__ == "builtins"]
            yield f"{name} bases", [*public, *builtin]
            members = {member for base in own for member in vars(base) if member[0] != "_"}
            for member in sorted(members - {*inspect.signature(found).parameters}):
                yield f"{name}.{member}", _member(found, member)


def _member(owner: type, name: str) -> str | list[str]:
    found = inspect.getattr_static(owner, name)
    if isinstance(found, staticmethod | classmethod):
        return _signature(getattr(owner, name))
    if inspect.isfunction(found):
        return _signature(found)[1:]
    return repr(found) if isinstance(found, int | str) else "attribute"


def _signature(function: Callable[..., Any]) -> list[str]:
    """Parameters with their defaults, without types, which are not public."""
    signs = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    made = []
    for name, parameter in inspect.signature(function).parameters.items():
        keyword = " (keyword)" if parameter.kind is inspect.Parameter.KEYWORD_ONLY else ""
        default = parameter.default
        shown = "a function" if isinstance(default, types.FunctionType) else repr(default)
        value = "" if default is inspect.Parameter.empty else f" = {shown}"
        made.append(f"{signs.get(parameter.kind, '')}{name}{keyword}{value}")
    return made


def estimators(_folder: Path) -> Found:
    counts = sp.random(60, 30, 0.4, format="csr", random_state=0, data_rvs=np.ones).astype(np.int32)
    for kind in (sj.LRJSMF, sj.STOD):
        made = kind(n_topics=2)
        yield f"{kind.__name__} parameters", [f"{k} = {v!r}" for k, v in sorted(made.get_params().items())]
        yield f"{kind.__name__} conventions", [name for name in CONVENTIONS if hasattr(made, name)]
        made.fit(counts)
        yield f"{kind.__name__} fitted", [name for name in dir(made) if re.fullmatch(r"[a-z]\w*[^_]_", name)]


# Sources


def offered(message: str) -> list[str]:
    """Names listed in an error message: its longest list, or its last word."""
    plain = re.sub(r",? or ", ", ", message.replace("'", ""))
    lists = re.findall(r"[\w-]+(?:, [\w-]+)*(?=[,;]|$)", plain, re.MULTILINE)
    most = max(each.count(",") for each in lists)
    return sorted([each for each in lists if each.count(",") == most][-1].split(", "))


def readers(folder: Path) -> Found:
    """Names and keys of readers, from the messages about unknown ones."""

    def refused(source: Path, *options: str) -> list[str]:
        outcome = called("ingest", source, folder / "none", *options)
        assert outcome.code == 2, outcome.out
        return offered(outcome.err)

    source, spec = folder / "texts.txt", folder / "spec.toml"
    source.write_text("red green blue\n")
    head = 'name = "x"\ntitle = "x"\nreader = "lines"\n[source]\nurl = "https://localhost/x"\n'
    names = refused(source, "--reader", "nonsense")
    yield "readers", names
    for name in sorted({*names} - {"function"}):  # tests/test_sources_functions.py
        spec.write_text(f"{head.replace('lines', name)}[read]\nnonsense = 1\n")
        yield f"keys of {name}", refused(spec)
    yield "tokenizers", refused(source, "--reader", "lines", "--tokenizer", "nonsense")
    yield "schedulers", refused(source, "--scheduler", "nonsense")
    wrong = "nonsense = 1\n"
    for name, text in (
        ("", wrong + head),
        ("source", head + wrong),
        ("curation", f"{head}[curation]\n{wrong}"),
    ):
        spec.write_text(text)
        yield f"keys of a spec {name}".strip(), refused(spec)


# Outputs


def shape(value: Any, path: str = "") -> dict[str, set[str]]:
    """Paths in nested JSON with their types."""
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        inner = [(f"{path}.{key}".lstrip("."), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        inner = [(f"{path}[]", item) for item in value]
    found: dict[str, set[str]] = {}
    for name, item in inner:
        for key, kinds in shape(item, name).items():
            found.setdefault(key, set()).update(kinds)
    names = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}
    return found or {path: {names.get(type(value), "empty")}}


def keys(value: Any) -> list[str]:
    found = shape(json.loads(value) if isinstance(value, str) else value)
    return sorted(f"{path} {' or '.join(sorted(kinds))}" for path, kinds in found.items())


def columns(path: Path) -> list[str]:
    """Columns of a Parquet file with their types, and its metadata keys."""
    schema = pq.read_schema(path)
    metadata = sorted(key.decode() for key in schema.metadata or {} if not key.startswith(b"ARROW"))
    return [*(f"{field.name} {field.type}" for field in schema), *(f"metadata {key}" for key in metadata)]


def outputs(folder: Path) -> Found:
    """Metadata and printed results of verbs, and the fields of their log; ``golden`` has all arrays and columns."""
    log = ("--log-json", folder / "log.jsonl")
    yield from _corpora(folder, log)
    scan = (*log, "--max-topics", 5, "--partition-nonzeros", 4000)
    printed("scan", CORPUS, folder / "moments", *scan, "--third-moment")
    for engine in ("lr-jsmf", "stod"):
        printed("infer", folder / "moments", folder / engine, "--topics", 4, "--engine", engine, *log)
        printed("evaluate", folder / engine, "--corpus", CORPUS, "--replicas", 1, *log)
        yield f"evaluate {engine}", keys(printed("evaluate", folder / engine, "--json"))
    printed("polish", folder / "lr-jsmf", CORPUS, folder / "polished", "--steps", 7, *log)
    for name in ("lr-jsmf", "stod", "polished"):
        attributes = dict(zarr.open_group(folder / name, mode="r").attrs)
        yield f"attributes {name}", keys({**attributes, "digests": sorted(attributes["digests"])})
    for name in ("corpus", "moments", "lr-jsmf", "stod"):
        yield f"info {name}", keys(printed("info", folder / name, "--json"))
    yield from _answers(folder / "polished", folder, log)
    compared = ("--topics", "2,3", "--replicas", 0, "--json")
    yield "choose-k", keys(printed("choose-k", folder / "moments", "--out", folder / "k", *compared))
    yield "choose-k files", sorted(path.name for path in (folder / "k").iterdir())
    told: dict[str, set[str]] = {}
    for line in map(json.loads, log[1].read_text().splitlines()):
        told.setdefault(line["event"], set()).update(line)
    for event, names in told.items():
        yield f"log {event}", sorted(names)


def _corpora(folder: Path, log: Sequence[object]) -> Found:
    text, corpus = BY_NAME["text-json"].write(folder / "in", documents(), bad=True), folder / "corpus"
    printed("ingest", text, corpus, "--on-bad-record", "quarantine", "--max-dropped", "100%", *log)
    yield "corpus files", sorted(str(path.relative_to(corpus)) for path in corpus.rglob("*"))
    yield "corpus manifest", keys((corpus / "manifest.json").read_text())


def _answers(model: Path, folder: Path, log: Sequence[object]) -> Found:
    """Printed results about a model and documents."""
    shares = folder / "shares.parquet"
    printed("transform", model, CORPUS, shares, *log)
    questions = (("--topic", 1), ("--by", "year"), ("--by", "year", "--topic", 1), ("--similar", "d000"))
    told = [
        ("topics", model),
        *(("documents", model, shares, *asked) for asked in ((), *questions)),
        ("over-time", model, shares, "--by", "year"),
        ("effects", model, shares, "--formula", "year", "--draws", 2),
    ]
    for verb, _, *asked in told:
        name = " ".join(map(str, (verb, *asked[1:])))
        yield f"{name} --csv", next(csv.reader([printed(verb, model, *asked, "--csv").partition("\n")[0]]))
        yield f"{name} --json", keys(printed(verb, model, *asked, "--json"))
    printed("documents", model, shares, "--topic", 1, "--out", folder / "answer.parquet")
    yield "documents --out", columns(folder / "answer.parquet")
    printed("report", model, folder / "page.html", "--shares", shares)
    page = (folder / "page.html").read_text()
    yield "report sections", re.findall(r'<section[^>]* id="([^"]+)"', page)
    payload = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    yield "report data", sorted(json.loads(payload.group(1)) if payload else ())


# The list


def features() -> Features:
    made = (command_line, python_names, estimators, readers, outputs)
    with tempfile.TemporaryDirectory() as folder:
        return {
            f"{function.__name__.replace('_', ' ')}: {name}": value
            for function in made
            for name, value in function(Path(folder))
        }


def differences(then: Features, now: Features) -> list[str]:
    """Removed, added and changed features, one line each."""
    lines = [f"- {name}: {then[name]}" for name in then if name not in now]
    lines += [f"+ {name}: {now[name]}" for name in now if name not in then]
    for name in (name for name in then if name in now and then[name] != now[name]):
        was, found = then[name], now[name]
        if isinstance(was, str) or isinstance(found, str) or set(was) == set(found):
            lines.append(f"! {name}: was {was}, is {found}")
        else:
            lines += [f"- {name}: {entry}" for entry in was if entry not in found]
            lines += [f"+ {name}: {entry}" for entry in found if entry not in was]
    return lines


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        RECORDED.write_text(json.dumps(features(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        print(*differences(json.loads(RECORDED.read_text(encoding="utf-8")), features()), sep="\n")
