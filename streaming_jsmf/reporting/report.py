"""The report of a model as one HTML page: written to a file, opened in the browser, or shown in a notebook."""

from __future__ import annotations

import html
import tempfile
import webbrowser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streaming_jsmf.config import ReportRequest, takes
from streaming_jsmf.documents.effects import effects
from streaming_jsmf.documents.model_shares import ModelShares
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.reporting.contents import documents_of, outliers_of, read_contents, read_levels
from streaming_jsmf.reporting.document_map import map_documents
from streaming_jsmf.reporting.page import render, require_report
from streaming_jsmf.reporting.views import views_of
from streaming_jsmf.storage.paths import StorePath, is_free, require_suffix, store_path
from streaming_jsmf.storage.results import write_alone
from streaming_jsmf.topics.store import AnyModel, model_path, models_at


@takes(ReportRequest)
def report(
    model: AnyModel, out: str | Path | StorePath, *, overwrite: bool = False, **options: Any
) -> StorePath:
    """Write a self-contained HTML report of a model of any engine and return its path.

    The page needs no network, and the same model and shares give the same bytes; then nothing is written. Memory does
    not grow with N x K. Up to four passes over ``shares``, and one over the documents with ``corpus``. Raises
    ``InputError`` if there is no model, an option is out of range, the shares are from another model or corpus or lack
    the column, or ``out`` has another report (without ``overwrite``), cannot be written or has a suffix other than
    .html; ``StoreError`` if the model, its counts or the shares are damaged.

    Parameters
    ----------
    model
        Path or URL of a model, or of a directory of models of several K as written by ``fit``; the page then also
        shows how the topics of each model split in the next.
    out
        Path or URL of the page, such as ``topics.html``, in an existing directory.
    overwrite
        Replace another report; other files are never replaced.

    Examples
    --------
    >>> report("models", "topics.html", shares="shares.parquet")  # doctest: +SKIP
    """
    source, target = model_path(model), store_path(out, "a report")
    require_suffix(target, "a report", (".html", ".htm"))
    _require_place(source, target)
    if not is_free(target):
        require_report(target)
    write_alone(target, _page(source, options).encode(), lambda: require_report(target), overwrite=overwrite)
    return target


@dataclass(frozen=True)
class ShownReport:
    """A report that notebooks show in a sandboxed frame of ``height`` pixels; ``page`` is its HTML."""

    page: str
    height: int

    def _repr_html_(self) -> str:
        page = html.escape(self.page, quote=True)
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="Topics" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"ShownReport({len(self.page):,} characters)"


@takes(ReportRequest)
def show(model: AnyModel, *, height: int = 800, **options: Any) -> ShownReport:
    """Return the report of a model for display as the last value of a notebook cell.

    Arguments and errors are those of ``report``; ``height`` is in pixels. The notebook stores the page: 0.5 MB for 20
    topics, 2.5 MB for 200.

    Examples
    --------
    >>> show("model")  # doctest: +SKIP
    """
    return ShownReport(_page(model_path(model), options), height)


@takes(ReportRequest)
def view(model: AnyModel, **options: Any) -> tuple[Path, bool]:
    """Write the report of a model to a temporary directory and open it in the browser.

    Arguments and errors are those of ``report``. Returns the path of the page, and whether a browser was found.
    """
    page = _page(model_path(model), options)
    # Not removed, because the browser may read it after this process has ended.
    path = Path(tempfile.mkdtemp(prefix="streaming-jsmf-")) / "topics.html"
    path.write_text(page, encoding="utf-8")
    return path, webbrowser.open(path.as_uri())


def _page(model: StorePath, options: dict[str, Any]) -> str:
    wanted = ReportRequest.of(options)
    paths = models_at(model)
    if wanted.topics is not None and paths == (model,):
        raise InputError(f"{option.topics} chooses among the models of a directory; {model} holds none")
    names = [path.name for path in paths]
    if wanted.topics is not None and f"k={wanted.topics}" not in names:
        raise InputError(f"{model}: holds no model k={wanted.topics}; it holds {', '.join(names)}")
    own = len(paths) - 1 if wanted.topics is None else names.index(f"k={wanted.topics}")
    contents = read_contents(paths[own], wanted.words)
    if len(paths) > 1:
        contents = replace(contents, levels=read_levels(model, paths, own))
    if wanted.shares is not None:
        found = ModelShares.open(paths[own], wanted.shares)
        views, documents = views_of(found.of_shown, wanted.by), documents_of(found.of_shown)
        outliers = None if wanted.corpus is None else outliers_of(found, wanted.corpus)
        contents = replace(
            contents,
            groups=views[0][0] if views else None,
            views=tuple(views[1:]),
            documents=documents,
            outliers=outliers,
            effects=None
            if wanted.effects is None
            else effects(paths[own], wanted.shares, wanted.effects, corpus=wanted.corpus),
            # The shares of two topics are points on a line.
            scatter=map_documents(found.of_shown) if len(contents.topics) > 2 else None,
        )
    return render(contents)


def _require_place(model: StorePath, target: StorePath) -> None:
    if isinstance(target, Path):
        if target.is_dir():
            raise InputError(
                f"{target}: is a directory; give the name of a file, such as {target / 'topics.html'}"
            )
        if not target.parent.is_dir():
            raise InputError(f"{target.parent}: no such directory; create it, or give another path")
        if isinstance(model, Path) and target.resolve().is_relative_to(model.resolve()):
            raise InputError(f"{target}: lies inside the model; give a path outside of it")
