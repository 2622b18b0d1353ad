"""The manifest of a moments store: which corpora, which partitions in which order, what is folded at once.

Pure functions from one manifest to the next. A manifest decides the bits of a store together with the settings: the
keys of its parts hold the contents, and the key of the last fold holds all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streaming_jsmf.blocks.units import (
    ColumnMap,
    Partition,
    WorkUnit,
    list_units,
    plan_partitions,
    split_by_value,
)
from streaming_jsmf.config import ScanSettings, fingerprint
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.jobs.ledger import fold_keys, key_of
from streaming_jsmf.storage.paths import join, normalise

FORMAT_VERSION = 2

#: Changes when the same settings would give other bits; part of the settings' fingerprint.
ALGORITHM_VERSION = 5

#: Without one of these a manifest is damaged.
MANIFEST_KEYS = frozenset(
    (
        "settings",
        "settings_fingerprint",
        "partition_budget",
        "keep_partitions",
        "corpora",
        "n_words",
        "vocabulary",
        "partitions",
        "parts",
    )
)

Manifest = Mapping[str, Any]


def new_manifest(
    corpus: Corpus, settings: ScanSettings, vocabulary: str, *, keep_partitions: bool = False
) -> dict[str, Any]:
    """Describe a scan before it starts. ``vocabulary`` is the digest of the words.

    Reads the metadata column if partitions are made by one, else nothing.
    """
    fields = settings.fields()
    budget = settings.partition_budget(corpus.nonzeros, corpus.n_words)
    empty: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "settings": fields,
        "settings_fingerprint": _settings_fingerprint(fields),
        "range_fingerprint": _settings_fingerprint(replace(settings, third_moment=False).fields()),
        "partition_budget": budget,
        "keep_partitions": keep_partitions,
        "corpora": [],
        "n_words": corpus.n_words,
        "vocabulary": vocabulary,
        "probes": {"generator": "philox", "seed": settings.seed, "numpy": np.__version__},
        "partitions": [],
        "parts": [],
    }
    return with_corpus(empty, corpus)


def _settings_fingerprint(fields: Mapping[str, Any]) -> str:
    return fingerprint({**fields, "algorithm": ALGORITHM_VERSION})


def range_fingerprint(manifest: Manifest) -> str:
    """Of the settings that scan 1 and the basis hang on: all but whether there is a third moment."""
    # Stores of before the third moment have none.
    return str(manifest.get("range_fingerprint", manifest["settings_fingerprint"]))


def with_third_moment(manifest: Manifest) -> dict[str, Any]:
    """The manifest of a store that is to have the third moment too; of one that has it the same."""
    settings = replace(ScanSettings(**manifest["settings"]), third_moment=True).fields()
    return {
        **manifest,
        "settings": settings,
        "settings_fingerprint": _settings_fingerprint(settings),
        "range_fingerprint": range_fingerprint(manifest),
    }


def with_corpus(manifest: Manifest, corpus: Corpus) -> dict[str, Any]:
    """The manifest with the partitions of a corpus behind those that are there.

    Raises
    ------
    InputError
        If a shard is in the store already; names both.
    """
    _refuse_known_shards(manifest, corpus)
    number = len(manifest["corpora"])
    planned = _plan(corpus, manifest)
    entry = {
        "path": corpus.root,
        "fingerprint": corpus.fingerprint,
        # Empty shards are alike wherever they come from, and nothing is counted twice with them.
        "shards": {shard.name: shard.sha256 for shard in corpus.shards if shard.rows},
        "columns": None,
    }
    partitions = [_describe(partition, corpus, number) for partition in planned]
    parts = [[partition.content, 1] for partition in planned]
    return {
        **manifest,
        "corpora": [*manifest["corpora"], entry],
        "partitions": [*manifest["partitions"], *partitions],
        "parts": [*manifest["parts"], *parts],
    }


def without(manifest: Manifest, names: Sequence[str]) -> dict[str, Any]:
    """The manifest without the corpora and shards of these names (paths of corpora, names or hashes of shards).

    Raises
    ------
    InputError
        If a name is unknown, or a shard shares a partition with one that stays.
    """
    gone: set[tuple[int, str]] = set()
    for name in names:
        found = shards_named(manifest, name)
        if not found:
            raise InputError(f"{name} is not in the store; it has {', '.join(_known(manifest))}")
        gone |= found
    staying = [not _is_gone(partition, gone, name=", ".join(names)) for partition in manifest["partitions"]]
    keys, first = [], 0
    for key, count in manifest["parts"]:
        held = staying[first : first + count]
        if any(held) and not all(held):
            raise InputError(
                f"{', '.join(names)} was merged with other partitions into one factor; scan again"
            )
        if all(held):
            keys.append([key, count])
        first += count
    kept = [partition for partition, stays in zip(manifest["partitions"], staying, strict=True) if stays]
    return _renumbered({**manifest, "partitions": kept, "parts": keys})


@dataclass(frozen=True)
class MergePlan:
    """How two stores become one.

    Attributes
    ----------
    vocabulary, n_words
        Digest and number of the words of both.
    columns
        For each corpus of the second, where its words are among those of both; None where they are the same.
    in_parts
        Whether the parts of both are folded one by one; else the second's folded factor is one part.
    same_words
        Whether both have the same words; else the first's folded factor becomes one part too.
    """

    vocabulary: str
    n_words: int
    columns: Sequence[Mapping[str, Any] | None]
    in_parts: bool
    same_words: bool


def merged_manifest(first: Manifest, second: Manifest, plan: MergePlan) -> dict[str, Any]:
    """The manifest of the first store with the corpora, partitions and parts of the second behind its own."""
    shift = len(first["corpora"])
    theirs = [
        {**entry, "columns": columns} for entry, columns in zip(second["corpora"], plan.columns, strict=True)
    ]
    moved = [{**partition, "corpus": partition["corpus"] + shift} for partition in second["partitions"]]
    return {
        **first,
        "vocabulary": plan.vocabulary,
        "n_words": plan.n_words,
        "keep_partitions": plan.in_parts,
        "corpora": [*first["corpora"], *theirs],
        "partitions": [*first["partitions"], *moved],
        "parts": [
            *(first["parts"] if plan.same_words else _as_one_part(first)),
            *(second["parts"] if plan.in_parts else _as_one_part(second)),
        ],
    }


def _as_one_part(manifest: Manifest) -> list[list[Any]]:
    return [[f"fold {range_folds(manifest)[-1]}", len(manifest["partitions"])]]


def distinct(contents: Sequence[str]) -> tuple[str, ...]:
    """The same names with the repeats numbered: a corpus may hold a shard twice, and both count."""
    seen: Counter[str] = Counter()
    names = []
    for content in contents:
        seen[content] += 1
        names.append(content if seen[content] == 1 else f"{content} repeat {seen[content]}")
    return tuple(names)


def part_keys(manifest: Manifest) -> tuple[str, ...]:
    """Keys of the parts of the range stage, in order."""
    return tuple(key_of(name) for name in distinct([str(content) for content, _ in manifest["parts"]]))


def range_folds(manifest: Manifest) -> tuple[str, ...]:
    """Keys of the folds of the range stage: other words, settings or order give other keys."""
    salt = f"{range_fingerprint(manifest)}\n{manifest['vocabulary']}"
    return fold_keys(part_keys(manifest), salt)


def load_partitions(manifest: Manifest, store: str, corpora: Sequence[Corpus] = ()) -> tuple[Partition, ...]:
    """The partitions with their units, as tasks read them. Opens the corpora that are not.

    Parameters
    ----------
    corpora
        Those that are open already: opening a corpus without manifest hashes its files.

    Raises
    ------
    InputError
        If a corpus is not where it was; says which, and what to do.
    StoreError
        If a corpus has other contents than the store was made of.
    """
    by = manifest["settings"].get("partition_by")
    opened = {corpus.root: corpus for corpus in corpora}
    units = [_units_of(entry, opened.get(entry["path"]), by, store) for entry in manifest["corpora"]]
    partitions = []
    for index, described in enumerate(manifest["partitions"]):
        entry, label = manifest["corpora"][described["corpus"]], described["label"]
        keys = [(str(name), int(group), label) for name, group in described["units"]]
        known = units[described["corpus"]]
        columns = None if entry["columns"] is None else ColumnMap(store, **entry["columns"])
        held = tuple(known[key] for key in keys if key in known)
        partition = Partition(index, held, label, columns)
        if len(held) < len(keys) or partition.content != described["content"]:
            raise StoreError(
                f"{entry['path']} has other contents than the store was made of; put the corpus back or scan again"
            )
        partitions.append(partition)
    return tuple(partitions)


def _units_of(
    entry: Mapping[str, Any], corpus: Corpus | None, partition_by: str | None, store: str
) -> dict[tuple[str, int, str | int | None], WorkUnit]:
    """Units of the shards that a store has of a corpus, by shard, row group and label."""
    if corpus is None:
        corpus = _reopened(str(entry["path"]), store)
    present = set(entry["shards"].values())
    shards = tuple(shard for shard in corpus.shards if shard.sha256 in present)
    units = list_units(replace(corpus, shards=shards))
    if partition_by is not None:
        units = tuple(part for unit in units for part in split_by_value(unit, partition_by))
    return {
        (_shard_name(unit, corpus.root), unit.row_group, None if unit.only is None else unit.only.value): unit
        for unit in units
    }


def _reopened(path: str, store: str) -> Corpus:
    try:
        return open_corpus(path)
    except InputError as error:
        raise InputError(
            f"{store} was made of a corpus at {path} that has to be read again ({error}); put it back, or scan it "
            "from where it is now into the same store"
        ) from error


def moved(manifest: Manifest, corpus: Corpus) -> dict[str, Any]:
    """The manifest with a corpus at the place where it is now, if its shards have kept their names."""
    shards = {(shard.name, shard.sha256) for shard in corpus.shards}

    def is_same(entry: Mapping[str, Any]) -> bool:
        return bool(entry["fingerprint"] == corpus.fingerprint) and entry["shards"].items() <= shards

    corpora = [{**e, "path": corpus.root} if is_same(e) else e for e in manifest["corpora"]]
    return {**manifest, "corpora": corpora}


def _plan(corpus: Corpus, manifest: Manifest) -> tuple[Partition, ...]:
    by = manifest["settings"].get("partition_by")
    return plan_partitions(list_units(corpus), int(manifest["partition_budget"]), by)


def _describe(partition: Partition, corpus: Corpus, number: int) -> dict[str, Any]:
    return {
        "content": partition.content,
        "corpus": number,
        "label": partition.label,
        "rows": partition.rows,
        "nonzeros": partition.nonzeros,
        "units": [[_shard_name(unit, corpus.root), unit.row_group] for unit in partition.units],
    }


def _shard_name(unit: WorkUnit, root: str) -> str:
    """Name of a unit's shard, relative to its corpus."""
    return unit.path.removeprefix(root).lstrip("/")


