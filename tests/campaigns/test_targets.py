"""Every output against every file of every store: only results of the same kind are replaced."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import zarr

import streaming_jsmf as sj
from streaming_jsmf.simulation import simulate_lda
from tests.corpora import file_bytes
from tests.outcomes import Command
from tests.results import SCAN, write_stores

QUIET = ("--scheduler", "synchronous", "--quiet")

#: Commands that write to TARGET, and the kind of what they write.
VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ingest": ("corpus", ("ingest", "texts.jsonl", "TARGET", "--preset", "papers", *QUIET)),
    "simulate": (
        "simulated",
        ("simulate", "TARGET", "--documents", "60", "--vocabulary-size", "30", "--topics", "3", *QUIET),
    ),
    "scan": ("moments", ("scan", "a", "TARGET", "--max-topics", "4", *QUIET)),
    "infer": ("model", ("infer", "m", "TARGET", "--topics", "2")),
    "fit": ("model", ("fit", "a", "TARGET", "--topics", "2", "--moments", "m", *QUIET)),
    "polish": ("model", ("polish", "model", "a", "TARGET", "--steps", "8", *QUIET)),
    "transform": ("shares", ("transform", "model", "a", "TARGET", "--top", "2", *QUIET)),
    "report": ("report", ("report", "model", "TARGET", "--words", "4")),
    "documents": ("table", ("documents", "model", "s.parquet", "--topic", "1", "--out", "TARGET")),
    "log": ("log", ("scan", "a", "m", *SCAN, "--log-json", "TARGET")),
    "choose-k": ("", ("choose-k", "a", "--topics", "2,3", "--replicas", "0", "--out", "TARGET", *QUIET)),
}

#: The kind of each result in the folder; everything else belongs to the user or is a part of a result.
KINDS = {
    "c": "corpus",
    "sim": "simulated",
    "m": "moments",
    "model": "model",
    "s.parquet": "shares",
    "s.zarr": "shares",
    "s": "shares",
    "s.csv": "shares",
    "page.html": "report",
    "t.csv": "table",
    "t.parquet": "table",
    "log.jsonl": "log",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, one = write_stores(tmp_path_factory.mktemp("targets")), sj.Execution("synchronous")
    sj.ingest(folder / "texts.jsonl", folder / "c", min_tokens=1, execution=one)
    simulate_lda(folder / "sim", n_documents=50, n_words=30, n_topics=3)
    sj.evaluate(folder / "model", corpus=folder / "a", replicas=0)
    sj.TopicModel(folder / "model").label(0, "name")
    for name in ("s.parquet", "s.zarr", "s", "s.csv"):
        sj.transform(folder / "model", folder / "a", folder / name)
    sj.report(folder / "model", folder / "page.html")
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("years")
    (folder / "pages").mkdir()
    (folder / "pages" / "choose-k.html").write_text("of others")
    (folder / "mine.csv").write_text("document_id,score\n1,2\n")
    (folder / "notes.jsonl").write_text(json.dumps({"time": 1}) + "\n")
    zarr.create_group(store=folder / "mine.zarr", attributes={"kind": "of others"})
    return folder


def targets(folder: Path) -> list[str]:
    """Files and directories at the top, and for each directory of a result one file of each name and suffix."""
    found = sorted(path.name for path in folder.iterdir())
    for place in (path for path in sorted(folder.iterdir()) if path.is_dir()):
        kinds = {
            (path.name if path.suffix == ".json" else path.suffix, path.is_dir()): path
            for path in sorted(place.rglob("*"))
        }
        found += [str(path.relative_to(folder)) for path in kinds.values()]
    return found


def fault(verb: str, target: str, folder: Path, invoke: Command) -> str:
    """Run a command, and describe what it has changed but must not; empty if nothing."""
    kind, command = VERBS[verb]
    overwrite = ("--overwrite",) if verb != "log" else ()
    before = file_bytes(folder)
    done = invoke(*(target if word == "TARGET" else word for word in command), *overwrite)
    after = file_bytes(folder)
    changed = {name for name, data in before.items() if after.get(name) != data}
    own = target if KINDS.get(target) in {kind, *(["simulated"] if kind == "corpus" else [])} else None
    strange = {name for name in changed if own is None or not f"{name}/".startswith(f"{own}/")}
    if strange:
        return f"changed {sorted(strange)[:3]}, exit code {done.code}: {done.err[-200:]}"
    if done.code not in (0, 2, 3) or "Traceback" in done.err:
        return f"exit code {done.code}: {done.err[-400:]}"
    if done.code and after != before:
        return f"left {sorted(after.keys() - before.keys())[:3]}, exit code {done.code}: {done.err[-200:]}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_only_results_of_the_same_kind_are_replaced(
    verb: str, made: Path, tmp_path: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, wrong = tmp_path / "f", {}
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    for name in ("t.csv", "t.parquet"):
        assert invoke("documents", "model", "s.parquet", "--topic", "1", "--out", name).code == 0
    assert invoke("scan", "a", "m", *SCAN, "--log-json", "log.jsonl").code == 0
    whole = shutil.copytree(folder, tmp_path / "whole")
    places = targets(folder)
    for target in places:
        wrong[target] = fault(verb, target, folder, invoke)
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(whole, folder, dirs_exist_ok=True)
    print(f"{verb}: {len(places)} targets")
    assert not any(wrong.values()), "\n".join(f"{target}: {what}" for target, what in wrong.items() if what)
