"""The documentation as a site: ``python -m sphinx -W --keep-going docs site`` (needs the extra ``docs``).

Pages are Markdown, the Python pages come from docstrings and the pages of the commands from the commands themselves, so
that none of them can fall behind the code.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import streaming_jsmf

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
exclude_patterns = ["_build", "schemas"]

html_theme = "furo"
html_title = "streaming-jsmf"
html_static_path: list[str] = []

# Notebooks are run by the tests; their pages show the code and the words around it.
nb_execution_mode = "off"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
# pydantic's own members are no part of the settings.
autodoc_default_options = {
    "members": True,
    "exclude-members": "model_config,model_fields,model_computed_fields,model_post_init",
}


def copy_notebooks(_app: object) -> None:
    """Notebooks live beside the package, and pages below ``docs``."""
    target = HERE / "notebooks"
    target.mkdir(exist_ok=True)
    for notebook in sorted((HERE.parent / "notebooks").glob("*.ipynb")):
        shutil.copyfile(notebook, target / notebook.name)


def setup(app: object) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", copy_notebooks)  # type: ignore[attr-defined]
