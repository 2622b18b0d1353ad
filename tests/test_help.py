"""``--help`` shows a readable page with a default for every option and valid examples."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import time

import click
import pytest

from streaming_jsmf.cli.main import COMMANDS, cli
from streaming_jsmf.cli.verb import Verb
from streaming_jsmf.jobs.events import Bars, StageStarted
from tests.outcomes import Command, refused
from tests.processes import ended, wait_until

LINES, COLUMNS = 60, 80
VERBS = [command.name for command in COMMANDS]


def page(verb: str, *, everything: bool = False) -> str:
    """The help of a verb on a terminal of 80 columns."""
    command = cli.commands[verb]
    context = click.Context(command, info_name=verb, parent=click.Context(cli), terminal_width=COLUMNS)
    if everything:
        context.meta["streaming_jsmf.help_all"] = True
    return command.get_help(context)


def options(verb: str) -> list[click.Option]:
    return [parameter for parameter in cli.commands[verb].params if isinstance(parameter, click.Option)]


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_fits_a_terminal(verb: str) -> None:
    lines = page(verb).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert "Example" in page(verb)


@pytest.mark.parametrize("verb", VERBS)
def test_each_option_says_what_it_does_and_its_default(verb: str) -> None:
    context = click.Context(cli.commands[verb])
    for option in options(verb):
        record = option.get_help_record(context)
        assert record is not None, option.name
        text = record[1]
        told = option.is_flag or option.multiple or "[default:" in text or option.required
        assert told, f"{option.opts[0]} says no default: {text}"
        assert len(text.partition("[")[0].split()) >= 3, f"{option.opts[0]} says little: {text}"


@pytest.mark.parametrize("verb", VERBS)
def test_rare_options_are_behind_help_all(verb: str, invoke: Command) -> None:
    shown, everything = page(verb), page(verb, everything=True)
    for option in options(verb):
        listed = re.compile(rf"^  {option.opts[0]}[ ,]", re.MULTILINE)
        assert listed.search(everything)
        assert bool(listed.search(shown)) != getattr(option, "rare", False)
    if any(getattr(option, "rare", False) for option in options(verb)):
        told = invoke(verb, "--help-all")
        assert (told.code, told.err) == (0, "")
        assert "--help-all" in told.out
        assert len(told.out) > len(invoke(verb, "--help").out)


def test_verbs_share_their_options() -> None:
    def having(name: str) -> set[str]:
        return {verb for verb in VERBS if any(name in option.opts for option in options(verb))}

    long = {verb for verb in VERBS if cli.commands[verb].long}  # type: ignore[attr-defined]
    assert having("--help-all") == set(VERBS)
    assert having("--quiet") == having("--log-json") == long
    assert having("--json") == set(VERBS) - {"view"}
    assert having("--overwrite") == set(VERBS) - {"topics", "evaluate", "view", "info"}


@pytest.mark.parametrize(
    ("verb", "given", "meant"),
    [
        ("fit", "-k", "--topics"),
        ("fit", "--k=3", "--topics"),
        ("infer", "-n", "--topics"),
        ("fit", "--n_components", "--topics"),
        ("documents", "-k", "--topic"),
        ("documents", "-n", "--number"),
        ("scan", "-j", "--workers"),
        ("transform", "--force", "--overwrite"),
        ("topics", "--wrods", "--words"),
    ],
)
def test_options_of_other_programs_are_answered_with_ours(
    verb: str, given: str, meant: str, invoke: Command
) -> None:
    refused(invoke(verb, given, "3"), 2, given.partition("=")[0], meant)


@pytest.mark.parametrize("verb", VERBS)
def test_examples_are_commands(verb: str) -> None:
    command = cli.commands[verb]
    assert isinstance(command, Verb)
    for example in command.examples:
        program, name, *arguments = shlex.split(example.partition(" > ")[0].partition("   ")[0])
        assert (program, name) == ("streaming-jsmf", verb)
        command.make_context(verb, arguments)


def test_a_bar_is_drawn_again_while_its_only_part_is_worked_on() -> None:
    bars, shown = Bars(interval=0.001), io.StringIO()
    with contextlib.redirect_stderr(shown):
        bars(StageStarted("range", (1000,), frozenset()))
        drawn = shown.getvalue().count("range")
        wait_until(lambda: shown.getvalue().count("range") > drawn + 3, "the bar to be drawn again")
        bars.close()
        at_the_end = shown.getvalue()
        time.sleep(0.02)
    assert shown.getvalue() == at_the_end, "a bar that is closed stays as it is"


def test_the_shell_completes_what_is_typed() -> None:
    asked = {
        "_STREAMING_JSMF_COMPLETE": "bash_complete",
        "COMP_WORDS": "streaming-jsmf topics --sort ",
        "COMP_CWORD": "3",
    }
    code = "import sys; sys.argv = ['streaming-jsmf']; from streaming_jsmf.__main__ import main; main()"
    found = ended([sys.executable, "-c", code], **asked)
    assert (found.code, found.err) == (0, "")
    assert "share" in found.out.replace(",", " ").split()


def test_summaries_of_commands_are_whole_sentences(invoke: Command) -> None:
    shown = invoke("--help").out
    assert shown == invoke().out
    listed = shown.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == sorted(VERBS)
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize(
    ("imported", "libraries"),
    [
        ("import streaming_jsmf.cli.main", "{'dask', 'numpy', 'pyarrow', 'zarr'}"),
        (
            "from streaming_jsmf import infer, polish, scan",
            "{'scipy.sparse.linalg', 'pyarrow.compute', 'xarray', 'distributed'}",
        ),
    ],
)
def test_no_more_is_imported_than_is_needed(imported: str, libraries: str) -> None:
    code = f"import sys; {imported}; print(*{libraries} & sys.modules.keys())"
    assert ended([sys.executable, "-c", code]).out == "\n"
