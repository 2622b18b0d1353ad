"""The model store: one Zarr v3 group for one K, arrays and JSON only, committed by a rename or by its root."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import zarr
from numpy.typing import NDArray
from upath import UPath

from streaming_jsmf.config import fingerprint
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.storage.arrays import (
    ArrayDigest,
    create_group,
    read_arrays,
    read_attributes,
    read_panels,
    write_array,
    zarr_store,
)
from streaming_jsmf.storage.paths import (
    AnyPath,
    StorePath,
    child_names,
    is_free,
    node_exists,
    store_path,
)
from streaming_jsmf.storage.provenance import utc_now
from streaming_jsmf.storage.replace import require_outside, store_written
from streaming_jsmf.topics.attributes import readable
from streaming_jsmf.topics.variables import MODEL_VARIABLES, STOD_VARIABLES, Variable

if TYPE_CHECKING:
    # With pandas a fifth of the start of every command, and only two functions below need it.
    import xarray as xr

KIND, FORMAT_VERSION = "streaming_jsmf.model", 1

#: How a user names a model: its path or URL, or what was opened there.
AnyModel: TypeAlias = "AnyPath | UPath | xr.Dataset"


@dataclass(frozen=True)
class Model:
    """A fitted model in memory.

    Attributes
    ----------
    arrays
        By the names of ``MODEL_VARIABLES``, or of ``STOD_VARIABLES`` where that is the engine.
    settings, metrics, provenance
        JSON values: what was asked for, certificates of the result, and where it comes from.
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


def model_path(model: AnyModel) -> StorePath:
    """Where a model is that was given by its path, or as what ``open_model`` or ``fit`` made of it.

    Raises
    ------
    InputError
        If it is neither, or one that lies nowhere; and as ``store_path``.
    """
    kept = getattr(model, "encoding", None)
    if isinstance(kept, Mapping):  # a Dataset, which remembers where it was opened
        if "source" not in kept:
            raise InputError("this Dataset was not opened from a model store; give the path of the model")
        model = kept["source"]
    elif not isinstance(model, UPath | str | os.PathLike):
        saved = "; keep it with its save(path) first" if hasattr(model, "save") else ""
        raise InputError(f"a model is named by its path, and a {type(model).__name__} was given{saved}")
    return store_path(model, "a model")


def require_free_path(path: StorePath, overwrite: bool = False) -> None:
    """Refuse a path where something lies already, before any work is done for it.

    Raises
    ------
    InputError
        If ``path`` exists, unless it is a model that may be overwritten, and not the working directory.
    """
    if is_free(path):
        return
    if not overwrite:
        raise InputError(f"{path}: exists already; give another path, or --overwrite to replace a model")
    _attributes(path)
    if isinstance(path, Path):
        require_outside(path)


def write_model(path: StorePath, model: Model, *, overwrite: bool = False) -> None:
    """Write a model beside ``path`` and rename it into place; behind a URL in place, its root last.

    The caller holds the lock of ``path`` (``jobs.lock``).

    Raises
    ------
    InputError
        If something lies at ``path``, see ``require_free_path``.
    """
    require_free_path(path, overwrite)
    with store_written(path, overwrite=overwrite) as beside:
        variables = _variables(model)
        digests = {name: _write(beside, name, values, variables) for name, values in model.arrays.items()}
        about = _about(model)
        about["provenance"]["committed"] = utc_now()
        attributes = {**about, "digests": digests}
        create_group(beside, {**attributes, "sha256": fingerprint(attributes)})


def dataset_of(model: Model) -> xr.Dataset:
    """A model in memory as ``open_model`` shows one, but for the digests of its arrays, which are not copied."""
    import xarray as xr

    variables = _variables(model)
    arrays = {
        name: (variables[name].dimensions, values, _described(variables[name]))
        for name, values in model.arrays.items()
    }
    return xr.Dataset(arrays, attrs=readable(_about(model)))


def _about(model: Model) -> dict[str, Any]:
    return {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "settings": dict(model.settings),
        "metrics": dict(model.metrics),
        "provenance": dict(model.provenance),
    }


def _variables(model: Model) -> Mapping[str, Variable]:
    return STOD_VARIABLES if model.engine == "stod" else MODEL_VARIABLES


