"""The verb ``scan``."""

from __future__ import annotations

from typing import Any

import click

from streaming_jsmf.cli.verb import option, options_of, path, verb
from streaming_jsmf.config import ScanSettings

CHANGES = "Changing an existing store"


@verb(
    "streaming-jsmf scan CORPUS MOMENTS --max-topics 100",
    "streaming-jsmf scan CORPUS MOMENTS --add MORE",
    summary=True,
)
@click.argument("corpus")
@path("moments")
@options_of(ScanSettings)
@option("--remove", group=CHANGES, multiple=True, metavar="SHARD_OR_CORPUS",
        help="Remove a corpus or a shard (may be repeated).")  # fmt: skip
@option("--add", group=CHANGES, multiple=True, metavar="CORPUS2",
        help="Add a corpus with the same words (may be repeated).")  # fmt: skip
@option("--merge", group=CHANGES, multiple=True, type=click.Path(), metavar="MOMENTS2",
        help="Merge another store; words are matched by name (may be repeated).")  # fmt: skip
@option("--rebase", group=CHANGES, is_flag=True,
        help="After --add: compute the basis from all documents and scan again.")  # fmt: skip
@option("--overwrite", is_flag=True,
        help="Replace a moments store of another corpus or with other settings; it is removed first.")  # fmt: skip
def scan(
    corpus: str,
    moments: str,
    remove: tuple[str, ...] = (),
    add: tuple[str, ...] = (),
    merge: tuple[str, ...] = (),
    rebase: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Scan CORPUS into the moments store MOMENTS.

    The same command completes an interrupted scan and recomputes damaged parts.

    --remove, --add, --merge and --rebase change an existing store; CORPUS is one of its corpora.
    """
    from streaming_jsmf.moments.changes import Changes
    from streaming_jsmf.moments.scan import scan as run

    run(corpus, moments, changes=Changes(remove, add, merge, rebase=rebase), **options)
    return {"moments": moments}
