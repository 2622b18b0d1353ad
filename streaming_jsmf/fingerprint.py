"""Fingerprints of settings, and how two sets of settings differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Longest value that a message about settings shows; digests are longer.
LONGEST_VALUE = 60

#: Hexadecimal digits from which a text counts as a digest, which says nothing to a reader.
SHORTEST_DIGEST = 12

#: Fields with digests, in words, the most telling first.
IN_WORDS = {
    "files": "other files were read, or their contents have changed",
    "contents": "the contents differ",
    "spec": "the spec has changed",
    "topics": "the topics are others, or were edited",
    "documents": "the documents are others",
    "corpus": "the corpus is another one, or has changed",
    "stop_words_sha256": "the stop words are others",
    "vocabulary_sha256": "the words given are others",
    "tokenizer": "the code of the tokenizer has changed",
    "function": "the code of the function has changed",
    "known_kinds": "columns have other types",
    "grown": "the corpus has been updated since",
    "algorithm version": "this release computes it in another way",
}
#: Fields with digests that follow from others, and are named only if no other field differs.
IMPLIED = {
    "source": "the source is another one, or is read in another way",
    "units": "the files are divided in another way",
    "words": "the words are others",
    "request": "the documents, or how they are read, are others",
    "fingerprint": "the input or the release of the package is another one",
}


def fingerprint(values: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of the canonical JSON of ``values``, in which 2 and 2.0 are the same number."""
    import hashlib  # the command line shows its help without them
    import json

    text = json.dumps(_plain(values), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """JSON values with whole floats as integers and tuples as lists, as one setting may be given in several ways."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` with their fingerprint as ``sha256``, which detects changed and damaged metadata."""
    return {**values, "sha256": fingerprint(values)}


def unsealed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Inverse of ``sealed``; raise ``ValueError`` if the values differ from their fingerprint."""
    values = {key: value for key, value in stored.items() if key != "sha256"}
    if stored.get("sha256") != fingerprint(values):
        raise ValueError("its contents differ from its sha256")
    return values


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Tell what differs: fields with both values where these are short, and others in words; empty if nothing does.

    Examples
    --------
    >>> old, new = "a" * 64, "b" * 64
    >>> differences({"k": 1, "files": old, "units": old}, {"k": 2, "files": new, "units": new})
    'other files were read, or their contents have changed; k: stored 1, asked 2'
    """
    missing = object()
    differing = sorted(
        key
        for key in {*stored, *wanted}
        if _plain(stored.get(key, missing)) != _plain(wanted.get(key, missing))
    )
    told = [_difference(key, stored.get(key), wanted.get(key)) for key in differing if key not in IMPLIED]
    implied = [] if told else [key for key in IMPLIED if key in differing]
    return "; ".join(told or [_difference(key, stored.get(key), wanted.get(key)) for key in implied[:1]])


def _difference(key: str, stored: Any, wanted: Any) -> str:
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        inner = ({f"{key}.{name}": value for name, value in of.items()} for of in (stored, wanted))
        return differences(*inner)
    if all(len(repr(value)) <= LONGEST_VALUE and not _is_digest(value) for value in (stored, wanted)):
        return f"{key}: stored {stored!r}, asked {wanted!r}"
    return {**IN_WORDS, **IMPLIED}.get(key.rpartition(".")[2], f"{key.replace('_', ' ')} differs")


def _is_digest(value: Any) -> bool:
    return (
        isinstance(value, str) and len(value) >= SHORTEST_DIGEST and not set(value) - set("0123456789abcdef")
    )
