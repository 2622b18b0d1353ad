"""Pydantic base model for files, and one-line messages that name the key and the allowed values."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

UNSAFE_PATH = "unsafe_path"


class Strict(BaseModel):
    """Base of models read from files: frozen, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def is_utf8(text: str) -> bool:
    """Whether a string has no lone surrogates, which stand for undecodable bytes."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def stays_inside(name: str) -> bool:
    """Whether an untrusted relative name stays below its directory."""
    plain = not (name.startswith("~") or any(character in name for character in "\\:\0"))
    return plain and not {"", ".", ".."} & set(name.split("/"))


def _require_inside(name: str) -> str:
    if not stays_inside(name):
        raise PydanticCustomError(
            UNSAFE_PATH,
            "'{name}' leaves its directory; only relative names without '..' are allowed",
            {"name": name},
        )
    return name


RelativeName = Annotated[str, AfterValidator(_require_inside)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Return one line with all findings: key, problem, and allowed keys or values."""
    return re.sub(r"\s+", " ", "; ".join(_finding(item, model) for item in error.errors()))


def is_unsafe(error: ValidationError) -> bool:
    """Whether the findings include a path that leaves its directory."""
    return any(item["type"] == UNSAFE_PATH for item in error.errors())


def _finding(item: Any, model: type[BaseModel]) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "the file"
    if item["type"] == "extra_forbidden":
        allowed = ", ".join(sorted(_table(model, item["loc"][:-1]).model_fields))
        return f"unknown key {key}; allowed: {allowed}"
    if item["type"] == "missing":
        return f"key {key} is missing"
    if item["type"] == "value_error":
        # Our own message; if it concerns several keys there is no single value to show.
        said = str(item["ctx"]["error"])
        return f"{key}: {said}, not {str(item['input'])[:60]!r}" if item["loc"] else said
    return f"{key}: {item['msg'][:1].lower()}{item['msg'][1:]}, not {str(item['input'])[:60]!r}"


def _table(model: type[BaseModel], location: tuple[Any, ...]) -> type[BaseModel]:
    """Return the model that holds the key at ``location``, skipping indices and keys of open tables."""
    for part in location:
        field = model.model_fields.get(str(part))
        if field is not None:
            model = next((m for m in _models_in(field.annotation)), model)
    return model


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for inner in getattr(annotation, "__args__", ()) for m in _models_in(inner)]
