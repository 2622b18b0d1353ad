"""Stop words by language, and the languages of documents from their words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import stopwordsiso
from numpy.typing import NDArray

from streaming_jsmf.config import AUTO
from streaming_jsmf.corpus.bags import Bags
from streaming_jsmf.corpus.curation import folded
from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.storage.local import require_regular

ENGLISH = "english"
NONE = "none"
#: Begins each word in a choice of several lines.
_WORD = "="

#: Languages with a list, and their ISO 639-1 codes.
_CODES = """
afrikaans=af arabic=ar armenian=hy basque=eu bengali=bn breton=br bulgarian=bg catalan=ca chinese=zh croatian=hr
czech=cs danish=da dutch=nl english=en esperanto=eo estonian=et finnish=fi french=fr galician=gl german=de greek=el
gujarati=gu hausa=ha hebrew=he hindi=hi hungarian=hu indonesian=id irish=ga italian=it japanese=ja korean=ko kurdish=ku
latin=la latvian=lv lithuanian=lt malay=ms marathi=mr norwegian=no persian=fa polish=pl portuguese=pt romanian=ro
russian=ru slovak=sk slovenian=sl somali=so sotho=st spanish=es swahili=sw swedish=sv tagalog=tl thai=th turkish=tr
ukrainian=uk urdu=ur vietnamese=vi yoruba=yo zulu=zu
"""
LANGUAGES: Mapping[str, str] = dict(pair.split("=") for pair in _CODES.split())
_NAMES = list(LANGUAGES)

#: Letters that give languages away. Those of a language without a list count for none.
_LETTERS = {
    "japanese": r"[\p{Hiragana}\p{Katakana}\p{Han}]",
    "chinese": r"^\p{Han}+$",
    "korean": r"\p{Hangul}",
    **{
        name: rf"\p{{{name.capitalize()}}}"
        for name in ("thai", "armenian", "bengali", "gujarati", "greek", "hebrew")
    },
}

#: Scripts without spaces, by the tokenizer for them if there is one, and runs of letters that are more than a word.
_RUNS = {
    "japanese": r"[\p{Hiragana}\p{Katakana}][\p{Hiragana}\p{Katakana}\p{Han}ー]{7,}",
    "chinese": r"\p{Han}{7,}",
    **{script: rf"\p{{{script}}}{{16,}}" for script in ("Thai", "Lao", "Khmer", "Myanmar")},
}

#: Minimum share of stop words among the tokens for guessing a language; other documents are names and numbers.
_LEAST_SHARE = 0.1
#: Minimum share of documents in a language, or of English words among those of other languages, to remove its list.
LEAST_DOCUMENTS, LEAST_ENGLISH = 0.04, 0.01
#: Documents of a batch whose language is guessed, and about how many tokens they have at most.
SAMPLE, SAMPLE_TOKENS = 256, 32_768
#: Rounds in which the shares of the languages of a batch settle, and their weight.
_ROUNDS, _PRIOR = 5, 0.7
UNKNOWN, ENGLISH_WORDS, TOKENS, RUNS = "unknown", "English words", "tokens", "without spaces "


def parts_of(choice: str) -> list[str]:
    """Return the parts of a setting: "auto", "none", languages, paths, and words that begin with =.

    The parts of a line are separated by commas, or by + beside languages. A setting that begins with a line end has
    one part in each line (``config.Curation``): strings that contain / or \\ or end in .txt are paths, and others that
    are neither a language nor auto are words.
    """
    known = {*LANGUAGES, AUTO, NONE}
    if choice.startswith("\n"):
        parts = [part for part in choice.split("\n") if part]
        named = {part: part.lower() for part in parts if part.lower() in known - {NONE}}
        is_path = re.compile(r"[/\\]|\.txt$").search
        return [
            named.get(part, part if part[0] == _WORD or is_path(part) else _WORD + part) for part in parts
        ]
    for separator in ",+":
        parts = [part.strip() for part in choice.split(separator)]
        joins = separator in choice and (separator == "," or known & {part.lower() for part in parts})
        if joins and not Path(choice).expanduser().is_file():
            return [each for part in parts for each in parts_of(part)]
    return [choice.lower() if choice.lower() in known else choice.strip()]


def _is_path(part: str) -> bool:
    return part[:1] != _WORD and part not in {*LANGUAGES, AUTO, NONE}


def with_parts(choice: str, change: Callable[[str], Iterable[str]]) -> str:
    """Return a setting whose parts are replaced by others."""
    parts = dict.fromkeys(new for part in parts_of(choice) for new in change(part))
    few = len(parts) < 2 or all(part in LANGUAGES for part in parts)
    return ",".join(parts) or NONE if few else "".join(f"\n{part}" for part in parts)


def with_languages(choice: str, languages: Iterable[str]) -> str:
    """Return a setting with these languages instead of "auto"."""
    return with_parts(choice, lambda part: languages if part == AUTO else [part])


def with_paths(choice: str, convert: Callable[[str], str]) -> str:
    """Return a setting with other paths."""
    return with_parts(choice, lambda part: [convert(part) if _is_path(part) else part])


def shown(choice: str) -> str:
    """Return a setting as manifests have it: "file" and "words" stand for words that are not stored."""
    names = (
        "words" if part[:1] == _WORD else "file" if _is_path(part) else part for part in parts_of(choice)
    )
    return ",".join(dict.fromkeys(names))


def load_stop_words(choice: str) -> frozenset[str]:
    """Return the words of a setting (``parts_of``) in lower case; "auto" adds none (see ``count_languages``).

    English is this package's list, other languages are from stopwords-iso, with additions. A file is UTF-8 text with
    one word per line, or several with commas, and comments after #. Words with apostrophes also count as their parts,
    at which tokens end. Raises InputError if a file cannot be read.
    """
    return frozenset().union(*map(_load, parts_of(choice)))


def _load(part: str) -> frozenset[str]:
    if part in (NONE, AUTO):
        return frozenset()
    if part in LANGUAGES:
        return _of_language(part)
    if part.startswith(_WORD):
        return _with_pieces(_parse(part[1:]))
    try:
        text = require_regular(Path(part).expanduser()).read_text(encoding="utf-8-sig")
        return _with_pieces(_parse(text.replace(",", "\n")))
    except (OSError, UnicodeDecodeError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else first_line(error)
        raise InputError(
            f"cannot read the stop words {part!r} ({reason}); give auto, none, languages such as english or "
            "german,french, or the path of a UTF-8 text file with one word a line"
        ) from error


@cache
def _of_language(language: str) -> frozenset[str]:
    if language == ENGLISH:
        return _parse(_own_file("stop_words_english.txt"))
    words = _parse("\n".join(stopwordsiso.stopwords(LANGUAGES[language]))) | _additions().get(
        language, frozenset()
    )
    words = _with_pieces(words)
    # Arabic joins "and" to the next word.
    return words | {f"و{word}" for word in words if language == "arabic" and len(word) > 2}


def _with_pieces(words: frozenset[str]) -> frozenset[str]:
    """Add the parts of words with apostrophes, at which tokens end."""
    return words | {piece for word in words for piece in re.split("['\u2019]", word) if piece}


@cache
def _additions() -> Mapping[str, frozenset[str]]:
    text = re.sub(r"(?m)^#.*", "", _own_file("stop_words_more.txt"))
    sections = re.findall(r"\[(\w+)\]([^\[]*)", text)
    return {language: _parse("\n".join(words.split())) for language, words in sections}


def _own_file(name: str) -> str:
    return files("streaming_jsmf.ingestion.tokens").joinpath(name).read_text(encoding="utf-8")


def _parse(text: str) -> frozenset[str]:
    lines = (line.strip().lower() for line in unicodedata.normalize("NFC", text).splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))


@cache
def _listed() -> tuple[Any, NDArray[np.float32]]:
    """All stop words, folded, and whether they are in the list of each language, (words, languages)."""
    lists = [sorted(_of_language(name)) for name in _NAMES]
    words = folded(pa.array([word for listed in lists for word in listed], pa.string())).dictionary_encode()
    owned = np.zeros((len(words.dictionary), len(_NAMES)), np.float32)
    owned[np.asarray(words.indices), np.repeat(np.arange(len(lists)), [*map(len, lists)])] = 1
    return words.dictionary, owned


def _evidence(words: Any) -> NDArray[np.float32]:
    """Whether words (Arrow strings) are stop words of each language, or have its letters, (words, languages)."""
    listed, owned = _listed()
    found = np.asarray(pc.index_in(folded(words), value_set=listed).fill_null(-1))
    evidence, known = np.zeros((len(words), len(_NAMES)), np.float32), np.flatnonzero(found >= 0)
    evidence[known] = owned[found[known]]
    beyond = _beyond_ascii(words)
    for language, letters in _LETTERS.items():
        has = np.asarray(pc.match_substring_regex(words.take(pa.array(beyond)), letters))
        evidence[beyond[has], _NAMES.index(language)] = 1
    return evidence


def _beyond_ascii(words: Any) -> NDArray[np.int64]:
    return np.flatnonzero(~np.asarray(pc.string_is_ascii(words)))


def _guess(counts: Any, evidence: NDArray[np.float32]) -> NDArray[np.int64]:
    """Number of the language of each document, or -1.

    It is that with the most stop words, where few differ the one that more documents of the batch have: the share of
    a language counts ``_PRIOR`` words for each factor of e, as measured on sentences of 7 to 30 words.
    """
    hits, share = counts @ evidence, np.full(len(_NAMES), 1 / len(_NAMES))
    known = hits.max(1, initial=0) > _LEAST_SHARE * counts.sum(1)
    for _ in range(_ROUNDS):
        best = np.argmax(np.where(hits > 0, hits + _PRIOR * np.log(share), -np.inf), 1)
        share = np.bincount(best[known], minlength=len(share)) + 0.01
        share = share / share.sum()
    return np.where(known, best, -1)


def _matrix(bags: Bags) -> tuple[Any, Any]:
    """Counts of documents by used words, and these words."""
    used = bags.compact()
    return used.matrix(len(used.words)), used.words.cast(pa.string())


def sample(number: int, tokens: int = 0) -> NDArray[np.int64]:
    """Some of so many documents with so many tokens, evenly spaced: ``SAMPLE``, fewer of long ones."""
    fewer = max(SAMPLE_TOKENS * number // max(tokens, 1), SAMPLE // 16)
    return np.unique(np.linspace(0, number - 1, min(number, SAMPLE, fewer)).astype(np.int64))


def sampled(bags: Bags, share: float = 1) -> Bags:
    """Return a share of the ``sample`` of a batch (see ``languages_of``)."""
    return bags.take(sample(len(bags), len(bags.ids))[:: round(1 / share)])


def languages_of(bags: Bags) -> Any:
    """Return the language of each document as an Arrow array of strings, null where unknown."""
    counts, words = _matrix(bags)
    return pa.array([*_NAMES, None], pa.string()).take(
        pa.array(_guess(counts, _evidence(words)) % (len(_NAMES) + 1))
    )


def count_languages(bags: Bags) -> Counter[str]:
    """Count documents by language; see ``languages_of``.

    ``TOKENS`` counts their tokens, and ``ENGLISH_WORDS`` those in English lists only, in documents of other languages;
    documents that ``without_spaces`` counts are also counted by their script after ``RUNS``.
    """
    counts, words = _matrix(bags)
    evidence = _evidence(words)
    best = _guess(counts, evidence)
    found = Counter({TOKENS: int(counts.sum())})
    # Short words are dropped anyway.
    english = evidence[:, _NAMES.index(ENGLISH)] * (np.asarray(pc.utf8_length(words)) > 2)
    for language in np.unique(best).tolist():
        own = best == language
        found[_NAMES[language] if language >= 0 else UNKNOWN] += int(own.sum())
        if language >= 0:
            found[ENGLISH_WORDS] += int((counts @ (english * (1 - evidence[:, language])))[own].sum())
    found.update({RUNS + script: number for script, number in _without_spaces(counts, words).items()})
    return found


def without_spaces(bags: Bags) -> Counter[str]:
    """Count the documents of a sample of which half the letters are runs, by the keys of ``_RUNS``."""
    return _without_spaces(*_matrix(sampled(bags)))


def _without_spaces(counts: Any, words: Any) -> Counter[str]:
    runs, beyond = np.zeros((len(words), len(_RUNS)), np.float32), _beyond_ascii(words)
    for i, run in enumerate(_RUNS.values()):
        runs[beyond, i] = np.asarray(pc.match_substring_regex(words.take(pa.array(beyond)), run))
    if not runs.any():
        return Counter()
    letters = np.asarray(pc.utf8_length(words))
    held = counts @ (runs * letters[:, None])
    mostly = 2 * held.sum(1) > counts @ letters
    return Counter(np.array([*_RUNS])[held[mostly].argmax(1)].tolist())


def chosen_languages(counts: Counter[str]) -> tuple[list[str], str]:
    """Return the languages with a good share of the documents, most frequent first, and a line about all."""
    shares = {name: counts[name] for name in (*_NAMES, UNKNOWN) if counts[name]}
    total = sum(shares.values())
    order = sorted(shares, key=lambda name: -shares[name])
    chosen = [name for name in order if name != UNKNOWN and shares[name] >= LEAST_DOCUMENTS * total]
    text = ", ".join(
        f"{name.capitalize()} {shares[name] / total:.0%}" for name in order if 200 * shares[name] >= total
    )
    if ENGLISH not in chosen and counts[ENGLISH_WORDS] > LEAST_ENGLISH * counts[TOKENS]:
        chosen.append(ENGLISH)
        text += f", English words among them {counts[ENGLISH_WORDS] / counts[TOKENS]:.0%}"
    return chosen, text
