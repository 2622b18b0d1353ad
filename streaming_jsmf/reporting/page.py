"""Render contents as a self-contained HTML page, with style, scripts, values and the drawing library inside.

The words of a corpus are untrusted text: templates escape it, scripts insert it only as text, and the content security
policy allows only the script with the known hash and loads nothing. Long rows of numbers are base64 of little-endian
integers, probabilities in 1024 logarithmic steps per factor of two (0.04 % accuracy); ``data.js`` decodes them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from streaming_jsmf.display import memory_text, percent, printable
from streaming_jsmf.documents.effects import Effects
from streaming_jsmf.documents.groups import FEW_NOTE, NORMAL, SHARE, Groups, are_times, short_text, values_of
from streaming_jsmf.documents.shares import DOCUMENT_ID, with_result
from streaming_jsmf.errors import InputError
from streaming_jsmf.evaluation.choice import Choice, comparison_table
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.reporting.contents import Contents, Levels, document_lists
from streaming_jsmf.reporting.document_map import SAMPLED, DocumentMap
from streaming_jsmf.reporting.layout import (
    TopicMap,
    conditional,
    draw_lines,
    draw_map,
    times_chance,
    topic_tree,
)
from streaming_jsmf.reporting.topics import Topic, WordLists
from streaming_jsmf.reporting.views import MOST_GROUPS
from streaming_jsmf.storage.paths import StorePath, read_bytes

#: The first lines of every page, which identify it as a report.
FIRST_LINES = "<!doctype html>\n<!-- streaming-jsmf report -->\n"

_PACKAGE, _FOLDER = "streaming_jsmf.reporting", "templates"
#: Modules of D3, each after its dependencies.
D3 = (
    "array", "axis", "color", "dispatch", "ease", "format", "hierarchy", "path", "selection", "time", "timer",
    "interpolate", "shape", "time-format", "drag", "sankey", "scale", "transition", "zoom",
)  # fmt: skip

#: Scripts, which are joined in this order into one function with shared names.
SCRIPTS = (
    "data.js", "page.js", "search.js", "overview.js", "detail.js", "charts.js", "map.js", "matrix.js", "dendrogram.js",
    "words.js", "documents.js", "groups.js", "heat.js", "levels.js", "export.js", "start.js",
)  # fmt: skip

STYLES = ("base.css", "overview.css", "charts.css", "print.css")

_ENGINES = {"lr-jsmf": "LR-JSMF (anchor words)", "stod": "STOD (tensor decomposition)"}
#: Logarithmic steps per factor of two, and the code of probability 0.
STEPS, ZERO = 1024.0, 2**16 - 1
#: Maximum number of characters of a value of a document on the map.
MAP_CHARACTERS = 160
#: Number of topics that rose most, and that fell most.
CHANGED = 5
#: Ratios between 2^-16 and 2^16 are distinguished.
LARGEST_RATIO = 16.0


def render(contents: Contents) -> str:
    """Render the page of a model; the same contents give the same text. Time is O(K^3)."""
    library = "\n".join(part(f"d3-{name}.min.js", "d3").strip() for name in D3)
    ours = "\n".join(part(name) for name in SCRIPTS)
    script = f'\n/*\n{part("LICENSE.txt", "d3")}*/\n{library}\n(() => {{\n"use strict";\n{ours}}})();\n'
    topic_map = draw_map(contents.affinity, np.array([topic.share for topic in contents.topics]))
    levels = contents.levels
    columns = ("label", "anchor", "strength", "duplicate_of", "npmi", "characteristic")
    return _fill(
        "page.html.j2",
        contents=contents,
        zip=zip,
        sampled=contents.scatter is not None and len(contents.scatter.points) == SAMPLED,
        compared=_compared(levels.choice, levels.missing) if levels and levels.choice else None,
        engine=_ENGINES.get(contents.engine, contents.engine),
        shown={
            name: any(getattr(topic, name) not in (None, ()) for topic in contents.topics) for name in columns
        },
        **_changes(contents),
        effect_rows=[] if contents.effects is None else [*_effect_rows(contents.effects)],
        few=FEW_NOTE,
        group_views=_group_views(contents),
        rows=sorted(contents.topics, key=lambda topic: -topic.share),
        map=topic_map,
        data=_page_data(contents, topic_map),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _changes(contents: Contents) -> dict[str, Any]:
    """The topics that rose and fell most, with mean shares in the first and last third of the ``periods``, if known."""
    if contents.groups is None or not contents.groups.ordered:
        return {"risen": [], "fallen": [], "periods": None}
    periods = contents.groups.known
    change, error = periods.change
    means = periods.thirds @ periods.shares

    def row(index: int) -> dict[str, Any]:
        return {
            "topic": contents.topics[index],
            "first": means[0, index],
            "last": means[1, index],
            "change": change[index],
            "error": None if np.isnan(error[index]) else NORMAL * error[index],
        }

    risen, fallen = periods.risen_and_fallen(CHANGED)
    return {"risen": [*map(row, risen)], "fallen": [*map(row, fallen)], "periods": periods}


def _effect_rows(effects: Effects) -> Iterator[dict[str, Any]]:
    """The coefficients of each topic except the constant, with half of their intervals."""
    shown = [i for i, term in enumerate(effects.terms) if term not in ("Intercept", *effects.dropped)]
    topics = zip(
        effects.topics, effects.labels, effects.coefficients, effects.quantile * effects.errors, strict=True
    )
    for number, label, values, half in topics:
        terms = [
            {"name": effects.terms[i], "value": values[i], "half": half[i], "bold": abs(values[i]) > half[i]}
            for i in shown
        ]
        yield {"number": number, "label": label, "terms": terms}


def render_comparison(choice: Choice, missing: Mapping[str, str]) -> str:
    """Render the page of a choice of K alone; ``missing`` maps measures to the reason why they have no values."""
    return _fill("comparison.html.j2", compared=_compared(choice, missing))


def _compared(choice: Choice, missing: Mapping[str, str]) -> dict[str, Any]:
    """A choice of K for the templates: its table as text, and a drawing for each measure."""
    heading, rows = comparison_table(choice)
    return {
        "choice": choice,
        "heading": heading,
        "rows": rows,
        "lines": draw_lines(choice),
        "missing": missing,
    }


def require_report(target: StorePath) -> None:
    """Raise ``InputError`` unless a file is a page of this package; it is never replaced by one otherwise."""
    try:
        is_report = read_bytes(target).startswith(FIRST_LINES.encode())
    except FileNotFoundError:  # a URL may have only objects below it
        is_report = False
    if not is_report:
        raise InputError(f"{target}: is not a report and is not replaced; give another path, or delete it")


def _fill(template: str, **values: Any) -> str:
    environment = Environment(
        loader=PackageLoader(_PACKAGE, _FOLDER),
        autoescape=True,
        finalize=_printable_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        percent=percent, exact="{:.6g}".format, memory=memory_text, place="{:.1f}".format
    )
    style = "".join(part(name) for name in STYLES)
    return FIRST_LINES + environment.get_template(template).render(style=style, **values)


def _printable_text(value: Any) -> Any:
    """User text without control characters and marks that change the text direction."""
    return printable(value, "\n") if isinstance(value, str) and not isinstance(value, Markup) else value


def part(name: str, folder: str = _FOLDER) -> str:
    """Read a file of the page from the package."""
    return (files(_PACKAGE) / folder / name).read_text(encoding="utf-8")


def _page_data(contents: Contents, topic_map: TopicMap) -> str:
    """JSON of everything that the scripts draw, safe inside an HTML element."""
    tree = topic_tree(contents.affinity)
    values = {
        "topics": [*map(_topic, contents.topics)],
        "words": _words(contents.lists),
        "map": {
            "x": _rounded(topic_map.points[:, 0]),
            "y": _rounded(topic_map.points[:, 1]),
            "r": _rounded(topic_map.radii),
        },
        "tree": {
            "order": tree.order.tolist(),
            "merges": tree.merges.tolist(),
            "heights": _rounded(tree.heights),
        },
        "alike": _packed(np.clip(contents.affinity, 0.0, 1.0) * ZERO),
        "together": None if contents.topic_topic is None else _together(contents.topic_topic),
        "documents": contents.documents
        and {
            "columns": contents.documents.columns,
            "of_topic": [
                [[document.name, float(f"{document.value:.4g}"), *document.values] for document in listed]
                for listed in contents.documents.lists
            ],
        },
        "scatter": contents.scatter and _scatter(contents.scatter),
        "groups": contents.groups and _groups([contents.groups]),
        "views": [*map(_groups, contents.views)],
        "levels": contents.levels and _levels(contents.levels),
    }
    text = json.dumps(_printable_values(values), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _topic(topic: Topic) -> dict[str, Any]:
    values = {
        "number": topic.number,
        "name": topic.name_words,
        "share": topic.share,
        "npmi": topic.npmi,
        "anchor": topic.anchor,
        "characteristic": topic.characteristic,
        "frex": topic.frex,
        "warnings": topic.warnings,
        "words": [word.text for word in topic.words],
    }
    return {name: value for name, value in values.items() if value not in (None, ())}


def _words(lists: WordLists) -> dict[str, Any]:
    dtype = "<u2" if len(lists.vocabulary) < 2**16 else "<u4"
    empty: list[Any] = [np.zeros(0)]
    return {
        "vocabulary": lists.vocabulary,
        "probability": packed_probabilities(lists.probability),
        "counts": [len(ids) for ids in lists.ids],
        "bytes": int(dtype[-1]),
        "ids": _packed(np.concatenate([*lists.ids, *empty]), dtype),
        "probabilities": packed_probabilities(np.concatenate([*lists.probabilities, *empty])),
    }


def _together(topic_topic: Floats) -> dict[str, str]:
    known = np.clip(times_chance(topic_topic), 2.0**-LARGEST_RATIO, 2.0**LARGEST_RATIO)
    return {
        "given": packed_probabilities(conditional(topic_topic)),
        "ratio": _packed((np.log2(known) + LARGEST_RATIO) * STEPS),
    }


def _scatter(drawn: DocumentMap) -> dict[str, Any]:
    x, y = (drawn.points - drawn.points.min(axis=0)).T
    table = with_result(drawn.table, SHARE, [drawn.share])
    found = document_lists([table.select([*dict.fromkeys([DOCUMENT_ID, SHARE, *table.column_names])])])
    return {
        "x": _packed(np.minimum(x, 1.0) * ZERO),
        "y": _packed(np.minimum(y, 1.0) * ZERO),
        "topic": drawn.topic.tolist(),
        "share": packed_probabilities(drawn.share),
        "columns": found.columns,
        "rows": [[name, *(value[:MAP_CHARACTERS] for value in values)] for name, _, values in found.lists[0]],
    }


def _groups(series: Sequence[Groups]) -> dict[str, Any]:
    """Groups by a column; or by several, one after the other for each combination of values of the others."""
    first, several = series[0], len(series[0].within) > 0
    pairs = [(groups.outer, name) for groups in series for name in groups.names]
    shares, errors = (
        np.concatenate([getattr(groups, what) for groups in series]) for what in ("shares", "errors")
    )
    return {
        "column": first.columns,
        "names": [f"{outer}, {name}" if several else name for outer, name in pairs],
        # Labels are cut, and the first part is that which differs between neighbors.
        "labels": [f"{name}, {outer}" for outer, name in pairs] if several else None,
        "documents": np.concatenate([groups.documents for groups in series]).tolist(),
        "drawn": len(pairs) if several else len(first.drawn.values),
        "trend": _trend(first.known) if first.ordered and not several else None,
        "lines": _lines(series) if several else None,
        "few": np.concatenate([groups.is_few for groups in series]).tolist(),
        "spreads": _rounded(np.concatenate([groups.spreads for groups in series])),
        "shares": packed_probabilities(shares.ravel()),
        "errors": packed_probabilities(np.nan_to_num(errors).ravel()),
    }


def _group_views(contents: Contents) -> list[dict[str, Any]]:
    """Where the page shows each view of groups of documents, and whether some have few documents."""
    views = [*([(contents.groups,)] if contents.groups else []), *contents.views]
    return [
        {
            "id": f"groups-{place}" if place > 1 else "groups",
            "column": series[0].columns,
            "few": any(groups.is_few.any() for groups in series),
            "heat": sum(len(groups.values) for groups in series) <= MOST_GROUPS,
        }
        for place, series in enumerate(views, 1)
    ]


def _lines(series: Sequence[Groups]) -> dict[str, Any] | None:
    """The periods on the axis, and for each line its name, its first group, and the places of its groups' periods."""
    periods = values_of([groups.known for groups in series])
    if not are_times(periods):
        return None
    places = {value: place for place, value in enumerate(periods)}
    starts = np.cumsum([0, *(len(groups.values) for groups in series)]).tolist()
    return {
        "periods": [short_text(value) for value in periods],
        "of": [
            {"name": groups.outer, "first": start, "places": [places[value] for value in groups.known.values]}
            for groups, start in zip(series, starts, strict=False)
        ],
    }


