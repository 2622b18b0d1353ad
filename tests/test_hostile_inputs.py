"""Files and machines that are not as they should be: one line, the right exit code, no file but those named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

from streaming_jsmf import InputError, StoreError, documents_of_topic, ingest, open_corpus
from streaming_jsmf.documents.share_files import ABOUT_NAME
from streaming_jsmf.documents.shares import About, ShareTotals
from streaming_jsmf.ingestion.ingest import IngestRequest
from streaming_jsmf.ingestion.sources.listing import find_files, list_files
from streaming_jsmf.ingestion.sources.protocol import limits
from streaming_jsmf.ingestion.sources.streams import bare_suffix, is_compressed
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, read_record, write_record
from streaming_jsmf.linalg import compiled
from tests import outcomes
from tests.corpora import planted, write_corpus, write_lists
from tests.outcomes import Command, called, printed, refused
from tests.processes import SOURCE, ended, finished
from tests.readers import BY_NAME, documents

READ = ("--scheduler", "synchronous", "--min-tokens", "0", "--min-distinct-words", "0")


@pytest.fixture
def refuse_ingest(invoke: Command, tmp_path: Path) -> Callable[..., None]:
    """Require that an ingest ends with one line about the file, and leaves nothing."""

    def call(source: Path, *parts: str, options: tuple[object, ...] = ()) -> None:
        outcomes.refused(invoke("ingest", source, tmp_path / "made", *READ, *options), 2, *parts)
        assert not list(tmp_path.glob("made*"))

    return call


def test_codes_that_a_dictionary_lacks(tmp_path: Path, refuse_ingest: Callable[..., None]) -> None:
    words = ["a", "b", "c", "a", "b", "c", "a", "b"]
    table = pa.table({"document": [1] * 8, "word": words, "count": [1] * 8})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, compression="none", use_dictionary=["word"], data_page_version="1.0")
    data = path.read_bytes()
    # Bit width 2, one run of eight: 0 1 2 0, 1 2 0 1.
    codes = bytes([2, 3, 0b00100100, 0b01001001])
    assert data.count(codes) == 1
    path.write_bytes(data.replace(codes, bytes([2, 3, 0b00100100, 0b11111111])))
    refuse_ingest(path, "t.parquet", "it cannot be read as Parquet", options=("--reader", "triples"))


def test_a_spec_of_brackets(tmp_path: Path, refuse_ingest: Callable[..., None]) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text("x = " + "[" * 5000 + "]" * 5000)
    refuse_ingest(spec, "s.toml is not valid TOML")


def test_a_header_costs_nothing(tmp_path: Path, refuse_ingest: Callable[..., None], invoke: Command) -> None:
    """Of a wrong digit in the number of documents."""
    (tmp_path / "x").mkdir()
    path = tmp_path / "x" / "docword.t.txt"
    (path.parent / "vocab.t.txt").write_text("word\n")
    path.write_text("20000000\n1\n1\n1 1 1\n")
    refuse_ingest(path, "it declares 20000000 documents and 1 counts")
    path.write_text("1000\n1\n1\n1 1 1\n")
    assert invoke("ingest", path, tmp_path / "made", *READ, "--stop-words", "none").code == 0
    assert open_corpus(tmp_path / "made").n_documents == 1000


@pytest.mark.parametrize(
    "line",
    [
        "scan c ODD --max-topics 2",
        "ingest ODD made",
        "simulate ODD --documents 9 --vocabulary-size 9 --topics 2",
        "fit c ODD --topics 2",
        "info ODD",
        "topics ODD",
        "transform m c ODD",
    ],
)
def test_names_that_are_not_utf_8(line: str, tmp_path: Path, invoke: Command, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "c", planted(60, 20, 2).counts)
    said = invoke(*line.replace("ODD", os.fsdecode(b"m\xff")).split())
    assert said.code == 2, said.err
    assert "m\\udcff: " in said.err
    assert "not UTF-8" in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


def test_colons_in_a_path(tmp_path: Path, invoke: Command) -> None:
    folder = tmp_path / "a::b"
    source = BY_NAME["text-csv"].write(folder, documents(), ".gz")
    assert (bare_suffix(str(source)), is_compressed(str(source))) == (".csv", True)
    assert list_files(folder) == (str(source),)
    assert invoke("ingest", folder, tmp_path / "x::y", *READ).code == 0
    assert invoke("scan", tmp_path / "x::y", tmp_path / "m::n", "--max-topics", "2").code == 0
    assert invoke("info", tmp_path / "m::n").code == 0
    zipped = BY_NAME["zip"].write(folder, documents())
    said = invoke("ingest", zipped, tmp_path / "z", "--member", "a", "--reader", "text")
    assert said.code == 2
    assert "the path has ::" in said.err


def test_a_shard_with_other_counts_and_the_same_size(tmp_path: Path, invoke: Command) -> None:
    def corpus(count: int) -> Path:
        folder = tmp_path / f"c{count}"
        folder.mkdir()
        write_lists(folder / "a.parquet", [[0, 1, 2]] * 40, [[1, 1, count]] * 40)
        (folder / "vocab.txt").write_text("one\ntwo\nthree\n")
        assert invoke("ingest", folder, tmp_path / f"made{count}", *READ, "--stop-words", "none").code == 0
        return tmp_path / f"made{count}" / "documents" / "part-00000.parquet"

    shard = corpus(3)
    others = (corpus(count) for count in range(4, 20))
    other = next(path for path in others if path.stat().st_size == shard.stat().st_size)
    root = shard.parents[1]
    scan = ("scan", root, tmp_path / "m", "--max-topics", "2", "--scheduler", "synchronous")
    assert invoke("info", root, "--verify").code == 0
    shutil.copy(other, shard)
    # The footer agrees with the manifest, so only who reads the documents can tell.
    assert invoke("info", root).code == 0
    for said in (invoke("info", root, "--verify"), invoke(*scan)):
        assert said.code == 3, said.err
        assert "part-00000.parquet has sha256" in said.err
        assert "restore it" in said.err
    shutil.rmtree(tmp_path / "m", ignore_errors=True)
    manifest = other.parents[1] / "manifest.json"
    digest = '"sha256": "'
    text = manifest.read_text()
    at = text.index(digest) + len(digest)
    manifest.write_text(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :])
    assert invoke("scan", other.parents[1], tmp_path / "m4", *scan[3:]).code == 3


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (pq, "ParquetFile", pa.ArrowMemoryError("malloc of size 1024 failed")),
        (threading.Thread, "start", RuntimeError("can't start new thread")),
    ],
)
def test_the_machine_is_not_the_data(
    owner: Any, name: str, error: Exception, tmp_path: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scarce(*_: Any, **__: Any) -> None:
        raise error

    corpus = write_corpus(tmp_path / "c", planted(60, 20, 2).counts)
    pq.write_table(pa.table({"word": [f"w{i}" for i in range(20)]}), corpus / "vocabulary.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, scarce)
        said = invoke("info", corpus)
    assert said.code == 2
    assert "memory, threads or open files" in said.err
    assert str(error) in said.err
    assert "restore" not in said.err


def test_functions_are_compiled_without_a_cache(caplog: pytest.LogCaptureFixture) -> None:
    held: dict[str, Any] = {}
    exec(compile("def f(x):\n    return x + 1\n", "/nowhere/f.py", "exec"), held)
    compiled._warn_once.cache_clear()
    made = [compiled.compiled(nogil=True)(held["f"]) for _ in range(2)]
    assert [function(1) for function in made] == [2, 2]
    [record] = caplog.records
    assert "NUMBA_CACHE_DIR" in record.getMessage()


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["NUMBA_NUM_THREADS=0", "NUMBA_DISABLE_JIT=1"])
def test_settings_of_numba_that_leave_nothing_to_compute_with(setting: str, tmp_path: Path) -> None:
    name, value = setting.split("=")
    write_corpus(tmp_path / "c", planted(200, 30, 3).counts)
    fit = (sys.executable, "-m", "streaming_jsmf", "fit", "c", "m", "--topics", "3")
    finished(fit, folder=tmp_path, **{name: value})
    in_python = (
        "import streaming_jsmf as sj\ntry: sj.fit('c', 'n', 3)\nexcept sj.InputError as error: print(error)"
    )
    done = ended((sys.executable, "-c", in_python), folder=tmp_path, **{name: value})
    assert done.out.count("\n") == 1, done
    assert name in done.out


#: Root may write everywhere, but for what it may do as root.
BOUND = [] if os.geteuid() else ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


@pytest.mark.slow
@pytest.mark.skipif(
    bool(BOUND) and shutil.which("setpriv") is None, reason="root needs setpriv to be bound by rights"
)
def test_a_user_without_a_home_and_an_installation_that_is_read_only(tmp_path: Path) -> None:
    corpus, installed = write_corpus(tmp_path / "c", planted(200, 30, 3).counts), tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(SOURCE) / "streaming_jsmf", installed / "streaming_jsmf", ignore=ignored)
    work = tmp_path / "work"
    work.mkdir()
    for folder in (path for path in installed.rglob("*") if path.is_dir()):
        folder.chmod(0o555)
    done = subprocess.run(
        [*BOUND, sys.executable, "-m", "streaming_jsmf", "fit", str(corpus), "model", "--topics", "3"],
        cwd=work,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(installed), "HOME": "/dev/null"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1
    assert not list(installed.rglob("*.nbi"))
    assert sorted(path.name for path in work.iterdir()) == ["model", "model.moments"]


#: Runs command lines in this process, and prints their exit codes and last messages.
COMMANDS_OF = """
import json, sys
from tests.outcomes import called
outcomes = [called(*line) for line in json.loads(sys.argv[1])]
print(json.dumps([(done.code, done.err.splitlines()[-1:]) for done in outcomes]))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    bool(BOUND) and shutil.which("setpriv") is None, reason="root needs setpriv to be bound by rights"
)
def test_a_folder_or_file_that_may_not_be_read_is_named_and_never_left_out(tmp_path: Path) -> None:
    source, model, locked = tmp_path / "source", tmp_path / "model", tmp_path / "source" / "b" / "c"
    locked.mkdir(parents=True)
    draw, syllables = np.random.default_rng(0), [f"{a}{b}ip" for a in "bcdfg" for b in "aeiou"]
    for number in range(90):
        folder = locked if number % 3 else source / "b"
        (folder / f"{number}.txt").write_text(" ".join(draw.choice(syllables, 20)))
    assert called("fit", source, model, "--topics", 2, "--max-df", "100%", "--workers", 1).code == 0
    copy = shutil.copytree(tmp_path / "model.corpus", tmp_path / "copy")
    table = tmp_path / "table.csv"
    table.write_text("text\na ship\n")
    (tmp_path / "fine.csv").write_text("text\n" + "a ship sails the sea\na storm\n" * 9)
    (tmp_path / "out").mkdir()
    outside, out = tmp_path / "outside", tmp_path / "out"
    shutil.copytree(model, outside / "model")
    for path, mode in ((locked, 0), (copy / "documents", 0), (table, 0), (outside, 0o300)):
        path.chmod(mode)
    lines: dict[tuple[object, ...], Path | None] = {
        ("ingest", source, out / "1"): locked,
        ("ingest", f"{source}/**/*.txt", out / "2"): locked,
        ("ingest", f"{source}/*/*/*.txt", out / "3"): locked,
        ("ingest", locked / "1.txt", out / "4"): locked / "1.txt",
        ("ingest", source, out / "5", "--reader", "text-files", "--on-bad-record", "quarantine"): locked,
        ("ingest", table, out / "6", "--on-bad-record", "quarantine"): table,
        ("update", model, source): locked,
        ("transform", model, source, out / "7"): locked,
        ("scan", copy, out / "8"): copy / "documents",
        ("ingest", tmp_path / "fine.csv", copy, "--overwrite", "--max-df", "100%"): copy / "documents",
        ("topics", outside / "model"): None,  # its folder may not be listed, and need not be
        ("info", outside / "model"): None,
    }
    asked = json.dumps([[*map(str, line)] for line in lines])
    line = [*BOUND, sys.executable, "-c", COMMANDS_OF, asked]
    try:
        done = subprocess.run(line, cwd=SOURCE, capture_output=True, text=True, check=False)
    finally:
        for path in (locked, copy / "documents", outside):
            path.chmod(0o755)
    assert done.returncode == 0, done.stderr
    for (asked_for, named), (code, said) in zip(lines.items(), json.loads(done.stdout), strict=True):
        if named is None:
            assert code == 0, (asked_for, said)
        else:
            assert (code, named.name in said[0], "Permission denied" in said[0]) == (2, True, True), (
                asked_for,
                said,
            )
    assert not list(out.iterdir())


