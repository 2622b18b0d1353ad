"""Model -> one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streaming_jsmf.errors import InputError
from streaming_jsmf.evaluation.choice import choose
from streaming_jsmf.reporting.comparison import render_comparison
from streaming_jsmf.reporting.page import FIRST_LINES, render
from streaming_jsmf.storage.paths import StorePath, is_free, read_bytes, store_path, write_bytes
from streaming_jsmf.workflow.measures import kept_measures
from streaming_jsmf.workflow.report_contents import read_contents
from streaming_jsmf.workflow.several import models_at


def report(
    model: str | Path | StorePath,
    out: str | Path | StorePath,
    *,
    words: int | None = None,
    overwrite: bool = False,
) -> StorePath:
    """Write what is known of a model, of any engine, as a page of HTML. No pass over documents.

    Of a directory of models of several K each gets a page of its own, ``topics.k=5.html`` beside ``topics.html``,
    which compares them. The page holds its style and drawings, and opens from a disk without a network. The same
    model gives the same bytes. ``word_topic`` is read in panels, so that memory does not grow with N x K.

    Parameters
    ----------
    model
        Path or URL of a model.
    out
        Path or URL of the page, such as ``topics.html``; its directory is there.
    words
        Words of each topic. None: 10.
    overwrite
        Replace a report that is there; any other file stays.

    Returns
    -------
    StorePath
        Where the page is.

    Raises
    ------
    InputError
        If there is no model, ``words`` is below 1, or the page cannot be at ``out``.
    StoreError
        If the model or its counts are damaged.
    """
    source, target = store_path(model, "a model"), store_path(out, "a report")
    _require_place(source, target, overwrite)
    models = models_at(source)
    if len(models) > 1:
        return _report_each(models, target, words, overwrite)
    write_bytes(target, render(read_contents(models[0], words)).encode())
    return target


def _report_each(
    models: Sequence[StorePath], target: StorePath, words: int | None, overwrite: bool
) -> StorePath:
    """A page for each of several K beside the one that compares them, which comes last."""
    pages = [target.with_name(f"{target.stem}.{path.name}{target.suffix}") for path in models]
    for path, page in zip(models, pages, strict=True):
        _require_place(path, page, overwrite)
    measures = [kept_measures(path) for path in models]
    for path, page in zip(models, pages, strict=True):
        write_bytes(page, render(read_contents(path, words)).encode())
    choice = choose(measures)
    links = dict(zip((row.n_topics for row in measures), (page.name for page in pages), strict=True))
    lacking = {} if all(row.npmi is not None for row in measures) else {"npmi": _COUNT_FIRST}
    comparison = render_comparison(choice, lacking, [links[row.n_topics] for row in choice.rows])
    write_bytes(target, comparison.encode())
    return target


_COUNT_FIRST = "run streaming-jsmf evaluate MODELS --corpus CORPUS once, then make this report again"


def _require_place(model: StorePath, target: StorePath, overwrite: bool) -> None:
    """Refuse a place where no page can be, before any work is done for it."""
    if isinstance(target, Path):
        if target.is_dir():
            raise InputError(
                f"{target}: is a directory; give the name of a file, such as {target / 'topics.html'}"
            )
        if not target.parent.is_dir():
            raise InputError(f"{target.parent}: no directory is here; make it, or give another path")
        if isinstance(model, Path) and target.resolve().is_relative_to(model.resolve()):
            raise InputError(f"{target}: lies inside the model; give a path outside of it")
    if is_free(target):
        return
    if not overwrite:
        raise InputError(f"{target}: exists already; give another path, or --overwrite to replace a report")
    if not _is_report(target):
        raise InputError(
            f"{target}: is not a report of ours and is not replaced; give another path, or delete it"
        )


def _is_report(target: StorePath) -> bool:
    try:
        return read_bytes(target).startswith(FIRST_LINES.encode())
    except FileNotFoundError:  # behind a URL there may be objects below it only
        return False
