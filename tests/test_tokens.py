"""Tokens, stop words and excerpts of texts."""

# ruff: noqa: RUF001
from __future__ import annotations

import importlib
import itertools
import pickle
import random
import re
import sys
import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import snowballstemmer
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

import streaming_jsmf as sj
from streaming_jsmf.config import Curation
from streaming_jsmf.config.reading import name_of
from streaming_jsmf.corpus.curation import folded
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.documents.groups import excerpt_text
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.tokens import boilerplate, split, stop_words
from streaming_jsmf.ingestion.tokens import tokenizer as tokenizer_module
from streaming_jsmf.ingestion.tokens.split import TokenLists, count_codes, split_words, with_ngrams
from streaming_jsmf.ingestion.tokens.stop_words import (
    chosen_languages,
    count_languages,
    languages_of,
    load_stop_words,
    shown,
)
from streaming_jsmf.storage.results import UNIDENTIFIED
from tests.outcomes import Command
from tests.readers import words_of
from tests.sources import tokenizing
from tests.test_in_memory import TEXTS

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


def test_words_are_found_whatever_the_length_of_texts_and_the_place_in_a_buffer():
    chosen = random.Random(0)
    texts = ["".join(chosen.choices("aZ0@[`{/ \0é", k=length)) for length in [*range(140), 0, 1, 0]]
    for start in (0, 1, 63, 139, 140, 141, 142, 143):
        assert unpacked(split_words(pa.array(texts).slice(start))) == [
            words_of(text) for text in texts[start:]
        ]


@pytest.mark.parametrize("most", [0, 100, 1 << 24])
def test_pieces_beyond_ascii_have_the_same_words_in_every_batch(most, monkeypatch):
    monkeypatch.setattr(split, "_MOST_BYTES", most)
    monkeypatch.setattr(split, "_KNOWN", {})
    for text in ("É—ÈS Σ ΑΣ", "ΑΣ ½ É—ÈS", "½ Σ é", "a\u0327\u0301" * 40 + " Σ½"):
        for form in ("NFC", "NFKC"):
            assert unpacked(split_words(pa.array([text]), form)) == [words_of(text, form)]


def test_few_bytes_of_long_pieces_are_kept(monkeypatch):
    monkeypatch.setattr(split, "_MOST_BYTES", 10_000)
    monkeypatch.setattr(split, "_KNOWN", {})
    for number in range(30):
        split_words(pa.array([chr(0x4E00 + number) + "字" * 1000]))
        pieces, lists = split._KNOWN["NFC"]
        assert 0 < len(pieces) < 4
        assert pieces.nbytes + lists.nbytes < 20_000


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize(
    "settings_of", [{}, {"ngrams": 3}, {"stemmer": "english"}, {"name": "sklearn", "ngrams": 2}]
)
def test_nothing_gives_nothing(kind, settings_of):
    full = pa.array(["", "a b", "é"], kind)
    for empty in (pa.array([], kind), full.slice(1, 0), full.slice(3), full.filter(pa.array([False] * 3))):
        assert unpacked(tokenizing(**settings_of)(empty)) == []
    assert unpacked(tokenizing(**settings_of)(full.slice(0, 1))) == [[]]
    assert unpacked(tokenizing(**settings_of)(pa.array(["", "—", " "], kind))) == [[], [], []]


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
    counted = count_codes(token_lists(documents))
    indptr, codes, counts = counted.indptr, counted.ids, counted.counts
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
    tokenizer = tokenizing(ngrams=2, stemmer="english", stop_words="english")
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
    everything = tokenizing(stemmer="english")(text)
    assert unpacked(everything) == [["relat", "relat", "relat", "be", "his"]]
    assert count_codes(everything).counts.tolist() == [3, 1, 1]
    assert {"being", "his"} <= load_stop_words("english")
    assert unpacked(tokenizing(stemmer="english", stop_words="english")(text))[0][3:] == ["being", "his"]
    own = tmp_path / "stop.txt"
    own.write_text("# mine\nRelational\n")
    assert unpacked(tokenizing(stemmer="english", stop_words=str(own))(text))[0][:2] == [
        "relat",
        "relational",
    ]


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
    assert unpacked(tokenizing("sklearn")(pa.array(texts, pa.string()))) == expected


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
    tokenizer = pickle.loads(pickle.dumps(tokenizing(f"{own}:pairs")))
    assert unpacked(tokenizer(texts)) == [["Ab", "cd"], [], ["Ab", "Ab"]]
    assert unpacked(tokenizing(f"{own}:Space.split")(pa.array(["a  b"]))) == [["a", "b"]]
    # Empty words are no words.
    assert unpacked(tokenizing(f"{own}:lazy")(pa.array(["a||é|", ""], pa.large_string()))) == [["a", "é"], []]
    spaced = tokenizing(f"{own}:lazy", ngrams=2)(pa.array(["a|b|a b"]))
    assert Counter(unpacked(spaced)[0]) == Counter(["a", "b", "a b", "a b", "b a b"])


