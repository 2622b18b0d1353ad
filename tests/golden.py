"""What the program computes from fixed inputs, in one table: ``python -m tests.golden --record`` writes golden.json.

Each case makes stores through the command line in a scratch directory, opens them as any other program would, and
gives observations by name. They are of four kinds:

- ``exact``: integers, words, keys and cuts, which are the same with any library and on any processor;
- ``array``: floating-point arrays; their bits depend on the libraries and on the processor's kernels, so that beside
  the sha256 a short summary is kept: the norm and, of A with one row a word, |A' x| for fixed x, which neither signs
  nor a rotation of the columns change;
- ``numbers``: floating-point numbers as they are;
- ``bits``: sha256 of what depends on such arrays, or of files that another version of pyarrow writes in other bytes.

On the recorded platform all must be equal to the bit. Elsewhere ``exact`` must still be equal, arrays and numbers
within 1e-4, and ``bits`` are not compared.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from tests.outcomes import printed
from tests.readers import FORMATS, Document, Format, documents

RECORDED = Path(__file__).with_name("golden.json")
DATA = Path(__file__).with_name("data") / "golden"
#: Agreement of floating-point numbers where bits cannot be compared.
RELATIVE = 1e-4
FIRST, SECOND = DATA / "first", DATA / "second"
SCAN = ("--max-topics", "5", "--partition-nonzeros", "1000")
KEPT = (*SCAN, "--keep-partitions", "--third-moment")
CURATION = (
    "--preset",
    "papers",
    *("--stop-words", "none", "--min-document-frequency", "3", "--vocabulary-size", "18"),
    *("--duplicates", "drop", "--min-distinct-words", "3", "--min-tokens", "4", "--tokens-per-shard", "70"),
)

Observed = dict[str, dict[str, Any]]


def platform() -> dict[str, Any]:
    """What decides about the last bits of floating-point numbers and about the bytes of Parquet files."""
    import llvmlite.binding
    import scipy.linalg  # noqa: F401  (its BLAS is a library of its own, listed once it is loaded)

    blas = {
        f"{library['internal_api']} {library['version']} {library.get('architecture')}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    packages = ("numpy", "scipy", "numba", "pyarrow", "zarr")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {**versions, "blas": sorted(blas), "processor": llvmlite.binding.get_host_cpu_name()}


def command(*arguments: object, scheduler: str = "synchronous") -> str:
    """Run a command that must succeed; returns what it prints."""
    places = () if arguments[0] in ("infer", "info") else ("--scheduler", scheduler, "--workers", 2)
    return printed(*arguments, *places)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def exact(value: Any) -> dict[str, Any]:
    """What is the same everywhere; long values by their sha256."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return {"exact": value if len(text) <= 400 else sha256(text.encode())}


def bits(value: Any) -> dict[str, Any]:
    return {"bits": sha256(json.dumps(value, sort_keys=True).encode())}


def array(values: NDArray[Any]) -> dict[str, Any]:
    """An array: exactly, if it holds integers or words; with a summary, if it holds floating-point numbers."""
    kind = {"shape": list(values.shape), "dtype": str(values.dtype)}
    if values.dtype.kind not in "f":
        content = json.dumps(values.tolist(), ensure_ascii=False).encode()
        return {"exact": {**kind, "sha256": sha256(content)}}
    data = np.ascontiguousarray(values)
    return {"array": {**kind, "sha256": sha256(data.tobytes()), "about": summary(data.astype(np.float64))}}


def summary(values: NDArray[np.float64]) -> list[float]:
    """Norm; and for a matrix |A' x| for three fixed x."""
    found = [np.linalg.norm(values)]
    if values.ndim == 2:
        places = np.arange(values.shape[0])
        found += [np.linalg.norm(values.T @ np.cos(0.7 * (k + 1) * places + k)) for k in range(3)]
    return [float(f"{number:.8g}") for number in found]


def together(arrays: Observed) -> dict[str, Any]:
    """Several arrays as one observation: a store has many parts with the same few arrays in each."""
    about = {n: a["array"]["about"][0] if "array" in a else a["exact"]["shape"][0] for n, a in arrays.items()}
    content = json.dumps({name: {**a, "about": None} for name, a in arrays.items()}, sort_keys=True)
    shapes = {name: next(iter(a.values()))["shape"] for name, a in arrays.items()}
    return {"array": {"shape": shapes, "sha256": sha256(content.encode()), "about": [*about.values()]}}


# Corpora