def test_what_vanishes_or_leads_nowhere_in_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.txt").write_text("a ship\n")
    for name, target, said in (
        ("nowhere.txt", "none", "nowhere.txt: No such file or directory"),
        ("loop", "loop", "loop: Too many levels of symbolic links"),
        ("linked", "a", "linked links to a folder, which is not followed"),
    ):
        (tmp_path / name).symlink_to(target)
        for source in (tmp_path, f"{tmp_path}/**"):
            refused(
                called("ingest", source, tmp_path.parent / "c", "--workers", 1).without_progress(), 2, said
            )
        (tmp_path / name).unlink()
    (tmp_path / "b").mkdir()
    listed = LocalFileSystem.ls

    def ls(fs: LocalFileSystem, path: str, **options: Any) -> Any:
        if path == str(tmp_path / "b"):
            (tmp_path / "b").rmdir()  # by another process, after it was found
        return listed(fs, path, **options)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    assert [*find_files(tmp_path)] == [str(tmp_path / "a" / "1.txt")]


class Locked(MemoryFileSystem):
    """A file system like those that have only ``ls`` and ``info``; it fails below "locked" as its ``error`` says."""

    protocol = "locked"
    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    find = AbstractFileSystem.find
    error: ClassVar[Exception]

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        if "locked" in self._strip_protocol(path):
            raise self.error
        return super().ls(path, detail=detail, **options)


