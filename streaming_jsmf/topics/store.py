"""The model store: one Zarr v3 group of arrays and JSON for each number of topics K."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import NDArray
from upath import UPath

from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.corpus.manifest import MANIFEST_NAME
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.fingerprint import sealed
from streaming_jsmf.storage.arrays import (
    ArrayDigest,
    Variable,
    create_group,
    read_array,
    read_attributes,
    read_panels,
    replace_attributes,
    write_arrays,
    zarr_store,
)
from streaming_jsmf.storage.kinds import MODEL, MODELS, taken, unsuitable
from streaming_jsmf.storage.lock import sole_writer, work_place
from streaming_jsmf.storage.paths import (
    ROOT,
    AnyPath,
    StorePath,
    child_names,
    exists,
    is_free,
    make_directory,
    node_exists,
    read_bytes,
    store_path,
    write_bytes,
)
from streaming_jsmf.storage.replace import remove_store, store_written
from streaming_jsmf.storage.results import Found, Wanted, utc_now
from streaming_jsmf.storage.sealed import read_sealed
from streaming_jsmf.topics.variables import MODEL_VARIABLES, STOD_VARIABLES

if TYPE_CHECKING:
    # Importing xarray takes a fifth of the start-up time, and only two functions need it.
    import xarray as xr

logger = logging.getLogger(__name__)

KIND, FORMAT_VERSION = "streaming_jsmf.model", 2
#: Settings of models of format 1 that there are no more.
_RETIRED = ("simplex", "left_out")
#: Group of a model that contains the edits of its topics.
EDITS = "edits"
#: File with the result of ``choose_k`` in a directory of models of several K.
COMPARISON = "choose-k.json"
#: A model as passed by users: its path or URL, the result of ``open_model`` or ``fit``, or a fitted estimator.
AnyModel: TypeAlias = "AnyPath | UPath | xr.Dataset"


@dataclass(frozen=True)
class Model:
    """A fitted model in memory.

    ``arrays`` are named as in ``MODEL_VARIABLES``, or ``STOD_VARIABLES`` for the tensor engine. ``settings`` of the
    engine, ``metrics`` (certificates of the result) and ``provenance`` (how the model was made) are JSON values.
    """

    arrays: Mapping[str, NDArray[Any]]
    settings: Mapping[str, Any]
    metrics: Mapping[str, Any]
    provenance: Mapping[str, Any]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {values.shape}" for name, values in self.arrays.items())
        return f"Model({self.engine}: {shapes})"

    @property
    def engine(self) -> str:
        """``lr-jsmf`` or ``stod``."""
        return str(self.provenance.get("engine", "lr-jsmf"))

    @property
    def corpora(self) -> tuple[str, ...]:
        """Fingerprints of the corpora; models of earlier versions list a corpus again each time that it has grown."""
        return tuple(dict.fromkeys(map(str, self.provenance.get("corpus_fingerprints") or ())))

    @property
    def request(self) -> Mapping[str, Any]:
        """What identifies the call that made the model; see ``request_of_model``."""
        return request_of_model(self.provenance.get("fingerprint"), self.settings)

    @property
    def fingerprint(self) -> str:
        """sha256 of the moments and settings that determine the arrays."""
        return str(self.provenance["fingerprint"])

    def attributes(self) -> dict[str, Any]:
        """Attributes of the store, except for the digests of the arrays."""
        return {
            "kind": KIND,
            "format_version": FORMAT_VERSION,
            "settings": dict(self.settings),
            "metrics": dict(self.metrics),
            "provenance": dict(self.provenance),
        }

    def variables(self) -> Mapping[str, Variable]:
        """Dimensions and meaning of the arrays."""
        return STOD_VARIABLES if self.engine == "stod" else MODEL_VARIABLES


class JsonAttribute(Mapping[str, Any], str):
    """A mapping of JSON values that is also its JSON text, since netCDF stores only numbers and texts.

    Examples
    --------
    >>> settings = JsonAttribute({"n_topics": 20, "rectify": "enn"})
    >>> settings["n_topics"], "rectify" in settings, str(settings)
    (20, True, '{"n_topics": 20, "rectify": "enn"}')
    """

    _fields: dict[str, Any]
    __hash__ = str.__hash__

    def __new__(cls, fields: Mapping[str, Any] | str) -> JsonAttribute:
        # Copying and unpickling pass the text.
        text = fields if isinstance(fields, str) else json.dumps(fields, ensure_ascii=False)
        attribute = str.__new__(cls, text)
        attribute._fields = json.loads(text)
        return attribute

    def __getitem__(self, key: Any) -> Any:
        return self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def model_path(model: AnyModel) -> StorePath:
    """The path of a model as passed by users (``AnyModel``); raises ``InputError`` for anything else."""
    encoding = getattr(model, "encoding", None)
    if isinstance(encoding, Mapping):  # an xarray.Dataset
        if "source" not in encoding:
            raise InputError(
                "this Dataset was not opened from a model store; give the path of the model, or its estimator"
            )
        model = encoding["source"]
    elif not isinstance(model, UPath | str | os.PathLike):
        raise InputError(f"give the path of a model or a fitted estimator, not a {type(model).__name__}")
    return store_path(model, "a model")


def model_names(path: StorePath) -> list[str]:
    """Sorted names (``k=5``, ...) of the models of several K below ``path``."""
    names = [name for name in child_names(path, "k=") if name[2:].isdigit() and node_exists(path / name)]
    return sorted(names, key=lambda name: (len(name), name))


def _linked(model: StorePath) -> StorePath:
    return model.resolve() if isinstance(model, Path) and model.is_symlink() and model.exists() else model


def beside(model: StorePath, kind: str) -> StorePath:
    """Default path of the ``moments`` or the ``corpus`` of a model, of which there is one for all links to it."""
    model = _linked(model)
    return model.with_name(f"{model.name}.{kind}")


def fitted_path(model: StorePath) -> StorePath:
    """The path that ``fit`` was given: for one of several K, that of the directory of all."""
    model = _linked(model)
    several = model.name.startswith("k=") and exists(beside(model.parent, "corpus") / MANIFEST_NAME)
    return model.parent if several else model


def corpus_beside(model: StorePath) -> Corpus | None:
    """The corpus that ``fit`` made next to a model; None if it does not exist."""
    place = beside(fitted_path(model), "corpus")
    return open_corpus(str(place)) if exists(place / MANIFEST_NAME) else None


def models_at(path: AnyModel) -> tuple[StorePath, ...]:
    """The models of several K below ``path``, by K; otherwise ``path`` itself, whether or not it is a model."""
    root = model_path(path)
    below = () if node_exists(root) else tuple(root / name for name in model_names(root))
    return below or (root,)


def model_targets(root: StorePath, n_topics: Sequence[int]) -> dict[int, StorePath]:
    """The path of the model of each K: ``root`` itself, or ``root/k=5``, ``root/k=10``, ... for several.

    Raises ``InputError`` if ``n_topics`` is empty, or something other than a model is at a path.
    """
    if not n_topics:
        raise InputError("n_topics is empty; give at least one number")
    several = len(n_topics) > 1
    if several and (node_exists(root) or exists(root / MANIFEST_NAME)):
        raise taken(root, f"{MODELS} of several K")
    targets = {k: root / f"k={k}" if several else root for k in n_topics}
    for path in targets.values():
        require_model_or_free(path)
    return targets


def require_model_or_free(target: StorePath) -> None:
    """Refuse a path where something other than a model is, before any work; raises ``InputError``."""
    if not is_free(target) and (not node_exists(target) or read_attributes(target).get("kind") != KIND):
        raise taken(target, MODEL)


def request_of_model(fingerprint: object, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Identify a model by the fingerprint of all that determines it; the settings tell how another one differs."""
    return {**settings, "fingerprint": fingerprint}


