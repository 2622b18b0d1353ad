"""List published results that are older than the code they measure, and tell whether topics have changed since.

    python -m pipelines.stale_results [FOLDER]

Every experiment writes NAME.json next to its tables, with hashes of the modules that its script imports. Results in
docs/results (or FOLDER) whose hashes differ from those of this checkout are listed with their commit and the groups of
modules that changed. Comments and docstrings do not count. Most changes of the code do not change topics, so the topics
that tests/golden.json had at the commit of a result are compared with those that it has now, through their norms:
"same bits", or the largest difference and its case, where a norm of topics is about 1.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import click

from pipelines.common.provenance import ROOT, code_hashes

GOLDEN = "tests/golden.json"


def changed_groups(record: dict[str, Any], root: Path = ROOT) -> list[str]:
    """Groups of modules that differ from the record; a script that no longer exists counts as changed."""
    now = code_hashes(record["entry"], root)
    return sorted({name for code in record["code"] for name, known in code.items() if now.get(name) != known})


@cache
def since(commit: str | None) -> str:
    """How golden topics have changed since a commit, such as ``same bits``."""
    shown = subprocess.run(["git", "show", f"{commit}:{GOLDEN}"], cwd=ROOT, capture_output=True, check=False)
    if shown.returncode:
        return "unknown, the commit is not in this checkout"
    then, now = (topics_of(text) for text in (shown.stdout, (ROOT / GOLDEN).read_bytes()))
    found = {name: difference(then[name], now[name]) for name in then.keys() & now.keys()}
    name = max(sorted(found), key=found.__getitem__)
    same = sum(then[name]["sha256"] == now[name]["sha256"] for name in found)
    return f"{found[name]:.1g} ({name})" if same < len(found) else "same bits"


def topics_of(text: bytes) -> dict[str, Any]:
    cases = json.loads(text)["cases"]
    return {name: case["word_topic"]["array"] for name, case in cases.items() if "word_topic" in case}


def difference(then: dict[str, Any], now: dict[str, Any]) -> float:
    return max(abs(a - b) for a, b in zip(then["about"], now["about"], strict=True))


@click.command(help=__doc__)
@click.argument(
    "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=ROOT / "docs" / "results"
)
def main(folder: Path) -> None:
    found = [path for path in sorted(folder.rglob("*.json")) if path.with_suffix(".md").exists()]
    for path in found:
        record = json.loads(path.read_text())
        if changed := changed_groups(record):
            topics = since(record["commit"] and record["commit"].rstrip("+"))
            name = path.relative_to(folder).with_suffix("")
            click.echo(
                f"{name} ({record['commit']}), topics since then: {topics}; changed: {', '.join(changed)}"
            )
    click.echo(f"{len(found)} results read from {folder.name}", err=True)


if __name__ == "__main__":
    main()