def corpus_contents(corpus: Path) -> Observed:
    """Words, documents, cuts and manifest of a corpus."""
    manifest = json.loads((corpus / "manifest.json").read_text())
    shards = [corpus / shard["name"] for shard in manifest["shards"]]
    tables = [pq.read_table(shard) for shard in shards]
    cuts = [
        [pq.ParquetFile(shard).metadata.row_group(g).num_rows for g in _groups(shard)] for shard in shards
    ]
    whole = pa.concat_tables(tables)
    sizes = [[shard[key] for key in ("name", "rows", "nonzeros", "tokens")] for shard in manifest["shards"]]
    found = {
        "vocabulary": exact(_columns(pq.read_table(corpus / "vocabulary.parquet"))),
        "schema": exact([f"{field.name}: {field.type}" for field in whole.schema]),
        **{f"column {name}": exact(values) for name, values in _columns(whole).items()},
        "shards": exact(sizes),
        "row groups": exact(cuts),
        **{key: exact(manifest[key]) for key in ("totals", "dropped", "settings", "source", "attribution")},
        "files": bits([[shard["sha256"], shard["bytes"]] for shard in manifest["shards"]]),
        "vocabulary file": bits(manifest["vocabulary"]),
    }
    if (corpus / "quarantine.parquet").exists():
        bad = pq.read_table(corpus / "quarantine.parquet").to_pylist()
        found["quarantine"] = exact([[Path(b["file"]).name, b["row"], b["reason"]] for b in bad])
    return found


def _groups(shard: Path) -> range:
    return range(pq.ParquetFile(shard).metadata.num_row_groups)


def _columns(table: pa.Table) -> dict[str, list[Any]]:
    return {name: table.column(name).to_pylist() for name in table.schema.names}


def ingested(kind: Format, codec: str, root: Path) -> Observed:
    """The corpus that ``ingest`` makes of a format, with every rule of the curation at work."""
    source = kind.write(root / "in", documents(), codec)
    command("ingest", source, root / "out", *kind.arguments(), *CURATION)
    return corpus_contents(root / "out")


def _quarantined(root: Path) -> Observed:
    docs: list[Document] = documents()
    source = next(f for f in FORMATS if f.name == "text-json").write(root / "in", docs, ".gz", bad=True)
    command("ingest", source, root / "out", *CURATION, "--on-bad-record", "quarantine")
    return corpus_contents(root / "out")


def _simulated(root: Path) -> Observed:
    options = ("--documents", 300, "--vocabulary-size", 90, "--topics", 3, "--documents-per-shard", 110)
    command("simulate", root / "out", *options, "--mean-length", 30, "--separable", "--zipf", "0.8")
    found = corpus_contents(root / "out")
    return found | {
        f"truth/{n}": a for n, a in arrays_of(zarr.open_group(root / "out" / "truth.zarr", mode="r"))
    }


# Stores


def arrays_of(group: zarr.Group) -> Iterator[tuple[str, dict[str, Any]]]:
    """The arrays right in a group, with their dimensions."""
    for name, stored in sorted(group.arrays()):
        observed = array(np.asarray(stored[...]))
        [content] = observed.values()
        content["dimensions"] = list(stored.metadata.dimension_names or ())
        yield name, observed


def moments_contents(store: Path) -> Observed:
    """Settings, partitions, record keys and every array of a moments store, kept parts and folds included."""
    root = zarr.open_group(store, mode="r")
    manifest: dict[str, Any] = dict(root.attrs["manifest"])
    del manifest["probes"]["numpy"]
    manifest.pop("change", None)  # of the request, with the paths in it
    for corpus in manifest["corpora"]:
        corpus["path"] = Path(corpus["path"]).name
    found = {f"manifest/{key}": exact(value) for key, value in manifest.items()}
    found |= dict(arrays_of(root))
    records = dict(root["records"].groups())
    found["records"] = exact(sorted(records))
    for name, record in records.items():
        steps = [[step.get("content"), step.get("rows")] for step in record.attrs.get("history", [])]
        found[f"records/{name}"] = exact({"scalars": record.attrs["scalars"], "history": steps})
        if "covers" in record.attrs:
            # The stages after the basis cover what the bits of the basis are.
            kind = bits if name in ("projection", "third_moment") else exact
            found[f"records/{name} covers"] = kind(record.attrs["covers"])
    for name, part in root["partials"].groups():
        # What is committed has its record; its own name ends with a number drawn for the attempt.
        key = re.sub(r"-[0-9a-f]{32}$", "", name)
        assert key in records
        found[f"partials/{key}"] = together(dict(arrays_of(part)))
    return found


