"""No verb writes or prints the password of a URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import fsspec
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.utils import infer_storage_options

from streaming_jsmf import open_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion import steps
from tests.corpora import planted, write_corpus
from tests.outcomes import Command, Outcome, refused
from tests.readers import documents

SECRET = "S3CRET"
HOST = "vault://host"
OPEN = f"vault://user:{SECRET}@host"
LOOSE = ("--min-tokens", "0", "--min-distinct-words", "0", "--duplicates", "keep")
ALONE = ("--scheduler", "synchronous")
FEW = (*ALONE, "--partition-nonzeros", "4000")


class Vault(MemoryFileSystem):
    """Objects behind a login. As with FTP, host and user are in the URL and not in the paths."""

    protocol = "vault"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def __init__(self, host: str = "", username: str = "", password: str = "", **options: Any) -> None:
        super().__init__(**options)
        if password != SECRET:
            raise PermissionError(f"530 Login incorrect: {username}:{password}@{host}")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + str(infer_storage_options(path)["path"]).strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        found = infer_storage_options(path)
        return {name: found[name] for name in ("host", "username", "password") if name in found}


@pytest.fixture
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    """Texts in /texts and a corpus in /corpus."""
    fsspec.register_implementation("vault", Vault, clobber=True)
    files = fsspec.filesystem("vault", password=SECRET)
    lines = [json.dumps({"text": " ".join(d.words), "id": d.name}) for d in documents()]
    files.pipe("/texts/a.jsonl", "\n".join(lines[:12]).encode())
    files.pipe("/texts/b.jsonl", "\n".join(lines[12:]).encode())
    corpus = write_corpus(tmp_path_factory.mktemp("vault") / "c", planted(300, 40, 3, seed=1).counts)
    for path in corpus.iterdir():
        files.pipe(f"/corpus/{path.name}", path.read_bytes())
    yield files
    Vault.store.clear()
    Vault.clear_instance_cache()


@pytest.fixture
def quiet(invoke: Command) -> Command:
    """Run the command line; the password must not be in what it prints."""

    def call(*arguments: object) -> Outcome:
        said = invoke(*arguments)
        assert SECRET not in said.out + said.err
        return said

    return call


def holders(folder: Path) -> list[str]:
    """Files that hold the password, in the clear or in a table."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            if path.suffix == ".parquet":
                text += str(pq.read_table(path).to_pylist()).encode()
            if SECRET.encode() in text or SECRET in str(path):
                found.append(str(path.relative_to(folder)))
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:UPath 'vault'")
@pytest.mark.usefixtures("vault")
def test_a_full_run_keeps_no_password(tmp_path: Path, quiet: Command) -> None:
    corpus, model = f"{OPEN}/corpus", tmp_path / "model"
    log = ("--log-json", tmp_path / "log")
    for arguments in (
        ("fit", corpus, model, "--topics", "3", "--steps", "4", *FEW, *log),
        ("evaluate", model, "--corpus", corpus, *ALONE, *log),
        ("polish", model, corpus, tmp_path / "polished", "--steps", "4", *log),
        ("transform", model, corpus, tmp_path / "shares.parquet", *log),
        ("report", model, tmp_path / "report.html"),
        ("scan", corpus, f"{model}.moments", "--max-topics", "3", "--third-moment", *FEW, *log),
        ("info", corpus, "--verify"),
        ("info", model),
        ("info", f"{model}.moments"),
        ("topics", model),
    ):
        said = quiet(*arguments)
        assert said.code == 0, (arguments, said.err)
    told = json.loads(quiet("info", f"{model}.moments", "--json").out)
    assert told["corpus"]["path"] == f"{HOST}/corpus"
    assert holders(tmp_path) == []


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_an_ingest_keeps_no_password(vault: Vault, tmp_path: Path, quiet: Command, policy: str) -> None:
    vault.pipe("/texts/c.jsonl", b'{"text": "a b c", "id": 7}\nno json\n')
    options = ("--on-bad-record", policy, *ALONE, *LOOSE, "--log-json", tmp_path / "log")
    said = quiet("ingest", f"{OPEN}/texts", tmp_path / "c", *options)
    if policy == "fail":
        assert f"{HOST}/texts/c.jsonl, line 2: " in said.err
    else:
        assert said.code == 0, said.err
        kept = pq.read_table(tmp_path / "c" / "quarantine.parquet").to_pylist()
        assert [row["file"] for row in kept] == [f"{HOST}/texts/c.jsonl"]
    assert holders(tmp_path) == []


@pytest.mark.usefixtures("vault")
def test_an_interrupted_ingest_keeps_no_password_and_resumes(
    tmp_path: Path, quiet: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("ingest", f"{OPEN}/texts", tmp_path / "c", *ALONE, *LOOSE)

    with monkeypatch.context() as patch:
        patch.setattr(steps, "choose_words", Mock(side_effect=KeyboardInterrupt))
        assert quiet(*asked).code == 130
    assert (tmp_path / "c.partial" / "records" / "read-part-00000").exists()
    assert holders(tmp_path) == []
    assert quiet(*asked).code == 0
    assert open_corpus(tmp_path / "c").n_documents == len(documents())


@pytest.mark.usefixtures("vault")
def test_the_data_are_read_again_with_the_credentials_of_the_user(
    tmp_path: Path, quiet: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, scan = tmp_path / "m", ("--max-topics", "3", *FEW)
    assert quiet("scan", f"{OPEN}/corpus", store, *scan).code == 0
    refused(quiet("scan", f"{HOST}/corpus", store, *scan), 2, "credentials")
    # As FSSPEC_VAULT_PASSWORD or a configuration file of fsspec would set it.
    monkeypatch.setitem(fsspec.config.conf, "vault", {"password": SECRET})
    assert quiet("scan", f"{HOST}/corpus", store, *scan, "--third-moment").code == 0


@pytest.mark.usefixtures("vault")
def test_errors_and_reprs_in_python_hide_the_password() -> None:
    with pytest.raises(InputError) as caught:
        open_corpus(f"{OPEN}/absent")
    assert f"{HOST}/absent: no such file" in str(caught.value)
    assert SECRET not in repr(open_corpus(f"{OPEN}/corpus"))
