"""A verb whose help has its options in groups, the rare ones on a page of their own, and an example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

#: Where the wish to see all options is kept while the help is written.
_ALL = "streaming_jsmf.help_all"

#: Headings of options that name no group, and of those that ask for help.
COMMON, HELP = "Basic", "Help"

#: Widest first column, so that the texts beside it have room on 80 columns.
FIRST_COLUMN = 26


class GroupedOption(click.Option):
    """An option under a heading.

    Parameters
    ----------
    group
        The heading.
    rare
        Shown by ``--help-all`` only.
    former
        A name that is understood and not shown.
    """

    def __init__(
        self,
        declared: Sequence[str],
        *,
        group: str = COMMON,
        rare: bool = False,
        former: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__([*declared, *([] if former is None else [former])], **settings)
        self.group, self.rare, self.former = group, rare, former

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Names and help, without the former name."""
        names = self.opts
        self.opts = [name for name in names if name != self.former]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names


class Verb(click.Command):
    """A command with grouped options and examples.

    Parameters
    ----------
    examples
        Command lines, shown as they are.
    """

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.examples = tuple(examples)
        if any(_is_rare(option) for option in self.params):
            self.params.append(_help_all())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group of options under its heading, in the order in which they come."""
        # What names no group comes first, and help itself last.
        groups: dict[str, list[tuple[str, str]]] = {COMMON: []}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            shown = isinstance(option, click.Option) and (ctx.meta.get(_ALL) or not _is_rare(option))
            if shown and record is not None:
                groups.setdefault(getattr(option, "group", HELP), []).append(record)
        for title in [*(name for name in groups if name != HELP), HELP]:
            if groups[title]:
                with formatter.section(title):
                    formatter.write_dl(groups[title], col_max=FIRST_COLUMN)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the examples."""
        if self.examples:
            with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def _is_rare(option: click.Parameter) -> bool:
    return getattr(option, "rare", False)


def _help_all() -> click.Option:
    def show(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
        if wanted and not context.resilient_parsing:
            context.meta[_ALL] = True
            click.echo(context.get_help())
            context.exit()

    return click.Option(
        ["--help-all"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show rare options, too.",
    )


def verb(*examples: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A decorator like ``click.command`` for a ``Verb`` with these examples."""
    return click.command(cls=Verb, examples=examples, **settings)


def rarely(decorator: Callable[[Any], Any], *but: str) -> Callable[[Any], Any]:
    """The options of a decorator as rare ones of a verb, but for those with these names."""

    def apply(command: Any) -> Any:
        known = [*getattr(command, "__click_params__", [])]
        command = decorator(command)
        for parameter in command.__click_params__[len(known) :]:
            parameter.rare = parameter.rare or parameter.name not in but
        return command

    return apply


#: Like ``click.option``, with ``group`` and ``rare``.
option: Callable[..., Callable[[Any], Any]] = partial(click.option, cls=GroupedOption)
