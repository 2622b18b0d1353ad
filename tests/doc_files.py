"""The files that docs/recipes.md and docs/languages.md name, as other programs write them."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable, Sequence
from email.message import EmailMessage
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tests.test_delimited import xlsx

_SYLLABLES = ("mo", "sta", "ga", "ri", "pla", "nor", "de", "lu")
_WORDS = [a + b + c for a in _SYLLABLES for b in _SYLLABLES for c in ("n", "rd", "l")]
_ENGLISH = ("the", "of", "and", "to", "in", "that", "it", "was", "for", "with")
_SPANISH = ("el", "de", "que", "en", "los", "del", "las", "por", "con", "una")
_JAPANESE = ("経済政策", "市場銀行", "選挙議会", "法律裁判", "学校教育", "病院医療")
_THAI = ("ตลาด", "ธนาคาร", "โรงเรียน", "นักเรียน", "หมอฟัน", "โรงพยาบาล")


def _text(number: int, function_words: Sequence[str], words: int = 30) -> str:
    """A text of one of ten subjects with words of their own."""
    draw, own = random.Random(number), _WORDS[number % 10 :: 10]
    return " ".join(
        draw.choice((draw.choice(function_words), *own[:2], draw.choice(own))) for _ in range(words)
    )


def _write(path: Path, lines: Iterable[str], encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding=encoding)


def _message(number: int, text: str) -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "ann@a.example", "bob@b.example", f"Café {number}"
    message["Date"] = f"Fri, {1 + number % 28} Dec 2023 10:00:00 +0100"
    message.set_content(text, cte="base64")
    message.add_alternative(f"<p>{text}</p>", subtype="html")
    return message.as_bytes()


def write_real_files(folder: Path) -> None:
    """Write all files, each of 120 documents."""
    numbered = [(i, _text(i, _ENGLISH)) for i in range(120)]
    _write_tables(folder, numbered)
    _write_messages(folder, numbered)
    for i in range(30):
        _write(folder / "speeches" / f"{i}.txt", [_text(i, _ENGLISH, 2500)])
    for name, subjects, between in (("japanese", _JAPANESE, "を見て"), ("thai", _THAI, "และ")):
        joined = (between.join([subjects[i % 6]] * (6 + i // 6)) for i in range(120))
        _write(folder / f"{name}.jsonl", (json.dumps({"text": text}) for text in joined))
    _write(folder / "thai.py", ["def words(text):", "    return text.split('และ')"])
    _write(folder / "extra.txt", _WORDS[:1])


def _write_tables(folder: Path, numbered: Sequence[tuple[int, str]]) -> None:
    def csv(name: str, header: str, row: str, encoding: str = "utf-8") -> None:
        rows = (row.format(i=i, half=i // 2, day=1 + i % 9, month=1 + i % 12, text=t) for i, t in numbered)
        _write(folder / name, [*([header] if header else []), *rows], encoding)

    csv("news_without_header.csv", "", '"{day}","{text:.20}","{text}"')
    csv("titled.csv", "Answers of 2023\n\nnumber,answer", "{i},{text}")
    csv("umfrage.csv", "Nr;Antwort", "{i};für {text}", "cp1252")
    csv("single_quotes.csv", "id,text", "{i},'say, {text}'")
    csv("sms.txt", "label\ttext", 'ham\t"{text}')
    csv("posts.csv", "date,text", "{day}/{month}/2023,{text}")
    csv("articles.csv", "id,title,body", "{half},{text:.9},{text}")
    _write(folder / "half_broken.csv", ["id,text", *(f"{i},{t}{', and' * (i % 3 > 0)}" for i, t in numbered)])
    _write(folder / "tweets.csv", ["text", *(_text(i, _ENGLISH if i % 4 else _SPANISH) for i in range(120))])
    csv("chat.txt", "", "1/3/20, 10:{day:02d} - Bob: {text}")

    rows = [[(f"A{i + 3}", text), (f"B{i + 3}", f"team {i % 3}")] for i, text in numbered]
    answers = [[("A1", "Survey of 2024")], [("A2", "answer"), ("B2", "team")], *rows]
    xlsx(folder / "answers.xlsx", Answers=answers)
    xlsx(folder / "survey.xlsx", Notes=[[("A1", "notes")]], Answers=answers)

    _write(folder / "dataset" / "README.md", ["# A data set"])
    (folder / "dataset" / "data").mkdir()
    for part in range(2):
        table = pa.table({"text": [text for _, text in numbered[part::2]], "label": [part] * 60})
        pq.write_table(table, folder / "dataset" / "data" / f"train-0000{part}-of-00002.parquet")


def _write_messages(folder: Path, numbered: Sequence[tuple[int, str]]) -> None:
    for i, text in numbered[:60]:
        _write(folder / "mail" / f"{i}.eml", [_message(i, text).decode()])
    mbox = (
        f"From ann@a.example Fri Dec 1 10:00:00 2023\n{_message(i, t).decode()}" for i, t in numbered[60:]
    )
    _write(folder / "mail" / "inbox.mbox", mbox)

    for name in ("users", "channels"):
        _write(folder / "slack" / f"{name}.json", [json.dumps([{"id": "U1", "name": "ann"}])])
    for day in range(1, 5):
        said = [
            {"user": "U1", "text": t, "ts": f"{1700000000 + i}.000200"} for i, t in numbered[day - 1 :: 4]
        ]
        _write(folder / "slack" / "general" / f"2023-11-0{day}.json", [json.dumps(said)])
    shutil.make_archive(str(folder / "slack_export"), "zip", folder / "slack")
    comment = {"subreddit": "books", "created_utc": 1700000000, "score": 1}
    comments = "\n".join(json.dumps({"id": f"k{i}", "body": t, **comment}) for i, t in numbered)
    long_window = zstandard.ZstdCompressionParameters.from_level(3, window_log=31, enable_ldm=True)
    packed = zstandard.ZstdCompressor(compression_params=long_window).compressobj()
    (folder / "RC_2023-11.zst").write_bytes(packed.compress(comments.encode()) + packed.flush())
