"""Tokenizers compared with slow references, and their errors for invalid settings and functions."""

# ruff: noqa: RUF001
from __future__ import annotations

import importlib
import itertools
import pickle
import re
import sys
import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
import snowballstemmer
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

import streaming_jsmf as sj
from streaming_jsmf.config.reading import name_of
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.tokens import boilerplate
from streaming_jsmf.ingestion.tokens import tokenizer as tokenizer_module
from streaming_jsmf.ingestion.tokens.split import (
    TokenLists,
    count_codes,
    split_words,
    with_ngrams,
)
from streaming_jsmf.ingestion.tokens.stop_words import load_stop_words
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.results import UNIDENTIFIED
from tests.readers import words_of

# Letters whose case or normal form depends on what is around them, marks, digits of all kinds, separators beyond ASCII.
AWKWARD = (
    "aBzIJK19 .,'-_=<>\t\n\x00\x7f\x85\xa0éÉßẞİıΣσςΑα\u0301\u0307\u030c\u0323\u0338\u0345ǰǅŉĲﬁ\u212a\u037e\u1fef≠"
    "²½Ⅷ٣१中文かがカ\u3099\u1112\u1161\u11ab한ำกคि\u0939\u094d\u05d0\u05b8\u200d\u200c\u00ad\ufeff\u2028\u2019·—。😀Ⓐʰ𝔘𐐀"
)
any_script = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=12)
awkward = st.text(st.sampled_from(AWKWARD), max_size=12)
texts_lists = st.lists(st.one_of(any_script, awkward, st.text("aBc1 .", max_size=12)), max_size=5)


def unpacked(tokens):
    """Return the words of each document, after checking the arrays."""
    assert (tokens.indptr.dtype, tokens.codes.dtype) == (np.int64, np.int32)
    assert tokens.dictionary.type == pa.string()
    assert (tokens.indptr[0], tokens.indptr[-1]) == (0, len(tokens.codes))
    words = tokens.dictionary.to_pylist()
    assert len(set(words)) == len(words)
    return [[words[code] for code in tokens.codes[a:b]] for a, b in itertools.pairwise(tokens.indptr)]


@settings(max_examples=150)
@given(texts=texts_lists, large=st.booleans(), cut=st.integers(0, 3), form=st.sampled_from(["NFC", "NFKC"]))
def test_words_equal_the_reference(texts, large, cut, form):
    array = pa.array(["Nicht dabei é", *texts, "é nor this"], pa.large_string() if large else pa.string())
    sliced = array.slice(1 + cut, max(0, len(texts) - cut))
    assert unpacked(split_words(sliced, form)) == [words_of(text, form) for text in texts[cut:]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop_me -- NOW!", "don t stop me now"),
        ("cafe\u0301 CAFÉ", "café café"),
        ("J\u030cA ǰa", "ǰa ǰa"),
        ("ΟΔΟΣ’ΑΣ ΟΔΟΣ", "οδος ας οδος"),
        ("Ϊ\u0301 ΐ", "ΐ ΐ"),
        ("a=\u0338b", "a b"),
        ("हिन्दी भाषा", "हिन्दी भाषा"),
        ("x²=４", "x² ４"),
        ("\u0301 \u0301a", "a"),
        ("می\u200cشود co\u00adop\u00ader\u00adate \ufeffthe \u200ea\u202cb", "میشود cooperate the ab"),
        ("क\u094d\u200dष ไทย\u200bคำ", "क\u094dष ไทย คำ"),
        ("İI ـــكتاب", "ii كتاب"),
        ("", ""),
        ("... —", ""),
    ],
)
def test_words_of_a_text(text, expected):
    words = expected.split()
    assert words_of(text) == words
    assert unpacked(split_words(pa.array([text, text]))) == [words, words]
    assert unpacked(split_words(pa.array([text.upper(), text])))[1] == words


