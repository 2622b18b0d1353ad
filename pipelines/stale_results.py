"""List published results that are older than the code they measure.

    python -m pipelines.stale_results [FOLDER]

Every experiment writes NAME.json next to its tables, with hashes of the modules that its script imports. Results in
docs/results (or FOLDER) whose hashes differ from those of this checkout are listed with their commit and the groups of
modules that changed. Comments and docstrings do not count.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pipelines.common.provenance import ROOT, code_hashes


def changed_groups(record: dict[str, Any], root: Path = ROOT) -> list[str]:
    """Groups of modules that differ from the record; a script that no longer exists counts as changed."""
    now = code_hashes(record["entry"], root)
    return sorted({name for code in record["code"] for name, known in code.items() if now.get(name) != known})


@click.command(help=__doc__)
@click.argument(
    "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=ROOT / "docs" / "results"
)
def main(folder: Path) -> None:
    found = [path for path in sorted(folder.rglob("*.json")) if path.with_suffix(".md").exists()]
    for path in found:
        record = json.loads(path.read_text())
        changed = changed_groups(record)
        if changed:
            click.echo(
                f"{path.relative_to(folder).with_suffix('')} ({record['commit']}): {', '.join(changed)}"
            )
    click.echo(f"{len(found)} results read from {folder.name}", err=True)


if __name__ == "__main__":
    main()