def model_contents(model: Path) -> Observed:
    """Arrays, settings and provenance of a model."""
    root = zarr.open_group(model, mode="r")
    provenance: dict[str, Any] = dict(root.attrs["provenance"])
    same = ("engine", "corpus_fingerprints", "scan_settings", "settings_fingerprint", "partitions")
    return {
        **dict(arrays_of(root)),
        "settings": exact(root.attrs["settings"]),
        "provenance": exact({key: provenance[key] for key in same}),
        "fingerprint of the moments": bits(provenance["fingerprint"]),
    }


class Stores:
    """Stores that several cases need, each made once, under a scratch directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: set[str] = set()

    def scanned(
        self, name: str, *options: object, corpus: Path = FIRST, scheduler: str = "synchronous"
    ) -> Path:
        store = self.root / name
        if name not in self._made:
            command("scan", corpus, store, *options, scheduler=scheduler)
            self._made.add(name)
        return store

    def kept(self) -> Path:
        return self.scanned("kept", *KEPT)

    def exact(self) -> Path:
        return self.scanned("exact", *SCAN, "--exact", "--third-moment")

    def changed(self, name: str, *options: object) -> Path:
        """A copy of the kept store after a change."""
        if name not in self._made:
            shutil.copytree(self.kept(), self.root / name)
        return self.scanned(name, *options)

    def merged(self) -> Path:
        """The kept store with one of a corpus whose words differ in part and in order."""
        other = self.root / "other"
        shutil.copytree(SECOND, other)
        words = (other / "vocab.txt").read_text().split()
        words[3], words[150], words[7] = words[7], "elsewhere", words[3]
        (other / "vocab.txt").write_text("\n".join(words) + "\n")
        self.scanned("second", *KEPT, corpus=other)
        return self.changed("merged", "--merge", self.root / "second")

    def model(self, name: str, store: Path, *options: object) -> Path:
        if name not in self._made:
            command("infer", store, self.root / name, "--topics", 4, *options)
            self._made.add(name)
        return self.root / name


def _by_year(made: Stores) -> Path:
    return made.scanned("by-year", *SCAN, "--keep-partitions", "--partition-by", "year")


def _third_moment_later(made: Stores) -> Path:
    made.scanned("later", *SCAN)
    command("scan", FIRST, made.root / "later", *SCAN, "--third-moment")
    return made.root / "later"


SCANS: dict[str, Callable[[Stores], Path]] = {
    "kept": Stores.kept,
    "plain": lambda made: made.scanned("plain", *SCAN),
    "one scan": lambda made: made.scanned("one-scan", *SCAN, "--scans", 1, "--document-weights", "length"),
    "uniform weights": lambda made: made.scanned(
        "uniform", *SCAN, "--document-weights", "uniform", "--seed", 3
    ),
    "halko": lambda made: made.scanned("halko", *SCAN, "--range", "halko"),
    "exact": Stores.exact,
    "by year": _by_year,
    "third moment later": _third_moment_later,
    "added": lambda made: made.changed("added", "--add", SECOND),
    "removed": lambda made: made.changed("removed", "--remove", "part-00001.parquet"),
    "merged": Stores.merged,
}


MODELS: dict[str, Callable[[Stores], Path]] = {
    "lr-jsmf": lambda made: made.model("lr-jsmf", made.kept()),
    "lr-jsmf with other kernels": lambda made: made.model(
        "others", made.kept(), "--rectify", "palm", "--simplex", "fista", "--correlations", "refined"
    ),
    "soft cliques": lambda made: made.model("cliques", made.kept(), "--anchors", "soft-clique"),
    "alternating projections": lambda made: made.model("ap", made.exact(), "--rectify", "ap"),
    "of some years": lambda made: made.model("years", _by_year(made), "--partitions", "1990..1991"),
    "stod": lambda made: made.model("stod", made.kept(), "--engine", "stod"),
    "stod, alpha0 given, als": lambda made: made.model(
        "als", made.kept(), "--engine", "stod", "--alpha0", "1.2", "--refine", "als"
    ),
}


def evaluated(made: Stores, model: str) -> Observed:
    """Counts that ``evaluate`` keeps of a corpus, and the metrics it prints."""
    path = MODELS[model](made)
    printed = json.loads(command("evaluate", path, "--corpus", FIRST, "--json", "--replicas", 2))
    # A residual is a difference of nearly equal numbers, and has few digits in common elsewhere.
    found: Observed = {"certificates": bits(printed.pop("certificates", None))}
    found["metrics"] = {"numbers": _numbers(printed)}
    for name, counts in zarr.open_group(path / "evaluation", mode="r").groups():
        found |= {f"counts/{array_name}": value for array_name, value in arrays_of(counts)}
        found["name of the counts"] = exact(name)
    return found


def _numbers(value: Any, path: str = "") -> dict[str, float]:
    """The numbers of nested JSON by their paths."""
    if isinstance(value, Mapping):
        return {k: v for key, inner in value.items() for k, v in _numbers(inner, f"{path}/{key}").items()}
    if isinstance(value, list):
        return {k: v for i, inner in enumerate(value) for k, v in _numbers(inner, f"{path}/{i}").items()}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {path: float(value)} if is_number else {}


# The table


@dataclass(frozen=True)
class Case:
    """A name and what makes its observations in a new directory, with the stores that are there."""

    name: str
    observe: Callable[[Path, Stores], Observed]


def cases() -> list[Case]:
    made = [Case(f"ingest {f.name}", lambda root, _, f=f: ingested(f, "", root)) for f in FORMATS]
    made.append(Case("ingest with a quarantine", lambda root, _: _quarantined(root)))
    made.append(Case("simulate", lambda root, _: _simulated(root)))
    for name, make in SCANS.items():
        made.append(Case(f"scan {name}", lambda _, s, make=make: moments_contents(make(s))))
    for name, fit in MODELS.items():
        made.append(Case(f"infer {name}", lambda _, s, fit=fit: model_contents(fit(s))))
    for model in ("lr-jsmf", "stod"):
        made.append(Case(f"evaluate {model}", lambda _, s, m=model: evaluated(s, m)))
    return made


@cache
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def differences(expected: Observed, found: Observed, same_platform: bool) -> list[str]:
    """What is not as it was, one line each."""
    missing = [f"{name}: {'gone' if name in expected else 'new'}" for name in expected.keys() ^ found.keys()]
    both = expected.keys() & found.keys()
    return sorted(
        missing + [n for name in both for n in _unlike(name, expected[name], found[name], same_platform)]
    )


def _unlike(name: str, expected: dict[str, Any], found: dict[str, Any], same_platform: bool) -> list[str]:
    found = json.loads(json.dumps(found))
    if _bits_of(expected) == _bits_of(found) or (
        not same_platform and "bits" in expected.keys() & found.keys()
    ):
        return []
    if not same_platform and _alike(expected, found):
        return []
    if "numbers" in expected.keys() & found.keys():
        then, now = expected["numbers"], found["numbers"]
        unlike = {key for key in then.keys() | now.keys() if then.get(key) != now.get(key)}
        return [f"{name}{key}: was {then.get(key)}, is {now.get(key)}" for key in sorted(unlike)]
    return [f"{name}: was {expected}, is {found}"]


def _bits_of(observed: dict[str, Any]) -> dict[str, Any]:
    """Without the summary: it is for other platforms."""
    if "array" not in observed:
        return observed
    return {"array": {key: value for key, value in observed["array"].items() if key != "about"}}


def _alike(expected: dict[str, Any], found: dict[str, Any]) -> bool:
    if expected.keys() != found.keys():
        return False
    if "numbers" in expected:
        then, now = expected["numbers"], found["numbers"]
        return then.keys() == now.keys() and all(_near(then[key], now[key]) for key in then)
    if "array" in expected:
        then, now = dict(expected["array"]), dict(found["array"])
        pairs = zip(then.pop("about"), now.pop("about"), strict=True)
        then.pop("sha256"), now.pop("sha256")
        return then == now and all(_near(a, b) for a, b in pairs)
    return False


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=1e-9)


def record() -> None:
    """Observe all cases and write them down with the platform."""
    with tempfile.TemporaryDirectory() as scratch:
        stores = Stores(Path(scratch))
        found = {}
        for number, case in enumerate(cases()):
            root = Path(scratch) / f"case-{number}"
            root.mkdir()
            found[case.name] = case.observe(root, stores)
    lines = [f'{{"platform": {json.dumps(platform())},', '"cases": {']
    for name, observed in found.items():
        inside = (
            f" {json.dumps(key)}: {json.dumps(observed[key], ensure_ascii=False)}" for key in sorted(observed)
        )
        lines.append(
            f"{json.dumps(name)}: {{\n" + ",\n".join(inside) + "\n}" + "," * (name != list(found)[-1])
        )
    RECORDED.write_text("\n".join([*lines, "}}"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--record"]:
        sys.exit("python -m tests.golden --record writes tests/golden.json")
    record()