@pytest.mark.slow
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
    tokenizer = tokenizing(f"{own}:{function}")
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
        tokenizing(name)
    assert "\n" not in str(caught.value)
    assert repr(name) in str(caught.value)


def test_settings_that_are_wrong(monkeypatch, tmp_path):
    for ngrams in (0, 4, -1):
        with pytest.raises(InputError, match=f"ngrams is {ngrams}; .*1"):
            tokenizing(ngrams=ngrams)
    with pytest.raises(InputError, match=r"'klingon'; .*english"):
        tokenizing(stemmer="klingon")
    with pytest.raises(InputError, match=r"stop words .*gone"):
        tokenizing(stemmer="english", stop_words=str(tmp_path / "gone"))(pa.array(["a"]))
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    tokenizer_module._stem_function.cache_clear()
    with pytest.raises(InputError, match="pip install snowballstemmer"):
        tokenizing(stemmer="english")


# -- Stop words: choices that add up, lists that hold, and the languages of texts --


ENGLISH, GERMAN = load_stop_words("english"), load_stop_words("german")
KEEP_ALL: dict[str, Any] = {"min_df": 1, "max_df": 1.0, "duplicates": "keep", "progress": False}


def test_the_english_list_has_no_subjects() -> None:
    assert 300 <= len(ENGLISH) <= 570
    assert {
        *["a", "about", "above", "according", "across", "actually", "after", "don", "ll", "ve", "z"]
    } <= ENGLISH
    assert not ENGLISH & {"cell", "neuron", "model", "data", "network", "game", "result", "president"}
    lines = Path(stop_words.__file__).with_name("stop_words_english.txt").read_text().splitlines()
    body = [line for line in lines if not line.startswith("#")]
    assert (lines[0][0], body) == ("#", sorted(set(body)))


@pytest.mark.parametrize(
    ("given", "words", "stored"),
    [
        ("none", set(), "none"),
        ("German, english", GERMAN | ENGLISH, "german,english"),
        ("english+german", GERMAN | ENGLISH, "english,german"),
        ("FILE", {"foo", "bar"}, "file"),
        ("english,FILE", ENGLISH | {"foo", "bar"}, "english,file"),
        ("none,FILE,FILE", {"foo", "bar"}, "none,file"),
        ("auto,FILE", {"foo", "bar"}, "auto,file"),
        ("Auto+FILE+none", {"foo", "bar"}, "auto,file,none"),
        ("FOLDER/with, comma.txt", {"comma"}, "file"),
        (Path("FILE"), {"foo", "bar"}, "file"),
        (["english", {"Baz", "german"}], ENGLISH | {"baz", "german"}, "english,words"),
        (["foo", "none", "auto", "FILE"], {"foo", "none", "bar"}, "words,auto,file"),
        ({"foo", "english"}, {"foo", "english"}, "words"),
        (("german", ["English", ("x",)]), GERMAN | ENGLISH | {"x"}, "german,english,words"),
        ([[], "foo", [{"bar"}]], {"foo", "bar"}, "words"),
        ({"isn't", "l\u2019eau"}, {"isn't", "isn", "t", "l\u2019eau", "l", "eau"}, "words"),
        (np.array(["english", "Baz"]), ENGLISH | {"baz"}, "english,words"),
        (pd.Series(["Foo", "german"]), GERMAN | {"foo"}, "words,german"),
        ([], set(), "none"),
    ],
)
def test_choices_add_up(given: Any, words: set[str], stored: str, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("\ufeffFoo\n# mine\n\nbar, \n", encoding="utf-8")
    (tmp_path / "with, comma.txt").write_text("comma")

    def named(choice: Any) -> Any:
        if isinstance(choice, str | Path):
            text = str(choice).replace("FILE", str(tmp_path / "list.txt")).replace("FOLDER", str(tmp_path))
            return type(choice)(text)
        return type(choice)(map(named, choice)) if isinstance(choice, list | tuple) else choice

    choice = Curation(stop_words=named(given)).stop_words
    assert load_stop_words(choice) == words
    assert shown(choice) == stored


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("klingon", r"'klingon'.*auto, none"),
        ("english,gone.txt", r"'gone.txt' \(no such file"),
        (["english", "./gone"], "'./gone'"),
        (7, "stop_words is 7"),
    ],
)
def test_choices_that_cannot_be_read(given: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says) as caught:
        sj.ingest(["a text of words"] * 9, tmp_path / "c", stop_words=given, **KEEP_ALL)
    assert "\n" not in str(caught.value)


