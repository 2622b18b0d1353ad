"""The verbs ``documents``, ``over-time`` and ``effects``, whose tables are printed as text, CSV or JSON, or written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from streaming_jsmf.cli.verb import (
    csv_options,
    json_option,
    json_text,
    option,
    options_of,
    path,
    require_one,
    together,
    verb,
)
from streaming_jsmf.config import (
    EXCERPT,
    FIXED_BY_MODEL,
    INGEST_SETTINGS,
    DocumentQuery,
    EffectsRequest,
    OverTimeRequest,
)
from streaming_jsmf.config.fields import declared
from streaming_jsmf.display import cell_text, csv_text, printable, table, wrapped
from streaming_jsmf.errors import InputError, StoreError

if TYPE_CHECKING:
    from streaming_jsmf.documents.groups import Groups
    from streaming_jsmf.documents.over_time import TopicsOverTime
    from streaming_jsmf.jobs.events import Listener
    from streaming_jsmf.storage.paths import StorePath

GROUP = "Output"

#: First column of lists of documents.
DOCUMENT_ID = "document_id"

#: Number of most probable words of a topic that are marked in excerpts.
MARKED_WORDS = 100

#: Number of topics that rose most, and that fell most, in an answer.
SHOWN = 5

#: The start of the name of a column of periods.
_PERIOD_OF = re.compile(r"^(year|quarter|month|day) of ")

#: Key of the metadata of Parquet tables that ``--out`` wrote.
_MARK = b"streaming_jsmf.table"

answer_options = together(
    csv_options(group=GROUP),
    json_option(group=GROUP),
    option("--out", group=GROUP, type=click.Path(), default=None, metavar="FILE",
           help="Write the result to FILE.parquet or FILE.csv, a path or URL.  [default: print it]"),
    option("--overwrite", group=GROUP, is_flag=True, help="With --out: replace FILE, a table of the same columns."),
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """The options ``answer_options`` of a verb, checked before any work; raises ``InputError``."""

    as_csv: bool = False
    raw: bool = False
    as_json: bool = False
    out: StorePath | None = None
    overwrite: bool = False

    @classmethod
    def pop(cls, options: dict[str, Any]) -> Self:
        """Take them out of the options of a verb."""
        return cls(**{name: options.pop(name) for name in cls.__dataclass_fields__ if name in options})

    def __post_init__(self) -> None:
        written = self.out is not None
        in_csv = written and str(self.out).endswith(".csv")
        require_one(self.raw and not in_csv, csv=self.as_csv, json=self.as_json, out=written)
        if self.overwrite and not written:
            raise InputError("--overwrite is for --out; give both or neither")
        if self.out is None:
            return
        from streaming_jsmf.storage.paths import store_path

        object.__setattr__(self, "out", store_path(self.out, "a table"))
        missing = isinstance(self.out, Path) and not self.out.parent.is_dir()
        if missing or self.out.suffix not in (".parquet", ".csv"):
            raise InputError(f"--out {self.out}: give FILE.parquet or FILE.csv in an existing directory")

    @property
    def is_text(self) -> bool:
        """Whether the answer is printed as text."""
        return not (self.as_csv or self.as_json or self.out)

    def text(self, found: Any, what: str) -> str:
        """What the verb prints: an Arrow table, or where it was written."""
        if self.out is not None:
            self._write(found, self.out)
            return f"{what}: {self.out} ({found.num_rows} rows)"
        if self.as_json:
            return json_text(found.to_pylist())
        if self.as_csv:
            return self._csv(found).removesuffix("\n")
        return self.table(found)

    @staticmethod
    def table(found: Any, width: int | None = None, **texts: Sequence[str]) -> str:
        """An Arrow table as text; ``texts`` are shown for the values of columns."""
        columns = found.to_pydict()
        align = "".join(
            ">" if all(value is None or isinstance(value, int | float) for value in values) else "<"
            for values in columns.values()
        )
        rows = zip(*{**columns, **texts}.values(), strict=True)
        return table([[*columns], *([*map(cell_text, row)] for row in rows)], align, width)

    def _csv(self, found: Any) -> str:
        columns = found.to_pydict()
        # Names in R, as all names but those that users give.
        names = [re.sub(r"\W+", "_", name) if _PERIOD_OF.match(name) else name for name in columns]
        return csv_text([names, *zip(*columns.values(), strict=True)], raw=self.raw)

    def _write(self, found: Any, path: StorePath) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from streaming_jsmf.storage.results import write_alone

        if path.suffix == ".csv":
            data = self._csv(found).encode()
        else:
            sink = pa.BufferOutputStream()
            pq.write_table(found.replace_schema_metadata({_MARK: _MARK}), sink, compression="zstd")
            data = sink.getvalue().to_pybytes()
        write_alone(path, data, lambda: _require_table(path, data), overwrite=self.overwrite)


def _require_table(path: StorePath, data: bytes) -> None:
    """Raise ``InputError`` unless a file is a table that this option wrote; one of CSV has the header of ``data``."""
    from streaming_jsmf.corpus.footer import open_parquet
    from streaming_jsmf.storage.paths import open_file

    try:
        if path.suffix == ".csv":
            with open_file(path) as file:
                own = file.readline() == data[: data.index(b"\n") + 1]
        else:
            with open_parquet(path) as file:
                own = _MARK in (file.metadata.metadata or {})
    except (IsADirectoryError, StoreError):
        own = False
    if not own:
        raise InputError(f"--out {path}: is not a table that this command wrote; give another path")


@verb(
    "streaming-jsmf documents MODEL --topic 3 --number 20",
    "streaming-jsmf documents MODEL new.csv --topic 3 --columns author,date",
    "streaming-jsmf documents MODEL SHARES.parquet --by party,date:year --csv",
    scheduled=False,
)
@path("model")
@click.argument("source", required=False)
@options_of(DocumentQuery)
@answer_options
@options_of(*INGEST_SETTINGS, without=(*FIXED_BY_MODEL, "--columns"), common=("text", "id"))
def documents(model: str, listener: Listener, source: str | None = None, **options: Any) -> str:
    """List documents of a topic, or mean shares by group.

    Also lists documents that are similar to a document, and outliers.

    SOURCE is what transform wrote with MODEL, or documents, which are read as by transform: a corpus, or anything that
    ingest reads. Without SOURCE: the corpus that fit made next to MODEL, whose shares are kept in MODEL.shares.parquet.
    Without --topic, --by, --similar and --outliers: the mean share of each topic over all documents.
    """
    from streaming_jsmf.documents.queries import query
    from streaming_jsmf.documents.transform import shares_of

    answer = Answer.pop(options)
    asked = {name: options.pop(name) for name in declared(DocumentQuery) if name in options}
    with shares_of(model, source, listener=listener, **options) as shares:
        found = query(model, shares, **asked)
    if not answer.is_text:
        return answer.text(found, "documents")
    if found.column_names[0] != DOCUMENT_ID:
        counts = found.column("documents").to_pylist()
        note = _few_note(counts)
        return answer.table(found, documents=[*map(_count, counts)]) + (f"\n{note}" if note else "")
    head, *rows = answer.table(found.select([0, 1]), width=0).splitlines()
    marked = asked.get("topic") if EXCERPT in found.column_names else None
    texts = _in_bold([*_texts(found)], model, marked)
    return "\n".join([head, *(f"{row}\n{text}".rstrip() for row, text in zip(rows, texts, strict=True))])


def _texts(found: Any) -> Iterator[list[str]]:
    """The text of each document and its other columns, each in lines that fit the terminal."""
    from streaming_jsmf.documents.groups import excerpt_text

    for row in found.drop_columns(found.column_names[:2]).to_pylist():
        parts = [printable(excerpt_text(row.pop(EXCERPT, None)))]
        parts += [f"{name}: {printable(cell_text(value))}" for name, value in row.items()]
        yield [line for part in parts if part for line in wrapped(part, " " * 4)]


def _in_bold(texts: Sequence[Sequence[str]], model: str, topic: int | None) -> Iterator[str]:
    """Indented lines, with the words of a topic in bold."""
    from streaming_jsmf.reporting.topics import read_topics

    shown = read_topics(model, MARKED_WORDS) if topic is not None else []
    words = {word.text for one in shown if one.number == topic for word in one.words}

    def bold(match: re.Match[str]) -> str:
        return click.style(match[0], bold=True) if match[0].lower() in words else match[0]

    for lines in texts:
        yield re.sub(r"\w+", bold, "\n".join(lines))


@verb(
    "streaming-jsmf over-time MODEL SHARES.parquet --by date:month",
    "streaming-jsmf over-time MODEL SHARES.parquet --by date:month,party --topic 3",
    "streaming-jsmf over-time MODEL SHARES.parquet --by year --corpus CORPUS",
    "streaming-jsmf over-time MODEL SHARES.parquet --by year --csv > years.csv",
    name="over-time",
    long=False,
)
@path("model")
@path("shares")
@options_of(OverTimeRequest)
@answer_options
def over_time(model: str, shares: str, **options: Any) -> str:
    """Print the topics that rose and fell most over time.

    SHARES are topic shares that transform wrote with MODEL. The change of a topic is that of its mean share from the
    first to the last third of the periods. With --topic: its share in each period, with an interval of 95 % (1.96
    standard errors of the mean; of fewer than 30 documents more, by Student's t). --csv, --json and --out contain all
    topics and periods.
    """
    from streaming_jsmf.documents.over_time import over_time_of

    answer = Answer.pop(options)
    found = over_time_of(model, shares, options.pop("by"), **options)
    if not answer.is_text:
        return answer.text(found.table(), "over-time")
    of_series = _changes if options.get("topic") is None else _one
    return "\n".join(line for periods in found.series for line in of_series(found, periods))


def _changes(found: TopicsOverTime, periods: Groups) -> Iterator[str]:
    """The topics that rose and fell most, and their words in each period if known."""
    names, documents = periods.names, periods.documents.sum()
    title = f"{periods.title}; " if periods.title else ""
    yield f"{title}{len(names)} values of {periods.column}, {names[0]} to {names[-1]}; {documents:,} documents"
    if len(names) == 1:
        yield "one period has no change; --by takes shorter ones, such as COLUMN:month"
        return
    risen, fallen = periods.risen_and_fallen(SHOWN)
    yield _means(found, periods, risen, fallen)
    for topic in (*risen, *fallen) if found.words else ():
        number = found.shown.numbers[topic]
        yield f"topic {number}: {found.shown.names[topic]}"
        for name, text in zip(names, found.words_of(periods, number), strict=True):
            yield from wrapped(text, f"  {name}  ")


def _means(found: TopicsOverTime, periods: Groups, risen: list[int], fallen: list[int]) -> str:
    """Mean shares in the first and the last third of the periods, and their difference."""
    shown = found.shown
    spans = [
        [name for name, weight in zip(periods.names, of, strict=True) if weight] for of in periods.thirds
    ]
    first, last = periods.thirds @ periods.shares
    change, error = periods.change
    lines = [("topic", *(f"{span[0]}..{span[-1]}" for span in spans), "points", "label")]
    for title, group in (("rose", risen), ("fell", fallen)):
        lines.append((title, "", "", "", ""))
        lines += [
            (
                *(str(shown.numbers[topic]), f"{first[topic]:.1%}", f"{last[topic]:.1%}"),
                *(_change(change[topic], error[topic]), shown.names[topic]),
            )
            for topic in group
        ]
    return table(lines, ">>>><")


def _one(found: TopicsOverTime, periods: Groups) -> Iterator[str]:
    """The periods of a topic."""
    [number], [label] = found.shown.numbers, found.shown.names
    [change], [error] = periods.change
    counts = periods.documents.tolist()
    parts = (periods.title, f"topic {number}: {label}", f"change {_change(change, error)}", _few_note(counts))
    yield "; ".join(filter(None, parts))
    heading = [periods.column, "documents", "share", "95 % interval", *(["words"] if found.words else [])]
    ends = zip(*periods.intervals, strict=True)
    columns = [
        periods.names,
        [_count(count) for count in counts],
        [f"{share:.2%}" for share in periods.shares[:, 0]],
        ["-" if math.isnan(low) else f"{low:.2%} to {high:.2%}" for [low], [high] in ends],
        *([found.words_of(periods, number)] if found.words else []),
    ]
    rows = zip(*columns, strict=True)
    yield table([heading, *map(list, rows)], "<>>>" + "<" * (len(heading) - 4))


def _count(documents: int) -> str:
    """A number of documents, marked if it is small."""
    from streaming_jsmf.documents.groups import FEW

    return f"{documents:,}{'*' if documents < FEW else ''}"


def _few_note(documents: Sequence[int]) -> str:
    """What the marks of these numbers mean; empty without marks."""
    from streaming_jsmf.documents.groups import FEW, FEW_NOTE

    return f"* {FEW_NOTE}" if min(documents) < FEW else ""


def _change(value: float | None, error: float | None) -> str:
    """A change in percentage points with 1.96 standard errors; each is None or NaN if unknown."""
    from streaming_jsmf.documents.groups import NORMAL

    if value is None or math.isnan(value):
        return "-"
    spread = "" if error is None or math.isnan(error) else f" +- {100 * NORMAL * error:.1f}"
    return f"{100 * value:+.1f}{spread}"


@verb(
    'streaming-jsmf effects MODEL SHARES.parquet --formula "party + year"',
    'streaming-jsmf effects MODEL SHARES --formula "party * year" --cluster speaker',
    long=False,
)
@path("model")
@path("shares")
@options_of(EffectsRequest)
@answer_options
def effects(model: str, shares: str, **options: Any) -> str:
    """Print the effects of covariates of documents on their topics.

    SHARES are topic shares that transform wrote with MODEL, with the covariates in their columns. For each topic, a
    linear regression of its share on the terms of the formula, with robust standard errors and intervals of 95 %. A
    formula has columns, + for another term, : for an interaction, * for both, and functions such as C (classes), bs, cr
    (splines), poly, log and I.
    """
    from streaming_jsmf.documents.effects import effects as effects_of

    answer = Answer.pop(options)
    found = effects_of(model, shares, options.pop("formula"), **options)
    if not answer.is_text:
        return answer.text(found.table(), "effects")
    lines = [("topic", "term", "points", "95 % interval", "label")]
    for row in found.table().to_pylist():
        known = row["estimate"] is not None
        points, interval = "-", "-"
        if known:
            points = f"{100 * row['estimate']:+.3g}"
            interval = f"{100 * row['lower']:+.3g} to {100 * row['upper']:+.3g}"
        lines.append((str(row["topic"]), row["term"], points, interval, row["label"]))
    return f"{found.formula}; {found.documents:,} documents; percentage points\n{table(lines, '><>><')}"
