"""Command-line options shared by the experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import click

from streaming_jsmf import Execution

Decorator: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]

#: Where times are compared, everything has one thread.
ONE_THREAD = Execution("synchronous")

OUT = click.argument("out", type=click.Path(file_okay=False, path_type=Path))

ONLY_KEPT = click.option(
    "--only-kept", is_flag=True, help="Tables and pictures of what earlier runs left in OUT."
)

GIBBS = click.option(
    "--gibbs", "sweeps", multiple=True, type=click.Choice(["200", "1000"]), help="Sweeps of Gibbs sampling."
)

GUARDS = click.option("--guards", is_flag=True, help="Choose anchors under the guards of `infer`.")

ITERATIONS = click.option(
    "--iterations", default=150, show_default=True, help="Most steps of a rectification."
)

MOST_TOPICS = click.option(
    "--max-topics", default=100, show_default=True, help="Of the scans: no K may be larger."
)


def quick(how: str) -> Decorator:
    """``--quick``; ``how`` ends its help."""
    return click.option("--quick", is_flag=True, help=f"A trial in seconds: {how}.")


class Several(click.ParamType):
    """Values of one kind in one word, with ``between`` between: ``--topics 5,10,20``."""

    def __init__(self, kind: type, between: str = ",") -> None:
        self.kind, self.between = kind, between
        self.name = between.join(["a", "b", "..."])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        """The values, of a text or as they are."""
        if not isinstance(value, str):
            return list(value)
        try:
            return [self.kind(each.strip()) for each in value.split(self.between)]
        except ValueError as error:
            return self.fail(f"{value!r}: {error}", param, ctx)


def several(name: str, values: Iterable[Any], between: str = ",", help: str | None = None) -> Decorator:
    """``--NAME A,B,C``, which gives a list; ``between`` other than the comma where a value may have one."""
    values = list(values)
    text = between.join(map(str, values))
    return click.option(
        f"--{name}", type=Several(type(values[0]), between), default=text, show_default=True, help=help
    )


def corpora(words: int) -> Decorator:
    """``--corpus NAME=SOURCE`` (several) and ``--words N``."""
    help_source = "NAME=SOURCE, several: a corpus, a spec, texts, or simulated:ratings, simulated:baskets."
    sources = click.option("--corpus", "corpora", multiple=True, metavar="NAME=SOURCE", help=help_source)
    cut = click.option("--words", default=words, show_default=True, help="Kept, by tf-idf.")
    return lambda command: sources(cut(command))
