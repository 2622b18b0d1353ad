"""Observations of corpora, stores, models and shares, read as any other program would read them.

- ``exact``: integers, words, keys and partition boundaries, which are the same with any library and processor;
- ``array``: floating-point arrays. Bits depend on libraries and the processor, so a summary is kept with the sha256:
  the norm and, for A with one row per word, |A' x| for fixed x, which is invariant to signs and rotations of columns;
- ``numbers``: floating-point numbers;
- ``bits``: sha256 of results that depend on such arrays, or of files that differ between versions of pyarrow.

On the recorded platform all must be bit-identical. On others ``exact`` must be equal, arrays and numbers must agree
within 1e-4 (or 1e-7 for differences of nearly equal numbers), and ``bits`` are not compared.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from numpy.typing import NDArray

from streaming_jsmf.moments.store import Moments, read_store

Observed = dict[str, dict[str, Any]]

#: Stages after the basis: the keys of their parts, what they cover and their scalars depend on its bits.
AFTER_BASIS = ("projection", "refinement", "third_moment")

#: Tolerances for floating-point numbers where bits cannot be compared.
RELATIVE, ABSOLUTE = 1e-4, 1e-7


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def exact(value: Any) -> dict[str, Any]:
    """A value that is the same on all platforms; long values as sha256."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return {"exact": value if len(text) <= 400 else sha256(text.encode())}


def bits(value: Any) -> dict[str, Any]:
    return {"bits": sha256(json.dumps(value, sort_keys=True).encode())}


def array(values: NDArray[Any]) -> dict[str, Any]:
    """An array: exact for integers or words, with a summary for floating-point numbers."""
    kind = {"shape": list(values.shape), "dtype": str(values.dtype)}
    if values.dtype.kind not in "f":
        content = json.dumps(values.tolist(), ensure_ascii=False).encode()
        return {"exact": {**kind, "sha256": sha256(content)}}
    data = np.ascontiguousarray(values)
    return {"array": {**kind, "sha256": sha256(data.tobytes()), "about": summary(data.astype(np.float64))}}


def summary(values: NDArray[np.float64]) -> list[float]:
    """Norm and, for a matrix, |A' x| for three fixed x."""
    found = [np.linalg.norm(values)]
    if values.ndim == 2:
        places = np.arange(values.shape[0])
        found += [np.linalg.norm(values.T @ np.cos(0.7 * (k + 1) * places + k)) for k in range(3)]
    return [float(f"{number:.8g}") for number in found]


def together(arrays: Observed) -> dict[str, Any]:
    """Combine arrays into one observation, because the many parts of a store have the same few arrays."""
    about = {n: a["array"]["about"][0] if "array" in a else a["exact"]["shape"][0] for n, a in arrays.items()}
    content = json.dumps({name: {**a, "about": None} for name, a in arrays.items()}, sort_keys=True)
    shapes = {name: next(iter(a.values()))["shape"] for name, a in arrays.items()}
    return {"array": {"shape": shapes, "sha256": sha256(content.encode()), "about": [*about.values()]}}


# Corpora


def corpus_contents(corpus: Path) -> Observed:
    """Words, documents, row groups and manifest of a corpus."""
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


# Stores


def arrays_of(group: zarr.Group) -> Iterator[tuple[str, dict[str, Any]]]:
    """Arrays of a group, without subgroups, and their dimensions."""
    for name, stored in sorted(group.arrays()):
        observed = array(np.asarray(stored[...]))
        [content] = observed.values()
        content["dimensions"] = list(stored.metadata.dimension_names or ())
        yield name, observed


#: Axes of arrays of partial results; of others (word, rank).
_AXES = {
    "sample_lengths": ["sampled_document"],
    "sample_words": ["sampled_nonzero"],
    "sample_values": ["sampled_nonzero"],
    "third": ["triple"],
}


