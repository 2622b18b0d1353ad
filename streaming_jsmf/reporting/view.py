"""A report in the browser, or in a notebook."""

from __future__ import annotations

import html
import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from streaming_jsmf.reporting.report import report_page
from streaming_jsmf.topics.store import AnyModel, model_path


@dataclass(frozen=True)
class ShownReport:
    """A report that notebooks show in a frame of its own, where it can reach nothing of theirs.

    Attributes
    ----------
    page
        Its HTML.
    height
        Of the frame, in pixels.
    """

    page: str
    height: int

    def _repr_html_(self) -> str:
        page = html.escape(self.page, quote=True)
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="Topics" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"ShownReport({len(self.page):,} characters)"


def show(
    model: AnyModel,
    *,
    words: int | None = None,
    topics: int | None = None,
    shares: str | Path | None = None,
    by: str | None = None,
    height: int = 800,
) -> ShownReport:
    """The report of a model for a notebook, which shows it when it is the last value of a cell.

    Arguments and errors are those of ``report``; ``height`` is in pixels. The page lies in the notebook: half a
    megabyte for 20 topics, two and a half for 200.

    Examples
    --------
    >>> show("model")  # doctest: +SKIP
    """
    source = model_path(model)
    return ShownReport(report_page(source, words=words, topics=topics, shares=shares, by=by), height)


def view(
    model: AnyModel,
    *,
    words: int | None = None,
    topics: int | None = None,
    shares: str | Path | None = None,
    by: str | None = None,
) -> tuple[Path, bool]:
    """Write the report of a model into the directory for temporary files, and open it in the browser.

    Arguments and errors are those of ``report``.

    Returns
    -------
    Where the page is, and whether a browser was found. Who wants to keep the page writes it by ``report``.
    """
    page = report_page(model_path(model), words=words, topics=topics, shares=shares, by=by)
    # The browser reads it after this process has ended, so it stays.
    path = Path(tempfile.mkdtemp(prefix="streaming-jsmf-")) / "topics.html"
    path.write_text(page, encoding="utf-8")
    return path, webbrowser.open(path.as_uri())
