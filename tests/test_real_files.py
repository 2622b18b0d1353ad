"""Files of a user: kinds that people reported as unreadable, other encodings and separators."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from xml.sax.saxutils import escape

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_jsmf import ingest, transform
from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import read_manifest
from streaming_jsmf.ingestion.readers.guess import Guess, guess_source
from streaming_jsmf.interface.fit import fit
from streaming_jsmf.jobs.execution import Execution
from tests.cases import each_once
from tests.outcomes import Command, Outcome, called, refused
from tests.sources import put, put_parquet, small
from tests.test_delimited import xlsx
from tests.test_own_texts import words_of, write_documents

ENGLISH = "the of and to in is that it was for on with as at by this"
SPANISH = "el la de que y en un una los las por con para su al lo como más pero sus"
HINDI = "के का में है की से को और यह पर भी था नहीं कि ने तो हो एक इस वह"
ARABIC = "في من على إلى أن أنه التي الذي هذا هذه كان لا ما مع عن هو هي كل أو ثم"
SUBJECTS = [
    [f"{name}{a}{b}" for a in "bdgkm" for b in ("ora", "iru")]
    for name in ["sea", "kit", "law", "med", "bio", "fin", "art", "geo"]
]


def texts(n: int = 120, function_words: str = ENGLISH, length: int = 40) -> list[str]:
    """Texts of one subject each, in a language that its function words tell."""
    draw, common = random.Random(5), function_words.split()
    return [
        " ".join(draw.choice(common if draw.random() < 0.4 else SUBJECTS[i % 8]) for _ in range(length))
        for i in range(n)
    ]


TEXTS = texts()
DATES = [dt.datetime(2015, 1, 3, 10, 11, 12) + dt.timedelta(days=9 * i) for i in range(len(TEXTS))]
WIDE = [[i, f"{text},\n{text[:9]}; a", "a"] for i, text in enumerate(TEXTS)]


def table(rows: Sequence[Sequence[Any]], header: Sequence[str] = (), **options: Any) -> str:
    stream = io.StringIO()
    csv.writer(stream, **options).writerows([header, *rows] if header else rows)
    return stream.getvalue()


def lines(**more: Any) -> str:
    return "".join(json.dumps({"text": text, **more}) + "\n" for text in TEXTS)


class Done:
    """A command in a folder, and the corpus that it made."""

    def __init__(self, root: Path, source: object, *options: object) -> None:
        self.corpus = root / "corpus"
        ended = called("ingest", root / str(source), self.corpus, "--scheduler", "synchronous", *options)
        self.code, self.said = ended.code, ended.out + ended.err

    @property
    def n_documents(self) -> int:
        assert self.code == 0, self.said
        return open_corpus(self.corpus).n_documents

    def column(self, name: str) -> Any:
        assert self.code == 0, self.said
        return pq.read_table(self.corpus / "documents").column(name)

    def refused(self, *parts: str) -> None:
        assert self.code == 2, self.said
        assert all(part in self.said.splitlines()[-1] for part in parts), self.said
        assert not self.corpus.exists()


def quoted(root: Path) -> None:
    rows = [f"{i}\t{'' if i % 7 else chr(34)}{text}" for i, text in enumerate(TEXTS)]
    put(root / "s.tsv", "label\ttext\n" + "\n".join(rows) + "\n")


def mails(root: Path) -> None:
    for i, text in enumerate(TEXTS):
        body = f"Content-Transfer-Encoding: quoted-printable\n\n{text[:60]}=\n{text[60:]} caf=C3=A9\n"
        head = 'Subject: a\nMIME-Version: 1.0\nContent-Type: multipart/alternative; boundary="xx"\n\n'
        kinds = f"--xx\nContent-Type: text/plain; charset=utf-8\n{body}--xx\nContent-Type: text/html\n\n<p>{text}</p>"
        put(root / f"s/{i}.eml", f"From: A <a@b.example>\nTo: c@d.example\n{head}{kinds}\n--xx--\n")


def apple_mails(root: Path) -> None:
    for i, text in enumerate(TEXTS):
        mail = f"From: a@b.example\nTo: c@d.example\n\n{text}\n"
        put(root / f"s/{i}.emlx", f'{len(mail)}\n{mail}<?xml version="1.0"?>\n<plist>plain</plist>\n')


def parts(root: Path) -> None:
    for name, content in (("_SUCCESS", ""), ("part-00000", ""), ("part-00001", lines())):
        put(root / "s" / name, content)


def empty_beside(root: Path) -> None:
    put(root / "s/a.csv", "")
    put(root / "s/b.csv", "text\n")
    put(root / "s/c.csv", table([[text] for text in TEXTS], ["text"]))


def hugging_face(root: Path) -> None:
    put(root / "s/dataset_infos.json", "{}")
    put_parquet(root / "s/data/train.parquet", {"text": TEXTS})


def saved_to_disk(root: Path) -> None:
    for name in ("dataset_dict.json", "train/state.json", "train/dataset_info.json"):
        put(root / "s" / name, "{}")
    for name in ("data-00000-of-00001.arrow", "cache-1f.arrow"):
        with pa.ipc.new_stream(put(root / "s/train" / name, ""), pa.schema({"text": pa.string()})) as writer:
            writer.write_table(pa.table({"text": TEXTS}), max_chunksize=50)


def feather(root: Path) -> None:
    table = pa.table({"text": pa.array(TEXTS).dictionary_encode()})
    with pa.ipc.new_file(
        root / "s.feather", table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
    ) as file:
        file.write_table(table)


def workbook(root: Path) -> None:
    rows = [[(f"A{i}", text)] for i, text in enumerate(["text", *TEXTS], 1)]
    xlsx(root / "s.xlsx", texts=rows, notes=[[("A1", "see above")]])


def titled(root: Path) -> None:
    rows = [[(f"A{i}", text), (f"B{i}", "n")] for i, text in enumerate(["text", *TEXTS], 4)]
    xlsx(root / "s.xlsx", texts=[[("A1", "A title")], [("A2", "of two rows")], *rows])


def tokens(root: Path) -> None:
    put_parquet(root / "s.parquet", {"text": [text.split() for text in TEXTS]})


def images(root: Path) -> None:
    n = len(TEXTS)
    columns = {"text": TEXTS, "image": [{"bytes": b"\x89PNG\0", "path": None}] * n, "user": [{"id": 1}] * n}
    put_parquet(root / "s.parquet", columns)


def rows(line: str) -> str:
    return "".join(line.format(i, text) for i, text in enumerate(TEXTS))


NAMES = ["id", "text", "label"]
#: A table of one column, in which texts with commas are in quotes, also with other marks and line ends in them.
ALONE = [
    [f'{text}, "he" said;\n{text[:9]}' if i % 9 == 0 else f"{text}, a" if i % 4 else text]
    for i, text in enumerate(TEXTS)
]
ESCAPED: dict[str, Any] = {"doublequote": False, "escapechar": "\\"}

KINDS: list[tuple[str, str | Callable[[Path], None], tuple[str, ...], str]] = [
    ("s.tsv", quoted, (), ""),
    ("s.csv", table([[i % 4, text[:9], text] for i, text in enumerate(TEXTS)], quoting=csv.QUOTE_ALL), (), "header"),
    ("s.csv", table([["ham", text, "", ""] for text in TEXTS], ["v1", "v2", "", ""]), (), "without a name"),
    ("s.csv", table([[i // 2, text] for i, text in enumerate(TEXTS)], ["id", "text"]), (), "id: 60 values are rep"),
    ("s.csv", table([[i / 2, text] for i, text in enumerate(TEXTS)], ["id", "text"]), ("--id", "none"), ""),
    ("s.jsonl", lines(id=12345678901234567890), (), "id: "),
    ("s/wiki_00", lines(url="https://en.example.org"), (), ""),
    ("s", parts, (), ""),
    ("s", empty_beside, (), "1 of 3 files are empty"),
    ("s", mails, (), ""),
    ("s", apple_mails, (), ""),
    ("s.psv", table([[1, text] for text in TEXTS], ["n", "text"], delimiter="|"), (), ""),
    ("s.dat", table([[1, text] for text in TEXTS], ["n", "body"], delimiter="~"), ("--delimiter", "~"), "body"),
    ("s.csv", "sep=;\n" + table([[1, text] for text in TEXTS], ["n", "text"], delimiter=";"), (), ""),
    ("s.jsonl", lines(name="\ud800", tags=["a\udc00"]), (), "not UTF-8"),
    ("s.json", "".join(json.dumps({"text": text}, indent=1) for text in TEXTS), (), ""),
    ("s.json", f"[{','.join(json.dumps({'text': text, 'n': float('nan')}) for text in TEXTS)},]", (), ""),
    ("s.parquet", tokens, (), ""),
    ("s.parquet", images, (), "image: values are left out"),
    ("s.csv", table([["a,b", f'x "{text}"'] for text in TEXTS], ["n", "text"], **ESCAPED), (), ""),
    ("s.csv", table([[i, text] for i, text in enumerate(TEXTS)], ["n", "What, or why?"]), (), "What, or why?"),
    ("s", hugging_face, (), ""),
    ("s", saved_to_disk, (), ""),
    ("s.feather", feather, (), ""),
    ("s/_posts/s.csv", table([[text, "NA"] for text in TEXTS], ["text", "n"]), (), ""),
    ("s.xlsx", workbook, (), "not 'notes'"),
    ("s.xlsx", titled, (), "its header is row 4"),
    *[("s.csv", table(WIDE, NAMES, quoting=csv.QUOTE_ALL, quotechar=quote), (), "quoted with") for quote in "~|^%"],
    ("s.csv", table(WIDE, NAMES, quotechar="~", delimiter=";"), (), "and quoted with ~"),
    ("s.csv", table(WIDE, NAMES, quotechar="~", lineterminator="\r"), (), "quoted with ~"),
    *[(name, rows("{}\1{}, a\1b\n"), (), r"by '\x01'") for name in ("s.csv", "000000_0")],
    *[("s.csv", f"id{mark}text\n" + rows(f"{{}}{mark}{{}}, a\n"), (), f"by '{mark}'") for mark in "^~"],
    ("s.csv", '"text" "n"\n' + rows('"{0}" "{1}, \\"a\\"" {0}\n'), (), "row_name"),
    ("s.tsv", "text\tn\n" + rows("r{}\t{}\t1\n"), (), "row_name"),
    ("s.csv", "id,text\n" + rows('{},"{}, a",\n'), (), "without a name"),
    *[
        ("s.csv", table(ALONE, [name], **options), (), f"column {name!r}")
        for name, options in (
            ("comment", {}), ("question_text", {"quoting": csv.QUOTE_ALL}), ("0", {"quotechar": "'"}),
            ("comment", {"delimiter": ";"}), ("0", {}),
        )
    ],
    ("s.csv", "\ufeff" + table(ALONE, ["comment"]), (), "column 'comment'"),
    ("s.csv", table(ALONE), (), "column 'column_1'"),
    ("s.tsv", table(ALONE, ["comment"], delimiter="\t"), (), "column 'comment'"),
    ("s.csv", pd.Series([text for text, in ALONE], name="comment").to_csv(), (), "column 'comment'"),
    ("s.csv", 'id, text, "n"\n' + rows('{}, "{}, ""a""\nb", "x"\n'), (), "after blanks"),
    ("s.csv", table([*zip(TEXTS, ["2015-01-03"] * 118 + ["unknown"] * 2, strict=True)], ["text", "d"]), (),
        "d: strings, because only 118 of 120 values are dates, not 'unknown' (2)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "options", "said"), KINDS)
def test_every_document_is_read(
    tmp_path: Path, name: str, content: str | Callable[[Path], None], options: tuple[str, ...], said: str
) -> None:
    if callable(content):
        content(tmp_path)
    else:
        put(tmp_path / name, content)
    done = Done(tmp_path, name, *options, "--min-df", 1, "--max-df", "100%", "--duplicates", "keep")
    assert done.n_documents == len(TEXTS)
    assert said in done.said
    words = words_of(done.corpus)
    assert {word for subject in SUBJECTS for word in subject} <= words
    assert not words & {"caf", "charset", "example", "https", "plain", "png", "text", "url"}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("chat.txt", "1/3/20, 10:15 - Bob: {}"),
        ("_chat.txt", "[1/3/20, 10:15:00] Bob: {}"),
        ("app.log", "2020-01-01 00:00:01 INFO {}"),
        ("my.txt", "doc\tsea\t{}"),
    ],
)
def test_a_folder_of_one_file_is_as_the_file(tmp_path: Path, name: str, line: str) -> None:
    put(tmp_path / "s" / name, "".join(f"{line.format(text)}\n" for text in TEXTS))
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        archive.write(tmp_path / "s" / name, name)
    for source in ("s", "s.zip", f"s/{name}"):
        Done(tmp_path, source).refused(name, "--reader lines")
    assert Done(tmp_path, "s", "--reader", "lines").n_documents == len(TEXTS)


@pytest.mark.parametrize(
    ("name", "form", "options", "first"),
    [
        ("created_utc", lambda time: f"{time.timestamp():.0f}", (), "2015-01-03 10:11:12+00:00"),
        ("ts", lambda time: f"{time.timestamp():.6f}", (), "2015-01-03 10:11:12+00:00"),
        ("day", "%Y%m%d", (), "2015-01-03"),
        ("month", "%Y-%m", (), "2015-01-01"),
        ("when", "%d/%m/%Y", (), "2015-01-03"),
        ("when", "%m/%d/%y %H:%M", (), "2015-01-03 10:11:00"),
        ("when", "%d.%m.%y, %H:%M:%S", (), "2015-01-03 10:11:12"),
        ("when", "%a, %d %b %Y %H:%M:%S +0100", (), "2015-01-03 09:11:12+00:00"),
        ("when", "%a %b %d %H:%M:%S +0000 %Y", (), "2015-01-03 10:11:12+00:00"),
        ("when", "%Y-%m-%dT%H:%M:%S+02:00", (), "2015-01-03 08:11:12+00:00"),
        ("when", lambda time: f"{time:%Y-%m-%d}"[: 7 + time.day % 2 * 3], (), "2015-01-03"),
        ("when", lambda time: f"{time.year}-Q{(time.month + 2) // 3}", (), "2015-Q1"),
        ("when", "%G-W%V", (), "2015-W01"),
        ("when", "%a %b %d %Y %H:%M:%S GMT+0100", (), "Sat Jan 03 2015 10:11:12 GMT+0100"),
        (
            "when",
            "%a %b %d %Y %H:%M:%S GMT+0100",
            ("--date-format", "%a %b %d %Y %H:%M:%S GMT%z"),
            "2015-01-03 09:11:12+00:00",
        ),
        (
            "when",
            "%d/%b/%Y:%H:%M:%S +0000",
            ("--date-format", "%d/%b/%Y:%H:%M:%S %z"),
            "2015-01-03 10:11:12+00:00",
        ),
        ("when", "%d|%m|%Y", ("--date-format", "%d|%m|%Y"), "2015-01-03"),
        ("when", "%m/%d/%Y", ("--date-format", "none"), "01/03/2015"),
    ],
)
def test_dates(tmp_path: Path, name: str, form: Any, options: tuple[str, ...], first: str) -> None:
    given = [form(time.replace(tzinfo=dt.UTC)) if callable(form) else time.strftime(form) for time in DATES]
    put(tmp_path / "s.csv", table([*zip(TEXTS, given, strict=True)], ["text", name]))
    assert str(Done(tmp_path, "s.csv", *options).column(name)[0]) == first


@pytest.mark.parametrize("function_words", [HINDI, ARABIC, SPANISH, f"{ENGLISH} {SPANISH}"])
def test_function_words_are_removed(tmp_path: Path, function_words: str) -> None:
    put(tmp_path / "s.csv", table([[text] for text in texts(function_words=function_words)], ["text"]))
    done = Done(tmp_path, "s.csv", "--max-df", "100%")
    assert done.n_documents == len(TEXTS)
    assert words_of(done.corpus) == {word for subject in SUBJECTS for word in subject}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"harbor\nvessel\n\nCargo caf\u00e9\tanchor", "harbor vessel cargo café anchor"),
        (r"b'harbor\xe2\x80\xa6 caf\xc3\xa9\xf0\x9f\x98'", "b harbor café"),
        (r"$\nabla \tau$ C:\new" + "\nvessel", "nabla tau c new vessel"),
        ("İstanbul istanbul ـــكتاب", "istanbul كتاب"),
    ],
)
def test_words_are_those_that_are_meant(tmp_path: Path, text: str, words: str) -> None:
    ingest([text, "x"], tmp_path / "c", min_df=1, max_df=1.0, min_word_length=1, stop_words="none")
    assert words_of(tmp_path / "c") == {*words.split(), "x"}


def sentences(root: Path) -> None:
    put_parquet(root / "s/a.parquet", {"text": [[text, text[:50]] for text in TEXTS]})


def linked(root: Path) -> None:
    put(root / "other/a.txt", "x")
    put(root / "s/b.txt", "x").with_name("c").symlink_to(root / "other")


def printed(root: Path) -> None:
    put(root / "s/b.txt", "x")
    put(root / "s/c.pdf", "%PDF-")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (sentences, "join each list"),
        (linked, "s/c links"),
        (printed, "/**/*.txt'"),
        (("s.csv", b"PK\3\4" + bytes(26) + b"xl/workbook.xml"), "it is an Excel or OpenDocument file"),
        (("s.csv", b"PAR1\0\0"), "it is Parquet"),
        (("s.csv", b"\xd0\xcf\x11\xe0\0"), "it is an Excel file"),
        (("s.csv", "<!DOCTYPE html>\n<p>a, b"), "it is HTML"),
        (("s.csv", '{"text": "a", "b": 1}\n'), "it is JSON"),
        (("s.xls", "<table><tr>"), "it is HTML"),
        (("s.xls", "a\ttext\nb\tc\n".encode("utf-16")), "plain text, such as CSV or TSV"),
        (
            ("s.csv", "".join(f"{text}, {text[: 9 * i]}, and\n" for i, text in enumerate(TEXTS))),
            "--reader lines",
        ),
        (("s.csv", "comment\n" + rows("{1}, {1}, and\n")), "also the first one ('comment')"),
        (("s.csv", "text,n\n" + "a,1\n" * 30 + "Total: 30\n"), "line 32: it has 1 field, the header 2"),
    ],
)
def test_what_is_refused_has_a_way_out(tmp_path: Path, made: Any, said: str) -> None:
    if not callable(made):
        put(tmp_path / "s" / made[0], made[1])
    else:
        made(tmp_path)
    Done(tmp_path, "s").refused(said)


def test_files_that_were_joined(tmp_path: Path) -> None:
    rows = [[f"d{i}", text, i] for i, text in enumerate(TEXTS)]
    put(
        tmp_path / "s.csv",
        table(rows, ["id", "text", "n"]) + "\ufeff" + table([["e", *rows[0][1:]]], ["id", "text", "n"]),
    )
    Done(tmp_path, "s.csv").refused(f"line {len(TEXTS) + 2}: it is the header again")
    done = Done(tmp_path, "s.csv", "--on-bad-record", "quarantine", "--duplicates", "keep")
    assert (done.n_documents, done.column("n").to_pylist()) == (len(TEXTS) + 1, [*range(len(TEXTS)), 0])


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_questions_and_ids_of_qualtrics(tmp_path: Path, suffix: str) -> None:
    names, asked = ["StartDate", "Q1"], ["Start Date", "What do you like about it?\nPlease say why"]
    ids = ['{"ImportId":"startDate"}', '{"ImportId":"QID1_TEXT"}']
    rows = [names, asked, ids, *(["2020-01-02 03:04:05", text] for text in TEXTS)]
    if suffix == "csv":
        put(tmp_path / "s.csv", table(rows[1:], names))
    else:
        cells = [
            [(f"{'AB'[i]}{n}", escape(cell)) for i, cell in enumerate(row)] for n, row in enumerate(rows, 1)
        ]
        xlsx(tmp_path / "s.xlsx", One=cells)
    done = Done(tmp_path, f"s.{suffix}")
    assert done.n_documents == len(TEXTS)
    assert done.column("StartDate").type == pa.timestamp("us")
    assert "the questions and ids of Qualtrics, are not read" in done.said


@pytest.mark.parametrize(
    "code", ["2021-01-01T10:00:00.000+00:00", "Wed Oct 10 20:19:24 +0000 2018", f"{7:040x}", "a" * 40]
)
def test_dates_and_codes_are_no_texts(tmp_path: Path, code: str) -> None:
    put(tmp_path / "s.csv", table([[code, text[:29]] for text in TEXTS], ["code", "answer"]))
    assert Done(tmp_path, "s.csv").column("code")


def test_a_column_has_either_texts_or_ids(tmp_path: Path) -> None:
    put(tmp_path / "s.csv", table([*enumerate(TEXTS)], ["n", "id"]))
    Done(tmp_path, "s.csv", "--text", "id", "--id", "id").refused(
        "both the texts and the ids; give --id another"
    )
    Done(tmp_path, "s.csv", "--text", "id,id").refused("--text id,id names a column twice")
    done = Done(tmp_path, "s.csv", "--text", "id")
    assert done.n_documents == len(TEXTS)
    assert "missing" not in done.said
    assert "id" not in pq.read_schema(next((done.corpus / "documents").iterdir())).names


def test_few_long_documents(tmp_path: Path) -> None:
    for i, text in enumerate(texts(5, length=8000)):
        put(tmp_path / f"s/{i}.txt", text)
    Done(tmp_path, "s").refused("5 documents of 8,000 words", "--split 200")
    done = Done(tmp_path, "s", "--split", 200, "--max-df", "100%")
    assert done.n_documents == 200
    assert str(done.column("document_id")[0]) == "0.txt/1"


def test_losses(tmp_path: Path) -> None:
    """Above a tenth, the last line has the reason; above a half, nothing is made."""
    put(tmp_path / "s.csv", table([[text, *"ab"[: i % 5 // 4]] for i, text in enumerate(TEXTS)], ["text"]))
    done = Done(tmp_path, "s.csv", "--on-bad-record", "quarantine")
    assert (done.n_documents, done.said.splitlines()[-1].split()[0]) == (96, "20%")
    assert "24 in quarantine.parquet" in done.said.splitlines()[-1]
    put(tmp_path / "e.csv", table([[text * (i % 4 > 0), i] for i, text in enumerate(TEXTS)], ["text", "n"]))
    done = Done(tmp_path, "e.csv", "--overwrite")
    assert (done.n_documents, done.said.splitlines()[-1][-20:]) == (90, ": 30 empty documents")
    put(tmp_path / "t/t.csv", table([[text, *"ab"[: i % 5 // 2]] for i, text in enumerate(TEXTS)], ["text"]))
    Done(tmp_path / "t", "t.csv", "--on-bad-record", "quarantine").refused("72 of 120", "--max-dropped")


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (np.array(TEXTS), {"tokenizer": lambda text: text.split()}),
        (pd.DataFrame({"words": [text.split() for text in TEXTS]}), {"text": "words"}),
        (pd.DataFrame({"title": [None] * len(TEXTS), "body": TEXTS}), {"text": ["title", "body"]}),
        (pd.DataFrame({"text": TEXTS, "span": pd.interval_range(0, len(TEXTS)), "of": ["\ud800"] * len(TEXTS)}), {}),
        (pa.table({"text": TEXTS}), {"stop_words": ["english", {"foo"}]}),
    ],
)  # fmt: skip
def test_objects_in_python(tmp_path: Path, source: Any, options: dict[str, Any]) -> None:
    corpus = ingest(source, tmp_path / "c", scheduler="synchronous", max_df=1.0, **options)
    assert corpus.n_documents == len(TEXTS)
    assert words_of(tmp_path / "c") == {word for subject in SUBJECTS for word in subject}


# -- Texts as office programs write them: other encodings, other separators, one document per line --


DOCUMENTS = [text.replace("moon", "café") for text in write_documents(120)]
EXPECTED = sum(text.count("café") for text in DOCUMENTS)
RATINGS = [f"{u};{i};{1 + (u + i) % 5}" for u in range(40) for i in range(12)]
LINES = ("--reader", "lines")


def write_csv(path: Path, delimiter: str = ",", encoding: str = "utf-8") -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["number", "what", "year"])
        # Commas in some of the texts are no separators where there is another one.
        writer.writerows([i, text + ", more" * (i % 2), 1990] for i, text in enumerate(DOCUMENTS))
    return path


def write_folder(root: Path, *encodings: str) -> Path:
    root.mkdir()
    for i, text in enumerate(DOCUMENTS):
        (root / f"{i}.txt").write_text(text, encoding=encodings[i % len(encodings)])
    return root


@pytest.fixture
def ingested(invoke: Command, tmp_path: Path) -> Command:
    """Ingest a source into ``tmp_path/c``; a refusal comes without progress."""

    def call(source: Path, *options: object) -> Outcome:
        done = invoke("ingest", source, tmp_path / "c", "--scheduler", "synchronous", *options)
        return done.without_progress() if done.code else done

    return call


def require_documents(corpus: Path) -> None:
    """The corpus has all documents, and their accented letters."""
    vocabulary = open_corpus(corpus).vocabulary()
    assert open_corpus(corpus).n_documents == len(DOCUMENTS)
    assert vocabulary.term_count[vocabulary.words.index("café")] == EXPECTED


def test_a_separator_that_is_only_in_the_header_is_ignored(ingested: Command, tmp_path: Path) -> None:
    """Fields hold semicolons, and a comma cuts every record."""
    rows = [f'"{text}; and; more",{i}' for i, text in enumerate(DOCUMENTS)]
    path = put(tmp_path / "t.csv", "\n".join(["a text; with; notes,number", *rows]))
    assert ingested(path).code == 0
    assert "read_delimiter" not in read_manifest(tmp_path / "c").settings


@pytest.mark.parametrize(("name", "delimiter"), [("r.csv", ";"), ("t.tsv", "\t"), ("u.data", "\t")])
def test_ratings_with_other_separators(name: str, delimiter: str, ingested: Command, tmp_path: Path) -> None:
    text = "\n".join(["userId;movieId;rating", *RATINGS])
    done = ingested(put(tmp_path / name, text.replace(";", delimiter)), "--reader", "ratings")
    assert done.code == 0, done.err
    assert "the source is read with --user userId, --item movieId; other values" in done.err
    assert (f"separated by {delimiter!r}" in done.err) == (not name.endswith(".tsv"))
    assert open_corpus(tmp_path / "c").n_documents == 40


@pytest.mark.parametrize(
    ("separator", "read"), [(",", {"separator": ","}), ("\t", {"separator": "\t"}), (" ", {})]
)
def test_separators_of_baskets_are_detected(separator: str, read: dict[str, str], tmp_path: Path) -> None:
    items = [f"item{i % 7}{separator}item{i % 5}{separator}item{i % 3}" for i in range(40)]
    path = put(
        tmp_path / "b.csv", "\n".join(["alone", "", *items, "one, two" if separator == " " else "alone"])
    )
    assert guess_source(path, "baskets") == Guess("baskets", read, ANY)
    assert guess_source(path, "baskets", {"separator": ";"}).read == {}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8"])
@pytest.mark.parametrize("name", ["export.txt", "part-00000", "in/a.dat"])
def test_delimited_texts_of_any_name(name: str, encoding: str, ingested: Command, tmp_path: Path) -> None:
    path = write_csv(put(tmp_path / name, ""), "\t", encoding)
    assert ingested(path.parent if name.startswith("in/") else path).code == 0
    require_documents(tmp_path / "c")
    path.write_text(path.read_text(encoding).partition("\n")[2])
    refused(ingested(path), 2, "a table", "--reader lines", "--delimiter CHARACTER")
    options = ("--delimiter", "\\t", "--columns", "number,what,year")
    assert ingested(path, "--overwrite", *options).code == 0
    require_documents(tmp_path / "c")


@pytest.mark.parametrize(
    ("before", "encoding"),
    [
        ("Report generated 2020-01-01\n\n", "utf-8"),
        ("# one, two, it's\n#\n", "utf-16-le"),
        ('"Report, of",,\r\n,,\r\n', "utf-8"),
        ("ant\nbee\n", "utf-16-le"),
    ],
)
def test_lines_before_the_header(before: str, encoding: str, ingested: Command, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv")
    path.write_bytes((before + path.read_text()).encode(encoding))
    done = ingested(path)
    assert done.code == 0, done.err
    assert "its header is line 3; --skip-lines 0 reads what is above, too" in done.err
    require_documents(tmp_path / "c")
    # Without numbers, the header is not certain.
    before = before.replace(", two,", "")
    path.write_text(
        f"{before}what,of\n" + "".join(f"{text},{'abc'[i % 3]}\n" for i, text in enumerate(DOCUMENTS))
    )
    refused(ingested(path), 2, "t.csv", "--skip-lines N")
    for options in (("--skip-lines", "2"), ("--text", "what")):
        assert ingested(path, "--overwrite", *options).code == 0
    require_documents(tmp_path / "c")


def test_a_folder_in_several_encodings(ingested: Command, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "in", "utf-8", "cp1252", "utf-16", "utf-16-be", "utf-8-sig")
    refused(ingested(folder), 2, ".txt: byte ", "UTF-8", "--encoding cp1252, or utf-8,cp1252")
    assert ingested(folder, "--encoding", "utf-8,cp1252").code == 0
    require_documents(tmp_path / "c")
    assert read_manifest(tmp_path / "c").settings["read_encoding"] == "utf-8,cp1252"
    assert ingested(folder, "--on-bad-record", "quarantine", "--overwrite").code == 0
    assert open_corpus(tmp_path / "c").n_documents < len(DOCUMENTS)


def marked(path: Path, text: str, encoding: str) -> Path:
    data = text.encode(encoding)
    return put(path, gzip.compress(data) if path.suffix == ".gz" else data)


ENCODED: list[tuple[str, str, tuple[str, ...]]] = [
    ("t.jsonl", "text", ()),
    ("t.jsonl.gz", "text", ("--encoding", "cp1252")),
    ("t.json", "text", ()),
    ("t.csv", "text", ("--encoding", "cp1252")),
    ("t.txt", "lines", ()),
    ("t.txt.gz", "lines", ("--encoding", "cp1252,utf-8")),
    ("t.baskets", "baskets", ()),
    ("triples.tsv", "triples", ()),
]


@pytest.mark.parametrize(
    ("encoding", "made"), each_once(["utf-16", "utf-16-le", "utf-32", "utf-8-sig"], ENCODED)
)
def test_a_byte_order_mark_gives_the_encoding(
    made: tuple[str, str, tuple[str, ...]], encoding: str, ingested: Command, tmp_path: Path
) -> None:
    """Also of files that are split into parts, and against the option."""
    name, reader, options = made
    rows = [{"text": text, "n": i} for i, text in enumerate(DOCUMENTS)]
    text = "\n".join(DOCUMENTS) + "\n"
    if name == "t.csv":
        text = "text\n" + text
    elif name == "t.json":
        text = json.dumps(rows, ensure_ascii=False)
    elif name.startswith("t.jsonl"):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    elif name == "triples.tsv":
        words = [(i, word) for i, one in enumerate(DOCUMENTS) for word in one.split()]
        text = "document\tword\tcount\n" + "".join(f"{i}\t{word}\t1\n" for i, word in words)
    plain = marked(tmp_path / "plain" / name, text, "utf-8")
    assert ingested(plain, "--reader", reader).code == 0
    expected = open_corpus(tmp_path / "c").fingerprint
    path = marked(tmp_path / name, text, encoding)
    for size in (8 << 20, 4000):
        with small(unit=size):
            done = ingested(path, "--reader", reader, *options, "--overwrite")
        assert done.code == 0, done.err
        assert open_corpus(tmp_path / "c").fingerprint == expected


def test_damaged_utf_16(ingested: Command, tmp_path: Path) -> None:
    data = '{"text": "ant bee"}\n{"text": "cat"}\n'.encode("utf-16")
    refused(ingested(put(tmp_path / "a.jsonl", data[:-3])), 2, "a.jsonl", "it is not UTF-16")
    spoilt = data.replace("cat".encode("utf-16-le"), b"c\0\0\xd8t\0")
    refused(ingested(put(tmp_path / "b.jsonl", spoilt)), 2, "b.jsonl", "it is not UTF-16")


SHORT = "".join(f"the cat {i} sat on mat{i}\n" for i in range(8))
TEXT = ("--reader", "text", "--text", "what", "--delimiter")
TWEET = '{"text": "café"}\n'.encode("cp1252")

#: Name and bytes of a source, options, and what the refusal must name.
REFUSED: tuple[tuple[str, str | bytes, tuple[str, ...], tuple[str, ...]], ...] = (
    *(("t.csv", "what\na\n", (*TEXT, d), ("character",)) for d in ('"', "")),
    *(
        (name, "what\na\n", ("--encoding", encoding), ("encoding",))
        for name in ("in/t.txt", "t.csv")
        for encoding in ("klingon", "utf-16", "hex", "utf-8,klingon")
    ),
    ("t.jsonl", TWEET, (), ("--encoding cp1252",)),
    ("t.csv", b"what\n" + TWEET * 3, TEXT[:4], ("--encoding cp1252",)),
    ("t.txt", "café\n".encode("cp1252"), LINES, ("--encoding cp1252",)),
    ("in/novel.txt", DOCUMENTS[0], ("--quiet",), ("1 document ", "more documents")),
    (
        "t.txt",
        SHORT,
        (*LINES, "--quiet", "--min-tokens", "5"),
        ("no document is left", "8 documents with fewer than"),
    ),
    ("in/1.txt", b"%PDF-1.4 \xff", (), ("1.txt: ", "plain text", "PDF")),
    ("in/1.txt", b"PK\x03\x04\0\0", (), ("1.txt: ", "plain text", "PDF")),
    ("sheet.xlsx", b"PK", (), ("sheet.xlsx: ", "spreadsheet")),
    ("in/2.pdf", b"%PDF", (), (".pdf files", "plain text, one file each")),
    ("r.csv", "who,movieId,rating\n1,2,3\n", ("--reader", "ratings"), ("who, movieId", "--user NAME")),
)


@pytest.mark.parametrize(("name", "content", "options", "parts"), REFUSED)
def test_a_source_that_cannot_be_read_is_refused(
    name: str,
    content: str | bytes,
    options: tuple[str, ...],
    parts: tuple[str, ...],
    ingested: Command,
    tmp_path: Path,
) -> None:
    path = put(tmp_path / name, content)
    refused(ingested(path.parent if name.startswith("in/") else path, *options), 2, *parts)
    assert not (tmp_path / "c").exists()


def test_new_texts_of_another_encoding(tmp_path: Path, invoke: Command) -> None:
    folder = write_folder(tmp_path / "in", "utf-8")
    fit(folder, tmp_path / "m", [6], polish=False, execution=Execution("synchronous"))
    assert "café" in words_of(tmp_path / "m.corpus")
    new = put(tmp_path / "new.txt", "café rocket orbit\noven flour\n".encode("cp1252"))
    reading = IngestRequest("lines", {"encoding": "cp1252"})
    totals = transform(tmp_path / "m", new, tmp_path / "shares.parquet", reading=reading).about.totals
    assert totals is not None
    assert (totals.documents, totals.tokens, totals.unknown_tokens) == (2, 5, 0)
    table = put(tmp_path / "new.csv", "a,rocket orbit\nb,oven flour\n")
    named = ("--column-names", "name,what", "--text", "what", "--columns", "name", "--json")
    done = invoke("documents", tmp_path / "m", table, "--topic", 0, *named)
    assert sorted(row["name"] for row in json.loads(done.out)) == ["a", "b"], done.err


@pytest.mark.parametrize(
    "content",
    [
        '{"id": 1, "tokens": ["a", "b", "a"]}\n{"id": 2, "tokens": ["c", 7]}\n',
        '[["a", "b", "a"], ["c", 7]]',
        '["a", "b", "a"]\n["c", 7]\n',
        '[{"items": ["a", "b", "a"]}, {"items": ["c", 7]}]',
    ],
    ids=["objects", "list of lists", "lists", "array"],
)
def test_baskets_of_json_lists(content: str, tmp_path: Path, ingested: Command) -> None:
    for name in ("a.json", "a.txt" if content.startswith("{") else "a.jsonl"):
        path = put(tmp_path / name, content)
        options = ("--min-tokens", 0, "--min-distinct-words", 0, "--overwrite")
        assert ingested(path, "--reader", "baskets", *options).code == 0
        assert open_corpus(tmp_path / "c").vocabulary().words == ("7", "a", "b", "c")
    rows = '{"items": "a b"}\n{"items": null}\n{"items": [1.5]}\n{"x": []}\n'
    done = ingested(put(tmp_path / "b.jsonl", rows), "--reader", "baskets", *options)
    assert (done.code, "b.jsonl, line 1: it has no list of strings or integers" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"PAR1", "Parquet"),
        (b"{\\rtf1", "RTF"),
        (b"%PDF-1.4", "PDF"),
        (b"ARROW1\0\0", "Arrow"),
        (b"a\0b", "a binary"),
        (b'{"text": "a"}', "JSON"),
        (b"From a@b.c Thu Jan  1 00:00:00 1970", "mail"),
        (b"SQLite format 3\0", "SQLite"),
    ],
)
def test_lines_of_other_kinds_are_refused(head: bytes, kind: str, tmp_path: Path, ingested: Command) -> None:
    path = put(tmp_path / "a.txt", head + b"\nant bee\n")
    for reader in ("lines", "baskets") if kind not in ("JSON", "Parquet") else ("lines",):
        refused(ingested(path, "--reader", reader), 2, "a.txt", kind)


DIGITS = "9" * 5000
NUMBERS = (
    DIGITS,
    f"-{DIGITS}",
    f"0.{DIGITS}",
    "1e99999",
    f"&#{DIGITS}",
    "&#x110000;",
    "&#55296;",
    "\ud800",
    f"{DIGITS}-01-01",
)

#: How each reader may meet a number of thousands of digits, which Python refuses to convert.
WITH_NUMBERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "texts.csv": ("id,text,m\n" + rows("{0},{1} NUMBER,NUMBER\n"), ()),
    "header.csv": ("NUMBER,text\n" + rows("{0},{1}\n"), ()),
    "ids.csv": ("id,text\n" + rows("NUMBER{0},{1}\n"), ("--id", "id")),
    "triples.csv": ("document,word,count\n" + rows("{0},a{0},NUMBER\n"), ("--reader", "triples")),
    "numbered.csv": (
        "document,word,count\nNUMBER,a,1\n",
        ("--reader", "triples", "--integer-ids", "true"),
    ),
    "ratings.csv": ("user,item,rating\n" + rows("{0},a{0},NUMBER\n"), ("--reader", "ratings")),
    "numbers.jsonl": ("".join(f'{{"text": "{text}", "m": NUMBER}}\n' for text in TEXTS), ()),
    "array.json": ("[" + ",".join(f'{{"text": "{text}", "m": [NUMBER]}}' for text in TEXTS) + "]", ()),
    "baskets.json": ("[[NUMBER, 1], [2]]", ("--reader", "baskets")),
    "size.mtx": ("%%MatrixMarket matrix coordinate integer general\nNUMBER 3 1\n1 1 2\n", ()),
    "entry.mtx": ("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 NUMBER\nNUMBER 2 1\n", ()),
    "docword.a.txt": ("NUMBER\n3\n1\n1 1 2\n", ()),
    "docword.b.txt": ("3\n3\n1\n1 1 NUMBER\n", ()),
    "lines.txt": (rows("{1} NUMBER\n"), ("--reader", "lines")),
    "a.eml": (
        "From: a@b.c\nDate: NUMBER\nContent-Type: text/html; charset*NUMBER*=x\n\n<p>ant NUMBER bee\n",
        (),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_numbers_that_python_does_not_convert_end_in_no_traceback(name: str, tmp_path: Path) -> None:
    content, options = WITH_NUMBERS[name]
    put(tmp_path / "vocab.txt", "a\nb\nc\n")
    for number in NUMBERS:
        put(tmp_path / name, content.replace("NUMBER", number).encode("utf-8", "surrogatepass"))
        done = Done(tmp_path, name, *options, "--on-bad-record", "quarantine", "--overwrite", "--min-df", 1)
        assert done.code in (0, 2), done.said[-2000:]
        assert "Traceback" not in done.said


SPOILT = [
    "O cão não irá à praia nº {}",
    "Việt Nam: Ánh sáng và âm thanh số {}",
    "À l\u2019âge bête, où êtes-vous, n° {} ?",
    "Größe \u2013 \u201c{}\u201d €",
]


@pytest.mark.parametrize(
    ("line", "codec"),
    [
        *zip(SPOILT, ("latin-1", "cp1252") * 2, strict=True),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in zip(SPOILT, ("cp1252", "latin-1") * 2, strict=True)
        ),
    ],
)
def test_utf8_that_was_read_as_latin_1_is_named(line: str, codec: str, tmp_path: Path) -> None:
    right = [f"{text} {line.format(i)}" if i % 4 else text for i, text in enumerate(TEXTS)]
    wrong = [text.encode().decode(codec, "ignore" if codec == "latin-1" else "replace") for text in right]
    if codec == "cp1252":  # five bytes are no characters of it, and become controls elsewhere
        undefined = dict.fromkeys(b"\x81\x8d\x8f\x90\x9d")
        wrong = [
            "".join(chr(b) if b in undefined else bytes([b]).decode(codec) for b in text.encode())
            for text in right
        ]
    for name, made, code in (
        ("a.csv", table([[text] for text in wrong], ["text"]), 90),
        ("b.txt", "\n".join(wrong), 90),
    ):
        done = Done(
            tmp_path,
            put(tmp_path / name, made).name,
            "--overwrite",
            *("--reader", "lines") * (name == "b.txt"),
        )
        assert f"{code} of 120 texts that were looked at are UTF-8 that was read as Latin-1" in done.said
    assert (
        "Latin-1"
        not in Done(
            tmp_path, put(tmp_path / "c.csv", table([[t] for t in right], ["text"])).name, "--overwrite"
        ).said
    )


def test_capitals_with_a_tilde_are_no_damage(tmp_path: Path) -> None:
    """Of which an end and a closing mark look like UTF-8."""
    upper = [f"«MANHÃ» São Paulo, MAÇÃ» SÃO JOÃO À» {text}" for text in TEXTS]
    assert (
        "Latin-1"
        not in Done(tmp_path, put(tmp_path / "a.csv", table([[t] for t in upper], ["text"])).name).said
    )


@pytest.mark.parametrize(
    ("mark", "said"), [("caf\ufffd", "have U+FFFD"), ("Q&amp;amp;A it&amp;#39;s", "have character ref")]
)
def test_other_damage_is_named(mark: str, said: str, tmp_path: Path) -> None:
    texts = [f"{text} {mark}" if i % 3 == 0 else f"{text} &amp; caf\u00e9" for i, text in enumerate(TEXTS)]
    done = Done(tmp_path, put(tmp_path / "a.csv", table([[text] for text in texts], ["text"])).name)
    assert f"40 of 120 texts that were looked at {said}" in done.said