def wanted_model(target: StorePath, request: Mapping[str, Any], *, overwrite: bool = False) -> Wanted:
    """Return the model that a request asks for, which verifies each array of a model at ``target``.

    One made by the same request is not replaced, even with ``overwrite``, since labels and counts are stored below it.
    """

    def is_intact() -> bool:
        read_model(target)
        return True

    return Wanted(target, request, lambda: read_model(target, ()).request, is_intact, overwrite)


def write_model(path: StorePath, model: Model, edits: Mapping[str, Any] | None = None) -> None:
    """Write a model atomically: by renaming a temporary store, or behind a URL by writing its root last.

    An existing model is replaced; the caller holds the lock of ``path`` and has compared the models (``wanted_model``).
    Edits of the same topics are kept, unless ``edits`` has the attributes of others. The working store of the model, if
    there is one, is then removed.
    """
    kept = None if edits else _edits_of(path, model)
    with store_written(path, overwrite=not is_free(path)) as group:
        if kept:
            make_directory(group / EDITS)
            write_bytes(group / EDITS / ROOT, kept)
        if edits:
            create_group(group / EDITS, edits)
        digests = write_arrays(group, model.arrays, model.variables(), compress=True)
        attributes = {**model.attributes(), "digests": digests}
        attributes["provenance"]["committed"] = utc_now()
        create_group(group, sealed(attributes))
    if not is_free(work_place(path)):
        remove_store(work_place(path), ignore_errors=True)


def _edits_of(path: StorePath, model: Model) -> bytes | None:
    """The edits at ``path`` that a user has made of the same topics."""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        data = read_bytes(path / EDITS / ROOT)
        if json.loads(data)["attributes"]["model"] == model.fingerprint:
            return data
    return None


def save_model(target: StorePath, model: Model, *, overwrite: bool) -> None:
    """Write a model that was fitted before, unless it is at ``target``; errors are those of ``Wanted.writing``."""
    with wanted_model(target, model.request, overwrite=overwrite).writing() as found:
        if found is not Found.MADE:
            write_model(target, model)


