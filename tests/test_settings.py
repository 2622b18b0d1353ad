"""Settings are declared once: what the declarations say holds in Python, on the command line and in the estimators."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from dataclasses import fields
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import pytest

import streaming_jsmf as sj
from streaming_jsmf.cli.main import cli
from streaming_jsmf.config import (
    INGEST_SETTINGS,
    READER_OPTIONS,
    ComparisonRequest,
    Curation,
    DocumentQuery,
    EffectsRequest,
    EvaluationRequest,
    ExecutionOptions,
    InferSettings,
    IngestRequest,
    OverTimeRequest,
    PolishSettings,
    RatingsOptions,
    ReadOptions,
    ReportRequest,
    ScanSettings,
    ShareSettings,
    SimulationSettings,
    StodSettings,
    TextOptions,
    TopicChanges,
    TopicsRequest,
    check_options,
    declared,
    engine_settings_of,
    parse_memory,
    request_of,
    settings_of,
)
from streaming_jsmf.config.fields import Field, Settings, declared_in
from streaming_jsmf.errors import InputError, options_named
from streaming_jsmf.jobs.execution import Execution

#: The verbs that have the options of each settings class.
KINDS: dict[type[Settings], tuple[str, ...]] = {
    InferSettings: ("infer", "fit"),
    StodSettings: ("infer", "fit"),
    ScanSettings: ("scan", "fit"),
    PolishSettings: ("polish", "fit"),
    **dict.fromkeys(INGEST_SETTINGS, ("ingest", "fit")),
    EvaluationRequest: ("evaluate",),
    SimulationSettings: ("simulate",),
    ComparisonRequest: ("choose-k",),
    ReportRequest: ("report", "view"),
    TopicsRequest: ("topics",),
    TopicChanges: ("topics",),
    ShareSettings: ("transform",),
    DocumentQuery: ("documents",),
    OverTimeRequest: ("over-time",),
    EffectsRequest: ("effects",),
    ExecutionOptions: ("ingest", "simulate", "scan", "fit", "choose-k", "polish", "transform", "evaluate"),
}
#: Fields that are allowed only with other values.
WITH: dict[str, dict[str, Any]] = {
    "cliques": {"anchors": "soft-clique"},
    "clique": {"anchors": "soft-clique", "cliques": 3},
    "separable": {"n_words": 5},
    "by": {"shares": "shares.parquet"},
    "effects": {"shares": "shares.parquet"},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def outside(field: Field) -> Iterator[Any]:
    """Values that the declaration excludes."""
    step = 1 if field.number is int else 1e-9
    if field.multiple:
        return
    if field.flag:
        yield from (1, "yes")
    if field.text:
        yield from (5,) if field.name == "stop_words" else (5, ["a", "b"])
    if field.listed:
        yield from (5, [5])
    elif field.choices or field.number:
        yield from ("no such choice", b"", [], math.nan)
    if field.number:
        yield from (math.inf, True)
        yield from (2.5,) if field.number is int else ()
        yield from (bound for bound in (field.gt, field.lt) if bound is not None)
        yield from (field.ge - step,) if field.ge is not None else ()
        yield from (field.le + step,) if field.le is not None else ()
    if (field.choices or field.number or field.flag) and not field.optional:
        yield None


def made(kind: type[Settings], field: Field, value: Any) -> Any:
    required = {
        name: "4" if each.text or each.listed else 4 for name, each in declared(kind).items() if each.required
    }
    required = {name: given for name, given in required.items() if name not in ("options", "curation")}
    required |= {"function": "module:function"} if "function" in declared(kind) else {}
    others = {name: each for name, each in WITH.get(field.name, {}).items() if name in declared(kind)}
    return kind(**{**required, **others, field.name: value})


def inside(field: Field) -> Iterator[Any]:
    """Values at the ends of what the declaration allows."""
    yield from (choice for choice in field.choices if (field.name, choice) != ("header", "none"))
    yield from (bound for bound in (field.ge, field.le) if bound is not None)
    if field.flag:
        yield from (False, True)


@each_kind
def test_what_a_declaration_excludes_is_refused_with_name_and_value(kind: type[Settings]) -> None:
    for field, value in [(each, value) for each in declared(kind).values() for value in outside(each)]:
        with pytest.raises(InputError) as caught:
            made(kind, field, value)
        assert str(caught.value).startswith(f"{field.name} is {value!r}; give ")
        assert "\n" not in str(caught.value)
        for bound in (field.ge, field.gt, field.lt):
            assert bound is None or f"{bound:g}" in str(caught.value)
        assert all(choice in str(caught.value) for choice in field.choices)


@each_kind
def test_what_a_declaration_allows_is_kept_as_plain_values(kind: type[Settings]) -> None:
    for field, value in [(each, value) for each in declared(kind).values() for value in inside(each)]:
        given = np.array(value)[()] if isinstance(value, int | float) else value
        kept = getattr(made(kind, field, given), field.name)
        assert kept == value, field.name
        assert type(kept).__module__ == "builtins", field.name


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        (InferSettings, {"n_topics": 3, "clique": 2}, "clique is 2"),
        (InferSettings, {"n_topics": 3, "cliques": 2}, "soft-clique"),
        (InferSettings, {"n_topics": 3, "anchor_words": "cat"}, "'cat'"),
        (InferSettings, {"n_topics": 3, "anchor_words": {"pets": ["cat"]}}, "pets"),
        (InferSettings, {"n_topics": 3, "anchor_words": [["cat", None]]}, "None"),
        (InferSettings, {"n_topics": 3, "anchor_words": ["cat", "cat"]}, "'cat' twice"),
        (InferSettings, {"n_topics": 1, "anchor_words": ["cat", "dog"]}, "2 entries"),
        (InferSettings, {"n_topics": 1, "anchor_words": [[]]}, "without words"),
        (InferSettings, {"n_topics": 3, "anchor_words": ["a"], "anchors": "soft-clique"}, "pivoted-qr"),
        (ScanSettings, {"range_finder": "halko", "sample_share": 0.5}, "range_finder='sample'"),
        (
            SimulationSettings,
            {"n_documents": 1, "n_words": 3, "n_topics": 3, "separable": True},
            "need more words than topics, not 3",
        ),
        (ReportRequest, {"by": "year"}, "by takes a column of shares"),
        (DocumentQuery, {"similar": "a", "topic": 1}, "similar excludes"),
        (Curation, {"max_document_frequency": 1.5}, "max_document_frequency is 1.5"),
    ],
)
def test_fields_that_exclude_each_other(kind: type[Settings], values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        kind(**values)


@each_kind
def test_every_field_is_an_option_of_its_verbs(kind: type[Settings]) -> None:
    derived = {"fit": ("max_topics", "third_moment")}
    for field, verb in product(declared(kind).values(), KINDS[kind]):
        assert len(field.help.split()) >= 3, field.name
        if not field.option or field.name in derived.get(verb, ()):
            continue
        [option] = [each for each in cli.commands[verb].params if each.name == field.name]
        assert isinstance(option, click.Option)
        assert option.opts[0] == (field.flags or [f"--{field.name.replace('_', '-')}"])[0]
        is_choice = bool(field.choices and not (field.number or field.parse or field.listed))
        assert isinstance(option.type, click.Choice) == is_choice, field.name
        if isinstance(option.type, click.Choice):
            assert tuple(option.type.choices) == field.choices
        assert option.required == field.required, field.name
        if not (field.absent or field.multiple or field.required):
            assert option.default == field.default, field.name


@pytest.mark.parametrize("engine", [sj.LRJSMF, sj.STOD])
def test_estimators_have_the_parameters_of_their_engine(engine: Any) -> None:
    own = {name: value.default for name, value in inspect.signature(engine).parameters.items()}
    kind = InferSettings if engine is sj.LRJSMF else StodSettings
    for field in fields(kind):
        if field.name not in ("n_topics", "seed"):
            assert own[field.name] == field.default, field.name
    for name in own:
        assert f"    {name} : " in engine.__doc__
    assert "Attributes\n" in engine.__doc__


@pytest.mark.parametrize("verb", [sj.fit, sj.scan, sj.infer, sj.ingest, sj.polish, sj.transform, sj.evaluate])
def test_an_unknown_keyword_is_refused_with_the_nearest_name(verb: Any) -> None:
    known = [name for name in inspect.signature(verb).parameters if len(name) > 6]
    for name in known[-3:]:
        with pytest.raises(TypeError, match=rf"'{name}x'; did you mean '{name}'"):
            verb("nowhere", "out", "more", **{f"{name}x": 1})


@pytest.mark.parametrize("verb", [sj.ingest, sj.fit, sj.transform, sj.update])
def test_the_removed_read_is_answered_with_keyword_arguments(verb: Any) -> None:
    read = {"delimiter": ";", "vocabulary": "w.txt", "names_header": False}
    now = re.escape("read={...} was removed; use delimiter=';', word_list='w.txt', names_header=False")
    with pytest.raises(TypeError, match=f"^{now}$"):
        verb("nowhere", "out", read=read)
    with pytest.raises(TypeError, match="use text='body'"):
        verb("nowhere", "out", read=["text=body"])


def test_an_option_of_a_reader_is_no_other_option_or_argument() -> None:
    kinds = [kind for kind in KINDS if not issubclass(kind, ReadOptions)]
    of_readers, others = (
        {name for field in declared_in(some).values() if field.option for name in field.names}
        for some in (
            READER_OPTIONS.values(),
            {kind for kind in kinds if {"fit", "transform"} & {*KINDS[kind]}},
        )
    )
    assert len(of_readers) > 40
    assert not of_readers & others
    for verb in (sj.ingest, sj.fit, sj.transform, sj.update):
        assert not of_readers & inspect.signature(inspect.unwrap(verb)).parameters.keys()
    for command in cli.commands.values():
        flags = [flag for parameter in command.params for flag in parameter.opts]
        assert sorted(flags) == sorted({*flags})


def test_fields_are_keyword_arguments() -> None:
    options = {"max_topics": 9, "range": "halko", "workers": 3, "memory": "4GB"}
    assert settings_of("settings", ScanSettings, None, options) == ScanSettings(9, "halko")
    assert settings_of("settings", ScanSettings, ScanSettings(9), {"workers": 3}) == ScanSettings(9)
    assert settings_of("settings", ScanSettings, None, {"workers": 3}) == ScanSettings()
    execution = settings_of("execution", ExecutionOptions, None, options)
    assert execution == ExecutionOptions(workers=3, memory=4_000_000_000)
    cluster = SimpleNamespace(scheduler=SimpleNamespace(address="tcp://host:8786"))
    assert Execution(cluster, 2) == Execution("tcp://host:8786", 2), "as clusters and clients of Dask"  # type: ignore[arg-type]
    with pytest.raises(InputError, match="settings is '5'"):
        settings_of("settings", ScanSettings, 5, options)  # type: ignore[type-var]


def test_an_engine_is_chosen_by_name_or_by_its_settings() -> None:
    assert engine_settings_of(3, None, {"tolerance": 0.1}) == InferSettings(3, tolerance=0.1)
    assert engine_settings_of(3, None, {"engine": "stod", "alpha0": "2"}) == StodSettings(3, 2)
    assert engine_settings_of(3, StodSettings(5), {"restarts": 2}) == StodSettings(5, restarts=2)
    assert engine_settings_of(3, None, {"seed": 1}, shared=("seed",)) == InferSettings(3)
    for settings, options, said in (
        (None, {"engine": "lda"}, "'lda'"),
        (StodSettings(3), {"engine": "lr-jsmf"}, "stod"),
        (None, {"seed": 1}, "seed belongs to engine stod"),
        (None, {"engine": "stod", "rectify": "none"}, "rectify belongs to engine lr-jsmf"),
    ):
        with pytest.raises(InputError, match=said):
            engine_settings_of(3, settings, options)  # type: ignore[arg-type]


def test_options_of_ingest_are_those_of_scikit_learn_too() -> None:
    flat = {"min_df": "30%", "max_df": 1.0, "max_features": 99, "ngram_range": (1, 2), "encoding": "cp1252"}
    request = request_of(IngestRequest(curation={"min_tokens": 1}), {**flat, "text": "body"})
    assert request is not None
    assert request.curation == {
        "min_tokens": 1,
        "min_document_frequency": 0.3,
        "max_document_frequency": 2**53,
        "vocabulary_size": 99,
    }
    assert request.options == {"text": ("body",), "ngrams": 2, "encoding": "cp1252"}
    assert request_of(None, {"tokenizer": "sklearn"}) == IngestRequest(options={"tokenizer": "sklearn"})
    assert request_of(None, {"tokenizer": "mine:split"}) == IngestRequest(options={"tokenizer": "mine:split"})
    assert request_of(None, {"workers": 2}) is None
    assert Curation(stop_words=Path("words.txt")).stop_words == "words.txt"  # type: ignore[arg-type]
    for name, value in (("max_df", "few"), ("ngrams", "2,3"), ("ngrams", "4")):
        with pytest.raises(InputError, match=name.replace("_df", "_document_frequency")):
            request_of(None, {name: value})


KEYS: list[tuple[str, dict[str, Any], str]] = [
    ("text", {"encoding": "utf-16"}, "encoding is 'utf-16'; give an encoding"),
    ("text", {"quotechar": ";", "delimiter": ";"}, "different characters"),
    ("text", {"header": "first", "columns": "a,b"}, "leave it or header='first' out"),
    ("text", {"date_format": "american"}, "%d.%m.%Y"),
    ("lines", {"phrases": "0.5", "ngrams": "2"}, "give one of them"),
    ("baskets", {"separator": ""}, "separator is ''"),
    *(("text-files", {"name_pattern": text}, "name_pattern is ") for text in ("(", "(?P<label>x)")),
    *(("triples", {"delimiter": text}, "delimiter is ") for text in ("", "\n")),
    *(("triples", {"quotechar": text}, "'") for text in ("''", "\n")),
    *(("ratings", {"max_rating": limit}, "max_rating is ") for limit in (4.7, "many")),
    ("ratings", {"header": "false"}, "give them with columns"),
    ("ratings", {"names_encoding": "utf-99"}, "names_encoding is 'utf-99'"),
    ("ratings", {"names": "x", "names_header": False}, "names_columns"),
    *((reader, {"nothing": 1}, "the unknown key 'nothing'; give one of ") for reader in READER_OPTIONS),
    ("text", {"delimeter": ";"}, r"did you mean delimiter \(text, triples, ratings\)\?"),
    (
        "npz",
        {"tokenizer": "arrow"},
        r"takes no tokenizer \(text, text-files, mail, lines and function do\); leave tokenizer out",
    ),
]


@pytest.mark.parametrize(("reader", "read", "said"), KEYS)
def test_what_a_reader_does_not_take_is_refused_in_one_line(
    reader: Any, read: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        check_options(reader, read)
    assert len(str(caught.value).splitlines()) == 1
    with options_named(), pytest.raises(InputError):
        check_options(reader, read)


def test_keys_of_a_reader_are_converted_by_type() -> None:
    read = {"header": "false", "columns": "user, item,rating", "max_rating": "4.5", "integer_ids": "false"}
    found = check_options("ratings", {**read, "delimiter": "\\t", "names": None})
    assert found == RatingsOptions(
        delimiter="\t", header="none", columns=("user", "item", "rating"), max_rating=4.5, integer_ids=False
    )
    assert IngestRequest(options=read).options == {**read, "header": "none", "columns": ("user", "item", "rating"),
                                             "max_rating": 4.5, "integer_ids": False}  # fmt: skip
    options = check_options(
        "text", {"text": ["a,b", "c"], "metadata": "all", "phrases": ["x y"], "excerpt": "9"}
    )
    assert isinstance(options, TextOptions)
    assert (options.text, options.metadata, options.phrases) == (("a,b", "c"), "all", ("x y",))
    assert options.fields()["excerpt"] == 9


@pytest.mark.parametrize("size", ["lots", "-1GB", "0", "1e400GB", " ", "GB"])
def test_sizes_that_are_none(size: str) -> None:
    with pytest.raises(InputError, match=f"memory is '{size}'"):
        parse_memory(size)
