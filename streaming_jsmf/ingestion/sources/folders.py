"""Metadata in the names of folders."""

from __future__ import annotations

import re
from urllib.parse import unquote

from streaming_jsmf.storage.paths import is_chain

#: A file of an export of Slack: the messages of a day, in the folder of a channel.
_OF_CHANNEL = re.compile(r"(?:^|[/=])([^/=]+)/[0-9]{4}-[0-9]{2}-[0-9]{2}[.]json$")
#: What Hive and Spark write for a missing value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def names_in_folders(root: str, path: str) -> dict[str, str | None]:
    """Return names and values of folders below the source, such as year=1999 as Hive and Spark write them."""
    pairs = (folder.partition("=") for folder in _below(root, path).split("/")[:-1])
    values = {name: unquote(value) for name, equals, value in pairs if name and equals}
    if channel := _OF_CHANNEL.search(_below(root, path)):
        values["channel"] = channel[1]
    return {name: None if value == _NO_VALUE else value for name, value in values.items()}


def _below(root: str, path: str) -> str:
    """The path of a file below its source."""
    source = re.sub(r"/[^/]*[*?[].*", "", root)
    if is_chain(path) and not is_chain(root):
        member, _, archive = path.partition("::")
        return f"{archive.removeprefix(source)}/{member.partition('://')[2]}"
    return path.removeprefix(source) if path.startswith(source) else ""
