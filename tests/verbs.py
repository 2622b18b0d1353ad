"""Every verb on small texts, and digests of their results: ``python -m tests.verbs PLACE NAME...``."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import fsspec

from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.storage.arrays import read_attributes
from streaming_jsmf.storage.paths import group_names, store_path
from streaming_jsmf.topics.store import read_model

#: Verbs in an order in which each finds what it needs, below a place ``{}``; those of one host end with a bar.
VERBS = """
ingest {}/texts {}/corpus --min-df 1 --max-df 1.0 --tokens-per-shard 4000
scan {}/corpus {}/m.zarr --max-topics 8 --partition-nonzeros 1000
infer {}/m.zarr {}/f.zarr --topics 6 |
polish {}/f.zarr {}/corpus {}/p.zarr --steps 3
evaluate {}/p.zarr --corpus {}/corpus --json
transform {}/p.zarr {}/corpus {}/shares
transform {}/p.zarr {}/corpus {}/shares.parquet
transform {}/p.zarr {}/corpus {}/shares.zarr
transform {}/p.zarr {}/corpus {}/shares.csv
documents {}/p.zarr {}/shares --topic 2 --out {}/documents.csv |
over-time {}/p.zarr {}/shares --by date:year --corpus {}/corpus --out {}/over-time.csv |
effects {}/p.zarr {}/shares --formula date --corpus {}/corpus --out {}/effects.csv |
report {}/p.zarr {}/report.html --shares {}/shares --corpus {}/corpus |
choose-k {}/m.zarr --topics 4,6 --out {}/chosen --replicas 0 --corpus {}/corpus --json
fit {}/corpus {}/fitted --topics 6
fit {}/texts {}/own --topics 5 --min-df 1 --max-df 1.0
transform {}/own {}/texts {}/text-shares
simulate {}/simulated --documents 200 --vocabulary-size 60 --topics 3 --documents-per-shard 100
""".strip().splitlines()

#: What they leave.
RESULTS = (
    *("corpus", "m.zarr", "f.zarr", "p.zarr", "shares", "shares.parquet", "shares.zarr", "shares.csv"),
    *(
        "documents.csv",
        "over-time.csv",
        "effects.csv",
        "report.html",
        "chosen/k=4",
        "chosen/k=6",
        "fitted",
        "simulated",
    ),
    *("own", "own.corpus", "text-shares"),
)


def texts(folder: Path) -> Path:
    """600 documents of six topics with dates, in four files."""
    random = Random(7)
    folder.mkdir()
    words = [["".join(random.choices("abcdefghijklmnop", k=6)) for _ in range(30)] for _ in range(6)]
    for part in range(4):
        with (folder / f"part-{part}.jsonl").open("w", encoding="utf-8") as file:
            for number in range(150):
                pair = random.choices(words, k=2)
                text = " ".join(random.choice(random.choices(pair, (3, 1))[0]) for _ in range(30))
                date = f"{2015 + random.randrange(6)}-0{1 + random.randrange(9)}-11"
                file.write(json.dumps({"id": f"d{part}-{number}", "text": text, "date": date}) + "\n")
    return folder


#: Seconds and memory of a step in a report.
_MEASURED = re.compile(rb'<td class="number">[^<]+</td><td class="number">[\d,]+ [KMG]iB</td>')


def lines(place: object, *where: str) -> list[list[str]]:
    """The command lines of the verbs below ``place``; ``where`` are options of those that take a scheduler."""
    return [
        [part.replace("{}", str(place)) for part in line.removesuffix("|").split()]
        + [*(() if line.endswith("|") else where)]
        for line in VERBS
    ]


def digests(place: str, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Digests of the parts of each of these results below a place."""
    return {name: _digests_of(place, name) for name in names}


def _digests_of(root: str, name: str) -> dict[str, Any]:
    place = f"{root}/{name}"
    if name.endswith(("corpus", "simulated")):
        corpus = open_corpus(place)
        return {"": corpus.vocabulary_sha256, **{shard.name: shard.sha256 for shard in corpus.shards}}
    if name in ("m.zarr", "halko.zarr"):
        return dict(read_store(store_path(place)).digests(third_moment=True))
    if name in ("f.zarr", "p.zarr", "fitted", "own", "chosen/k=4", "chosen/k=6", "stod", "grown"):
        arrays = read_model(store_path(place)).arrays
        return {array: _sha256(repr(values.tolist()).encode()) for array, values in arrays.items()}
    if name.endswith("evaluation"):
        [counted] = group_names(store_path(place))
        stored = read_attributes(store_path(place) / counted)
        return {what: stored[what] for what in ("digests", "completion", "n_documents")}
    files, inner = fsspec.core.url_to_fs(place)
    found = [inner] if files.isfile(inner) else sorted(files.find(inner))
    data = {file.removeprefix(inner): files.cat_file(file).replace(root.encode(), b"PLACE") for file in found}
    if name == "text-shares":
        del data["/_shares.json"]  # its request names the texts
    if name == "report.html":
        data = {file: _MEASURED.sub(b"", contents) for file, contents in data.items()}
    return {file: _sha256(contents) for file, contents in data.items()}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    print(json.dumps(digests(sys.argv[1], sys.argv[2:])))
