"""Model -> one self-contained HTML page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from streaming_jsmf.documents.queries import shown_shares_of
from streaming_jsmf.errors import InputError
from streaming_jsmf.reporting.contents import Contents
from streaming_jsmf.reporting.page import FIRST_LINES, render
from streaming_jsmf.reporting.read_contents import level_of, read_contents
from streaming_jsmf.reporting.read_documents import documents_of, groups_of
from streaming_jsmf.reporting.read_levels import choice_at, levels_of
from streaming_jsmf.storage.lock import is_left, write_alone
from streaming_jsmf.storage.paths import (
    StorePath,
    is_free,
    read_bytes,
    store_path,
)
from streaming_jsmf.topics.store import AnyModel, model_path, models_at


def report(
    model: AnyModel,
    out: str | Path | StorePath,
    *,
    words: int | None = None,
    topics: int | None = None,
    shares: str | Path | None = None,
    by: str | None = None,
    overwrite: bool = False,
) -> StorePath:
    """Write what is known of a model, of any engine, as a page of HTML.

    The page holds its style, scripts and values, and opens from a disk without a network. The same model and shares
    give the same bytes. ``word_topic`` is read in panels, so that memory does not grow with N x K. No pass over
    documents; up to three over ``shares``.

    Parameters
    ----------
    model
        Path or URL of a model; or of a directory of models of several K, as ``fit`` writes them, whose page also shows
        how the topics of each split in the next.
    out
        Path or URL of the page, such as ``topics.html``; its directory is there.
    words
        Words of each topic in the table. None: 10, or as many as are listed.
    topics
        Of several models the K of the one that the page is about. None: the largest.
    shares
        Topic shares that ``transform`` wrote with this model: the page shows the first documents of each topic, and the
        course of its share where a column holds a year or a date.
    by
        Column of ``shares`` whose values make groups, in place of the year.
    overwrite
        Replace a report that is there; any other file stays.

    Returns
    -------
    StorePath
        Where the page is.

    Raises
    ------
    InputError
        If there is no model, it lists fewer words than asked for, the shares are of another model or lack the column,
        or the page cannot be at ``out``.
    StoreError
        If the model, its counts or the shares are damaged.

    Examples
    --------
    >>> report("models", "topics.html", shares="shares.parquet")  # doctest: +SKIP
    """
    source, target = model_path(model), store_path(out, "a report")
    _require_place(source, target)
    if not is_left(target):
        _require_free(target, overwrite)
    page = report_page(source, words=words, topics=topics, shares=shares, by=by)
    write_alone(target, page.encode(), lambda: _require_free(target, overwrite))
    return target


def report_page(
    model: StorePath,
    *,
    words: int | None = None,
    topics: int | None = None,
    shares: str | Path | None = None,
    by: str | None = None,
) -> str:
    """The text of the page that ``report`` writes; arguments and errors are those."""
    if by is not None and shares is None:
        raise InputError("--by takes a column of --shares; give the file that transform wrote, too")
    paths = _models(model, topics)
    own = _own(model, paths, topics)
    contents = read_contents(paths[own], words)
    if len(paths) > 1:
        choice, missing = choice_at(model)
        levels = levels_of(paths, [level_of(path) for path in paths], own)
        contents = replace(contents, levels=replace(levels, choice=choice, missing=missing))
    if shares is not None:
        contents = _with_shares(contents, paths[own], shares, by)
    return render(contents)


def _with_shares(contents: Contents, model: StorePath, shares: str | Path, by: str | None) -> Contents:
    found = shown_shares_of(model, shares)
    return replace(contents, groups=groups_of(found, by), documents=documents_of(found))


def _models(model: StorePath, topics: int | None) -> tuple[StorePath, ...]:
    """The model itself, or those of a directory of them, by rising K."""
    paths = models_at(model)
    if topics is not None and paths == (model,):
        raise InputError(f"--topics chooses among the models of a directory; {model} holds none")
    return paths


def _own(model: StorePath, paths: tuple[StorePath, ...], topics: int | None) -> int:
    """Which of the models the page is about."""
    if topics is None:
        return len(paths) - 1
    names = [path.name for path in paths]
    if f"k={topics}" not in names:
        raise InputError(f"{model}: holds no model k={topics}; it holds {', '.join(names)}")
    return names.index(f"k={topics}")


def _require_place(model: StorePath, target: StorePath) -> None:
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


def _require_free(target: StorePath, overwrite: bool) -> None:
    """Refuse to replace anything but a report, and that unasked."""
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