def _refuse_known_shards(manifest: Manifest, corpus: Corpus) -> None:
    known = {
        digest: f"{entry['path']}/{name}"
        for entry in manifest["corpora"]
        for name, digest in entry["shards"].items()
    }
    for shard in corpus.shards:
        if shard.rows and shard.sha256 in known:
            raise InputError(
                f"{corpus.shard_path(shard)} is in the store already, as {known[shard.sha256]}; "
                "a document counts once: leave it out"
            )


def shards_named(manifest: Manifest, name: str) -> set[tuple[int, str]]:
    """(corpus, shard) pairs that a user's name stands for.

    Raises
    ------
    InputError
        If several corpora have a shard of this name; a path tells them apart.
    """
    path = normalise(name)
    found, named = set(), []
    for number, entry in enumerate(manifest["corpora"]):
        whole = path == entry["path"] or name == entry["fingerprint"]
        for shard, digest in entry["shards"].items():
            place = join(entry["path"], shard)
            if whole or name == digest or path == place:
                found.add((number, shard))
            elif name in (shard, shard.rsplit("/", 1)[-1]):
                named.append((number, shard, place))
    if not found and len(named) > 1:
        places = ", ".join(place for *_, place in named)
        raise InputError(f"{name} could be any of {places}; give the path of the one that is meant")
    return found or {(number, shard) for number, shard, _ in named}


