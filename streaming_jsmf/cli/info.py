"""The verb ``info``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from streaming_jsmf.cli.verb import json_option, json_text, option, require_one, verb
from streaming_jsmf.config import PolishSettings
from streaming_jsmf.display import flattened, location, memory_text, percent, printable, wrapped

#: Width of the names on the page.
NAMES = 16

#: Fields that the page omits: digests, and those that other lines show.
_OMITTED = {
    *("complete", "digests", "fingerprint", "kind", "metrics", "models"),
    *("path", "provenance", "sample", "settings", "settings_fingerprint", "topic_edits"),
}

_DONE = "_partitions_done"
_TITLES = {
    "steps_done": "tasks done",
    "counted_corpora": "evaluated on",
    "missing": "still to do",
}


@verb("streaming-jsmf info MODEL", "streaming-jsmf info MOMENTS --json", long=False)
@click.argument("path")
@json_option(help="Print all information as JSON instead of text.")
@option(
    "--verify",
    is_flag=True,
    help="Read a corpus or shares completely and verify them; stores are always verified.",
)
@option(
    "--methods",
    is_flag=True,
    help="Print a paragraph on how a model was made, for a paper, and BibTeX of the papers that were used.",
)
@option(
    "--migrate",
    is_flag=True,
    help="First rewrite a moments store or a model of an earlier format, without a pass over the documents.",
)
def info(
    path: str, as_json: bool = False, verify: bool = False, methods: bool = False, migrate: bool = False
) -> str:
    """Describe the corpus, moments store, model or shares at PATH.

    Tells whether it is complete and intact, and how it was made.
    """
    from streaming_jsmf.interface import describe as stores

    if migrate:
        stores.migrate(path)
    if methods:
        require_one(False, json=as_json, verify=verify, methods=True)
        return _methods(path)
    described = stores.describe(path, verify=verify)
    if as_json:
        return json_text(described)
    return "\n".join(map(printable, _page(path, described)))


def _methods(path: str) -> str:
    """How each model was made; the paragraphs fit the terminal."""
    from streaming_jsmf.interface.methods import methods_of
    from streaming_jsmf.topics.store import models_at

    texts = []
    for model in models_at(path):
        paragraph, entries = methods_of(model).split("\n\n", 1)
        texts += ["\n".join(wrapped(printable(paragraph), "")), entries]
    return "\n\n".join(texts)


def _page(path: str, described: Mapping[str, Any]) -> Iterator[str]:
    state = (
        "complete and intact"
        if described["complete"]
        else "incomplete; run the same command again to complete it"
    )
    yield f"{described['kind']}: {location(path)} ({state})"
    for name, text in _facts(described):
        yield from wrapped(text, f"  {name:<{NAMES}}  ")
    for model in described.get("models", ()):
        yield ""
        yield from _page(model["path"], model)


def _facts(described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and texts of the page."""
    from streaming_jsmf.jobs.events import what

    for name, value in described.items():
        if name not in _OMITTED and not name.endswith(_DONE) and value not in ([], None):
            yield _TITLES.get(name, name.replace("_", " ")), _text(_in_words(name, value))
    done = {
        what(name.removesuffix(_DONE)): value for name, value in described.items() if name.endswith(_DONE)
    }
    if done:
        yield "partitions done", _text(done)
    yield from _sample(described.get("sample") or {})
    yield from _edits(described.get("topic_edits") or {})
    provenance = described.get("provenance") or {}
    yield from _origin(provenance)
    for name, sign in (("settings", "="), ("versions", " ")):
        fields = described.get(name) or provenance.get(name)
        if fields:
            texts = (f"{key}{sign}{text}" for key, text in flattened(fields).items() if text != "-")
            yield name, ", ".join(texts)
    metrics = described.get("metrics") or {}
    polished = metrics.get("polish") or {}
    if perplexities := polished.get("perplexity"):
        last, held_out = perplexities[-1], int(described["settings"]["polish"]["held_out"])
        total = int(polished["n_documents"] + last["documents"])
        yield (
            "perplexity",
            f"{last['perplexity']:,.0f} on {last['documents']:,.0f} documents held out of polish "
            f"({PolishSettings(held_out=held_out).held_out_note(total)})",
        )
    if metrics:
        from streaming_jsmf.evaluation.verdicts import warnings_of

        yield from (("warning", sentence) for sentence in warnings_of(metrics, described.get("topics")))


def _in_words(name: str, value: Any) -> Any:
    """What stages do, instead of their names."""
    from streaming_jsmf.jobs.events import what

    match name:
        case "missing":
            return [what(stage) for stage in value]
        case "steps_done":
            return {what(stage): number for stage, number in value.items()}
    return value


def _origin(provenance: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from streaming_jsmf.jobs.events import what

    for name in ("moments", "started", "finished"):
        if provenance.get(name):
            yield name, str(provenance[name])
    if stages := provenance.get("stages"):
        yield (
            "time",
            ", ".join(f"{what(name)} {stage['seconds']:.1f} s" for name, stage in stages.items()),
        )
    if provenance.get("task_seconds") is not None:
        yield "time", f"{provenance['task_seconds']:,.1f} s in all tasks"
        yield "peak memory", memory_text(int(provenance["peak_memory"]))


def _sample(sample: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if sample:
        if sample["share_of_documents"] < 1:
            share = percent(sample["share_of_documents"])
            yield "sample", f"{sample['documents']:,} documents, {share} of the corpus"
        yield (
            "estimated error",
            f"{percent(sample['estimated_error'])} of the co-occurrences (Y Y'), at most about",
        )
        yield "outside basis", f"{percent(sample['outside_basis'])} of their squared norm"
    if sample.get("words"):
        words, tokens = sample["words_hardly_seen"], sample["tokens_hardly_seen"]
        yield (
            "rare in sample",
            f"{percent(words)} of the words ({percent(tokens)} of the tokens), such as {', '.join(sample['words'])}",
        )


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
        case [Mapping(), *_]:
            return "; ".join(map(_text, value))
        case {"path": path}:
            return f"{path} ({_sizes(value)})"
        case Mapping():
            return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)


def _sizes(fields: Mapping[str, Any]) -> str:
    def size(name: str, value: int) -> str:
        name = name.removeprefix("n_").replace("_", " ")
        return f"{value:,} {name.removesuffix('s') if value == 1 else name}"

    return ", ".join(size(name, value) for name, value in fields.items() if isinstance(value, int))
