"""The verb ``info``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from streaming_jsmf.cli.verb import json_option, json_text, option, verb
from streaming_jsmf.display import location, printable, wrapped

#: Width of the names on the page.
NAMES = 16

#: Fields that the page omits: digests, and those that other lines show.
_OMITTED = {
    *("complete", "digests", "fingerprint", "kind", "metrics"),
    *("models", "provenance", "settings", "settings_fingerprint", "topic_edits"),
}


@verb("streaming-jsmf info MODEL", "streaming-jsmf info MOMENTS --json", long=False)
@click.argument("path")
@json_option(help="Print all information as JSON instead of text.")
@option(
    "--verify",
    is_flag=True,
    help="Read a corpus or shares completely and verify them; stores are always verified.",
)
def info(path: str, as_json: bool = False, verify: bool = False) -> str:
    """Describe the corpus, moments store, model or shares at PATH: whether it is complete, and how it was made."""
    from streaming_jsmf.reporting.info import describe

    described = describe(path, verify=verify)
    if as_json:
        return json_text(described)
    return "\n".join(map(printable, _page(path, described)))


def _page(path: str, described: Mapping[str, Any]) -> Iterator[str]:
    state = (
        "complete and intact" if described["complete"] else "incomplete; run the command that made it again"
    )
    yield f"{described['kind']}: {location(path)} ({state})"
    for name, text in _facts(described):
        yield from wrapped(text, f"  {name:<{NAMES}}  ")
    for model in described.get("models", ()):
        yield ""
        yield from _page(model["path"], model)


def _facts(described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and texts of the page."""
    from streaming_jsmf.evaluation.verdicts import warnings_of
    from streaming_jsmf.reporting.contents import facts_of, memory_text

    for name, value in described.items():
        if name not in _OMITTED and value not in ([], None):
            yield name.replace("_", " "), _text(value)
    yield from _edits(described.get("topic_edits") or {})
    provenance = described.get("provenance") or {}
    for name in ("moments", "started", "finished"):
        if provenance.get(name):
            yield name, str(provenance[name])
    if provenance.get("stages"):
        stages = provenance["stages"].items()
        yield "took", ", ".join(f"{name} {stage['seconds']:.1f} s" for name, stage in stages)
    if provenance.get("task_seconds") is not None:
        seconds, memory = provenance["task_seconds"], memory_text(int(provenance["peak_memory"]))
        yield "took", f"{seconds:,.1f} s in all tasks, at most {memory} of memory"
    for name in ("settings", "versions"):
        fields = described.get(name) or provenance.get(name)
        if fields:
            facts = (f"{fact.name} {fact.value}" for fact in facts_of(fields) if fact.value != "-")
            yield name, ", ".join(facts)
    metrics = described.get("metrics") or {}
    if perplexities := (metrics.get("polish") or {}).get("perplexity"):
        last = perplexities[-1]
        text = f"{last['perplexity']:,.0f} of {last['documents']:,.0f} documents held out of polish"
        yield "perplexity", text
    yield from (("warning", sentence) for sentence in warnings_of(metrics, described.get("topics")))


def _edits(edits: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    found = {
        "named topics": [f"{topic} ({name})" for topic, name in edits.get("labels", {}).items()],
        "merged topics": [" + ".join(map(str, group)) for group in edits.get("merged", ())],
        "hidden topics": [str(topic) for topic in edits.get("hidden", ())],
    }
    return ((kind, ", ".join(topics)) for kind, topics in found.items() if topics)


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