@pytest.mark.parametrize(
    "error", [PermissionError("Forbidden"), TimeoutError("no answer"), RuntimeError("500")]
)
@pytest.mark.parametrize("source", ["locked://s", "locked://s/**/*.txt", "locked://s/*/*.txt"])
def test_a_folder_behind_a_url_that_cannot_be_listed_is_the_error(
    source: str, error: Exception, tmp_path: Path
) -> None:
    fsspec.register_implementation("locked", Locked, clobber=True)
    Locked.error = error
    fs = Locked()
    for name in ("s/a/1.txt", "s/locked/2.txt"):
        fs.pipe_file(name, b"a ship")
    refused(called("ingest", source, tmp_path / "c", "--workers", 1), 2, f"cannot open {source}: {error}")


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "file://localhost{}", "FILE:{}", "local://{}"])
def test_urls_of_local_files_are_paths(form: str, tmp_path: Path) -> None:
    write_corpus(tmp_path / "c", planted(60, 9, 2).counts)
    corpus, moments, model = (form.format(tmp_path / name) for name in ("c", "m", "model"))
    assert called("scan", corpus, moments, "--max-topics", 2).code == 0
    assert called("infer", moments, model, "--topics", 2).code == 0
    assert called("topics", model).code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"c", "m", "model"}
    (tmp_path / "a.csv").write_text("text\n" + "a ship on a sea\n" * 20)
    assert find_files(form.format(tmp_path / "a.csv")) == {str(tmp_path / "a.csv"): "a.csv"}


