"""The command line: parse, call one function of ``workflow``, print. One line for each error, one code for its kind."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import click

from streaming_jsmf.cli.commands import COMMANDS
from streaming_jsmf.cli.outcome import outcome_of
from streaming_jsmf.cli.terminal import OneLine, escaped_streams
from streaming_jsmf.display import location, printable


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="streaming-jsmf")
@click.pass_context
def cli(context: click.Context) -> None:
    """Topics from corpora that do not fit in memory.

    A corpus is scanned once or twice into a moments store; from it models for any number of topics are
    inferred without touching the corpus again. An interrupted command is finished by running it again.

    Exit codes: 0 done, 2 wrong input, 3 incomplete or damaged store, 130 interrupted.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in COMMANDS:
    cli.add_command(_command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; messages go to standard error."""
    with escaped_streams():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    _log_to_standard_error()
    try:
        cli.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except BaseException as error:
        outcome = outcome_of(error)
        if outcome is None:
            raise
    else:
        return 0
    if outcome.name == "interrupted":
        # A write was cut off in the middle, which the event loop beneath would report as an error of its own.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        click.echo(outcome.line, err=True)
    else:
        click.echo(f"error: {printable(location(outcome.line))}", err=True)
    return outcome.exit_code


def _log_to_standard_error() -> None:
    """Our own messages as plain lines; what other libraries log is theirs."""
    logger = logging.getLogger("streaming_jsmf")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
