"""Delimited files: their dialects, and single cells."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_jsmf import Execution, fit, transform
from streaming_jsmf.config import TextOptions
from streaming_jsmf.display import csv_text
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.formats.csv_layout import layout_of
from streaming_jsmf.ingestion.formats.delimited import DELIMITED
from streaming_jsmf.ingestion.formats.spreadsheet import SPREADSHEET
from streaming_jsmf.ingestion.readers.guess import guess_source
from streaming_jsmf.ingestion.sources.protocol import BadRecords, Unit, UnreadableError
from tests.corpora import planted
from tests.outcomes import Command, refused
from tests.sources import put, small
from tests.test_transform import write_named

LONG = "a text of more than sixty characters and as no column of any table is named"


class Found:
    """What a format reads: names, values and line of each good record, and (line, record) of the bad ones."""

    def __init__(self, path, form=DELIMITED, wanted=None, units=None, **options):
        # Without the checks, which do not know "" for no escape.
        named = {"header": "none"} if "columns" in options else {}
        options = SimpleNamespace(**{**vars(TextOptions()), **named, **options})
        self.names = form.names(str(path), options)
        self.units = units or form.units(str(path), options)
        self.notes = [note for unit in self.units for note in unit.notes]
        self.good, self.bad, self.reasons, self.originals, self.places = [], [], [], [], []
        for unit in self.units:
            bad = BadRecords("quarantine", unit, form.place)
            first = form.first_row(unit)
            for records in form.records(unit, options, bad, wanted):
                rows, columns = records.rows.tolist(), map(_python, records.columns.values())
                self.good += [(first + row, *values) for row, *values in zip(rows, *columns, strict=True)]
                self.places += [form.place(unit, row) for row in rows]
                self.originals += [records.original(i) for i in range(len(rows))] if records.original else []
            self.bad += [(first + record.row, record.record) for record in bad.records]
            self.reasons += [record.reason for record in bad.records]

    @property
    def values(self):
        return [list(values) for _, *values in self.good]


def _python(column):
    if column.type not in ("string", "large_string"):
        return column.to_pylist()
    values = column.cast("binary").to_pylist()
    return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]


# Records


def reference(text, n, delimiter, quoting, escape, longest):
    """Slow: try each line as the start of a record; a line that starts none is bad."""
    good, bad, i = [], [], 0
    lines = list(io.StringIO(text, newline=""))
    size = [len(line.encode("utf-8", "surrogateescape")) for line in lines]
    ended = [line if line.endswith(("\r", "\n")) else f"{line}\n" for line in lines]
    plain = [line.rstrip("\r\n") for line in lines]
    by_lines = delimiter == "\t" and quoting != "none"
    how = csv.QUOTE_NONE if quoting == "none" else csv.QUOTE_MINIMAL
    while i < len(lines):
        fields = None
        reader = csv.reader(
            iter(ended[i:]), delimiter=delimiter, escapechar=escape or None, quoting=how, strict=True
        )
        with suppress(csv.Error):
            fields = next(reader)
        end = i + reader.line_num
        right = [line.count("\t") == n - 1 for line in plain[i:end]]
        if fields and len(fields) == n and sum(size[i:end]) <= longest and not (
            by_lines and n > 1 and 1 < len(right) == sum(right)
        ):  # fmt: skip
            good.append((i, *fields))
        elif plain[i] and by_lines and plain[i].count("\t") == n - 1 and size[i] <= longest:
            good.append((i, *plain[i].split("\t")))
            end = i + 1
        else:
            data = plain[i].encode("utf-8", "surrogateescape")
            bad += [(i, data[:longest] if size[i] > longest else data)] * bool(plain[i])
            end = i + 1
        i = end
    return good, bad


PIECES = [*'""', '""', *"DD\t\n\n", "\r\n", *"\raé\\", "b\udcff", *" \0", '"\n', '"D']


@given(
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    st.integers(1, 3),
    st.sampled_from(",\té"),
    st.sampled_from(["auto", "none"]),
    st.sampled_from(["", "\\"]),
    st.integers(1, 30),
    st.integers(1, 30),
    st.sampled_from([9, 12, 20, 1000]),
)
def test_a_bad_line_is_one_bad_record_in_whole_and_cut_files(
    tmp_path_factory, body, n, delimiter, quoting, escape, unit, batch, longest
):
    header = f"{delimiter.join('xyz'[:n])}\n{delimiter.join('abc'[:n])}\n"
    text = header + body.replace("D", delimiter)
    path = put(tmp_path_factory.mktemp("csv") / "a.csv", text)
    options = {"delimiter": delimiter, "quoting": quoting, "escapechar": escape, "header": "first"}
    good, bad = reference(text, n, delimiter, quoting, escape, longest)
    for size in (1 << 30, unit):
        with small(unit=size, batch=batch, line=longest):
            found = Found(path, **options)
            assert (found.good, found.bad) == (good[1:], bad)
            assert found.places == [f"{path}, line {row + 1}" for row, *_ in good[1:]]
            assert sum(u.size for u in found.units) <= len(path.read_bytes())
            assert size > 30 or len(text) < 100 or len(found.units) > 1


@given(
    st.lists(st.lists(st.text('ab\u00e9",\t :\n\0\\'), min_size=2, max_size=2), min_size=1, max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(",;|"),
    st.integers(1, 60),
)
def test_good_records_are_the_same_with_and_without_a_bad_one(
    tmp_path_factory, rows, end, quoting, delimiter, batch
):
    # A bad record lets its batch be read by Python's csv instead of one compiled pass.
    written = io.StringIO(newline="")
    csv.writer(written, quoting=quoting, delimiter=delimiter, lineterminator=end).writerows(
        [["x", "y"], *rows]
    )
    body, folder = written.getvalue(), tmp_path_factory.mktemp("csv")
    options = {"delimiter": delimiter, "quoting": "auto", "escapechar": "", "header": "first"}
    found, doubtful = (
        Found(put(folder / name, text), **options)
        for name, text in (("a.csv", body), ("b.csv", f'{body}"a"b{delimiter}c{end}'))
    )
    with small(batch=batch):
        cut = Found(folder / "a.csv", **options)
    assert found.values == rows
    assert found.good == doubtful.good == cut.good
    assert (found.bad, len(doubtful.bad)) == ([], 1)
    assert found.originals == doubtful.originals == cut.originals


def test_fields(tmp_path):
    content = 'id,text,note\r\n1,"Say ""a"",\nthen b",x\r\n\r\n2,"",\r\n3, c ,"y,z"'
    path = put(tmp_path / "a.csv", b"\xef\xbb\xbf" + content.encode())
    found = Found(path)
    assert found.good == [(1, "1", 'Say "a",\nthen b', "x"), (4, "2", "", ""), (5, "3", " c ", "y,z")]
    assert found.originals == [b'1,"Say ""a"",\nthen b",x', b'2,"",', b'3, c ,"y,z"']
    assert Found(path, wanted=["note", "other"]).values == [["x"], [""], ["y,z"]]
    assert Found(path, units=[Unit(str(path))]).good == found.good


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"2", "it has 1 field, the header 3"),
        (b"2,b,c,d", "it has 4 fields, the header 3"),
        (
            b'2,"b"x,c',
            "its quotes break the rules of CSV: ',' expected after '\"' (where quotes are text, use quoting",
        ),
        (b'2,"b,c', "it opens a quote that no record of 3 fields closes"),
        (b'2,"b \\" x",c', "where \\\" is a quote, use escapechar='"),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_bad_lines(tmp_path, line, reason, end):
    path = put(tmp_path / "a.csv", end.join([b"id,text,note", b'1,"a', b'",x', line, b"3,c,z", b""]))
    found = Found(path, escapechar="")
    assert [row for row, *_ in found.good] == [1, 4]
    assert found.bad == [(3, line)]
    assert reason in found.reasons[0]


def test_lines_that_are_too_long_and_damage(tmp_path):
    lines = [b"text,n", b"a,1", b"b" * 50 + b",2", b'"' + b"c" * 45, b"d,3"]
    path = put(tmp_path / "a.csv", b"\r\n".join(lines))
    for batch in (1, 7, 1000):
        with small(line=30, batch=batch):
            found = Found(path)
        assert (found.values, [row for row, _ in found.bad]) == ([["a", "1"], ["d", "3"]], [2, 3])
        assert found.bad[0][1] == b"b" * 30
        assert "longer than" in found.reasons[0]
    data = gzip.compress(b"text,n\n" + b"".join(b"word %d,%d\n" % (i, i * i) for i in range(9999)))
    found = Found(put(tmp_path / "b.csv.gz", data[: len(data) // 2]))
    ((row, _),) = found.bad
    assert row == len(found.good) + 1 > 2000
    assert "damaged" in found.reasons[0]


def test_tab_separated_lines_hold_quotes_as_text(tmp_path):
    lines = [f"ham\t{chr(34) * (i % 7 == 0)}word {i}" for i in range(300)]
    more = ['x\t"two\nlines"', 'x\t"and\n2\tlines"', "one", 'y\t"z"']
    path = put(tmp_path / "a.tsv", "\n".join(["label\ttext", *lines, *more]))
    found = Found(path)
    others = [["x", "two\nlines"], ["x", '"and'], ["2", 'lines"'], ["y", "z"]]
    assert found.values == [*(line.split("\t") for line in lines), *others]
    assert found.bad == [(305, b"one")]
    assert [row for row, _ in Found(path, quoting="none").bad] == [302, 305]


@pytest.mark.parametrize(
    ("content", "options", "values"),
    [
        ("text;n\na,b;1\nc;2\n", {}, [["a,b", "1"], ["c", "2"]]),
        ('text,n\n"a \\"b\\", c",1\n', {}, [['a "b", c', "1"]]),
        ("text,n\n'a,''b',1\n", {"quotechar": "'"}, [["a,'b", "1"]]),
        ('text,n\n"a,1\nb",2\n', {"quoting": "none"}, [['"a', "1"], ['b"', "2"]]),
        ("text,n\na^,b,1\n", {"escapechar": "^"}, [["a,b", "1"]]),
        ("größe,text\nä,ö\n".encode("cp1252"), {"encoding": "utf-8,cp1252"}, [["ä", "ö"]]),
        ("text|n\n漢字|é\n".encode("gb18030"), {"encoding": "gb18030"}, [["漢字", "é"]]),
        ("text,n\né,1\n".encode("utf-16"), {}, [["é", "1"]]),
        (b'x\na\n\0"', {}, [["a"], ['\0"']]),  # not U+780A, U+610A and a quotation mark of UTF-16
        ("text¦n\né,¦1\n", {"delimiter": "¦"}, [["é,", "1"]]),
        ("text;n\n'a; \"b\"';1\n", {}, [['a; "b"', "1"]]),
        ("text;n\n'a';1\n", {"quotechar": '"'}, [["'a'", "1"]]),
        ("text,n\n\"'a'\",1\n'b,2\n", {}, [["'a'", "1"], ["'b", "2"]]),
        ("text,n\n'a, \\'b',1\n", {}, [["a, 'b", "1"]]),
    ],
)
def test_dialects_and_encodings(tmp_path, content, options, values):
    found = Found(put(tmp_path / "a.csv", content), **options)
    assert (found.values, found.bad) == (values, [])
    assert len(found.notes) <= 1


def test_records_of_other_encodings_keep_their_bytes(tmp_path):
    line = "漢|字|x".encode("gb18030") + b"\xff"
    path = put(tmp_path / "a.csv", b"text|n\n" + line + b"\n\xff|2\n")
    found = Found(path, encoding="gb18030", delimiter="|")
    assert (found.bad, found.values, found.originals) == ([(1, line)], [["\udcff", "2"]], [b"\xff|2"])
    with pytest.raises(UnreadableError, match=r"its header is not UTF-8; name its encoding"):
        Found(put(tmp_path / "b.csv", "größe,text\n".encode("cp1252")))


# Names


DATA, HEADER = ["column_1", "column_2"], None
TALK = "they said that it was a long day for all of us"
HEADERS = [
    (["1,short", "2,other"], DATA),
    ([f"ham,{LONG}", "spam,b"], DATA),
    ([f"ham,{TALK}", "spam,b"], DATA),
    (["ham,hi", "spam,b", "ham,c", "ham,d"], DATA),
    (["http://a.org/1,a b", "http://a.org/2,c d"], DATA),
    (["2015-01-02,a b", "2015-01-03,c d"], DATA),
    ([f",{LONG}", "1,b"], DATA),
    (["label,text", "1,a", "2,b"], HEADER),
    ([f"Timestamp,{LONG}", "2020-01-01 10:00,yes", "2020-01-02 11:00,no"], HEADER),
    ([f"Name,{LONG}?", "Al,yes", "Bo,no"], HEADER),
    ([f"{LONG},text", "a,b"], HEADER),
    (["Review Title,Review Text (required)", "a b c,d e f"], HEADER),
    ([",0", "0,a b", "1,c d"], ["index", "0"]),
    (["0,1", "3,a", "4,b"], HEADER),
    (["name,note", "Al,b"], HEADER),
    (["text,note"], HEADER),
]


@pytest.mark.parametrize(("lines", "names"), HEADERS, ids=[lines[0][:20] for lines, _ in HEADERS])
def test_headers_are_found(tmp_path, lines, names):
    found = Found(put(tmp_path / "a.csv", "\n".join(lines)))
    assert found.names == (names or lines[0].split(","))
    assert len(found.good) == len(lines) - (names is not DATA)
    assert [note for note in found.notes if "no header" in note] == found.notes
    assert bool(found.notes) == (names is DATA)
    for header, missing in (("first", 1), ("none", 0)):
        assert len(Found(tmp_path / "a.csv", header=header).good) == len(lines) - missing


def test_names(tmp_path):
    lines = "\n".join(f"{i % 4 + 1},title {i},{LONG} {i}" for i in range(300))
    path = put(tmp_path / "a.csv", lines)
    assert (len(Found(path).good), len(Found(path).names)) == (300, 3)
    found = Found(path, columns=("label", "title", "text"))
    assert (len(found.good), found.names, found.notes) == (300, ["label", "title", "text"], [])
    with pytest.raises(UnreadableError, match=r"its first record has 3 fields; columns='.*' must name each"):
        Found(path, columns=("text",))
    found = Found(put(tmp_path / "b.csv", 'v1,v2,"",,\nham,a,,x,\n'))
    assert (found.names, found.values) == (["v1", "v2"], [["ham", "a"]])
    assert found.notes == ["3 columns without a name are ignored"]
    assert Found(put(tmp_path / "c.csv", ",text\n0,a\n")).names == ["index", "text"]
    twice = put(tmp_path / "e.csv", "text,m,m\na,b,c\n")
    assert Found(twice).names == ["text", "m", "m (2)"]
    assert Found(twice, wanted=["m (2)"]).values == [["c"]]
    with pytest.raises(UnreadableError, match="its header is not CSV: it opens a quote"):
        Found(put(tmp_path / "f.csv", '"text\na\n'))
    titled = Found(put(tmp_path / "h.csv", "Report of 2020\n\nid;text\n1;a,b\n2;c\n"))
    assert (titled.good, len(titled.notes)) == ([(3, "1", "a,b"), (4, "2", "c")], 2)
    for content in ("", "\n\r\n", b"\xef\xbb\xbf"):
        with pytest.raises(UnreadableError, match="the file is empty"):
            layout_of(str(put(tmp_path / "g.csv", content)), TextOptions())


# Spreadsheets

PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def _cell(cell):
    return cell if isinstance(cell, str) else '<c r="{}" t="inlineStr"><is><t>{}</t></is></c>'.format(*cell)


def xlsx(path, **sheets):
    """Write a workbook; a cell is (reference, text), or XML as a string."""
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}"><Relationship Id="r" Type="{OFFICE}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>'
        + "".join(f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(sheets, 1))
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}">'
        + "".join(
            f'<Relationship Id="r{i}" Type="{OFFICE}/worksheet" Target="worksheets/sheet{i}.xml"/>'
            for i, _ in enumerate(sheets, 1)
        )
        + f'<Relationship Id="s" Type="{OFFICE}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}"><cellXfs count="3"><xf numFmtId="0"/><xf numFmtId="14"/>'
        '<xf numFmtId="22"/></cellXfs></styleSheet>',
    }
    for i, rows in enumerate(sheets.values(), 1):
        cells = [[_cell(cell) for cell in row] for row in rows]
        data = "".join(f"<row>{''.join(row)}</row>" for row in cells)
        parts[f"xl/worksheets/sheet{i}.xml"] = (
            f'<worksheet xmlns="{MAIN}"><sheetData>{data}</sheetData></worksheet>'
        )
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, f'<?xml version="1.0"?>{content}')
    return path


def test_sheets(tmp_path):
    first = [
        [("A2", "Answers of 2020")],
        [(f"{column}3", name) for column, name in zip("ABCDEF", ("text", "n", "day", "at", "ok", "sum"), strict=True)],
        [("A5", "a &amp; b"), '<c r="B5"><v>3</v></c>', '<c r="C5" s="1"><v>42000</v></c>',
         '<c r="D5" s="2"><v>42000.5</v></c>', '<c r="E5" t="b"><v>1</v></c>', '<c r="F5"><f>B5/2</f><v>1.5</v></c>'],
        [("A6", "c"), '<c r="B6"><v>4</v></c>', '<c r="G6"><v>1</v></c>'],
    ]  # fmt: skip
    path = xlsx(tmp_path / "a.xlsx", One=first, Two=[[("A1", "text")], [("A2", "x")]], Three=[])
    found = Found(path, SPREADSHEET)
    noon = datetime.datetime(2014, 12, 27, 12)
    assert found.names == ["text", "n", "day", "at", "ok", "sum"]
    assert found.good == [
        (4, "a & b", 3, noon.date(), noon, True, 1.5),
        (5, "c", 4, None, None, None, None),
    ]
    assert found.places == [f"{path}, row 5", f"{path}, row 6"]
    assert Found(path, SPREADSHEET, sheet="Two").good == [(1, "x")]
    assert Found(path, SPREADSHEET, sheet="Two", columns=("t",), wanted=["t"]).values == [["text"], ["x"]]
    for sheet, reason in (("Four", "no sheet 'Four' but One, Two, Three"), ("Three", "its sheet is empty")):
        with pytest.raises(UnreadableError, match=reason):
            Found(path, SPREADSHEET, sheet=sheet)
    far = xlsx(tmp_path / "b.xlsx", One=[[("A1", "text")], [("XFD1048576", "x")]])
    with pytest.raises(UnreadableError, match="needs more than 2 GB"):
        Found(far, SPREADSHEET)
    for content in (b"", path.read_bytes()[:900]):
        with pytest.raises(UnreadableError, match="it cannot be read as a spreadsheet"):
            Found(put(tmp_path / "c.xlsx", content), SPREADSHEET)
    with small(file=100), pytest.raises(UnreadableError, match="save its sheet as CSV"):
        Found(path, SPREADSHEET)


def test_another_sheet_is_advised(tmp_path):
    with pytest.raises(InputError, match=r"has the columns n .*sheet=NAME names another sheet"):
        guess_source(xlsx(tmp_path / "a.xlsx", One=[[("A1", "n")]], Two=[[("A1", "text")]]))


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(InputError, match=r"pip install python-calamine"):
        Found(xlsx(tmp_path / "a.xlsx", One=[]), SPREADSHEET)


# -- ``--csv``: no cell of it is a formula to a spreadsheet, and ``--raw`` gives the cells as they are --


ALONE = Execution("synchronous")
FORMULA = "=HYPERLINK(\"http://example.org\",'x')"


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize(
    "text", ["=2+3", "+cmd", "-1+2", "@SUM(A1)", "\tx", "\rx", "\nx", "-", "--1", "-1e", "\uff1d2+3", FORMULA]
)
def test_a_text_that_a_spreadsheet_would_evaluate_gets_an_apostrophe(text: str) -> None:
    assert cells(csv_text([[text, 1, text]], raw=False)) == [[f"'{text}", "1", f"'{text}"]]
    assert cells(csv_text([[text]], raw=True)) == [[text]]


@pytest.mark.parametrize(
    "cell",
    [-2, -0.5, "-2", "+3.25", "-1.5e-07", "-.5", "a=b", "'tis", "", True, "2024-01-01", "a\r=2+3", "a\n=2"],
)
def test_numbers_and_other_texts_stay_as_they_are(cell: object) -> None:
    assert cells(csv_text([[cell, None]], raw=False)) == [[str(cell), ""]]


@given(st.lists(st.lists(st.text("=+-@\t\r\n,\"'1.e x"), min_size=2, max_size=2), max_size=4))
def test_nothing_but_an_apostrophe_is_added(rows: list[list[str]]) -> None:
    written, raw = cells(csv_text(rows, raw=False)), cells(csv_text(rows, raw=True))
    assert raw == rows
    for row, given_row in zip(written, rows, strict=True):
        for cell, given_cell in zip(row, given_row, strict=True):
            assert cell in (given_cell, f"'{given_cell}")
            if cell == given_cell and cell[:1] in set("=+-@\t\r\n"):
                float(cell)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and shares of documents whose words, titles and columns are formulas."""
    folder = tmp_path_factory.mktemp("formulas")
    spelled = [f"=cmd{number}" for number in range(40)]
    corpus = write_named(folder / "corpus", planted(150, 40, 3, length=40, seed=3).counts, spelled)
    for part in corpus.glob("*.parquet"):
        table = pq.read_table(part)
        renamed = ["@title" if name == "title" else name for name in table.column_names]
        pq.write_table(table.rename_columns(renamed), part)
    fit(corpus, folder / "model", n_topics=3, execution=ALONE)
    transform(folder / "model", corpus, folder / "shares", execution=ALONE)
    return folder / "model", folder / "shares"


def test_topics_and_documents_print_no_formula(fitted: tuple[Path, Path], invoke: Command) -> None:
    model, shares = fitted
    for arguments in (("topics", model), ("documents", model, shares, "--topic", 1)):
        printed = {raw: cells(invoke(*arguments, "--csv", *raw).out) for raw in ((), ("--raw",))}
        texts, raw_texts = ([cell for row in rows for cell in row] for rows in printed.values())
        assert not any(text.startswith(("=", "@")) for text in texts)
        assert any(text.startswith(("=", "@")) for text in raw_texts)
        escaped = [f"'{text}" if text[:1] in ("=", "@") else text for text in raw_texts]
        assert texts == escaped
        refused(invoke(*arguments, "--raw"), 2, "--raw is for --csv")


def test_a_label_that_is_a_formula(fitted: tuple[Path, Path], invoke: Command) -> None:
    rows = cells(invoke("topics", fitted[0], "--csv", "--label", f"0={FORMULA}").out)
    labels = {row[0]: row[2] for row in rows[1:]}
    assert labels["0"] == f"'{FORMULA}"
