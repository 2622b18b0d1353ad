"""The verb ``info``: a page for people, JSON for programs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import click

from streaming_jsmf.cli.verb import option, verb
from streaming_jsmf.display import location, printable

#: Columns of a terminal that the page fits, and those of the names.
WIDTH, NAMES = 80, 16

#: What is no news to people, or far too long for them: digests, and what other lines say.
_PASSED_OVER = (
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


@verb("streaming-jsmf info MODEL", "streaming-jsmf info MOMENTS --json")
@click.argument("path")
@option("--json", "as_json", is_flag=True, help="All that is known, as JSON, instead of a page.")
@option(
    "--verify", is_flag=True, help="Read all of a corpus and compare it with its hashes; stores always are."
)
def info(path: str, as_json: bool, verify: bool) -> None:
    """Say what is at PATH (corpus, moments or model), whether it is complete and sound, and what made it."""
    from streaming_jsmf.workflow.info import describe

    described = describe(path, verify=verify)
    click.echo(json.dumps(described, ensure_ascii=False, indent=1) if as_json else page(path, described))


def page(path: str, described: Mapping[str, Any]) -> str:
    """What ``describe`` found at ``path`` as a page of 80 columns."""
    return "\n".join(map(printable, _lines(path, described)))


def _lines(path: str, described: Mapping[str, Any]) -> Iterator[str]:
    state = (
        "complete and sound" if described["complete"] else "not complete; run the command that makes it again"
    )
    yield f"{described['kind']}: {location(path)} ({state})"
    for name, value in described.items():
        if name not in _PASSED_OVER and value not in ([], None):
            yield from _fact(name.replace("_", " "), _text(value))
    made = described.get("provenance") or {}
    for name in ("moments", "started", "finished"):
        if made.get(name):
            yield from _fact(name, str(made[name]))
    if made.get("stages"):
        yield from _fact("took", _took(made["stages"]))
    if made.get("task_seconds") is not None:
        yield from _fact(
            "took", f"{made['task_seconds']:,.1f} s of work, {_memory(made['peak_memory'])} at most"
        )
    for name in ("settings", "versions"):
        fields = described.get(name) or made.get(name)
        if fields:
            yield from _fact(name, _listed(fields))
    yield from _of_metrics(described.get("metrics") or {})
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
            # A path says more than a hash.
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
    from streaming_jsmf.reporting.wording import facts_of

    return ", ".join(f"{fact.name} {fact.value}" for fact in facts_of(fields) if fact.value != "-")


def _took(stages: Mapping[str, Mapping[str, float]]) -> str:
    return ", ".join(f"{name} {took['seconds']:.1f} s" for name, took in stages.items())


def _memory(size: float) -> str:
    from streaming_jsmf.reporting.wording import memory_text

    return memory_text(int(size))


def _of_metrics(metrics: Mapping[str, Any]) -> Iterator[str]:
    from streaming_jsmf.model.certificates import warnings_of

    told = (metrics.get("polish") or {}).get("perplexity") or []
    if told:
        last = told[-1]
        yield from _fact(
            "perplexity",
            f"{last['perplexity']:,.0f} of {last['documents']:,.0f} documents kept out of polish",
        )
    for sentence in warnings_of(metrics):
        yield from _fact("warning", sentence)
