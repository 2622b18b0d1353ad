"""A vocabulary that is given: a list of words, or where one stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streaming_jsmf.corpus.format import open_corpus
from streaming_jsmf.corpus.manifest import MANIFEST_NAME, PHRASES, Json
from streaming_jsmf.corpus.vocabulary import read_vocabulary
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.ingestion.tokens.lists import is_phrase
from streaming_jsmf.storage.arrays import ArrayDigest, read_array, read_attributes
from streaming_jsmf.storage.paths import StorePath, exists, is_file, join, node_exists, normalise, store_path


def given_phrases(place: str | Path | Sequence[str]) -> tuple[str, ...]:
    """The phrases of a corpus or a model that tells them; of a list or a file of words those of two words.

    Raises
    ------
    InputError, StoreError
        As ``given_words``.
    """
    if isinstance(place, str | Path):
        root = normalise(place)
        if exists(root) and not is_file(root):
            tokens = _tokens_of(place, root) or {}
            return tuple(str(tokens[PHRASES]).split("\n")) if PHRASES in tokens else ()
    return tuple(filter(is_phrase, given_words(place)))


def _tokens_of(place: str | Path, root: str) -> Mapping[str, Json] | None:
    """How the texts of a corpus or of a model became words."""
    store = store_path(place, "a model")
    if not exists(join(root, MANIFEST_NAME)) and node_exists(store):
        tokens: Mapping[str, Json] | None = _model_attributes(store)["provenance"].get("tokens")
        return tokens
    return open_corpus(root).tokens


def _model_attributes(store: StorePath) -> dict[str, Any]:
    """Attributes of a model. Only its words and tokenizer are needed here, and models depend on corpora."""
    attributes = read_attributes(store)
    if attributes.get("kind") != "streaming_jsmf.model":
        raise InputError(f"{store}: this is not a model; give a file of words, a corpus or a model")
    missing = {"digests", "provenance"} - attributes.keys()
    if missing or "word" not in attributes["digests"]:
        raise StoreError(f"{store}/zarr.json: metadata are incomplete; run infer again")
    return attributes


def given_words(vocabulary: str | Path | Sequence[str]) -> tuple[str, ...]:
    """The words of a list, of a file of words (text or Parquet), of a corpus or of a model, in their order.

    Raises
    ------
    InputError
        If there is nothing there, or a word is empty or there twice.
    StoreError
        If a corpus or a model is damaged.
    """
    if not isinstance(vocabulary, str | Path):
        words = tuple(vocabulary)
        if not words or "" in words or len(set(words)) < len(words):
            raise InputError("the words given must be distinct and not empty, and at least one")
        return words
    root = normalise(vocabulary)
    if not exists(root):
        raise InputError(f"there is no vocabulary at {root}; give a file of words, a corpus or a model")
    if is_file(root):
        return read_vocabulary(root)[0].words
    place = store_path(vocabulary, "a model")
    if not exists(join(root, MANIFEST_NAME)) and node_exists(place):
        expected = ArrayDigest.from_fields(_model_attributes(place)["digests"]["word"])
        return tuple(map(str, read_array(place, "word", expected, hint="run infer again")))
    return open_corpus(root).vocabulary().words