def _read_attributes(path: StorePath) -> dict[str, Any]:
    if not node_exists(path):
        raise unsuitable(path, MODEL)
    return read_sealed(
        path, KIND, FORMAT_VERSION, what="metadata", hint="run infer again", wanted=MODEL, migrated=(1,)
    )


def migrate_model(path: StorePath) -> None:
    """Rewrite the metadata of a model of format 1 in the present format, or do nothing. Its topics stay as they are.

    Raises ``InputError`` if the format is unknown, and ``StoreError`` if the metadata are damaged.
    """
    stored = read_attributes(path)
    if stored.get("format_version") != 1:
        _read_attributes(path)
        return
    values = {name: value for name, value in stored.items() if name != "sha256"}
    # In fingerprints of that time 2.0 and 2 were different numbers.
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if stored.get("sha256") != hashlib.sha256(text.encode()).hexdigest():
        raise StoreError(f"{path}/zarr.json: its contents differ from its sha256; run infer again")
    settings = {name: value for name, value in values["settings"].items() if name not in _RETIRED}
    with sole_writer(path):
        replace_attributes(path, sealed({**values, "format_version": FORMAT_VERSION, "settings": settings}))
    logger.info("%s: rewritten from format 1 to %d", path, FORMAT_VERSION)


def read_model(
    path: str | os.PathLike[str] | StorePath,
    names: tuple[str, ...] | None = None,
    optional: tuple[str, ...] = (),
) -> Model:
    """Read a model into memory and verify each array against its digest.

    ``names`` are the arrays to read, None for all; ``optional`` arrays are read if the model has them. Raises
    ``InputError`` if there is no model at ``path``; ``StoreError``, naming the array, if one is missing, truncated or
    altered.
    """
    path = store_path(path, "a model")
    attributes = _read_attributes(path)
    digests = attributes["digests"]
    wanted = tuple(digests) if names is None else (*names, *(name for name in optional if name in digests))
    known = _digests_of(path, digests, wanted)
    arrays = {name: read_array(path, name, digest) for name, digest in known.items()}
    return Model(arrays, attributes["settings"], attributes["metrics"], attributes["provenance"])


def read_model_panels(path: StorePath, name: str) -> Iterator[NDArray[Any]]:
    """Yield the rows of a numeric array of a model in order, some MiB at a time.

    Raises ``InputError`` and ``StoreError`` as ``read_model``; altered values are reported after the last panel.
    """
    digests = _digests_of(path, _read_attributes(path)["digests"], (name,))
    for _, values in read_panels(path, name, digests[name]):
        yield values


def _digests_of(path: StorePath, digests: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, ArrayDigest]:
    missing = [name for name in wanted if name not in digests]
    if missing:
        raise StoreError(f"{path}: this model has no {', '.join(missing)}; run infer again")
    return {name: ArrayDigest.from_fields(digests[name]) for name in wanted}


def open_model(path: AnyModel) -> xr.Dataset:
    """Open a model lazily as a labeled ``xarray.Dataset`` with the words as a coordinate.

    Words and lists of word ids are in memory, so that ``model.word[model.prominent_words]`` are words.
    Its attributes ``settings``, ``metrics`` and ``provenance`` are mappings, which netCDF stores as JSON text. Raises
    ``InputError`` if there is no model at ``path``, ``StoreError`` if metadata are missing or damaged; reading values
    whose chunk is missing raises ``FileNotFoundError``. Values are not compared with their digests; ``describe`` and
    other functions do that.
    """
    import xarray as xr

    path = model_path(path).absolute()  # arrays are read later, maybe after os.chdir
    digests = _read_attributes(path)["digests"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of words, and of what is told below
            opened = xr.open_zarr(zarr_store(path), consolidated=False)
    except (ValueError, KeyError) as error:
        raise StoreError(f"{path}: metadata of an array are damaged ({error}); run infer again") from error
    if missing := digests.keys() - opened.variables.keys():
        raise StoreError(f"{path}: {', '.join(sorted(missing))} is missing; run infer again")
    # NumPy cannot cast Zarr's strings of variable width to str, and pandas has no such dtype.
    words = opened.variables["word"]
    opened = opened.assign_coords(word=("word", words.values.astype(object), words.attrs))
    # xarray indexes by arrays in memory only.
    ids = [name for name, of in opened.data_vars.items() if of.dtype.kind == "i" and "word" not in of.dims]
    opened = opened.assign({name: opened[name].compute() for name in ids})
    opened.attrs = _as_json_attributes(opened.attrs)
    opened.encoding["source"] = str(path)  # as xarray does for files
    return opened


def dataset_of(model: Model) -> xr.Dataset:
    """A model in memory as ``open_model`` returns it, without copying arrays and without their digests."""
    import xarray as xr

    variables = model.variables()
    arrays = {
        name: (variables[name].dimensions, values, variables[name].attributes())
        for name, values in model.arrays.items()
    }
    return xr.Dataset(arrays, attrs=_as_json_attributes(model.attributes()))


def _as_json_attributes(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        name: JsonAttribute(value) if isinstance(value, dict) else value for name, value in attributes.items()
    }
