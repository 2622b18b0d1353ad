"""Attributes of a model as ``xarray`` shows them: mappings to read, JSON text to write."""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any


class JsonAttribute(str):
    """A mapping of JSON values that is the text of that JSON, too.

    xarray writes no attribute to netCDF but numbers and texts, and people look into the settings of a model by key. So
    this is read like the mapping, is equal to it, and is written as the text.

    Examples
    --------
    >>> settings = JsonAttribute({"n_topics": 20, "rectify": "enn"})
    >>> settings["n_topics"], "rectify" in settings, str(settings)
    (20, True, '{"n_topics": 20, "rectify": "enn"}')
    """

    __slots__ = ("_fields",)
    _fields: dict[str, Any]
    __hash__ = str.__hash__

    def __new__(cls, fields: Mapping[str, Any] | str) -> JsonAttribute:
        # Copying and unpickling begin with the text.
        text = fields if isinstance(fields, str) else json.dumps(fields, ensure_ascii=False)
        made = super().__new__(cls, text)
        made._fields = json.loads(text)
        return made

    def __getitem__(self, key: Any) -> Any:
        return self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __contains__(self, key: object) -> bool:
        return key in self._fields

    def __eq__(self, other: object) -> bool:
        return self._fields == other if isinstance(other, dict) else str(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def get(self, key: str, default: Any = None) -> Any:
        """The value of ``key``."""
        return self._fields.get(key, default)

    def keys(self) -> KeysView[str]:
        """Its names."""
        return self._fields.keys()

    def values(self) -> ValuesView[Any]:
        """Its values."""
        return self._fields.values()

    def items(self) -> ItemsView[str, Any]:
        """Names and values."""
        return self._fields.items()


def readable(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a model store with each mapping as a ``JsonAttribute``."""
    return {
        name: JsonAttribute(value) if isinstance(value, dict) else value for name, value in attributes.items()
    }