def test_words_that_differ_in_one_place_are_told_apart_also_after_the_table_has_grown():
    # Lengths around eight bytes, the most that a key of the table holds; more words than two of its sizes.
    ends = [f"{number:x}" for number in range(3000)]
    words = [f"{'q' * length}{end}{tail}" for length, end in enumerate(ends * 4, 1) for tail in ("", "z" * 9)]
    words = [word[-(1 + place % 40) :] for place, word in enumerate(words)]
    texts = [
        " ".join(words[:700]),
        "",
        *(" ".join(words[i::3]).title() for i in range(3)),
        "Q" * 5000,
        words[0],
    ]
    assert unpacked(split_words(pa.array(texts))) == [words_of(text) for text in texts]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize(
    "settings_of", [{}, {"ngrams": 3}, {"stemmer": "english"}, {"name": "sklearn", "ngrams": 2}]
)
def test_nothing_gives_nothing(kind, settings_of):
    full = pa.array(["", "a b", "é"], kind)
    for empty in (pa.array([], kind), full.slice(1, 0), full.slice(3), full.filter(pa.array([False] * 3))):
        assert unpacked(Tokenizer(**settings_of)(empty)) == []
    assert unpacked(Tokenizer(**settings_of)(full.slice(0, 1))) == [[]]
    assert unpacked(Tokenizer(**settings_of)(pa.array(["", "—", " "], kind))) == [[], [], []]


bags = st.lists(st.lists(st.integers(0, 4), max_size=6), max_size=5)


PARTS = ("ab", "é", " ", "\n ", "中文。", "かな、", "ไทย", "\u3000")


@settings(max_examples=150)
@given(
    texts=st.lists(st.lists(st.sampled_from(PARTS)).map("".join)),
    words=st.integers(1, 5),
    kind=st.sampled_from([pa.string(), pa.large_string()]),
)
def test_passages_are_the_texts_cut_at_spaces(texts, words, kind):
    array = pa.array(["skipped text", *texts], kind).slice(1)
    passages, index = boilerplate.split_passages(array, words)
    assert passages.type == kind
    passages.validate(full=True)
    pairs = [*zip(index.tolist(), passages.to_pylist(), strict=True)]
    parts = [[part for i, part in pairs if i == number] for number in range(len(texts))]
    assert index.tolist() == sorted(index)
    assert [*map("".join, parts)] == texts
    for before in (part for group in parts for part in group[:-1]):
        assert before[-1] in " \n\u3000。、"


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("word " * 149, [149]),
        ("word " * 151, [100, 51]),
        (" word" * 1000, [100] * 10),
        ("word " * 60 + "x" * 9000 + " word" * 89, [100, 50]),
        ("", [0]),
    ],
)
def test_sizes_of_passages(text, sizes):
    passages, index = boilerplate.split_passages(pa.array(["", text]), 100)
    assert [len(part.split()) for part in passages.to_pylist()] == [0, *sizes]
    assert index.tolist() == [0, *([1] * len(sizes))]


def test_characters_of_scripts_without_spaces_count():
    texts = ["我们学习历史。" * 100, "ประเทศไทย " * 100, "word and 中文 " * 50]
    passages, index = boilerplate.split_passages(pa.array(texts), 50)
    assert np.bincount(index).tolist() == [6, 4, 3]
    assert {len(part) for part, i in zip(passages.to_pylist(), index, strict=True) if i == 0} == {119, 105}


def token_lists(documents, words=("a", "b", "c", "d", "unused")):
    indptr = np.cumsum([0, *map(len, documents)]).astype(np.int64)
    flat = np.array(list(itertools.chain(*documents)), np.int32)
    return TokenLists(indptr, flat, pa.array(words))


@given(documents=bags)
def test_counts_equal_a_counter_in_order_of_first_use(documents):
    indptr, codes, counts = count_codes(token_lists(documents))
    assert (indptr.dtype, codes.dtype, counts.dtype) == (np.int64, np.int32, np.int32)
    assert indptr[-1] == len(codes) == len(counts)
    for document, low, high in zip(documents, indptr, indptr[1:], strict=False):
        pairs = zip(codes[low:high].tolist(), counts[low:high].tolist(), strict=True)
        assert list(pairs) == list(Counter(document).items())


