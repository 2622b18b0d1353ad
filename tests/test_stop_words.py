"""Stop words: choices that add up, lists that hold, and the languages of texts."""

# ruff: noqa: RUF001
from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streaming_jsmf as sj
from streaming_jsmf.config import Curation
from streaming_jsmf.corpus.curation import folded
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.tokens import stop_words
from streaming_jsmf.ingestion.tokens.split import split_words
from streaming_jsmf.ingestion.tokens.stop_words import (
    chosen_languages,
    count_languages,
    languages_of,
    load_stop_words,
    shown,
)
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer

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
    tokens = Tokenizer(stemmer="russian", stop_words="\nрусский\n=ещё")(pa.array(["еще книгами"]))
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
    found = languages_of(split_words(pa.array([*SENTENCES.values(), ""])))
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
    found, line = chosen_languages(count_languages(split_words(pa.array(texts))))
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