#: Common words of texts in twelve languages that carry no subject, as they are written there.
COMMON = {
    "hindi": "है में के और मैं हूँ क्या उसने लेकिन क्योंकि मुझे हमारे जाता बड़े काफी वाली ज्यादा",
    "arabic": "أنه إلى إنّها التي هذا وأن على لأنه كانوا أيضا لكنهم الذين بأن علي والتي ليـس كَانَ",
    "german": "daß sein nicht könnten jedoch obwohl während sowie dürfen unter deren",
    "french": "être qu qui était plusieurs cependant aujourd lorsqu leur même très",
    "spanish": "qué también podría más según aunque había siendo hacia ustedes",
    "portuguese": "não também são porém sendo pelo dessa muitas várias ainda",
    "russian": "что её ещё который всё также некоторые поскольку своих чтобы",
    "turkish": "bir için olarak ancak olacak değil gibi karşı daha çünkü",
    "italian": "della nell perché viene possono più anche quest quindi sono",
    "polish": "się który został jest oraz przez również swojej jednak może",
    "indonesian": "yang dan dengan tidak untuk adalah tersebut karena mereka akan",
    "swedish": "och att inte från efter också eller medan både enligt",
}


@pytest.mark.parametrize("language", COMMON)
def test_lists_hold_what_is_common_in_texts(language: str) -> None:
    listed = {*folded(pa.array(sorted(load_stop_words(language)))).to_pylist()}
    [words] = [split_words(pa.array([COMMON[language]])).dictionary]
    assert not {*folded(words).to_pylist()} - listed


def test_other_spellings_are_removed_and_not_stemmed(tmp_path: Path) -> None:
    texts = [f"أنّـه كتاب إلى{i % 3} المدينة ".replace("إلى", "إلى kita") for i in range(9)]
    corpus = sj.ingest(texts, tmp_path / "c", stop_words="arabic", **KEEP_ALL)
    assert {*corpus.vocabulary().words} == {"كتاب", "المدينة", "kita0", "kita1", "kita2"}
    tokens = tokenizing(stemmer="russian", stop_words="\nрусский\n=ещё")(pa.array(["еще книгами"]))
    assert tokens.dictionary.to_pylist() == ["еще", "книг"]


