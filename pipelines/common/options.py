"""Command-line options shared by the experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import click

from streaming_jsmf import Execution

Decorator: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]

#: Times are compared with one thread.
ONE_THREAD = Execution("synchronous")


def _drawn(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """Refuse to compute what could not be drawn at the end."""
    if value and find_spec("matplotlib") is None:
        raise click.UsageError("The figure requires matplotlib: pip install 'streaming-jsmf[notebook]'.")
    return value


_FOLDER = click.Path(file_okay=False, path_type=Path)

OUT = click.argument("out", type=_FOLDER)

#: OUT of a command that draws a figure.
DRAWN_OUT = click.argument("out", type=_FOLDER, callback=_drawn)

PICTURE = click.option(
    "--picture/--no-picture",
    default=True,
    show_default=True,
    callback=_drawn,
    help="Draw (requires matplotlib).",
)

ONLY_KEPT = click.option("--only-kept", is_flag=True, help="Use only stored results in OUT.")

GIBBS = click.option(
    "--gibbs", "sweeps", multiple=True, type=click.Choice(["200", "1000"]), help="Sweeps of Gibbs sampling."
)

GUARDS = click.option("--guards", is_flag=True, help="Select anchors with the guards of `infer`.")

ITERATIONS = click.option(
    "--iterations", default=150, show_default=True, help="Maximum number of steps of a rectification."
)

MOST_TOPICS = click.option(
    "--max-topics", default=100, show_default=True, help="Width of the scans; no K may be larger."
)

SEEDS = click.option(
    "--seeds", default=5, show_default=True, type=click.IntRange(1), help="Number of seeds, from 0 on."
)


def label(default: str) -> Decorator:
    """``--name``, the name of the files."""
    return click.option("--name", "label", default=default, show_default=True, help="Name of the files.")


def quick(how: str) -> Decorator:
    """``--quick``; ``how`` completes its help text."""
    return click.option("--quick", is_flag=True, help=f"Trial run of seconds: {how}.")


class Several(click.ParamType):
    """Values of one type separated by ``between``: ``--topics 5,10,20``."""

    def __init__(self, kind: type, between: str = ",") -> None:
        self.kind, self.between = kind, between
        self.name = between.join(["a", "b", "..."])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        if not isinstance(value, str):
            return list(value)
        try:
            return [self.kind(each.strip()) for each in value.split(self.between)]
        except ValueError as error:
            return self.fail(f"{value!r}: {error}", param, ctx)


def several(name: str, values: Iterable[Any], between: str = ",", help: str | None = None) -> Decorator:
    """``--NAME A,B,C``, a list; ``between`` is the separator."""
    values = list(values)
    text = between.join(map(str, values))
    return click.option(
        f"--{name}", type=Several(type(values[0]), between), default=text, show_default=True, help=help
    )


def corpora(words: int) -> Decorator:
    """``--corpus NAME=SOURCE`` (repeatable) and ``--words N``."""
    help_source = "A corpus, a spec, texts, simulated:ratings and the like; may be repeated."
    sources = click.option("--corpus", "corpora", multiple=True, metavar="NAME=SOURCE", help=help_source)
    cut = click.option("--words", default=words, show_default=True, help="Vocabulary size, by tf-idf.")
    return lambda command: sources(cut(command))
