"""Contents -> one HTML page that needs nothing else: style, scripts, values and the library that draws are inside.

Words of a corpus are text that anybody may have written. The templates escape all text, the scripts put text into the
page as text only, and the page's own policy has browsers run no script but the one that is known by its hash, and load
nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from streaming_jsmf.display import printable
from streaming_jsmf.evaluation.choice import Choice
from streaming_jsmf.reporting.comparison import compared
from streaming_jsmf.reporting.contents import Contents
from streaming_jsmf.reporting.payload import page_data
from streaming_jsmf.reporting.topic_map import draw_map
from streaming_jsmf.reporting.wording import exact, memory_text, percent

#: The first bytes of every page, by which one of ours is known.
FIRST_LINES = "<!doctype html>\n<!-- streaming-jsmf report -->\n"

_PACKAGE, _FOLDER = "streaming_jsmf.reporting", "templates"

#: Modules of D3, each after those that it needs.
D3 = (
    "array", "axis", "color", "dispatch", "ease", "format", "hierarchy", "path", "selection", "time", "timer",
    "interpolate", "shape", "time-format", "drag", "sankey", "scale", "transition", "zoom",
)  # fmt: skip

#: Our scripts in their order; all are of one function, so that they share names and leave none behind.
SCRIPTS = (
    "data.js", "page.js", "search.js", "overview.js", "detail.js", "charts.js", "map.js", "matrix.js", "dendrogram.js",
    "words.js", "groups.js", "levels.js", "start.js",
)  # fmt: skip

STYLES = ("base.css", "overview.css", "charts.css", "print.css")

#: Names of engines as people know them.
_ENGINES = {"lr-jsmf": "LR-JSMF (anchor words)", "stod": "STOD (tensor decomposition)"}


def render(contents: Contents) -> str:
    """The page; the same contents give the same text. O(K^3) and the words listed; no file is written."""
    script = _script()
    drawn = draw_map(contents.affinity, np.array([topic.share for topic in contents.topics]))
    levels = contents.levels
    return _filled_in(
        "page.html.j2",
        contents=contents,
        compared=compared(levels.choice, levels.missing) if levels and levels.choice else None,
        engine=_ENGINES.get(contents.engine, contents.engine),
        shown=_columns(contents),
        map=drawn,
        data=page_data(contents, drawn),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def render_comparison(choice: Choice, missing: Mapping[str, str]) -> str:
    """A page of a choice alone; the same values give the same text. ``missing``: measure -> why it has no values."""
    return _filled_in("comparison.html.j2", compared=compared(choice, missing))


def _filled_in(template: str, **values: Any) -> str:
    style = "".join(part(name) for name in STYLES)
    page: str = _environment().get_template(template).render(style=style, **values)
    return FIRST_LINES + page


def _script() -> str:
    library = "\n".join(part(f"d3-{name}.min.js", "d3").strip() for name in D3)
    ours = "\n".join(part(name) for name in SCRIPTS)
    return f'\n/*\n{part("LICENSE.txt", "d3")}*/\n{library}\n(() => {{\n"use strict";\n{ours}}})();\n'


def _columns(contents: Contents) -> dict[str, bool]:
    """Which columns of the table of topics have something to show."""
    names = ("label", "anchor", "alpha", "strength", "duplicate_of", "npmi", "characteristic", "doubts")
    return {name: any(getattr(topic, name) not in (None, ()) for topic in contents.topics) for name in names}


def _spelled_out(value: Any) -> Any:
    """Text that is no markup of ours without controls, and without marks that show it in another order."""
    return printable(value, "\n") if isinstance(value, str) and not isinstance(value, Markup) else value


def _environment() -> Environment:
    """What all templates are filled in by: everything that is no markup of ours is escaped."""
    environment = Environment(
        loader=PackageLoader(_PACKAGE, _FOLDER),
        autoescape=True,
        finalize=_spelled_out,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        percent=percent, exact=exact, memory=memory_text, place=lambda value: f"{value:.1f}"
    )
    return environment


def part(name: str, folder: str = _FOLDER) -> str:
    """A file of the page as it is in the package."""
    return (files(_PACKAGE) / folder / name).read_text(encoding="utf-8")
