"""Attributes of a model as ``xarray`` shows them: mappings to read, JSON text to write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


class JsonAttribute(Mapping[str, Any], str):
    """A mapping of JSON values that is the text of that JSON, too.

    xarray writes no attribute to netCDF but numbers and texts, and people look into the settings of a model by key. So
    this is read like the mapping, is equal to it, and is written as the text.

    Examples
    --------
    >>> settings = JsonAttribute({"n_topics": 20, "rectify": "enn"})
    >>> settings["n_topics"], "rectify" in settings, str(settings)
    (20, True, '{"n_topics": 20, "rectify": "enn"}')
    """

    _fields: dict[str, Any]
    __hash__ = str.__hash__

    def __new__(cls, fields: Mapping[str, Any] | str) -> JsonAttribute:
        # Copying and unpickling begin with the text.
        text = fields if isinstance(fields, str) else json.dumps(fields, ensure_ascii=False)
        made = str.__new__(cls, text)
        made._fields = json.loads(text)
        return made

    def __getitem__(self, key: Any) -> Any:
        return self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def readable(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a model store with each mapping as a ``JsonAttribute``."""
    return {
        name: JsonAttribute(value) if isinstance(value, dict) else value for name, value in attributes.items()
    }