def runs(words, longest):
    sizes = range(1, longest + 1)
    return [" ".join(words[i : i + size]) for size in sizes for i in range(len(words) - size + 1)]


@given(
    documents=bags,
    longest=st.integers(1, 3),
    words=st.sampled_from([tuple("abcde"), ("a", "b", "a b", "b a", "b b")]),
)
def test_ngrams_equal_all_runs_of_words_also_of_words_with_spaces(documents, longest, words):
    found = unpacked(with_ngrams(token_lists(documents, words), longest))
    expected = [runs([words[code] for code in document], longest) for document in documents]
    assert [Counter(document) for document in found] == [Counter(document) for document in expected]


def test_ngrams_do_not_cross_documents_and_come_after_stems():
    tokenizer = Tokenizer(ngrams=2, stemmer="english", stop_words="english")
    found = unpacked(tokenizer(pa.array(["Running dogs", "the dogs", "dog"])))
    assert [sorted(words) for words in found] == [
        ["dog", "run", "run dog"],
        ["dog", "the", "the dog"],
        ["dog"],
    ]


def test_equal_stems_are_one_word_and_stop_words_are_spared(tmp_path):
    text = pa.array(["relation relational relations being his"])
    plain = snowballstemmer.stemmer("english")
    assert plain.stemWord("being") == "be"
    everything = Tokenizer(stemmer="english")(text)
    assert unpacked(everything) == [["relat", "relat", "relat", "be", "his"]]
    assert count_codes(everything)[2].tolist() == [3, 1, 1]
    assert {"being", "his"} <= load_stop_words("english")
    assert unpacked(Tokenizer(stemmer="english", stop_words="english")(text))[0][3:] == ["being", "his"]
    own = tmp_path / "stop.txt"
    own.write_text("# mine\nRelational\n")
    assert unpacked(Tokenizer(stemmer="english", stop_words=str(own))(text))[0][:2] == ["relat", "relational"]


def test_stems_are_the_same_in_many_threads():
    """The stemmer keeps the word it works on; tasks are threads by default."""
    starts = ("nation", "relat", "gener", "hope", "electr", "oper", "form", "sens", "adjust", "vis")
    ends = ("alization", "ally", "ing", "edly", "fulness", "ational", "iveness", "ization", "ement", "s")
    words = [f"{start}{i}{end}" for start in starts for i in "aeiou" for end in ends]
    expected = snowballstemmer.stemmer("english").stemWords(words)
    before = sys.getswitchinterval()
    tokenizer_module._stem_function.cache_clear()
    stem = tokenizer_module._stem_function("english")
    # Each starts elsewhere: a word that another has done already would come from the cache.
    places = (0, 125, 250, 375)
    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(lambda i: [stem(word) for word in words[i:] + words[:i]], places))
    finally:
        sys.setswitchinterval(before)
    assert parts == [expected[i:] + expected[:i] for i in places]


@settings(max_examples=100)
@given(texts=texts_lists)
def test_the_choice_of_sklearn_is_its_analyzer_on_the_normal_form(texts):
    analyzer = CountVectorizer().build_analyzer()
    expected = [analyzer(unicodedata.normalize("NFC", text)) for text in texts]
    assert unpacked(Tokenizer("sklearn")(pa.array(texts, pa.string()))) == expected


#: Functions by name, and the expressions they return.
FUNCTIONS = {
    "pairs": 're.findall("..", text)',
    "lazy": '(word for word in text.split("|"))',
    "numbers": "[1, 2]",
    "nothing": "None",
    "one_string": "text.lower()",
    "half": r'["\ud800"]',
    "breaks": r'{}["first line\nsecond line"]',
}
OWN = "\n".join(
    (
        "import re",
        "VALUE = 3",
        "class Space:\n    split = staticmethod(str.split)",
        *(f"def {name}(text):\n    return {returned}" for name, returned in FUNCTIONS.items()),
    )
)