def _known(manifest: Manifest) -> list[str]:
    return [str(entry["path"]) for entry in manifest["corpora"]]


def _is_gone(partition: Mapping[str, Any], gone: set[tuple[int, str]], name: str) -> bool:
    shards = {str(unit[0]) for unit in partition["units"]}
    leaving = {shard for shard in shards if (int(partition["corpus"]), shard) in gone}
    if leaving and leaving != shards:
        together = ", ".join(sorted(shards - leaving))
        raise InputError(
            f"{name}: {', '.join(sorted(leaving))} shares a partition with {together}; remove all of them, "
            "or scan again without"
        )
    return bool(leaving)


def _renumbered(manifest: dict[str, Any]) -> dict[str, Any]:
    """Corpora of which nothing is left go, and the shards that have left."""
    used = sorted({partition["corpus"] for partition in manifest["partitions"]})
    numbers = {old: new for new, old in enumerate(used)}
    shards: dict[int, set[str]] = {old: set() for old in used}
    for partition in manifest["partitions"]:
        shards[partition["corpus"]] |= {str(unit[0]) for unit in partition["units"]}
    corpora = []
    for old in used:
        entry = manifest["corpora"][old]
        staying = {name: digest for name, digest in entry["shards"].items() if name in shards[old]}
        corpora.append({**entry, "shards": staying})
    partitions = [{**p, "corpus": numbers[p["corpus"]]} for p in manifest["partitions"]]
    return {**manifest, "corpora": corpora, "partitions": partitions}