SENTENCES = {
    "german": "die mitglieder des rates haben das recht bei allen sitzungen abzustimmen und sie können es nicht immer",
    "french": "les membres du conseil ont le droit de voter dans toutes ses réunions et ils peuvent le demander",
    "spanish": "los miembros del consejo tienen derecho a votar en todas sus reuniones y no es lo mismo para todos",
    "portuguese": "os membros do conselho têm o direito de votar em todas as suas reuniões e não é a mesma coisa",
    "italian": "i membri del consiglio hanno il diritto di votare in tutte le sue riunioni e possono chiedere le cose",
    "dutch": "de leden van de raad hebben het recht om te stemmen in al zijn vergaderingen en zij kunnen het vragen",
    "russian": "члены совета имеют право голосовать на всех его заседаниях",
    "english": "the members of the council have the right to vote in all of its meetings and they may ask for it",
    "korean": "위원회 위원은 모든 회의에서 투표할 권리가 있다",
    "chinese": "理事会 成员 有权 在 所有 会议 上 投票",
    "japanese": "理事会の メンバーは すべての 会議で 投票する",
    None: "rocket orbit launch moon shuttle telescope planet gravity satellite mission",
}


def test_the_language_of_each_document() -> None:
    found = languages_of(count_codes(split_words(pa.array([*SENTENCES.values(), ""]))))
    assert found.to_pylist() == [*SENTENCES, None]


@pytest.mark.parametrize(
    ("parts", "chosen", "says"),
    [
        ({"english": 80, "spanish": 20}, ["english", "spanish"], "English 80%, Spanish 20%"),
        ({"german": 30, "english": 30, "french": 30}, ["english", "french", "german"], "French 33%"),
        ({"spanish": 98, "french": 2}, ["spanish"], "Spanish 98%, French 2%"),
        ({"german": 60, None: 40}, ["german"], "German 60%, Unknown 40%"),
        ({None: 10}, [], "Unknown 100%"),
    ],
)
def test_mixed_corpora(parts: dict[str | None, int], chosen: list[str], says: str) -> None:
    texts = [SENTENCES[name] for name, number in parts.items() for _ in range(number)]
    found, line = chosen_languages(count_languages(count_codes(split_words(pa.array(texts)))))
    assert found == chosen
    assert says in line


