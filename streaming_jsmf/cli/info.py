"""The verb ``info``: a page for people, JSON for programs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import click

from streaming_jsmf.cli.options import json_option
from streaming_jsmf.cli.verb import option, verb
from streaming_jsmf.display import location, printable

#: Width of the page, and of the names in it.
WIDTH, NAMES = 80, 16

#: Fields that the page omits: digests, and what other lines show.
_OMITTED = (
    "complete",
    "digests",
    "fingerprint",
    "kind",
    "metrics",
    "models",
    "provenance",
    "settings",
    "settings_fingerprint",
)


@verb("streaming-jsmf info MODEL", "streaming-jsmf info MOMENTS --json", long=False)
@click.argument("path")
@json_option(help="Print everything that is known as JSON instead of a page.")
@option(
    "--verify",
    is_flag=True,
    help="Read a corpus completely and compare it with its hashes; stores always are.",
)
def info(path: str, as_json: bool = False, verify: bool = False) -> str:
    """Describe the corpus, moments store or model at PATH: whether it is complete and intact, and how it was made."""
    from streaming_jsmf.reporting.info import describe

    described = describe(path, verify=verify)
    return json.dumps(described, ensure_ascii=False, indent=1) if as_json else page(path, described)


def page(path: str, described: Mapping[str, Any]) -> str:
    """The result of ``describe`` as a page of 80 columns."""
    return "\n".join(map(printable, _lines(path, described)))


def _lines(path: str, described: Mapping[str, Any]) -> Iterator[str]:
    state = (
        "complete and intact" if described["complete"] else "incomplete; run the command that made it again"
    )
    yield f"{described['kind']}: {location(path)} ({state})"
    for name, value in described.items():
        if name not in _OMITTED and value not in ([], None):
            yield from _fact(name.replace("_", " "), _text(value))
    made = described.get("provenance") or {}
    for name in ("moments", "started", "finished"):
        if made.get(name):
            yield from _fact(name, str(made[name]))
    if made.get("stages"):
        took = ", ".join(f"{name} {took['seconds']:.1f} s" for name, took in made["stages"].items())
        yield from _fact("took", took)
    if made.get("task_seconds") is not None:
        yield from _fact("took", _cost(made["task_seconds"], made["peak_memory"]))
    for name in ("settings", "versions"):
        fields = described.get(name) or made.get(name)
        if fields:
            yield from _fact(name, _listed(fields))
    yield from _metrics(described.get("metrics") or {})
    for model in described.get("models", ()):
        yield ""
        yield from _lines(model["path"], model)


def _fact(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"  {name:<{NAMES}}  ", subsequent_indent=" " * (NAMES + 4),
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def _text(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.3g}"
        case [Mapping(), *_]:
            return "; ".join(_text(item) for item in value)
        case Mapping():
            return ", ".join(
                f"{_text(item)}{'' if name == 'path' else ' ' + name.removeprefix('n_').replace('_', ' ')}"
                for name, item in value.items()
                if name != "fingerprint"
            )
        case list():
            return ", ".join(_text(item) for item in value)
        case _:
            return str(value)


def _listed(fields: Mapping[str, Any]) -> str:
    from streaming_jsmf.reporting.contents import facts_of

    return ", ".join(f"{fact.name} {fact.value}" for fact in facts_of(fields) if fact.value != "-")


def _cost(seconds: float, memory: float) -> str:
    from streaming_jsmf.reporting.contents import memory_text

    return f"{seconds:,.1f} s in all tasks, at most {memory_text(int(memory))} of memory"


def _metrics(metrics: Mapping[str, Any]) -> Iterator[str]:
    from streaming_jsmf.evaluation.verdicts import warnings_of

    perplexities = (metrics.get("polish") or {}).get("perplexity") or []
    if perplexities:
        last = perplexities[-1]
        text = f"{last['perplexity']:,.0f} of {last['documents']:,.0f} documents held out of polish"
        yield from _fact("perplexity", text)
    for sentence in warnings_of(metrics):
        yield from _fact("warning", sentence)
