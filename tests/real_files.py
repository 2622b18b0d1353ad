"""The files that docs/recipes.md and docs/languages.md name, as other programs write them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from email.message import EmailMessage
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tests.test_delimited import xlsx

#: Documents in each source.
DOCUMENTS = 120

_SYLLABLES = ("mo", "sta", "ga", "ri", "pla", "nor", "de", "lu")
_WORDS = [a + b + c for a in _SYLLABLES for b in _SYLLABLES for c in ("n", "rd", "l")]
_FUNCTION_WORDS = {
    "english": "the of and to in that it was for with",
    "spanish": "el de que en los del las por con una",
}


def texts(language: str = "english", words: int = 30, seed: int = 0) -> list[str]:
    """Texts of ten subjects with words of their own, among function words of a language."""
    draw, function = random.Random(seed), _FUNCTION_WORDS[language].split()
    return [
        " ".join(draw.choice([draw.choice(function), *_WORDS[i % 10 :: 10][:2], draw.choice(_WORDS[i % 10 :: 10])])
                 for _ in range(words))
        for i in range(DOCUMENTS)
    ]  # fmt: skip


def _write(path: Path, lines: Sequence[str], encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding=encoding)


def _message(number: int, text: str) -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "ann@a.example", "bob@b.example", f"Café {number}"
    message["Date"] = f"Fri, {1 + number % 28} Dec 2023 10:00:00 +0100"
    message.set_content(text, cte="base64")
    message.add_alternative(f"<p>{text}</p>", subtype="html")
    return message.as_bytes()


def _records(path: Path, records: Sequence[dict[str, object]]) -> None:
    _write(path, [json.dumps(record) for record in records])


def _tables(folder: Path, found: list[str]) -> None:
    numbered = [*enumerate(found)]
    answers = [[(f"A{i + 3}", text), (f"B{i + 3}", f"team {i % 3}")] for i, text in numbered]
    head = [[("A1", "Survey of 2024")], [("A2", "answer"), ("B2", "team")]]
    xlsx(folder / "survey.xlsx", Notes=[[("A1", "notes")]], Answers=head + answers)
    xlsx(folder / "answers.xlsx", Answers=head + answers)
    _write(folder / "news_without_header.csv", [f'"{i % 4 + 1}","{t[:20]}","{t}"' for i, t in numbered])
    _write(folder / "umfrage.csv", ["Nr;Antwort", *(f"{i};für {t}" for i, t in numbered)], "cp1252")
    _write(folder / "single_quotes.csv", ["id,text", *(f"{i},'say, {t}'" for i, t in numbered)])
    _write(folder / "sms.txt", ["label\ttext", *(f'ham\t{chr(34) * (i % 7 == 0)}{t}' for i, t in numbered)])
    dates = [f"{1 + i % 9}/{1 + i % 12}/2023" for i in range(DOCUMENTS)]
    _write(folder / "posts.csv", ["date,text", *(f"{dates[i]},{t}" for i, t in numbered)])
    _write(folder / "articles.csv", ["id,title,body", *(f"{i // 2},{t[:9]},{t}" for i, t in numbered)])
    _write(folder / "half_broken.csv", ["id,text", *(f"{i},{t}{', and' * (i % 3 > 0)}" for i, t in numbered)])
    (folder / "dataset" / "data").mkdir(parents=True)
    _write(folder / "dataset" / "README.md", ["# A data set"])
    for part in range(2):
        table = {"text": found[part::2], "label": [i % 2 for i in range(DOCUMENTS // 2)]}
        pq.write_table(pa.table(table), folder / "dataset" / "data" / f"train-0000{part}-of-00002.parquet")


def _messages(folder: Path, found: list[str]) -> None:
    (folder / "mail").mkdir()
    for i, text in enumerate(found[:60]):
        (folder / "mail" / f"{i}.eml").write_bytes(_message(i, text))
    mbox = b"".join(b"From ann@a.example Fri Dec 1 10:00:00 2023\n" + _message(i, t) + b"\n"
                    for i, t in enumerate(found[60:]))  # fmt: skip
    (folder / "mail" / "inbox.mbox").write_bytes(mbox)
    _write(folder / "chat.txt", [f"1/3/20, 10:{i % 60:02d} - Bob: {t}" for i, t in enumerate(found)])
    _write(folder / "slack" / "users.json", [json.dumps([{"id": "U1", "name": "ann"}])])
    for day in range(4):
        said = [{"type": "message", "user": "U1", "text": t, "ts": f"{1700000000 + i}.000200"}
                for i, t in enumerate(found[day::4])]  # fmt: skip
        _write(folder / "slack" / "general" / f"2023-11-0{day + 1}.json", [json.dumps(said)])
    comments = [{"id": f"k{i}", "body": t, "subreddit": "books", "created_utc": 1700000000 + i, "score": i}
                for i, t in enumerate(found)]  # fmt: skip
    _records(folder / "comments.jsonl", comments)
    long_window = zstandard.ZstdCompressionParameters.from_level(3, window_log=31, enable_ldm=True)
    packed = zstandard.ZstdCompressor(compression_params=long_window).compressobj()
    content = (folder / "comments.jsonl").read_bytes()
    (folder / "RC_2023-11.zst").write_bytes(packed.compress(content) + packed.flush())


def write_real_files(folder: Path) -> None:
    """Write all files; each source has ``DOCUMENTS`` documents."""
    found = texts()
    _tables(folder, found)
    _messages(folder, found)
    mixed = [pair[i % 4 == 0] for i, pair in enumerate(zip(found, texts("spanish"), strict=True))]
    _write(folder / "tweets.csv", ["text", *mixed])
    _write(folder / "extra.txt", [_WORDS[0]])
    for i, text in enumerate(texts(words=2500)[:30]):
        _write(folder / "speeches" / f"{i}.txt", [text])
    nouns = "経済 政策 市場 銀行 選挙 議会 法律 裁判 学校 教育 病院 医療".split()
    spoken = ["を見て".join(nouns[2 * (i % 6) :][:2] * 6) for i in range(DOCUMENTS)]
    _records(folder / "japanese.jsonl", [{"text": text} for text in spoken])
    names = "ตลาด ธนาคาร โรงเรียน นักเรียน หมอ โรงพยาบาล".split()
    written = ["และ".join(names[i % 6 :][:1] * 12) for i in range(DOCUMENTS)]
    _records(folder / "thai.jsonl", [{"text": text + str(i)} for i, text in enumerate(written)])
    _write(folder / "thai.py", ["def words(text):", "    return text.split('และ')"])
