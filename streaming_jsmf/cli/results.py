"""How the results of verbs are laid out: topics, metrics, comparisons of K, the page of ``info``; CSV and tables."""

from __future__ import annotations

import csv
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from streaming_jsmf.config import Order
from streaming_jsmf.display import location, printable
from streaming_jsmf.errors import InputError

if TYPE_CHECKING:
    from streaming_jsmf.reporting.choose_k import Comparison
    from streaming_jsmf.reporting.contents import Topic

#: Width of the tables of metrics, of the page of ``info``, and of the names on it.
WIDTH, PAGE, NAMES = 110, 80, 16

#: Fields that the page of ``info`` omits: digests, and those that other lines show.
_OMITTED = {
    *("complete", "digests", "fingerprint", "kind", "metrics"),
    *("models", "provenance", "settings", "settings_fingerprint"),
}

#: Longest cell of a table on a terminal.
MOST_CHARACTERS = 48

_STARTS_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def print_topics(
    *models: str, words: int | None = None, order: Order = "share", characteristic: bool = False
) -> None:
    """Print the topics of the models at these paths, and warnings about them on standard error."""
    from streaming_jsmf.evaluation.verdicts import warnings_of
    from streaming_jsmf.reporting.topics import topic_text
    from streaming_jsmf.topics.store import models_at, read_model

    for path in (path for model in models for path in models_at(model)):
        topics = read_in_order(path, words, order)
        click.echo(f"model: {location(path)}")
        click.echo(topic_text(topics, characteristic=characteristic))
        for sentence in warnings_of(read_model(path, ()).metrics):
            click.echo(f"warning: {sentence}", err=True)


def read_in_order(path: Any, words: int | None, order: Order) -> list[Topic]:
    """The topics of a model by number, or by decreasing share and then by number."""
    from streaming_jsmf.reporting.topics import read_topics

    topics = read_topics(path, words)
    return sorted(topics, key=lambda topic: (-topic.share if order == "share" else 0.0, topic.number))


def topic_rows(path: str, words: int | None = None, order: Order = "topic") -> list[dict[str, Any]]:
    """The topics of a model as JSON values, with ``words`` words each (None: 10); errors as ``read_topics``."""
    return [_topic_row(topic) for topic in read_in_order(path, words, order)]


def _topic_row(topic: Topic) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": topic.number,
        "probability": topic.share,
        "label": list(topic.label),
        "prominent": [word.text for word in topic.words],
        "probabilities": [word.probability for word in topic.words],
        "characteristic": list(topic.characteristic),
    }
    if topic.anchor is not None:
        row["anchor"] = topic.anchor
    if topic.strength is not None:
        row["duplicate_of"] = topic.duplicate_of
    return row


def topics_csv(models: Mapping[str, Sequence[Topic]], *, raw: bool) -> str:
    """One line per topic; for several models the first column has the path of the model."""
    rows: list[list[object]] = [["model", "topic", "share", "label", "anchor", "words", "characteristic"]]
    for path, topics in models.items():
        for topic in topics:
            words = ", ".join(word.text for word in topic.words)
            label, characteristic = ", ".join(topic.label), ", ".join(topic.characteristic)
            rows.append([path, topic.number, topic.share, label, topic.anchor or "", words, characteristic])
    return csv_text(rows if len(models) > 1 else (row[1:] for row in rows), raw=raw)


def format_metrics(document: Mapping[str, Any]) -> str:
    """The result of ``evaluate`` as text, without topics and warnings."""
    from streaming_jsmf.evaluation.metrics import LINES, lookup, number_text

    lines = [f"{'metric':<29} {'value':>18}  {'better':<7} meaning"]
    for line in LINES:
        value = lookup(document["metrics"], line.path)
        if value is not None:
            lines.append(f"{line.path:<29} {number_text(value):>18}  {line.better:<7} {line.meaning}")
    heading = f"model: {document['model']} ({document['n_topics']} topics, {document['n_words']} words)"
    return "\n".join([heading, *_corpus_of(document), *lines, *_missing(document["missing"])])


def format_several(documents: Sequence[Mapping[str, Any]]) -> str:
    """The results of several models as one table: a line per metric, a column per model, a star on the best value."""
    from streaming_jsmf.evaluation.metrics import LINES, lookup, number_of

    heads = [Path(document["model"]).name for document in documents]
    lines = [f"{'metric':<29}" + "".join(f" {head:>10}" for head in heads) + "  better"]
    for line in LINES:
        numbers = [number_of(lookup(document["metrics"], line.path)) for document in documents]
        if any(number is not None for number in numbers):
            best = _best(numbers, line.better)
            cells = [
                "-" if number is None else f"{number:.4g}{'*' if column == best else ''}"
                for column, number in enumerate(numbers)
            ]
            lines.append(f"{line.path:<29}" + "".join(f" {cell:>10}" for cell in cells) + f"  {line.better}")
    first, *others = (document["missing"] for document in documents)
    everywhere = {name: reason for name, reason in first.items() if all(name in other for other in others)}
    return "\n".join([*_corpus_of(documents[0]), *lines, *_missing(everywhere)])


