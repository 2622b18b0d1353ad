"""Type checkers know the public functions with their settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.stub import STUB, stub


def test_the_stub_is_as_generated() -> None:
    assert STUB.read_text(encoding="utf-8") == stub(), "run python -m tests.stub --write"


@pytest.mark.slow
def test_mypy_refuses_an_unknown_setting_and_a_wrong_type(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import streaming_jsmf as sj\n"
        "sj.fit(['a b'], 'model', 3, min_df=5, random_state=1, scheduler='threads')\n"
        "sj.fit(['a b'], num_topics=3)\n"
        "sj.scan('corpus', 'moments', range_finder='sampled')\n"
        "sj.fit(['a b'], 'models', [3, 5]).n_topics\n"
        "sj.fit(['a b'], 'model', 3).update('c d', text='body', steps=9, workers=2)\n"
        "sj.fit(['a b'], 'model', 3).update('c d', num_topics=3)\n"
        "sj.TopicModel('model').transform('c d', top='three')\n"
    )
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--ignore-missing-imports", str(script)]
    lines = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout.splitlines()
    refused = [line.split(":")[1] for line in lines if ": error:" in line]
    assert list(dict.fromkeys(refused)) == ["3", "4", "5", "7", "8"], lines
