"""The verbs ``report`` and ``view``."""

from __future__ import annotations

from typing import Any

from streaming_jsmf.cli.verb import options_of, overwrite_option, path, verb
from streaming_jsmf.config import ReportRequest
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError


@verb("streaming-jsmf report MODEL topics.html", long=False, summary=True)
@path("model")
@path("out", metavar="OUT.html")
@options_of(ReportRequest)
@overwrite_option
def report(model: str, out: str, **options: Any) -> dict[str, Any]:
    """Write a report of MODEL as one HTML page.

    The page is self-contained. It shows a searchable table and a map of the topics, their correlations, the topics of
    each word, metrics, warnings, and how the model was made. Run evaluate --corpus first to include NPMI and coherence.
    For a directory that fit --topics 5,10,20 wrote, it also shows how topics split as K grows.
    """
    from streaming_jsmf.reporting.report import report as run

    return {"report": str(run(model, out, **options))}


@verb("streaming-jsmf view MODEL --shares SHARES.parquet", long=False)
@path("model")
@options_of(ReportRequest)
def view(model: str, **options: Any) -> str:
    """Open the report of MODEL in the browser.

    The page is written to a temporary directory.
    """
    from streaming_jsmf.reporting.report import view as run

    place, opened = run(model, **options)
    if not opened:
        raise InputError(f"no browser was found; open {location(place)}, or write the page with report")
    return f"view: {location(place)}"
