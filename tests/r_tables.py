"""CSV as R's ``read.csv`` reads it without arguments, and what a table must be to need no conversion there."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path

#: Names that R leaves as they are, unless they are words of the language.
SYNTACTIC = re.compile(r"(?:[^\W\d_]|\.(?!\d))[\w.]*")
RESERVED = {
    "if",
    "else",
    "repeat",
    "while",
    "function",
    "for",
    "next",
    "break",
    "TRUE",
    "FALSE",
    "NULL",
    "Inf",
    "in",
}
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*|NaN|-?Inf")
_LOGICAL = frozenset(("T", "F", "TRUE", "FALSE", "true", "false", "True", "False"))

#: Prints the names and types of the columns, and the numbers of rows and of missing values.
_SCRIPT = """
found <- read.csv(commandArgs(TRUE)[1])
kinds <- sapply(found, function(column) paste(class(column)[1], sum(is.na(column)), sep = "\\t"))
cat(nrow(found), paste(names(found), kinds, sep = "\\t"), sep = "\\n")
"""

#: Type of each column of a table and its number of missing values, by name.
Columns = dict[str, tuple[str, int]]


def read_by_rules(text: str) -> Columns:
    """The columns of a table by the rules of ``read.csv``; fails if R would change names, or read no table."""
    header, *rows = csv.reader(text.splitlines(keepends=True))
    for name in header:
        assert SYNTACTIC.fullmatch(name), f"R would change the name {name!r}"
        assert name not in RESERVED
    assert len({*header}) == len(header)
    assert {*map(len, rows)} == {len(header)}, "rows of other lengths"
    return {name: _type(values) for name, *values in zip(header, *rows, strict=True)}


def _type(values: list[str]) -> tuple[str, int]:
    """Type and number of missing values; those of texts are empty, which R keeps."""
    missing = sum(value == "NA" for value in values)
    known = [value for value in values if value not in ("", "NA")]
    if not known:
        return "logical", len(values)
    if {*known} <= _LOGICAL:
        return "logical", missing + values.count("")
    if all(map(_NUMBER.fullmatch, known)):
        whole = all(re.fullmatch(r"\s*[+-]?\d{1,9}\s*", value) for value in known)
        return "integer" if whole else "numeric", missing + values.count("")
    assert not any(value.startswith("'") for value in known), "an apostrophe for spreadsheets; use --raw"
    return "character", missing


def require_r_reads(text: str, folder: Path, **types: str) -> Columns:
    """Check that a table opens in R as it is, with columns of these types; with R itself where it is installed."""
    found = read_by_rules(text)
    assert {name: found[name][0] for name in types} == types
    if program := shutil.which("Rscript"):
        (folder / "table.csv").write_text(text, encoding="utf-8", newline="")
        command = [program, "--vanilla", "-e", _SCRIPT, str(folder / "table.csv")]
        environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, env=environment)
        assert done.returncode == 0, done.stderr
        rows, *told = done.stdout.splitlines()
        assert int(rows) == len(list(csv.reader(text.splitlines(keepends=True)))) - 1
        columns = {name: (kind, int(missing)) for name, kind, missing in (line.split("\t") for line in told)}
        assert columns == found, json.dumps([columns, found])
    return found