def _best(numbers: Sequence[float | None], better: str) -> int | None:
    """The index of the best number; None if neither direction is better, or there are fewer than two numbers."""
    known = [(number, -index) for index, number in enumerate(numbers) if number is not None]
    if better not in ("higher", "lower") or len(known) < 2:
        return None
    sign = 1 if better == "higher" else -1
    return -max((sign * number, index) for number, index in known)[1]


def format_topic_scores(document: Mapping[str, Any]) -> str:
    """One line per topic: number, NPMI if known, and prominent words."""
    lines = [f"{'topic':>5} {'npmi':>7}  prominent words"]
    for topic in document["topics"]:
        score = "-" if topic["npmi"] is None else f"{topic['npmi']:.3f}"
        head = f"{topic['topic']:>5} {score:>7}  "
        text = ", ".join(topic["prominent"])
        lines += textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * 15)
    return "\n".join(lines)


def _corpus_of(document: Mapping[str, Any]) -> Iterator[str]:
    corpus = document["corpus"]
    if corpus is not None:
        kind = "training corpus" if corpus["training"] else "another corpus"
        yield f"words counted in: {corpus['path']} ({kind}, {corpus['n_documents_counted']} documents)"


def _missing(missing: Mapping[str, str]) -> Iterator[str]:
    """The missing metrics, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"missing: {', '.join(names)}: {reason}"


def format_comparison(found: Comparison) -> str:
    """The table of ``choose-k`` with a star on the suggestion, the suggestion, and the paths of the results."""
    from streaming_jsmf.evaluation.choice import comparison_table

    heading, rows = comparison_table(found.choice)
    suggested = [False, *(row.n_topics == found.choice.suggested for row in found.choice.rows)]
    lines = ["".join(f"{cell:>11}" for cell in line) for line in (heading, *rows)]
    return "\n".join([
        *(f"*{line[1:]}" if marked else line for line, marked in zip(lines, suggested, strict=True)),
        *(f"missing: {name.replace('_', ' ')}: {reason}" for name, reason in found.missing.items()),
        f"suggested: {found.choice.suggested} topics: {found.choice.reason}",
        *(f"model: {path}" for path in found.models),
        f"page: {found.page}",
    ])  # fmt: skip


def page(path: str, described: Mapping[str, Any]) -> str:
    """The result of ``describe`` as a page of 80 columns."""
    return "\n".join(map(printable, _page_lines(path, described)))


def _page_lines(path: str, described: Mapping[str, Any]) -> Iterator[str]:
    complete = described["complete"]
    state = "complete and intact" if complete else "incomplete; run the command that made it again"
    yield f"{described['kind']}: {location(path)} ({state})"
    for name, text in _facts(described):
        yield from textwrap.wrap(
            text,
            PAGE,
            initial_indent=f"  {name:<{NAMES}}  ",
            subsequent_indent=" " * (NAMES + 4),
            break_on_hyphens=False,
            break_long_words=False,
        )
    for model in described.get("models", ()):
        yield ""
        yield from _page_lines(model["path"], model)


def _facts(described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and texts of the page."""
    from streaming_jsmf.evaluation.verdicts import warnings_of
    from streaming_jsmf.reporting.contents import facts_of, memory_text

    for name, value in described.items():
        if name not in _OMITTED and value not in ([], None):
            yield name.replace("_", " "), _text(value)
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
    yield from (("warning", sentence) for sentence in warnings_of(metrics))


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


def require_csv(as_csv: bool, raw: bool) -> None:
    """Refuse ``--raw`` without ``--csv``."""
    if raw and not as_csv:
        raise InputError("--raw is for --csv; give both or neither")


def csv_text(rows: Iterable[Iterable[object]], *, raw: bool) -> str:
    """Rows as CSV. A spreadsheet evaluates a text such as ``=2+3``: unless ``raw``, it gets a leading apostrophe.

    So does every text with one of the first characters that OWASP lists under "CSV Injection", and their full-width
    forms. Numbers stay as they are, also as text. No other character is changed.
    """
    lines: list[str] = []
    # The writer quotes only line ends that are its own, and a bare \r would begin a row with the rest of its cell.
    sink = SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n"))
    csv.writer(sink, lineterminator="\r\n").writerows(row if raw else map(_escaped, row) for row in rows)
    return "".join(lines)


def _escaped(cell: object) -> object:
    is_formula = isinstance(cell, str) and cell.startswith(_STARTS_FORMULA) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell


def column_text(table: Mapping[str, Sequence[Any]]) -> str:
    """Columns by name as aligned text; numbers are aligned to the right."""
    columns = []
    for name, values in table.items():
        cells = [name, *map(_cell, values)]
        width = max(map(len, cells))
        right = all(value is None or isinstance(value, (int, float)) for value in values)
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."