def arrays_of_part(store: Moments, record: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Arrays of a committed part or fold, and their dimensions."""
    stage, kind, key = record.split("-")
    checkpoints = store.checkpoints(stage)
    part = checkpoints.read_part(key) if kind == "part" else checkpoints.read_fold(key)
    for name, values in sorted(part.arrays.items()):
        observed = array(values)
        [content] = observed.values()
        content["dimensions"] = _AXES.get(name, ["word", "rank"][: values.ndim])
        yield name, observed


def moments_contents(store: Path) -> Observed:
    """Settings, partitions, record keys and all arrays of a moments store, including kept parts and folds."""
    root = zarr.open_group(store, mode="r")
    manifest: dict[str, Any] = dict(root.attrs["manifest"])
    del manifest["numpy"]
    manifest["corpus"]["path"] = Path(manifest["corpus"]["path"]).name
    found = {f"manifest/{key}": exact(value) for key, value in manifest.items()}
    found |= dict(arrays_of(root))
    records = dict(root["records"].groups())
    names = dict(zip(records, map(_portable, records), strict=True))
    found["records"] = exact(sorted(names.values()))
    opened = read_store(store)
    for key, record in records.items():
        name, of_bits = names[key], key.startswith(AFTER_BASIS)
        scalars, kind = record.attrs["scalars"], bits if of_bits else exact
        if key in ("projection", "refinement"):
            found[f"records/{name} scalars"], scalars = {"numbers": numbers(scalars)}, {}
        steps = [[step.get("content"), step.get("rows")] for step in record.attrs.get("history", [])]
        found[f"records/{name}"] = exact({"scalars": scalars, "history": steps})
        if name != key:
            found[f"records/{name} key"] = bits(key)
        if "covers" in record.attrs:
            found[f"records/{name} covers"] = kind(record.attrs["covers"])
        if (attempt := record.attrs.get("attempt")) and (store / "partials" / str(attempt)).exists():
            found[f"partials/{name}"] = together(dict(arrays_of_part(opened, key)))
    return found


def _portable(key: str) -> str:
    """The key of a record without the hash, if that depends on bits; recorded cases have one fold per such stage."""
    return re.sub(r"-[0-9a-f]{32}$", "", key) if key.startswith(AFTER_BASIS) else key


def model_contents(model: Path) -> Observed:
    root = zarr.open_group(model, mode="r")
    provenance: dict[str, Any] = dict(root.attrs["provenance"])
    same = ("engine", "corpus_fingerprints", "scan_settings", "settings_fingerprint", "partitions")
    polish = dict(root.attrs["metrics"]).get("polish")
    return {
        **dict(arrays_of(root)),
        **({} if polish is None else {"polish": {"numbers": numbers(polish)}}),
        "settings": exact(root.attrs["settings"]),
        "provenance": exact({key: provenance[key] for key in same}),
        "fingerprint of the moments": bits(provenance["fingerprint"]),
    }


def shares_contents(shares: Path) -> Observed:
    if (shares / "zarr.json").exists():
        return dict(arrays_of(zarr.open_group(shares, mode="r")))
    files = sorted(shares.glob("*.parquet")) if shares.is_dir() else [shares]
    whole = pa.concat_tables([pq.read_table(file) for file in files])
    found = {"schema": exact([f"{field.name}: {field.type}" for field in whole.schema])}
    found["rows"] = exact([pq.ParquetFile(file).metadata.num_rows for file in files])
    for name, column in zip(whole.schema.names, whole.columns, strict=True):
        values = column.combine_chunks()
        is_list = pa.types.is_list(values.type)
        found[f"column {name}"] = (
            array(np.stack(values.to_numpy(zero_copy_only=False))) if is_list else exact(values.to_pylist())
        )
    return found


def numbers(value: Any, path: str = "") -> dict[str, float]:
    if isinstance(value, Mapping):
        return {k: v for key, inner in value.items() for k, v in numbers(inner, f"{path}/{key}").items()}
    if isinstance(value, list):
        return {k: v for i, inner in enumerate(value) for k, v in numbers(inner, f"{path}/{i}").items()}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {path: float(value)} if is_number else {}


# Comparison


def differences(expected: Observed, found: Observed, same_platform: bool) -> list[str]:
    """Missing, new and changed observations, one line each."""
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
    """Remove the summary, which is for other platforms."""
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
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