def _trend(periods: Groups) -> dict[str, Any]:
    first, last = periods.thirds @ periods.shares
    return {"first": _rounded(first), "last": _rounded(last), "change": _rounded(periods.change[0])}


def _levels(levels: Levels) -> dict[str, Any]:
    return {
        "models": [
            {"names": model.names, "shares": _rounded(model.shares), "metrics": model.metrics}
            for model in levels.models
        ],
        "own": levels.own,
        "flows": [_rounded(flow.ravel()) for flow in levels.flows],
    }


def packed_probabilities(values: Floats) -> str:
    """Encode probabilities as base64 of 16-bit logarithms."""
    known = np.maximum(values, 2.0**-64)
    steps = np.minimum(np.round(-STEPS * np.log2(np.minimum(known, 1.0))), ZERO - 1)
    return _packed(np.where(values > 0, steps, ZERO))


def _packed(values: NDArray[Any], dtype: str = "<u2") -> str:
    return base64.b64encode(np.round(values).astype(dtype).tobytes()).decode()


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]


def _printable_values(values: Any) -> Any:
    if isinstance(values, str):
        return printable(values, "\n\t")
    if isinstance(values, dict):
        return {name: _printable_values(value) for name, value in values.items()}
    return [_printable_values(value) for value in values] if isinstance(values, list | tuple) else values
