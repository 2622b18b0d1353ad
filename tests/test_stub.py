"""Type checkers know the public functions with their settings, and accept what the documentation shows."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import streaming_jsmf as sj
from tests.doc_blocks import blocks
from tests.stub import STUB, stub

#: Other packages are Any, as they are without their stubs; following them would take minutes.
CONFIGURATION = """
[mypy]
allow_redefinition = True
follow_imports = skip
ignore_missing_imports = True
[mypy-streaming_jsmf.*]
follow_imports = silent
"""

#: What an earlier block of a page has, or text around it.
DEFINED = """
from typing import Any, TypeVar
import pandas as pd
import streaming_jsmf as sj
from streaming_jsmf import LRJSMF
class Cluster:
    adapt: Any
    scale: Any
cluster: Cluster
matrix: Any
spark: Any
texts: Any
model: sj.TopicModel
T = TypeVar("T")
"""

OPENED = """
given: list[Any]
def opened(kind: type[T]) -> T:
    return kind(*given)
"""

#: Lines, and whether they are refused.
CALLS = {
    "sj.fit(['a b'], 'model', 3, min_df=5, random_state=1, scheduler='threads')": False,
    "sj.fit(['a b'], num_topics=3)": True,
    "sj.scan('corpus', 'moments', range_finder='sampled')": True,
    "sj.fit(['a b'], 'models', [3, 5]).n_topics": True,
    "sj.fit(['a b'], 'model', 3).update('c d', text='body', steps=9, workers=2)": False,
    "sj.fit(['a b'], 'model', 3).update('c d', num_topics=3)": True,
    "sj.TopicModel('model').transform('c d', top='three')": True,
    "sj.fit(texts, 'model', 3, ngram_range=(1, 2), scheduler=cluster)": False,
    "sj.fit(texts, 'model', 3, ngram_range=(1, 2, 3))": True,
    "sj.scan('corpus', 'moments', scheduler=cluster, memory='4GB')": False,
    "model.documents(texts, topic=0, number=1, text='body', scheduler=cluster)": False,
    "model.documents(topic=0, numbers=1)": True,
    "model.document_map(texts, text='body', number=9)": False,
    "LRJSMF(3, scheduler=cluster, anchor_words=[['ant'], 'bee'], memory='4GB', random_state=None)": False,
    "sj.scan('corpus', 'moments', execution=sj.Execution(cluster, workers=3))": False,
    "LRJSMF(3, max_df=0.5)": True,
    "LRJSMF(3, rectify='en')": True,
    "sj.infer('moments', 'model', 3, rectify='ap').label(0, 'name').topics()": False,
}


def calls_with_an_unknown_option() -> list[str]:
    """A line for each public function, class and method of the package."""
    lines = []
    for name in sj.__all__:
        public: Any = getattr(sj, name)
        if callable(public) and public.__module__.startswith("streaming_jsmf"):
            lines.append(f"sj.{name}(*given, no_such_option=1)")
        for method in dir(public) if inspect.isclass(public) else ():
            found = getattr(public, method)
            module = getattr(found, "__module__", None) or ""
            if (
                inspect.isroutine(found)
                and not method.startswith("_")
                and module.startswith("streaming_jsmf")
            ):
                lines.append(f"opened(sj.{name}).{method}(*given, no_such_option=1)")
    return lines


def errors_of_mypy(folder: Path, files: Mapping[str, Sequence[str]]) -> dict[str, dict[str, list[str]]]:
    """The errors of each line, which are distinct in a file."""
    for name, lines in files.items():
        (folder / f"{name}.py").write_text("\n".join(lines))
    (folder / "mypy.ini").write_text(CONFIGURATION)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-color-output"]
    command += [f"{name}.py" for name in files]
    said = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert not said.stderr, said.stderr
    errors: dict[str, dict[str, list[str]]] = {name: {} for name in files}
    for line in said.stdout.splitlines():
        if found := re.match(r"(\w+)\.py:(\d+): error: (.*)", line):
            text = "\n".join(files[found[1]]).splitlines()[int(found[2]) - 1]
            errors[found[1]].setdefault(text, []).append(found[3])
    return errors


@pytest.mark.slow
def test_mypy_accepts_what_is_documented_and_refuses_unknown_options(tmp_path: Path) -> None:
    """One run for all, because most of its time is that of reading this package."""
    pages: dict[str, list[str]] = {}
    for block in blocks():
        if block.kind == "python":
            name = re.sub(r"\W", "_", block.name.rpartition("-")[0])
            pages.setdefault(name, [DEFINED]).append(block.text)
    unknown = calls_with_an_unknown_option()
    files = {**pages, "calls": [DEFINED, *CALLS], "unknown": [DEFINED, OPENED, *unknown]}
    errors = errors_of_mypy(tmp_path, files)
    assert {name: errors[name] for name in pages if errors[name]} == {}
    assert [call in errors["calls"] for call in CALLS] == [*CALLS.values()], errors["calls"]
    wanted = re.compile('Unexpected keyword argument "no_such_option"')
    accepted = [call for call in unknown if not any(map(wanted.match, errors["unknown"].get(call, ())))]
    assert accepted == []


def test_the_stub_is_as_generated() -> None:
    assert STUB.read_text(encoding="utf-8") == stub(), "run python -m tests.stub --write"
