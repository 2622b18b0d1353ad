"""What is at a path, and the error of every function that finds something else there than it takes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from upath import UPath

from streaming_jsmf.display import location, printable
from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.local import CHECK_OR_LIST, require_regular
from streaming_jsmf.storage.paths import (
    LAST_FILES,
    MARK,
    ROOT,
    AnyPath,
    child_names,
    exists,
    is_file,
    is_url,
    join,
    open_file,
    read_bytes,
    similar_names,
)

CORPUS, MOMENTS, MODEL, SHARES = "a corpus", "a moments store", "a model", "topic shares"
SOURCE, MODELS = "documents", "a folder of models"
_FILES = ("a file", "a folder")

#: Kinds in the attributes of Zarr groups.
_KINDS = {"streaming_jsmf.moments": MOMENTS, "streaming_jsmf.model": MODEL, "streaming_jsmf.shares": SHARES}

#: The command that makes what is wanted; and that makes it, or the next thing, of what is there.
_COMMANDS = {
    CORPUS: "streaming-jsmf ingest SOURCE CORPUS",
    MOMENTS: "streaming-jsmf scan CORPUS MOMENTS",
    MODEL: "streaming-jsmf fit SOURCE MODEL --topics 20",
    SHARES: "streaming-jsmf transform MODEL SOURCE SHARES.parquet",
}
_COMMANDS_OF = {
    (_FILES, CORPUS): (CORPUS, "streaming-jsmf ingest {} CORPUS"),
    (_FILES, MODEL): (MODEL, "streaming-jsmf fit {} MODEL --topics 20"),
    (_FILES, SHARES): (SHARES, "streaming-jsmf transform MODEL {} SHARES.parquet"),
    (CORPUS, MOMENTS): (MOMENTS, "streaming-jsmf scan {} MOMENTS"),
    (CORPUS, MODEL): (MODEL, "streaming-jsmf fit {} MODEL --topics 20"),
    (CORPUS, SHARES): (SHARES, "streaming-jsmf transform MODEL {} SHARES.parquet"),
    (MOMENTS, MODEL): (MODEL, "streaming-jsmf infer {} MODEL --topics 20"),
    (MOMENTS, SOURCE): (MODEL, "streaming-jsmf infer {} MODEL --topics 20"),
    (MODEL, SHARES): (SHARES, "streaming-jsmf transform {} SOURCE SHARES.parquet"),
}

#: Starts of files that are no documents, and what they are.
_HEADS = {b"<!doctype html>\n<!-- streaming-jsmf report": "a report"}
_SHARES_IN_PARQUET = b"streaming_jsmf.sha256"


def is_at(place: AnyPath | UPath) -> str:
    """What is at a path: one of the kinds above, or other words; "" for nothing."""
    if not exists(place):
        return ""
    if is_file(place):
        return _of_file(place)
    names = {*child_names(place)}
    if ROOT in names:
        try:
            kind = json.loads(read_bytes(_below(place, ROOT)))["attributes"]["kind"]
        except (ValueError, LookupError, TypeError):
            kind = None
        return _KINDS.get(kind, "a Zarr group of another program")
    if LAST_FILES[1] in names:
        return CORPUS
    if LAST_FILES[2] in names:
        return SHARES
    # Partitions of a data set have such names, too.
    models = [n for n in names if re.fullmatch("k=[0-9]+", n) and exists(_below(place, f"{n}/{ROOT}"))]
    if models:
        models.sort(key=lambda name: (len(name), name))
        return f"{MODELS} of several K ({', '.join(models)})"
    return "an unfinished result" if MARK in names else "a folder" if names else "an empty folder"


def _below(place: AnyPath | UPath, name: str) -> Any:
    return place / name if isinstance(place, Path | UPath) else join(str(place), name)


def _of_file(place: AnyPath | UPath) -> str:
    if not is_url(place):
        require_regular(Path(str(place)))
    with open_file(place) as stream:
        head = stream.read(64)
        if head[:4] == b"PAR1":
            stream.seek(-min(stream.seek(0, 2), 1 << 16), 2)
            return SHARES if _SHARES_IN_PARQUET in stream.read() else "a file"
    return next((what for start, what in _HEADS.items() if head.startswith(start)), "a file")


def unsuitable(place: AnyPath | UPath, wanted: str, there: str | None = None) -> InputError:
    """The error of a path at which nothing is, or something else than ``wanted``; names the command that helps.

    ``wanted`` is one of the kinds above, or a text that begins with it; ``there`` is what is there, if it is known.
    """
    there = is_at(place) if there is None else there
    shown = printable(location(str(place)))
    kind = next((each for each in (*_COMMANDS, SOURCE) if wanted.startswith(each)), "")
    made = f" ({_COMMANDS[kind]} makes {kind})" if kind in _COMMANDS else ""
    if not there:
        name = shown.rsplit("/", 1)[-1]
        may_be_text = len(name.split()) > 1 and not re.search(r"\.\w+$", name)
        advice = similar_names(place) or (CHECK_OR_LIST if may_be_text else "check the path")
        return InputError(f"{shown}: no such file or directory; {advice}{made}")
    product, command = _COMMANDS_OF.get((_FILES if there in _FILES else there, kind), ("", ""))
    if command:
        advice = f"{command.format(shlex.quote(shown))} makes {product} of it"
    elif kind == MODEL and there.startswith(MODELS):
        advice = f"give one of them, such as {shown}/{there.partition('(')[2].rstrip(')').partition(',')[0]}"
    else:
        advice = f"give {'texts, a table or a corpus' if kind == SOURCE else wanted}{made}"
    return InputError(f"{shown} {_verb(there)} {there}, not {wanted}; {advice}")


def taken(place: AnyPath | UPath, wanted: str) -> InputError:
    """The error of a path for a result at which something else is."""
    shown = printable(location(str(place)))
    there = is_at(place)
    return InputError(f"{shown} {_verb(there)} {there}, not {wanted}, and is not replaced; give another path")


def _verb(there: str) -> str:
    return "has" if there == SHARES else "is"
