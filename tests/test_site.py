"""The documentation builds as a site, and no link within it is broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import streaming_jsmf

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "-q",
        str(DOCS),
        str(site),
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr

    commands = (site / "cli.html").read_text()
    assert all(f'id="streaming-jsmf-{verb}"' in commands for verb in ("fit", "scan", "infer", "transform"))
    assert "streaming_jsmf.scan" in (site / "api.html").read_text()


def test_every_page_is_in_the_contents() -> None:
    listed = set((DOCS / "index.md").read_text().split())
    pages = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert pages <= listed, f"not in docs/index.md: {sorted(pages - listed)}"


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((DOCS.parent / "CITATION.cff").read_text())
    assert citation["version"] == streaming_jsmf.__version__
    assert {reference["year"] for reference in citation["references"]} == {2014, 2015, 2021}
