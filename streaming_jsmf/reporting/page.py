"""Contents -> one HTML page that needs nothing else: style, drawings and a few lines of script are inside.

Words of a corpus are text that anybody may have written. All text is escaped by the templates, and the page's own
policy has browsers run no script but the one that is known by its hash, and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from streaming_jsmf.reporting.contents import Contents
from streaming_jsmf.reporting.heat_map import draw_heat_map
from streaming_jsmf.reporting.topic_map import draw_map
from streaming_jsmf.reporting.wording import exact, memory_text, percent

#: The first bytes of every page, by which one of ours is known.
FIRST_LINES = "<!doctype html>\n<!-- streaming-jsmf report -->\n"

_PACKAGE, _FOLDER = "streaming_jsmf.reporting", "templates"

#: Names of engines as people know them.
_ENGINES = {"lr-jsmf": "LR-JSMF (anchor words)", "stod": "STOD (tensor decomposition)"}


def render(contents: Contents) -> str:
    """The page; the same contents give the same text. O(K^2) and the words listed; no file is written."""
    script = part("sort.js")
    page: str = (
        page_environment()
        .get_template("page.html.j2")
        .render(
            contents=contents,
            engine=_ENGINES.get(contents.engine, contents.engine),
            shown=_columns(contents),
            map=draw_map(contents),
            heat_map=draw_heat_map(contents),
            style=part("style.css"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )
    return FIRST_LINES + page


def _columns(contents: Contents) -> dict[str, bool]:
    """Which columns of the table of topics have something to show."""
    names = ("label", "anchor", "alpha", "strength", "duplicate_of", "npmi", "characteristic")
    return {name: any(getattr(topic, name) not in (None, ()) for topic in contents.topics) for name in names}


def page_environment() -> Environment:
    """What all templates are filled in by: everything that is no markup of ours is escaped."""
    environment = Environment(
        loader=PackageLoader(_PACKAGE, _FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        percent=percent, exact=exact, memory=memory_text, place=lambda value: f"{value:.1f}"
    )
    return environment


def part(name: str) -> str:
    """A file of the page as it is in the package."""
    return (files(_PACKAGE) / _FOLDER / name).read_text(encoding="utf-8")
