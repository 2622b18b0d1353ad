"""`--help` shows a readable page; and what holds for every verb."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

import streaming_jsmf as sj
from streaming_jsmf import InputError
from streaming_jsmf.cli.main import COMMANDS, cli
from streaming_jsmf.cli.verb import Verb
from streaming_jsmf.config import InferSettings
from streaming_jsmf.interface import fit as fitting
from streaming_jsmf.jobs.events import Bars, StageStarted
from streaming_jsmf.topics import requirements
from streaming_jsmf.topics.requirements import Requirements
from tests.cases import first_cases
from tests.corpora import file_bytes, planted, write_corpus
from tests.outcomes import Command, invoked, printed, refused
from tests.processes import ended, wait_until

LINES, COLUMNS = 60, 80
NAMES = [command.name for command in COMMANDS]


def page(verb: str, *, everything: bool = False) -> str:
    """The help of a verb on a terminal of 80 columns."""
    command = cli.commands[verb]
    context = click.Context(command, info_name=verb, parent=click.Context(cli), terminal_width=COLUMNS)
    if everything:
        context.meta["streaming_jsmf.help_all"] = True
    return command.get_help(context)


def options(verb: str) -> list[click.Option]:
    return [parameter for parameter in cli.commands[verb].params if isinstance(parameter, click.Option)]


@pytest.mark.parametrize("verb", NAMES)
def test_the_help_of_a_verb_fits_a_terminal(verb: str) -> None:
    lines = page(verb).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert "Example" in page(verb)


@pytest.mark.parametrize("verb", NAMES)
def test_each_option_says_what_it_does_and_its_default(verb: str) -> None:
    context = click.Context(cli.commands[verb])
    for option in options(verb):
        record = option.get_help_record(context)
        assert record is not None, option.name
        text = record[1]
        told = option.is_flag or option.multiple or "[default:" in text or option.required
        assert told, f"{option.opts[0]} says no default: {text}"
        assert len(text.partition("[")[0].split()) >= 3, f"{option.opts[0]} says little: {text}"


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


@pytest.mark.parametrize("verb", ["ingest", "fit", "update", "transform", "documents"])
def test_the_removed_read_is_answered_with_the_option(verb: str, invoke: Command) -> None:
    for given, now in (
        ("delimiter=;", "--delimiter ';'"),
        ("path=a b", "--member 'a b'"),
        ("vocabulary=w.txt", "--word-list w.txt"),
        ("columns=a,b", "--column-names a,b"),
        ("function=module:name", "--reader module:name"),
        ("language_column=true", "--language-column"),
        ("text", "--text VALUE"),
    ):
        for spelled in (("--read", given), (f"--read={given}",)):
            refused(invoke(verb, "a", "b", *spelled), 2, f"--read KEY=VALUE was removed; use {now}; see")
    both = ("--read", "user=who", "--read", "names_header=false")
    refused(invoke(verb, "a", "b", *both), 2, "use --user who --names-header false; see")


def test_an_experiment_that_is_no_option_any_more_is_answered_with_its_place(invoke: Command) -> None:
    moved = {
        ("--rectify", "dykstra"): "pipelines.jsmf_2015 (its method DP)",
        ("--rectify", "dc"): "pipelines.jsmf_2015 (its method DC)",
        ("--stod-alpha0", "shares"): "pipelines.stod_any_k",
        ("--stod-refine", "als"): "pipelines.stod_any_k",
    }
    for (option, value), place in moved.items():
        for verb in ("infer", "fit"):
            given = ("a", "b", "--topics", 3, "--engine", "stod" if "stod" in option else "lr-jsmf")
            named = option if "refine" in option else f"{option} {value}"
            said = f"{named} was removed; it is an experiment in the repository of this package now: python -m {place}"
            refused(invoke(verb, *given, option, value), 2, said)
    for keywords in ({"rectify": "dc"}, {"engine": "stod", "alpha0": "shares"}, {"stod_refine": "als"}):
        with pytest.raises(
            (InputError, TypeError), match="was removed; it is an experiment in the repository"
        ):
            sj.fit("a", n_topics=3, **keywords)
    with pytest.raises(InputError, match="rectify is 'x'; give one of enn, ap, palm, ipalm, none"):
        sj.fit("a", n_topics=3, rectify="x")


@pytest.mark.parametrize("verb", NAMES)
def test_examples_are_commands(verb: str) -> None:
    command = cli.commands[verb]
    assert isinstance(command, Verb)
    for example in command.examples:
        program, name, *arguments = shlex.split(example.partition(" > ")[0].partition("   ")[0])
        assert (program, name) == ("streaming-jsmf", verb)
        command.make_context(verb, arguments)


def test_a_bar_is_drawn_again_while_its_only_part_is_worked_on() -> None:
    bars, shown = Bars(interval=0.001, verbose=True), io.StringIO()
    with contextlib.redirect_stderr(shown):
        bars(StageStarted("sums", (1000,), frozenset()))
        drawn = shown.getvalue().count("sums")
        wait_until(lambda: shown.getvalue().count("sums") > drawn + 3, "the bar to be drawn again")
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


@pytest.mark.parametrize(
    ("imported", "libraries"),
    first_cases(
        [
            ("import streaming_jsmf.cli.main", "{'dask', 'fsspec', 'numpy', 'pydantic', 'zarr'}"),
            (
                "from streaming_jsmf import infer, polish, scan",
                "{'scipy.sparse.linalg', 'pyarrow.compute', 'xarray', 'distributed'}",
            ),
            ("from streaming_jsmf import ingest", "{'pandas', 'xarray', 'distributed'}"),
        ]
    ),
)
def test_no_more_is_imported_than_is_needed(imported: str, libraries: str) -> None:
    code = f"import sys; {imported}; print(*{libraries} & sys.modules.keys())"
    assert ended([sys.executable, "-c", code]).out == "\n"


# -- What holds for every verb --


ALONE = "--scheduler synchronous"
SIMULATED = f"--documents 30 --vocabulary-size 20 --topics 2 {ALONE}"

#: A command of each verb that succeeds. {out} does not exist; the other names are those of the fixture ``places``.
VERBS = {
    "plan": "plan {corpus} --topics 3",
    "ingest": "ingest {texts} {out} --preset papers --min-tokens 0",
    "simulate": f"simulate {{out}} {SIMULATED}",
    "scan": f"scan {{corpus}} {{out}} --max-topics 5 {ALONE}",
    "infer": "infer {moments} {out} --topics 3",
    "fit": f"fit {{corpus}} {{out}} --topics 3 --steps 6 {ALONE}",
    "choose-k": f"choose-k {{moments}} --topics 2,5 --out {{out}} --replicas 0 {ALONE}",
    "polish": f"polish {{model}} {{corpus}} {{out}} --steps 6 {ALONE}",
    "update": f"update {{model}} {{corpus}} {ALONE}",
    "topics": "topics {model}",
    "transform": f"transform {{model}} {{corpus}} {{out}} {ALONE}",
    "documents": "documents {model} {shares} --topic 1",
    "over-time": "over-time {model} {shares} --by document_id",
    "effects": "effects {model} {shares} --formula known_tokens --draws 2",
    "evaluate": f"evaluate {{model}} --corpus {{corpus}} --moments {{moments}} --replicas 0 {ALONE}",
    "report": "report {model} {out} --shares {shares}",
    "view": "view {model} --shares {shares}",
    "info": "info {moments}",
}
INPUTS = ("texts", "corpus", "moments", "model", "shares")

#: Each input of each verb.
READS = [(verb, name) for verb, line in VERBS.items() for name in INPUTS if f"{{{name}}}" in line]
#: Verbs that replace their output only if they are told to, and those whose output holds other settings.
REPLACED = ("ingest", "simulate", "scan", "choose-k", "infer", "fit", "polish", "transform", "report")
OTHER = {
    "ingest": "--min-tokens 1",
    "simulate": "--seed 1",
    "scan": "--seed 1",
    "choose-k": "--seed 1",
    "infer": "--max-iterations 20",
    "fit": "--max-iterations 20",
    "polish": "--seed 1",
    "transform": "--top 1",
}
#: Verbs that print what they made, and those that print its topics.
SUMMARIES, TOPICS = ("ingest", "simulate", "scan", "transform", "report"), ("infer", "fit", "polish")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an input of each kind."""
    folder = tmp_path_factory.mktemp("verbs")
    write_corpus(folder / "corpus", planted(150, 40, 5, length=40, seed=3).counts)
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text("river stone garden window\n" * 9)
    at = {name: folder / name for name in INPUTS}
    printed("scan", at["corpus"], at["moments"], "--max-topics", 5, *ALONE.split())
    printed("infer", at["moments"], at["model"], "--topics", 3)
    printed("transform", at["model"], at["corpus"], at["shares"], *ALONE.split())
    return folder