def test_names_like_schemes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("file", "local"):
        Path(name).write_text("a ship\n")
        assert find_files(name) == {str(tmp_path / name): name}
    for given in ("file:x", "file:"):
        refused(called("topics", given), 2, f"{given} is not the URL of a file; write file:///PATH")


# -- Files named in specs and stores: they lie below their directory, and are regular files of bounded size --


SPEC = """
name = "t"
title = "T"
reader = "{reader}"
[source]
url = "https://example.org"
licence = "CC0"
attribution = "nobody"
[source.files]
"{file}" = {{}}
[read]
{options}
[curation]
stop_words = "{stop_words}"
min_tokens = 1
min_distinct_words = 1
"""
DOCWORD = "2\n3\n4\n1 1 2\n1 2 1\n2 2 1\n2 3 5\n"
RATINGS = "user,item,rating\n1,a,3\n1,b,4\n2,a,5\n"
NAMES = "item,name\na,ant\nb,bee\nc,cat\n"
WORDS = "ant\nbee\ncat\n"
NAMED = {"stop_words": "stop.txt", "file": "docword.t.txt", "vocabulary": "vocab.t.txt", "names": "names.csv"}


def _ingested(folder: Path, named: str, place: str) -> None:
    """Ingest a sound source whose spec has the name ``place`` where ``named`` says."""
    at = {**NAMED, named: place}
    reader, options = "docword", f'vocabulary = "{at["vocabulary"]}"'
    if named == "names":
        reader, options, at["file"] = "ratings", f'names = "{at["names"]}"', "ratings.csv"
    spec = folder / "spec" / "t.toml"
    spec.write_text(SPEC.format(reader=reader, options=options, **at))
    ingest(spec, folder / "corpus", IngestRequest(files=folder / "files"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A spec's directory, that of its files, and another one with the same files."""
    for name in ("spec", "files", "elsewhere"):
        (tmp_path / name).mkdir()
    held = {"docword.t.txt": DOCWORD, "vocab.t.txt": WORDS, "ratings.csv": RATINGS, "names.csv": NAMES}
    for name, text in held.items():
        (tmp_path / "files" / name).write_text(text)
        (tmp_path / "elsewhere" / name).write_text(text)
    for name in ("spec", "elsewhere"):
        (tmp_path / name / "stop.txt").write_text("the\n")
    return tmp_path


NAMED_FIELDS = pytest.mark.parametrize("named", NAMED)


def _replaced(path: Path, elsewhere: Path) -> None:
    path.unlink()
    path.symlink_to(elsewhere)


@NAMED_FIELDS
def test_what_a_spec_names_is_read_below_its_directory(folder: Path, named: str) -> None:
    home = folder / ("spec" if named == "stop_words" else "files")
    (home / "deep").mkdir()
    name = NAMED[named]
    if named == "file":  # its word list lies beside it
        (home / "deep" / NAMED["vocabulary"]).write_text(WORDS)
    (home / name).rename(home / "deep" / name)
    (home / "link").symlink_to("deep")
    _ingested(folder, named, f"link/{name}")
    assert (folder / "corpus" / "manifest.json").exists()


@NAMED_FIELDS
@pytest.mark.parametrize(
    "way", ["parent", "absolute", "home", "link", "folder", "device", "pipe", "directory", "large"]
)
def test_what_a_spec_names_does_not_leave_its_directory(
    folder: Path, named: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, name = folder / ("spec" if named == "stop_words" else "files"), NAMED[named]
    monkeypatch.setenv("HOME", str(folder / "elsewhere"))
    monkeypatch.setattr(limits, "LARGEST_NAMES", 100)
    place, path = name, home / name
    if way == "parent":
        place = f"../elsewhere/{name}"
    elif way == "absolute":
        place = str(folder / "elsewhere" / name)
    elif way == "home":
        place = f"~/{name}"
    elif way == "link":
        _replaced(path, folder / "elsewhere" / name)
    elif way == "folder":
        (home / "deep").symlink_to(folder / "elsewhere")
        place = f"deep/{name}"
    elif way == "device":
        _replaced(path, Path("/dev/null"))
    elif way == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif way == "directory":
        path.unlink()
        path.mkdir()
    elif named == "file":
        pytest.skip("files of documents are read in pieces")
    else:
        path.write_text(path.read_text() + "\n" * 100)
    reason = "(leaves|is a link to a file outside|not a regular file|and 100 are allowed)"
    with pytest.raises(InputError, match=reason) as refused:
        _ingested(folder, named, place)
    assert "\n" not in str(refused.value)
    assert not list(folder.glob("corpus*"))


def test_a_part_outside_the_directory_of_shares_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shares"
    folder.mkdir()
    pq.write_table(pa.table({"document_id": [1], "topic_shares": [[1.0]]}), tmp_path / "other.parquet")
    parts = {"../other.parquet": {"documents": 1, "sha256": ""}}
    about = About("", "", "", 1, None, ShareTotals()).fields(columns=["document_id"], parts=parts)
    (folder / ABOUT_NAME).write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"'\.\./other\.parquet' leaves this directory"):
        documents_of_topic(tmp_path / "model", folder, 0)


def test_a_record_without_its_arrays_is_damaged(tmp_path: Path) -> None:
    write_record(tmp_path, "sums-part-a", {"arrays": {}})
    with pytest.raises(StoreError):
        read_record(tmp_path, "sums-part-a", "")


def test_a_record_removes_nothing_outside_of_its_store(tmp_path: Path) -> None:
    """A fold removes the one before, whose arrays are where its record says."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "zarr.json").write_text("{}")
    (tmp_path / "mine").mkdir()
    checkpoints = Checkpoints(tmp_path / "store", "sums", "make it again")
    checkpoints.commit_fold("a", PartialResult({"sum": np.ones(3)}))
    record = read_record(checkpoints.store, "sums-fold-a", "") or {}
    write_record(checkpoints.store, "sums-fold-a", {**record, "attempt": "../../mine"})
    with pytest.raises(InputError, match=r"'\.\./\.\./mine' leaves this directory"):
        checkpoints.commit_fold("b", PartialResult({"sum": np.ones(3)}), folds=["a"])
    assert (tmp_path / "mine").is_dir()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus and its moments."""
    folder = tmp_path_factory.mktemp("simulated")
    printed(
        "simulate", folder / "c", "--documents", 40, "--vocabulary-size", 30, "--topics", 3, "--workers", 1
    )
    printed("scan", folder / "c", folder / "m", "--max-topics", 2, "--workers", 1)
    return folder


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("c/manifest.json", ("info", "c")),
        ("c/vocabulary.parquet", ("scan", "c", "n")),
        ("c/documents/part-00000.parquet", ("scan", "c", "n")),
        ("m/zarr.json", ("infer", "m", "f", "--topics", "2")),
        ("m/word/zarr.json", ("infer", "m", "f", "--topics", "2")),
        ("m/word/c/0", ("infer", "m", "f", "--topics", "2")),  # read by Zarr
    ],
)
@pytest.mark.parametrize("odd", ["fifo", "device"])
def test_a_fifo_or_device_in_a_store_is_not_read(
    file: str, line: tuple[str, ...], odd: str, simulated: Path, tmp_path: Path, invoke: Command
) -> None:
    for name in ("c", "m"):
        shutil.copytree(simulated / name, tmp_path / name)
    place = tmp_path / file
    place.unlink()
    if odd == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    given = [tmp_path / part if part in ("c", "m", "n", "f") else part for part in line]
    refused(invoke(*given).without_progress(), 3, f"{place} is a ", "not a regular file")


@pytest.mark.parametrize("name", ["_shares.json", "part-00000.parquet"])
def test_a_fifo_in_shares_is_not_read(name: str, tmp_path: Path, invoke: Command) -> None:
    os.mkfifo(tmp_path / "fifo")
    refused(invoke("info", tmp_path / "fifo"), 3, f"{tmp_path}/fifo is a named pipe, not a regular file")
    parts = {"part-00000.parquet": {"documents": 1, "sha256": ""}}
    about = About("", "", "", 1, None, ShareTotals()).fields(columns=["document_id"], parts=parts)
    (tmp_path / ABOUT_NAME).write_text(json.dumps(about))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    refused(invoke("documents", tmp_path / "model", tmp_path), 3, f"{tmp_path / name} is a named pipe")
