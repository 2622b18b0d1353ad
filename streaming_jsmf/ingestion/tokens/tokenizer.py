"""How texts become words: the choice of tokenizer, n-grams and stems that a user makes once for a corpus."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from threading import Lock
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.errors import InputError, first_line, pass_on_machine
from streaming_jsmf.ingestion.tokens.boilerplate import without_boilerplate
from streaming_jsmf.ingestion.tokens.lists import TokenLists, with_ngrams
from streaming_jsmf.ingestion.tokens.phrases import check_phrases, with_phrases
from streaming_jsmf.ingestion.tokens.segment import Segmenter, chinese_words, japanese_words
from streaming_jsmf.ingestion.tokens.split import split_words
from streaming_jsmf.ingestion.tokens.stop_words import NONE, load_stop_words

BuiltIn = Literal["arrow", "sklearn", "chinese", "japanese"]
BUILT_IN: tuple[BuiltIn, ...] = get_args(BuiltIn)
LONGEST_NGRAM = 3

_SEGMENTERS: Mapping[str, Callable[[], Segmenter]] = {"chinese": chinese_words, "japanese": japanese_words}

Analyzer = Callable[[str], Iterable[str]]


@dataclass(frozen=True)
class Tokenizer:
    """Texts to tokens. Picklable; loads what it needs where it is used.

    Attributes
    ----------
    name
        "arrow": runs of Unicode letters and digits, by Arrow. "sklearn": the analyzer of scikit-learn's
        CountVectorizer (words of two characters or more). "chinese" and "japanese": by a segmenter, see
        ``tokens.segment``. "MODULE:FUNCTION": a callable of the user's own that
        takes a text and returns its words; tasks may call it from several threads, and empty words are left out.
        All are given or give lower case and normal form C, but the user's own is left as it is.
    ngrams
        Runs of up to this many adjacent words become words too, joined by a space: 1 (none), 2 or 3.
    stemmer
        Language of a Snowball stemmer, such as "english"; None for none.
    stop_words
        Words that are not stemmed, so that a list of stop words still finds them; see ``load_stop_words``.
    boilerplate
        "drop": what is around the text goes first (``without_boilerplate``).
    phrases
        Pairs of words, as they are after stemming, that become one word each, such as "new york" (``with_phrases``).

    Raises
    ------
    InputError
        For settings out of range, a callable that cannot be imported or a language without a stemmer.
    """

    name: str = "arrow"
    ngrams: int = 1
    stemmer: str | None = None
    stop_words: str = NONE
    boilerplate: Literal["keep", "drop"] = "keep"
    phrases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.ngrams <= LONGEST_NGRAM:
            raise InputError(f"ngrams is {self.ngrams}; give 1 (words alone), 2 or {LONGEST_NGRAM}")
        if self.name in _SEGMENTERS:
            _SEGMENTERS[self.name]()
        elif self.name not in BUILT_IN:
            _load_callable(self.name)
        if self.stemmer is not None:
            _stem_function(self.stemmer)
        check_phrases(self.phrases)

    def __call__(self, texts: Any) -> TokenLists:
        """Tokens of an Arrow array of strings without nulls.

        Raises
        ------
        InputError
            If a callable of the user's own fails or returns anything but strings.
        """
        tokens = self._split(without_boilerplate(texts) if self.boilerplate == "drop" else texts)
        if self.stemmer is not None:
            tokens = _stemmed(tokens, self.stemmer, self.stop_words)
        if self.phrases:
            tokens = with_phrases(tokens, self.phrases)
        return tokens if self.ngrams == 1 else with_ngrams(tokens, self.ngrams)

    def _split(self, texts: Any) -> TokenLists:
        if self.name == "arrow":
            return split_words(texts)
        if self.name == "sklearn":
            return _analyzed(pc.utf8_normalize(texts, "NFC"), _sklearn_analyzer(), self.name)
        if self.name in _SEGMENTERS:
            return _analyzed(pc.utf8_normalize(texts, "NFC"), _SEGMENTERS[self.name](), self.name)
        return _analyzed(texts, _load_callable(self.name), self.name)


def _analyzed(texts: Any, analyzer: Analyzer, name: str) -> TokenLists:
    flat: list[str] = []
    ends = [0]
    for text in texts.to_pylist():
        flat.extend(_words_of(text, analyzer, name))
        ends.append(len(flat))
    try:
        encoded = pa.array(flat, pa.string()).dictionary_encode()
    except UnicodeError as error:
        raise InputError(
            f"tokenizer {name!r} returned a word that is not UTF-8 ({first_line(error)})"
        ) from error
    return TokenLists(np.array(ends, np.int64), np.asarray(encoded.indices), encoded.dictionary)


def _words_of(text: str, analyzer: Analyzer, name: str) -> list[str]:
    try:
        words = analyzer(text)
        # A string is an iterable of strings as well: its characters.
        found = words if isinstance(words, str) else list(words)
    except Exception as error:
        pass_on_machine(error)
        what = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"tokenizer {name!r} failed on a text ({what}); mend the function") from error
    if isinstance(found, str) or not all(isinstance(word, str) for word in found):
        held = found if isinstance(found, str) else next(word for word in found if not isinstance(word, str))
        raise InputError(f"tokenizer {name!r} must return a list of strings; it gave {str(held)[:40]!r}")
    return [word for word in found if word]


def _stemmed(tokens: TokenLists, language: str, stop_words: str) -> TokenLists:
    """Stems depend on the word alone: one call for each distinct word, and equal stems become one code."""
    stem, spared = _stem_function(language), load_stop_words(stop_words)
    stems = [word if word in spared else stem(word) for word in tokens.dictionary.to_pylist()]
    encoded = pa.array(stems, pa.string()).dictionary_encode()
    return TokenLists(tokens.indptr, np.asarray(encoded.indices)[tokens.codes], encoded.dictionary)


@cache
def _sklearn_analyzer() -> Analyzer:
    from sklearn.feature_extraction.text import CountVectorizer

    analyzer: Analyzer = CountVectorizer().build_analyzer()
    return analyzer


@cache
def _load_callable(name: str) -> Analyzer:
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise InputError(
            f"tokenizer is {name!r}; give {', '.join(BUILT_IN)} or a callable of your own as MODULE:FUNCTION"
        )
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # the module is the user's, and may raise anything
        pass_on_machine(error)
        what = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"cannot import the tokenizer {name!r} ({what}); check the name") from error
    if not callable(found):
        raise InputError(f"the tokenizer {name!r} is not callable; name a function that takes a text")
    return found


@cache
def _stem_function(language: str) -> Callable[[str], str]:
    try:
        import snowballstemmer
    except ImportError as error:
        raise InputError(
            "stemming needs the package snowballstemmer; pip install 'streaming-jsmf[stem]'"
        ) from error
    if language not in snowballstemmer.algorithms():
        known = ", ".join(sorted(snowballstemmer.algorithms()))
        raise InputError(f"there is no stemmer for {language!r}; there are {known}")
    stemmer, turn = snowballstemmer.stemmer(language), Lock()

    # Words come again in every batch, and the stemmer may be in plain Python.
    @lru_cache(maxsize=1 << 18)
    def stem(word: str) -> str:
        with turn:  # it keeps the word it works on, and tasks may be threads
            return str(stemmer.stemWord(word))

    return stem