@pytest.fixture
def own(tmp_path, monkeypatch):
    name = f"own_words_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN)
    (tmp_path / f"{name}_broken.py").write_text("def (")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def test_a_function_of_the_users_own(own):
    texts = pa.array(["Abcd", "", "AbAb"])
    tokenizer = pickle.loads(pickle.dumps(Tokenizer(f"{own}:pairs")))
    assert unpacked(tokenizer(texts)) == [["Ab", "cd"], [], ["Ab", "Ab"]]
    assert unpacked(Tokenizer(f"{own}:Space.split")(pa.array(["a  b"]))) == [["a", "b"]]
    # Empty words are no words.
    assert unpacked(Tokenizer(f"{own}:lazy")(pa.array(["a||é|", ""], pa.large_string()))) == [["a", "é"], []]
    spaced = Tokenizer(f"{own}:lazy", ngrams=2)(pa.array(["a|b|a b"]))
    assert Counter(unpacked(spaced)[0]) == Counter(["a", "b", "a b", "a b", "b a b"])


def test_functions_are_given_by_name_or_as_they_are(own, tmp_path):
    texts = [f"Abcd AbAb ab{i}" for i in range(9)]
    module = importlib.import_module(own)
    assert [name_of(each) for each in (None, "sklearn", module.pairs)] == [None, "sklearn", f"{own}:pairs"]
    upper = lambda text: text.upper().split()  # noqa: E731
    assert name_of(upper) == name_of(upper) != name_of(lambda text: [text])
    options = {"min_df": 1, "max_df": 1.0, "stop_words": "none"}
    for function, word in (
        (module.Space.split, "AbAb"),
        (upper, "ABAB"),
        (re.compile("A(b..)").findall, "bcd"),
    ):
        assert word in sj.ingest(texts, tmp_path / word, tokenizer=function, **options).vocabulary().words
    assert UNIDENTIFIED in read_manifest(tmp_path / "ABAB").request
    with pytest.raises(InputError, match=r"lambda.*into a module, or use scheduler='threads'"):
        sj.ingest(texts, tmp_path / "c", tokenizer=upper, scheduler="processes", workers=1, **options)
    with pytest.raises(InputError, match="tokenizer is 7; give a string"):
        sj.ingest(texts, tmp_path / "c", tokenizer=7)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("numbers", "list of strings; .*'1'"),
        ("one_string", "list of strings; .*'text'"),
        ("nothing", "TypeError"),
        ("breaks", "KeyError: "),
        ("half", "not UTF-8"),
    ],
)
def test_what_a_function_of_the_users_own_must_return(own, function, says):
    tokenizer = Tokenizer(f"{own}:{function}")
    with pytest.raises(InputError, match=says) as caught:
        tokenizer(pa.array(["Text"]))
    assert "\n" not in str(caught.value)
    assert f"{own}:{function}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *((name, "arrow, sklearn, chinese, japanese .* MODULE:FUNCTION") for name in ("nope", "OWN:")),
        *((f"{name}:f", "cannot import") for name in ("no_such_module_here", "OWN_broken")),
        ("OWN:absent", "cannot import"),
        ("OWN:VALUE", "not callable"),
    ],
)
def test_names_of_tokenizers_that_are_wrong(own, name, says):
    name = name.replace("OWN", own)
    with pytest.raises(InputError, match=says) as caught:
        Tokenizer(name)
    assert "\n" not in str(caught.value)
    assert repr(name) in str(caught.value)


def test_settings_that_are_wrong(monkeypatch, tmp_path):
    for ngrams in (0, 4, -1):
        with pytest.raises(InputError, match=f"ngrams is {ngrams}; .*1"):
            Tokenizer(ngrams=ngrams)
    with pytest.raises(InputError, match=r"'klingon'; .*english"):
        Tokenizer(stemmer="klingon")
    with pytest.raises(InputError, match=r"stop words .*gone"):
        Tokenizer(stemmer="english", stop_words=str(tmp_path / "gone"))(pa.array(["a"]))
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    tokenizer_module._stem_function.cache_clear()
    with pytest.raises(InputError, match=r"snowballstemmer; pip install"):
        Tokenizer(stemmer="english")
