"""From a source to a corpus: read once into bags, choose words, write once. Each step commits and can be resumed.

Start at ``run``, which takes the steps in order: ``plan`` (settings, how the source is cut, the directory of the work),
``read`` (bags, word counts and keys, as ``pieces`` keeps them), ``choose`` (words, and documents that repeat another),
``write`` (shards). ``spec`` reads a data set's description. Knows ``sources``, ``corpus`` and ``jobs``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streaming_jsmf.ingestion.plan import IngestSettings as IngestSettings
    from streaming_jsmf.ingestion.run import ingest_source as ingest_source
    from streaming_jsmf.ingestion.spec import load_spec as load_spec

# Imported when first used: a task needs one module, not all readers.
_EXPORTS = {"IngestSettings": "plan", "ingest_source": "run", "load_spec": "spec"}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
