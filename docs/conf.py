"""The documentation as a site: ``python -m sphinx -W --keep-going docs site`` (needs the extra ``docs``).

Pages are Markdown. The references of functions, commands and settings are generated from the code.
"""

from __future__ import annotations

import filecmp
import inspect
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docutils import nodes

import streaming_jsmf
from streaming_jsmf import config
from streaming_jsmf.cli.main import COMMANDS
from streaming_jsmf.config.fields import Field, declared_in, type_text

HERE = Path(__file__).parent

project = "streaming-jsmf"
author = "the streaming-jsmf developers"
copyright = "the streaming-jsmf developers"
version = release = streaming_jsmf.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "schemas", "results"]

html_theme = "furo"
html_title = "streaming-jsmf"
html_static_path: list[str] = []

# Notebooks are run again here, whatever outputs are stored (store_notebooks.py); errors fail the build.
nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
# Progress bars, which are widgets here, and messages.
os.environ["TQDM_DISABLE"] = "1"
nb_output_stderr = "remove"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
# pydantic's own members are not settings.
autodoc_default_options = {
    "members": True,
    "exclude-members": "model_config,model_fields,model_computed_fields,model_post_init",
}


def rows_of(fields: Iterable[Field], *, of_readers: bool = False) -> list[str]:
    """A table of settings in Markdown; those of readers with their readers."""
    rows = ["| keyword | option | type and default | |", "|---|---|---|---|"]
    for field in fields:
        options = field.flags or (f"--{field.name.replace('_', '-')}",)
        readers = config.readers_with(field.name) if of_readers else []
        known = f"{', '.join(readers)}: " if 0 < len(readers) < len(config.READER_OPTIONS) else ""
        cells = [
            f"`{field.name}`",
            " ".join(f"`{name}`" for name in options),
            type_text(field),
            known + field.help,
        ]
        rows.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return rows


def settings_tables(_app: object, page: str, source: list[str]) -> None:
    """Generate the reference of all settings from their declarations."""
    if page != "settings":
        return
    lines = []
    for title, verbs, kind in (
        ("Scan", "scan, fit", config.ScanSettings),
        ("Engine lr-jsmf", "infer, fit", config.InferSettings),
        ("Engine stod", "infer, fit", config.StodSettings),
        ("Polish", "polish, fit", config.PolishSettings),
        ("Sources", "ingest, fit", config.IngestRequest),
        ("Curation", "ingest, fit", config.Curation),
        ("Comparing numbers of topics", "choose-k", config.ComparisonRequest),
        ("Evaluation", "evaluate", config.EvaluationRequest),
        ("Topic shares", "transform", config.ShareSettings),
        ("Topics over time", "over-time", config.OverTimeRequest),
        ("Reports", "report, view", config.ReportRequest),
        ("Execution", "all that read documents", config.ExecutionOptions),
    ):
        fields = [field for field in config.declared(kind).values() if field.option]
        lines += [f"## {title}", "", f"`{kind.__name__}`; verbs: {verbs}.", "", *rows_of(fields), ""]
        if kind is config.IngestRequest:
            text = "Options of readers, and keys of `[read]` in specs; verbs: ingest, fit."
            known = declared_in(config.READER_OPTIONS.values()).values()
            options = [field for field in known if field.option]
            lines += ["## Reading", "", text, "", *rows_of(options, of_readers=True), ""]
    source[0] = source[0].replace("<!-- settings -->", "\n".join(lines))


def copy_notebooks(_app: object) -> None:
    """Copy the notebooks below ``docs``; unchanged ones are not run again."""
    target = HERE / "notebooks"
    for source in sorted((HERE.parent / "notebooks").glob("*.*")):
        copy = target / source.name
        if not copy.exists() or not filecmp.cmp(source, copy, shallow=False):
            shutil.copyfile(source, copy)


def command_pages(_app: object) -> None:
    """Write a page for each command, from its help."""
    folder = HERE / "commands"
    folder.mkdir(exist_ok=True)
    for command in COMMANDS:
        module = inspect.getmodule(command.callback)
        name = next(name for name, value in vars(module).items() if value is command)
        page = (
            f"```{{eval-rst}}\n.. click:: {module.__name__}:{name}\n"
            f"   :prog: streaming-jsmf {command.name}\n```\n"
        )
        target = folder / f"{command.name}.md"
        if not target.exists() or target.read_text() != page:  # unchanged pages are not built again
            target.write_text(page)


def add_pictures(app: Any, doctree: nodes.document, page: str) -> None:
    """Add the first figure of each notebook to the gallery."""
    if page != "notebooks/index":
        return
    for section in doctree.findall(nodes.section):
        link = next(iter(section.findall(nodes.reference)), None)
        target = Path(link["refuri"]).stem if link is not None and len(section.parent.children) else None
        if target is None or f"notebooks/{target}" not in app.env.found_docs or section.parent is doctree:
            continue
        picture = next(iter(app.env.get_doctree(f"notebooks/{target}").findall(nodes.image)), None)
        if picture is not None:
            section.append(
                nodes.image(**{**picture.attributes, "width": "24rem", "alt": section[0].astext()})
            )


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", copy_notebooks)
    app.connect("builder-inited", command_pages)
    app.connect("source-read", settings_tables)
    app.connect("doctree-resolved", add_pictures)
