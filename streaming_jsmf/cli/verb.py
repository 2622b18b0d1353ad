"""The command class of all verbs, with option groups, ``--help-all`` and examples; and the options that verbs share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import click

from streaming_jsmf.config import ExecutionOptions, readers_with
from streaming_jsmf.config.fields import BASIC, Field, declared_in
from streaming_jsmf.config.keywords import in_place_of
from streaming_jsmf.config.readers import in_place_of_read
from streaming_jsmf.config.requests import EXECUTION
from streaming_jsmf.display import for_json, location
from streaming_jsmf.errors import InputError, taking

Decorator = Callable[[Any], Any]

#: Key under which a context stores that the help lists all options.
_ALL = "streaming_jsmf.help_all"

HELP = "Help"

#: Parameter of ``summary_option``.
SUMMARY = "summary_as_json"

#: Options of other programs, without dashes, and ours that they may stand for: the first one that the verb has.
SYNONYMS = {
    **dict.fromkeys(("k", "num-topics", "n-topics", "n-components"), ("--topics", "--topic")),
    "n": ("--topics", "--number", "--words"),
    "t": ("--topics", "--topic"),
    "o": ("--out",),
    "q": ("--quiet",),
    "j": ("--workers",),
    "n-jobs": ("--workers",),
    **dict.fromkeys(("f", "force"), ("--overwrite",)),
    "random-state": ("--seed",),
    "s": ("--seed",),
}

#: Widest first column, so that the texts next to it fit a terminal of 80 columns.
FIRST_COLUMN = 26


class GroupedOption(click.Option):
    """An option under the heading ``group``; only ``--help-all`` lists ``rare`` ones."""

    def __init__(
        self, declared: Sequence[str], *, group: str = BASIC, rare: bool = False, **settings: Any
    ) -> None:
        super().__init__(declared, **settings)
        self.group, self.rare = group, rare


class Verb(click.Command):
    """A command with grouped options and examples, whose function gets only the options that the user gave.

    The function returns a text to print, a function that prints, or a summary: what was written where, with numbers,
    printed as text or, with ``--json``, as JSON. That of a ``long`` command also takes a
    ``listener``: progress is shown while it runs, without a terminal only with ``lines``, and ``--log-json`` and
    ``--quiet`` are not passed on.
    """

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[str] = (),
        long: bool = True,
        lines: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.examples, self.long, self.lines = tuple(examples), long, lines
        self.params.append(_help_all())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; an unknown option that other programs or earlier versions have is answered with ours."""
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name == "--read" and any(option.name == "reader" for option in self.params):
                raise click.UsageError(_in_place_of(given), ctx) from error
            former = error.option_name.strip("-").replace("-", "_")
            known = {str(one.name) for one in self.params}
            if now := in_place_of(former, known):
                raise click.UsageError(f"{error.option_name} was removed; {now}", ctx) from error
            ours = SYNONYMS.get(error.option_name.lstrip("-").replace("_", "-"), ())
            found = [name for name in ours if any(name in option.opts for option in self.params)]
            if not found:
                raise
            message = f"No such option {error.option_name!r} (did you mean {found[0]}?)"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from error

    def invoke(self, ctx: click.Context) -> None:
        """Call the function, and print what it returns."""
        function, given = self.callback, given_options(ctx)
        assert function is not None
        as_json = given.pop(SUMMARY, False)
        with taking({name for option in self.params for name in (*option.opts, *option.secondary_opts)}):
            self._run(function, given, as_json)

    def _run(self, function: Callable[..., Any], given: dict[str, Any], as_json: bool) -> None:
        if not self.long:
            _print(function(**given), as_json)
            return
        from streaming_jsmf.cli.observation import observed, repeated

        log, quiet = given.pop("log_json", None), given.pop("quiet", False)
        verbose = given.pop("verbose", False)
        with repeated():
            with observed(log, quiet=quiet, verbose=verbose, lines=self.lines) as listener:
                shown = function(listener=listener, **given)
            _print(shown, as_json)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group of options under its heading, basic options first and help last."""
        groups: dict[str, list[tuple[str, str]]] = {BASIC: []}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            shown = isinstance(option, click.Option) and (
                ctx.meta.get(_ALL) or not getattr(option, "rare", False)
            )
            if record is not None and shown:
                groups.setdefault(getattr(option, "group", HELP), []).append(record)
        for title in [*(name for name in groups if name != HELP), HELP]:
            if groups[title]:
                with formatter.section(title):
                    formatter.write_dl(groups[title], col_max=FIRST_COLUMN)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        if self.examples:
            with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def _print(shown: Any, as_json: bool) -> None:
    """Print what the function of a verb returns."""
    if isinstance(shown, dict):
        shown = json_text(shown) if as_json else _summary(shown)
    if callable(shown):
        shown()
    elif shown is not None:
        click.echo(shown)


def _in_place_of(arguments: Sequence[str]) -> str:
    """What to write for the ``--read KEY=VALUE`` in arguments."""
    read = in_place_of_read(re.findall("(?:^|\0)--read[=\0]([^\0]+)", "\0".join(arguments)))
    now = " ".join(each.on_command_line for each in read) or "the options of --help-all"
    return f"--read KEY=VALUE was removed; use {now}"


def _summary(fields: Mapping[str, Any]) -> str:
    """What was written where, and numbers in parentheses after the first place.

    >>> _summary({"corpus": "c", "documents": 3, "words": 9, "truth": "t"})
    'corpus: c (3 documents, 9 words)\\ntruth: t'
    """
    counts = {name.replace("_", " "): value for name, value in fields.items() if isinstance(value, int)}
    numbers = ", ".join(f"{value} {name}" for name, value in counts.items())
    first, *others = [
        f"{name}: {location(value)}" for name, value in fields.items() if not isinstance(value, int)
    ]
    return "\n".join([f"{first} ({numbers})" if numbers else first, *others])


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
        help="Show all options, including rare ones.",
    )


def given_options(context: click.Context) -> dict[str, Any]:
    """The parameters that are on the command line, by name."""
    default = click.core.ParameterSource.DEFAULT
    return {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is not default
    }


#: Like ``click.option``, with ``group`` and ``rare``.
option: Callable[..., Callable[[Any], Any]] = partial(click.option, cls=GroupedOption)

#: An argument that is a path or a URL.
path: Callable[..., Callable[[Any], Any]] = partial(click.argument, type=click.Path())


def together(*decorators: Decorator) -> Decorator:
    """One decorator that applies these in their order."""
    return lambda command: reduce(lambda done, decorate: decorate(done), reversed(decorators), command)


def options_of(
    *kinds: type[Any],
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    common: Collection[str] | None = None,
    default: str = "",
) -> Decorator:
    """A decorator: the fields of settings classes as options, ``only`` some of them or all ``without`` others.

    ``without`` may also name one spelling of an option that has several. ``common`` names the options that are not rare
    (None: as the fields declare), ``default`` is what help shows instead of the declared defaults.
    """
    fields = [
        replace(field, absent=default or field.absent)
        for name, field in declared_in(kinds).items()
        if field.option and name not in without and (only is None or name in only)
    ]

    def made(field: Field) -> Decorator:
        rare = field.rare if common is None else field.name not in common
        flags = field.flags or (f"--{field.name.replace('_', '-')}",)
        names = [flag for flag in flags if flag not in without]
        name = field.name if names[0] == flags[0] else names[0].lstrip("-").replace("-", "_")
        return option(*names, name, rare=rare, **_attributes(field))

    return together(*map(made, fields))


def _help(field: Field) -> str:
    shown = field.absent or (
        "" if field.is_switch or field.multiple or field.required else str(field.default)
    )
    readers = readers_with(field.name) if field.rare else []
    known = f"{', '.join(readers)}: " if 0 < len(readers) < 5 else ""
    return f"{known}{field.help}" + f"  [default: {shown}]" * bool(shown)


def _attributes(field: Field) -> dict[str, Any]:
    found: dict[str, Any] = {
        "group": field.group,
        "metavar": field.metavar,
        "help": _help(field),
        "multiple": field.multiple,
        **({"required": True} if field.required else {"default": field.shown_default}),
    }
    if field.is_switch:
        return found | {"is_flag": True}
    if field.parse or field.listed or not (field.number or field.choices):
        holds_path = any(word in (field.metavar or "") for word in ("FILE", "PATH", "SHARES", "DIRECTORY"))
        return found | {"type": click.Path() if holds_path else str}
    return found | {"type": field.number or _Choice(field)}


class _Choice(click.Choice):  # type: ignore[type-arg]  # not subscriptable in the lowest version
    """The choices of a field, which itself refuses values that earlier versions had."""

    def __init__(self, field: Field) -> None:
        super().__init__(field.choices)
        self.moved = field.moved

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value in self.moved else super().convert(value, param, ctx)


topics_option = option(
    "--topics", required=True, metavar="K[,K...]",
    help="Number of topics K, or several, such as 5,10,20, for one model each.",
)  # fmt: skip

overwrite_option = option("--overwrite", is_flag=True, help="Replace an existing result of the same kind.")
json_option = partial(option, "--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
summary_option = option("--json", SUMMARY, is_flag=True, help="Print the result as JSON.")


def json_text(value: Any) -> str:
    """What ``--json`` prints; dates become text, and numbers that JSON does not have null."""
    import json

    return json.dumps(for_json(value), ensure_ascii=False, allow_nan=False, indent=1, default=str)


def csv_options(help: str = "Print CSV instead of a table.", **settings: Any) -> Decorator:
    """``--csv`` and ``--raw``."""
    return together(
        option("--csv", "as_csv", is_flag=True, help=help, **settings),
        option("--raw", is_flag=True, **settings,
               help="With --csv: do not put an apostrophe before text that a spreadsheet evaluates, such as =2+3."),
    )  # fmt: skip


log_option = together(
    option("--quiet", group=EXECUTION, is_flag=True, help="Print only the result, warnings and errors."),
    option("--verbose", group=EXECUTION, is_flag=True, rare=True, help="Print stages, rates and memory."),
    option("--log-json", group=EXECUTION, default=None, metavar="FILE",
           help="Append each event to FILE as one line of JSON; - writes to standard error.  [default: none]"),
)  # fmt: skip

execution_options = together(options_of(ExecutionOptions), log_option)


def verb(
    *examples: str, long: bool = True, scheduled: bool = True, summary: bool = False, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """A decorator like ``click.command`` for a ``Verb`` with these examples.

    A ``long`` verb gets the options of progress and, if it is ``scheduled``, of execution. One that returns a summary
    gets ``--json``.
    """
    shared = [summary_option] * summary + [execution_options if scheduled else log_option] * long

    def made(function: Any) -> click.Command:
        # click collects the options of a function from the last to the first.
        own = function.__dict__.pop("__click_params__", [])
        together(*shared)(function)
        function.__click_params__ = [*getattr(function, "__click_params__", []), *own]
        return click.command(cls=Verb, examples=examples, long=long, **settings)(function)

    return made


def require_one(raw: bool, **answers: bool) -> None:
    """Refuse several forms of an answer, such as ``csv`` and ``json``, and ``--raw`` without ``--csv``."""
    if sum(answers.values()) > 1:
        *names, last = (f"--{name}" for name in answers)
        raise InputError(f"{', '.join(names)} and {last} exclude each other; give one")
    if raw and not answers["csv"]:
        raise InputError("--raw is for --csv; give both or neither")


def topic_numbers(text: str) -> list[int]:
    """Parse ``20`` or ``5,10,20``; raise ``click.UsageError`` for anything else."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise click.UsageError(
            f"--topics is {text!r}; give a number such as 20, or several different ones: 5,10,20"
        )
    return numbers
