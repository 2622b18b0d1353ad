"""Tokenizer of a corpus: words, n-grams, stems and phrases."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from threading import Lock, local
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.config import BUILT_IN
from streaming_jsmf.config.reading import TokenOptions
from streaming_jsmf.corpus.curation import folded
from streaming_jsmf.corpus.footer import is_list
from streaming_jsmf.corpus.hashes import string_buffers
from streaming_jsmf.errors import InputError, first_line, option, pass_on_machine
from streaming_jsmf.ingestion.tokens.boilerplate import changed, split_passages, without_boilerplate
from streaming_jsmf.ingestion.tokens.split import (
    TokenLists,
    count_codes,
    given_tokens,
    split_words,
    with_ngrams,
    with_phrases,
)
from streaming_jsmf.ingestion.tokens.stop_words import LEAST_DOCUMENTS, NONE, load_stop_words, without_spaces
from streaming_jsmf.ingestion.users_code import users_function

logger = logging.getLogger(__name__)

LONGEST_NGRAM = 3

#: Sudachi accepts at most 49,149 bytes at once; a character takes at most four.
_LONGEST_PIECE = 10_000
_PIECE = re.compile(rf"[^。\n]{{1,{_LONGEST_PIECE}}}[。\n]?|[。\n]")

#: Parts of speech that carry subjects: nouns, verbs, adjectives of both kinds, and adverbs.
_JAPANESE = ("名詞", "動詞", "形容詞", "形状詞", "副詞")

#: Function from a text to its words; a user's callable may return any iterable.
Analyzer = Callable[[str], Iterable[str]]


@dataclass(frozen=True)
class Tokenizer:
    """Callable from texts to tokens. Picklable; raises InputError for invalid settings or missing packages.

    Attributes
    ----------
    options : How texts become words. Its tokenizer is "arrow": runs of Unicode letters and digits; "sklearn": the
        analyzer of scikit-learn's CountVectorizer (words of at least two characters); "chinese": jieba; or "japanese":
        nouns, verbs, adjectives and adverbs in the dictionary form of Sudachi. These return lower case in normal form
        C. "MODULE:FUNCTION" is a callable from a text to its words, which may be called from several threads; empty
        words are dropped.
    stop_words : Words that are not stemmed, so that stop-word lists still match them; see ``load_stop_words``.
    phrases : Pairs of words, after stemming, that become one word each (``with_phrases``).
    of_mail : Whether all texts are messages, as the reader knows.
    """

    options: TokenOptions = field(default_factory=TokenOptions)
    stop_words: str = NONE
    phrases: tuple[str, ...] = ()
    of_mail: bool = False

    def __post_init__(self) -> None:
        if self.options.tokenizer != "arrow":
            _analyzer(self.options.tokenizer)
        if self.options.stemmer is not None:
            _stem_function(self.options.stemmer)
        for phrase in self.phrases:
            if not is_phrase(phrase):
                raise InputError(f"{phrase!r} is not a phrase; give two words with one space between them")

    def __call__(self, texts: Any) -> TokenLists:
        """Tokenize an Arrow array of strings without nulls, or of lists of strings, which are tokens as they are.

        Raises InputError if a user's callable fails.
        """
        options, removed, passages = self.options, (0, 0), None
        if is_list(texts.type):
            if options.split is not None:
                raise InputError(
                    f"the texts are lists of tokens, which {option.split} does not cut; leave it out"
                )
            tokens = given_tokens(texts)
            texts = pc.binary_join(texts, " ").fill_null("") if options.excerpt else texts
        else:
            if options.boilerplate == "drop":
                texts, removed = without_boilerplate(texts, self.of_mail)
            if options.split is not None:
                texts, passages = split_passages(texts, options.split)
            tokens = self._split(texts)
            if options.stemmer is not None:
                tokens = _stemmed(tokens, options.stemmer, self.stop_words)
        if self.phrases:
            tokens = with_phrases(tokens, self.phrases)
        tokens = tokens if options.ngrams == 1 else with_ngrams(tokens, options.ngrams)
        excerpts = _beginnings(texts, options.excerpt) if options.excerpt else None
        return replace(tokens, excerpts=excerpts, boilerplate=removed, texts=passages)

    def _split(self, texts: Any) -> TokenLists:
        name, form = self.options.tokenizer, self.options.normalization
        if name == "arrow":
            return split_words(texts, form)
        given = texts.to_pylist()
        if name in BUILT_IN:
            # As in ``split_words``. Arrow's own function decomposes for NFC before pyarrow 26.
            given = [unicodedata.normalize(form, text) for text in given]
        return _analyzed(given, _analyzer(name), name)


def suited_tokenizer(texts: Any) -> str:
    """Return the name of the built-in tokenizer for a sample of texts (an Arrow array of strings without nulls).

    Texts without spaces between words need one for their script. Raises InputError if most do and it is missing;
    ``with_language`` warns of fewer.
    """
    chosen = "arrow"
    for script, number in without_spaces(count_codes(split_words(texts))).most_common():
        share = number / len(texts)
        found, missing = lack_of_spaces(script, share)
        if chosen != "arrow" and share >= LEAST_DOCUMENTS:
            logger.warning("%s, and the tokenizer %s is not made for them; ingest them apart", found, chosen)
        elif share >= LEAST_DOCUMENTS and not missing:
            logger.info("%s: their words are found with %s", found, option.tokenizer(script))
            chosen = script
        elif share > 0.5:
            raise InputError(f"{found}; {missing}")
    return chosen


def lack_of_spaces(script: str, share: float) -> tuple[str, str]:
    """Say how many texts have no spaces between words, and what to do, which is empty if a tokenizer is installed."""
    found = f"{share:.0%} of the texts are in {script.capitalize()} without spaces between words"
    advice = f"find their words with {option.tokenizer('MODULE:FUNCTION')}"
    if script in BUILT_IN:
        try:
            _analyzer(script)
            return found, ""
        except InputError as error:
            advice = str(error)
    return found, f"{advice}, or take what is between spaces as words with {option.tokenizer('arrow')}"


def require_words(lists: Any) -> None:
    """Raise InputError for an Arrow array of lists of texts, which are no lists of words."""
    spaces = pc.count_substring(lists.flatten().cast(pa.string()), " ")
    if (pc.mean(spaces).as_py() or 0) >= LONGEST_NGRAM:
        raise InputError(
            "the texts are lists whose items have many words, and each item would be a word; join each list to one "
            "text, or give lists of words"
        )


def is_phrase(text: str) -> bool:
    """Return whether a text is two words separated by one space; single words contain no space."""
    return len(text.split(" ")) == 2 and all(text.split(" "))


def _beginnings(texts: Any, length: int) -> Any:
    """The first characters of each text, of twice as many, with single spaces for white space."""
    head = pc.utf8_slice_codeunits(texts, 0, 2 * length)
    offsets, data = string_buffers(head)
    data = data[: offsets[-1]]
    # Texts that may have others than single spaces: the pattern takes ten times as long.
    low = data <= ord(" ")
    places = np.flatnonzero(low & ((data != ord(" ")) | np.append(low[1:], True)))
    odd = np.zeros(len(head), bool)
    odd[np.searchsorted(offsets, places, "right") - 1] = True
    single = partial(pc.replace_substring_regex, pattern=r"[\t\n\f\r]\s*| \s+", replacement=" ")
    head = changed(head, pa.array(odd), single)
    return pc.utf8_slice_codeunits(pc.utf8_trim_whitespace(head), 0, length)


def _analyzed(texts: list[str], analyzer: Analyzer, name: str) -> TokenLists:
    words = [_words_of(text, analyzer, name) for text in texts]
    try:
        return given_tokens(pa.array(words, pa.list_(pa.string())))
    except UnicodeError as error:
        raise InputError(
            f"tokenizer {name!r} returned a word that is not UTF-8 ({first_line(error)})"
        ) from error


def _words_of(text: str, analyzer: Analyzer, name: str) -> list[str]:
    try:
        words = analyzer(text)
        # A string is also an iterable of strings.
        found = words if isinstance(words, str) else list(words)
    except Exception as error:
        pass_on_machine(error)
        what = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"tokenizer {name!r} failed on a text ({what}); correct the function") from error
    if isinstance(found, str) or not all(isinstance(word, str) for word in found):
        held = found if isinstance(found, str) else next(word for word in found if not isinstance(word, str))
        raise InputError(f"tokenizer {name!r} must return a list of strings; it gave {str(held)[:40]!r}")
    return [word for word in found if word]


def _stemmed(tokens: TokenLists, language: str, stop_words: str) -> TokenLists:
    """Stem each distinct word once; equal stems share one code."""
    stem, listed = (
        _stem_function(language),
        folded(pa.array(sorted(load_stop_words(stop_words)), pa.string())),
    )
    spared = pc.is_in(folded(tokens.dictionary), value_set=listed).to_pylist()
    words = tokens.dictionary.to_pylist()
    stems = [word if kept else stem(word) for word, kept in zip(words, spared, strict=True)]
    encoded = pa.array(stems, pa.string()).dictionary_encode()
    count = np.bincount(tokens.codes, minlength=len(words))
    forms = pa.table(
        {"word": encoded.cast(pa.string()), "form": tokens.dictionary.cast(pa.string()), "count": count}
    )
    codes = np.asarray(encoded.indices)[tokens.codes]
    return TokenLists(tokens.indptr, codes, encoded.dictionary, forms=forms)


@cache
def _analyzer(name: str) -> Analyzer:
    """Return the function of a tokenizer name. Raises InputError if it or its package is missing."""
    if name == "sklearn":
        from sklearn.feature_extraction.text import CountVectorizer

        analyzer: Analyzer = CountVectorizer().build_analyzer()
        return analyzer
    if name == "chinese":
        try:
            import rjieba
        except ImportError as error:
            raise InputError(_missing("rjieba", name)) from error
        return lambda text: _real_words(rjieba.cut(text))
    return (
        _japanese_words()
        if name == "japanese"
        else users_function(name, "the tokenizer", f"{', '.join(BUILT_IN)} or ")
    )


def _japanese_words() -> Analyzer:
    try:
        from sudachipy import Dictionary, SplitMode

        dictionary = Dictionary(dict="small")
    except ImportError as error:
        raise InputError(_missing("sudachipy sudachidict_small", "japanese")) from error
    # Sudachi's tokenizer is stateful, and tasks may run in threads.
    own = local()

    def words(text: str) -> list[str]:
        if not hasattr(own, "tokenizer"):
            own.tokenizer = dictionary.tokenizer(mode=SplitMode.A)
        pieces = _PIECE.findall(text)
        parts = (part for piece in pieces for part in own.tokenizer.tokenize(piece))
        return _real_words(part.dictionary_form() for part in parts if part.part_of_speech()[0] in _JAPANESE)

    return words


def _real_words(words: Iterable[str]) -> list[str]:
    """Return the words that contain a letter or digit, in lower case."""
    return [word.lower() for word in words if any(map(str.isalnum, word))]


def _missing(packages: str, extra: str) -> str:
    return f"the tokenizer {extra} needs a package; pip install {packages}"


@cache
def _stem_function(language: str) -> Callable[[str], str]:
    try:
        import snowballstemmer
    except ImportError as error:
        raise InputError("stemming needs a package; pip install snowballstemmer") from error
    if language not in snowballstemmer.algorithms():
        known = ", ".join(sorted(snowballstemmer.algorithms()))
        raise InputError(f"there is no stemmer for {language!r}; there are {known}")
    stemmer, lock = snowballstemmer.stemmer(language), Lock()

    # Cached because words recur in every batch and the stemmer may be pure Python.
    @lru_cache(maxsize=1 << 18)
    def stem(word: str) -> str:
        with lock:  # the stemmer is stateful, and tasks may run in threads
            return str(stemmer.stemWord(word))

    return stem