@pytest.fixture
def places(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Inputs, and an output that does not exist yet."""
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    # Not that of all modules: one that is first imported in a test would keep it.
    monkeypatch.setattr(
        "streaming_jsmf.reporting.report.tempfile", SimpleNamespace(mkdtemp=lambda **_: str(tmp_path))
    )
    return {**{name: made / name for name in INPUTS}, "out": tmp_path / "out"}


def arguments(verb: str, places: dict[str, Any]) -> list[str]:
    return VERBS[verb].format(**places).split()


def test_every_verb_is_here() -> None:
    assert {command.name for command in COMMANDS} == VERBS.keys()
    assert printed() == printed("--help")


@pytest.mark.parametrize("verb", VERBS)
def test_usage_errors_point_to_the_help(verb: str, places: dict[str, Any]) -> None:
    line = arguments(verb, places)
    refused(invoked(*line, "--no-such-option"), 2, "--no-such-option", "see --help")
    refused(invoked(*line, "one", "too", "many"), 2, "see --help")
    [command] = (each for each in COMMANDS if each.name == verb)
    missing = next(each for each in command.params if isinstance(each, click.Argument))
    refused(invoked(verb), 2, missing.make_metavar(click.Context(command)), f"as in: streaming-jsmf {verb} ")
    required = [each for each in command.params if isinstance(each, click.Option) and each.required]
    for option in required:
        given = [word for word in line if word != option.opts[0]]
        given.pop(line.index(option.opts[0]))
        refused(invoked(*given), 2, option.opts[0], f"as in: streaming-jsmf {verb} ")
    assert not places["out"].exists()


#: Inputs that no verb can read, by their place in a folder, and what is said of each.
UNREADABLE = {
    "none": "{}/none",
    "none.csv": "{}/none.csv: no such file or directory; check the path",
    "none.toml": "{}/none.toml",
    "folder": "{}/folder",
    "loop": "back to itself",
    "broken": "{}/broken",
    "nowhere://user:pass%20word@host/x?key=secret": "nowhere",
}


@pytest.mark.parametrize(("verb", "name"), READS)
def test_missing_inputs_and_inputs_of_another_kind_are_named(
    verb: str, name: str, places: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "broken").symlink_to("nothing")
    before = sorted(tmp_path.iterdir())
    for given, said in UNREADABLE.items():
        places[name] = given if "://" in given else tmp_path / given
        outcome = invoked(*arguments(verb, places)).without_progress()
        refused(outcome, 2, said.format(tmp_path))
        assert "pass%20word" not in outcome.err
        assert "secret" not in outcome.err.replace(str(tmp_path), "")
        assert "did you mean" not in outcome.err
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("verb", "name"), [pair for pair in READS if pair[1] in ("moments", "model") and pair[0] != "choose-k"]
)
def test_a_damaged_store_is_exit_code_3(verb: str, name: str, places: dict[str, Any], tmp_path: Path) -> None:
    places[name] = shutil.copytree(places[name], tmp_path / "damaged")
    array = {"moments": "row_sum", "model": "word_topic"}[name]
    if verb in ("topics", "report", "view"):
        array = "prominent_words"  # they read no other large array
    chunk = next(path for path in (places[name] / array / "c").rglob("*") if path.is_file())
    chunk.write_bytes(b"x" * chunk.stat().st_size)
    refused(invoked(*arguments(verb, places)).without_progress(), 3, str(tmp_path / "damaged"), array)
    assert not places["out"].exists()


@pytest.mark.parametrize("verb", [verb for verb in REPLACED if verb != "choose-k"])
def test_an_output_is_replaced_only_if_it_is_the_verbs_own(verb: str, places: dict[str, Any]) -> None:
    places["out"].mkdir()
    (places["out"] / "mine.txt").write_text("mine")
    line = arguments(verb, places)
    refused(invoked(*line).without_progress(), 2, str(places["out"]))
    refused(invoked(*line, "--overwrite").without_progress(), 2, str(places["out"]))
    assert [path.name for path in places["out"].iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("verb", REPLACED)
@pytest.mark.parametrize("place", ["/", ".", "..", "loop/x"])
def test_an_output_without_a_name_of_its_own_is_refused(
    place: str, verb: str, places: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    Path("loop").symlink_to("loop")
    line = arguments(verb, {**places, "out": place})
    if verb == "choose-k" and place in (".", ".."):
        assert invoked(*line).code == 0  # its output is a directory that may hold other files
        return
    said = {"/": "root directory", ".": f"{tmp_path}/in", "..": str(tmp_path)}.get(place, "back to itself")
    refused(invoked(*line).without_progress(), 2, said)
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "loop"]


@pytest.mark.parametrize("verb", first_cases(REPLACED, 3))
def test_an_output_is_replaced_by_a_path_through_itself(
    verb: str, places: dict[str, Any], tmp_path: Path
) -> None:
    if verb == "report":
        places["out"] = tmp_path / "out.html"
    first, other = arguments(verb, places), OTHER.get(verb, "").split()
    assert invoked(*first).code == 0
    again = arguments(verb, {**places, "out": tmp_path / "out" / ".." / places["out"].name})
    done = invoked(*again, *other, "--overwrite")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("simulate {corpus} --overwrite", "is a folder, not a corpus, and is not replaced"),
        ("simulate {ingested} --overwrite", "simulate did not make this corpus"),
        ("scan {corpus} {moments} --seed 1 --overwrite --memory 1M", "--memory allows"),
        ("scan {corpus} {model} --overwrite", "is a model, not a moments store, and is not replaced"),
        ("choose-k {corpus} --topics 2,5 --seed 1 --overwrite --memory 1M --out {chosen}", "--memory allows"),
    ],
)
def test_a_refused_overwrite_changes_nothing(
    line: str, said: str, places: dict[str, Any], tmp_path: Path
) -> None:
    places["chosen"], places["ingested"] = tmp_path / "chosen", tmp_path / "ingested"
    for name in ("corpus", "moments", "model"):
        places[name] = shutil.copytree(places[name], tmp_path / name)
    if "{chosen}" in line:
        printed("choose-k", places["corpus"], "--topics", "2,5", "--out", places["chosen"], "--replicas", 0)
    if "{ingested}" in line:
        printed(*VERBS["ingest"].format(texts=places["texts"], out=places["ingested"]).split())
    before = file_bytes(tmp_path)
    extra = SIMULATED.split() if line.startswith("simulate") else []
    refused(invoked(*line.format(**places).split(), *extra).without_progress(), 2, said)
    assert file_bytes(tmp_path) == before


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "view"])
def test_json_is_all_that_is_printed(verb: str, places: dict[str, Any]) -> None:
    found = json.loads(printed(*arguments(verb, places), "--json"))
    assert found
    if verb in SUMMARIES:
        assert next(iter(found.values())) == str(places["out"])
    if verb in TOPICS:
        assert found == json.loads(printed("topics", places["out"], "--json"))


# -- What takes long is said before anything is scanned, or refused with numbers --


def required(settings: InferSettings, n_words: int = 6_906, *, exact: bool = False) -> Requirements:
    return Requirements(settings, "corpus", ["word"] * n_words, 10_000, None, exact)


def test_more_than_the_machine_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "machine_memory", lambda: 1 << 29)
    with pytest.raises(
        InputError, match=r"n_topics is 1,500, which takes about .* MiB .* this machine has 512\.00 MiB"
    ):
        required(InferSettings(1_500)).require()


def test_the_cost_comes_first(
    corpus_path: Path, invoke: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "_MANY_TOPICS", 3)
    assert invoke("scan", corpus_path, tmp_path / "s", "--max-topics", "3").code == 0
    said = invoke("infer", tmp_path / "s", tmp_path / "m", "--topics", "3")
    assert said.code == 0
    assert said.err.startswith("K = 3 of ")

    def scanned(*_: object, **__: object) -> None:
        raise InputError("the scan begins here")

    monkeypatch.setattr(fitting, "scan", scanned)
    lines = invoke("fit", corpus_path, tmp_path / "f", "--topics", "3").err.splitlines()
    assert lines[0].startswith("K = 3 of ")
    assert lines[-1] == "error: the scan begins here"