@pytest.mark.parametrize("options", [{}, {"phrases": 1.0}])
def test_the_stop_words_of_all_languages_are_removed_and_reported(
    options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mixed = itertools.cycle(
        [SENTENCES["german"], SENTENCES["german"] + " with this and that", SENTENCES["russian"]]
    )
    texts = [f"{text} rakete{i % 3} mond{i % 4}" for i, text in zip(range(60), mixed, strict=False)]
    (tmp_path / "extra.txt").write_text("Rakete0\n")
    with caplog.at_level("INFO"):
        choice = ["auto", str(tmp_path / "extra.txt"), {"mond1"}]
        corpus = sj.ingest(texts, tmp_path / "c", stop_words=choice, **KEEP_ALL, **options)
    assert caplog.text.count("languages: German 67%, Russian 33%, English words among them") == 1
    assert "the stop words of German, Russian, English are removed" in caplog.text
    words = {*corpus.vocabulary().words}
    assert not {"die", "nicht", "всех", "with", "that", "rakete0", "mond1"} & words
    assert {"mitglieder", "mond0"} <= words
    settings = read_manifest(tmp_path / "c").settings
    assert settings["stop_words"] == "german,russian,english,file,words"


def test_a_stemmer_names_the_language_of_auto(tmp_path: Path) -> None:
    texts = [f"{SENTENCES['german']} raketen{i}" for i in "abc"]
    corpus = sj.ingest(texts, tmp_path / "c", stemmer="german", stop_words=["auto", "recht"], **KEEP_ALL)
    assert not {"allen", "all", "recht", "konn"} & {*corpus.vocabulary().words}
    assert read_manifest(tmp_path / "c").settings["stop_words"] == "german,words"


def test_words_that_are_given_by_number_have_a_language(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = [*SENTENCES["german"].split(), "rakete"]
    with caplog.at_level("INFO"):
        counts = pa.table({"document": [1] * len(words), "word": words, "count": [2] * len(words)})
        corpus = sj.ingest(
            counts, tmp_path / "c", reader="triples", stop_words="auto", min_df=1, min_tokens=1
        )
    assert "languages: German 100%" in caplog.text
    assert "die" not in corpus.vocabulary().words


# -- The beginnings of texts in a corpus, in topic shares, in answers and in reports --


def excerpts_of(corpus: Path) -> list[str] | None:
    table = pq.read_table(corpus / "documents")
    return table.column("excerpt").to_pylist() if "excerpt" in table.column_names else None


@pytest.mark.parametrize("suffix", [".parquet", ".txt"])
def test_the_beginning_of_each_text_is_stored(suffix: str, tmp_path: Path) -> None:
    texts = [f"{text}  {'and so on ' * 50}" for text in TEXTS[:30]]
    path = tmp_path / f"texts{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"text": texts, "year": list(range(30))}), path)
    else:
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    keep: dict[str, Any] = {"min_df": 1, "max_df": 1.0, "stop_words": "none"}
    reader: dict[str, Any] = {"reader": "lines"} if suffix == ".txt" else {}
    for name, options, length in (("a", {}, 300), ("b", {"excerpt": 7}, 7), ("c", {"excerpt": 0}, 0)):
        sj.ingest(path, tmp_path / name, **keep, **options, **reader)
        expected = [" ".join(text.split())[:length] for text in texts]
        assert excerpts_of(tmp_path / name) == (expected if length else None)
    sj.ingest(path, tmp_path / "papers", preset="papers", **reader)
    assert excerpts_of(tmp_path / "papers") is None


def test_excerpts_are_shown_with_the_words_of_the_topic(tmp_path: Path, invoke: Command) -> None:
    texts = [f"From: someone\nSubject: hello\n\n{text} <script>x</script>" for text in TEXTS]
    table = pd.DataFrame({"text": [*texts, None], "excerpt": "a column of the source"})
    model = sj.fit(table.drop(columns="excerpt"), tmp_path / "m", 3, polish=False)
    shares = tmp_path / "s.parquet"
    sj.transform(model, model.corpus, shares)
    top = model.documents(shares, topic=1, number=2)
    assert [*top.columns] == ["document_id", "share", "excerpt"]
    assert not top["excerpt"].str.contains("Subject").any(), "boilerplate is left out"
    first = top["excerpt"][0]
    shown = invoke("documents", model.path, shares, "--topic", 1, "--number", 2).out
    assert "".join(first.split()) in "".join(shown.split())
    assert "excerpt" not in shown.splitlines()[0]
    assert first in invoke("documents", model.path, shares, "--topic", 1, "--json").out
    own = model.documents(topic=1, number=2)
    pd.testing.assert_frame_equal(own, top)
    assert first in invoke("documents", model.path, "--topic", 1, "--json").out
    page = sj.report(model, tmp_path / "page.html", shares=shares).read_text(encoding="utf-8")
    assert first.split("<")[0].strip() in page
    assert "<script>x" not in page
    sj.ingest(table, tmp_path / "own")
    assert set(excerpts_of(tmp_path / "own") or []) == {"a column of the source"}
    new = model.transform(texts[:2])
    assert new.shape == (2, 3)
    sj.transform(model, texts[:2], tmp_path / "new.parquet", excerpt=5)
    assert {len(text) for text in pq.read_table(tmp_path / "new.parquet")["excerpt"].to_pylist()} == {5}


def test_words_that_the_model_dropped_are_not_reported_as_unknown(tmp_path: Path, invoke: Command) -> None:
    model = sj.fit(TEXTS, tmp_path / "m", 3, polish=False)
    lines = [f"the {text} xylophone{number}" for number, text in enumerate(TEXTS[:20])]
    (tmp_path / "new.txt").write_text("\n".join([*lines, "nothing known"]) + "\n", encoding="utf-8")
    done = invoke("transform", model.path, tmp_path / "new.txt", tmp_path / "s.parquet", "--reader", "lines")
    assert done.code == 0
    assert "not in the model" not in done.err
    assert "1 of 21 documents have no word of the model" in done.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nice hair", "nice hair"),
        (None, ""),
        ("a word " * 42 + "is cut", "a word " * 42 + "is ..."),
        ("x" * 300, "x" * 300 + "..."),
        ("a word " * 42 + "ends.", "a word " * 42 + "ends."),
    ],
)
def test_dots_follow_only_excerpts_that_may_have_been_cut(text: str | None, shown: str) -> None:
    assert excerpt_text(text) == shown