def _described(variable: Variable) -> dict[str, Any]:
    return {"long_name": variable.meaning, **({"symbol": variable.symbol} if variable.symbol else {})}


def _write(
    group: StorePath, name: str, values: NDArray[Any], variables: Mapping[str, Variable]
) -> dict[str, Any]:
    variable = variables[name]
    return write_array(group, name, values, variable.dimensions, _described(variable), compress=True).fields()


def model_names(path: StorePath) -> list[str]:
    """Names (``k=5``, ...) of the models that ``fit`` wrote below ``path`` for several numbers of topics.

    Unfinished work for one of them (``k=5.partial``) is not a model.
    """
    names = [name for name in child_names(path, "k=") if name[2:].isdigit() and node_exists(path / name)]
    return sorted(names, key=lambda name: (len(name), name))


def _attributes(path: StorePath) -> dict[str, Any]:
    if not node_exists(path):
        children = model_names(path)
        hint = f"it holds models {', '.join(children)}" if children else "fit and infer make one"
        raise InputError(f"{path}: no model is here; {hint}")
    attributes = read_attributes(path)
    if attributes.get("kind") != KIND:
        raise InputError(f"{path}: this is not a model; give the path that infer or fit wrote")
    missing = {"format_version", "settings", "metrics", "provenance", "digests", "sha256"} - attributes.keys()
    if missing:
        raise StoreError(f"{path}/zarr.json: metadata lack {', '.join(sorted(missing))}; run infer again")
    if attributes["format_version"] != FORMAT_VERSION:
        raise InputError(
            f"{path}: format version {attributes['format_version']} is unknown; this release reads {FORMAT_VERSION}"
        )
    if attributes.pop("sha256") != fingerprint(attributes):
        raise StoreError(f"{path}/zarr.json: metadata differ from their sha256; run infer again")
    return attributes


def read_model(
    path: str | os.PathLike[str] | StorePath,
    names: tuple[str, ...] | None = None,
    optional: tuple[str, ...] = (),
    *,
    hint: str = "make the store again",
) -> Model:
    """Read a model into memory, each array verified against its digest.

    Parameters
    ----------
    path
        Of the model store.
    names
        Arrays to read; None: all.
    optional
        Arrays to read besides if the model has them: not every engine makes all.
    hint
        Ends the message about damage.

    Raises
    ------
    InputError
        If there is no model at ``path``.
    StoreError
        If an array is missing, truncated or altered; the message names it.
    """
    path = store_path(path, "a model")
    attributes = _attributes(path)
    digests = attributes["digests"]
    wanted = tuple(digests) if names is None else (*names, *(name for name in optional if name in digests))
    _require_arrays(path, digests, wanted)
    expected = {name: ArrayDigest.from_fields(digests[name]) for name in wanted}
    arrays = read_arrays(path, expected, hint=hint)
    return Model(arrays, attributes["settings"], attributes["metrics"], attributes["provenance"])


def read_model_panels(path: StorePath, name: str) -> Iterator[NDArray[Any]]:
    """The rows of an array of numbers of a model, a chunk of some MiB at a time, in order.

    Raises
    ------
    InputError, StoreError
        As ``read_model``; values that were altered are told when the last panel has been taken.
    """
    digests = _attributes(path)["digests"]
    _require_arrays(path, digests, (name,))
    for _, values in read_panels(path, name, ArrayDigest.from_fields(digests[name])):
        yield values


def _require_arrays(path: StorePath, digests: Mapping[str, Any], wanted: tuple[str, ...]) -> None:
    lacking = [name for name in wanted if name not in digests]
    if lacking:
        raise StoreError(f"{path}: this model has no {', '.join(lacking)}; run infer again")


def open_model(path: AnyModel) -> xr.Dataset:
    """Open a model lazily as a labelled ``xarray.Dataset``; ``word`` is a coordinate of strings.

    ``settings``, ``metrics`` and ``provenance`` among its attributes are read like mappings, and written to netCDF as
    JSON text.

    Raises
    ------
    InputError
        If there is no model at ``path``.
    """
    import xarray as xr

    path = model_path(path)
    _attributes(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=zarr.errors.UnstableSpecificationWarning)
        opened = xr.open_zarr(zarr_store(path), consolidated=False)
    opened.attrs = readable(opened.attrs)
    opened.encoding["source"] = str(path)  # as xarray keeps it of files
    return opened
