"""Texts of twice the length take about twice the time, whatever is in them: rules of boilerplate, words and layouts."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_jsmf.config import READER_OPTIONS
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.columns import summarize
from streaming_jsmf.ingestion.readers.guess import guess_source, open_source
from streaming_jsmf.ingestion.sources.protocol import distinct_names
from streaming_jsmf.ingestion.value_kinds import KINDS
from tests.sources import Read, put, tokenizing

#: Characters. The last length is that of the slow tests.
LENGTHS = (16_000, 64_000, 256_000)
#: Growth of the CPU time with a length that doubles; n log n has 2.2. Times below the floor (seconds) may be noise.
MOST, FLOOR = 2.6, 0.01

#: What comes before, again and again, and after it.
Crafted = Mapping[str, tuple[str, str] | tuple[str, str, str]]

QUOTED = "> a\n> b\n"
ENCODED = f"M{'`' * 60}\n"
OLD = "x\nFrom: a\nTo: b\n"
BOILERPLATE: Crafted = {
    "a book on one line": (f"{QUOTED}\nOn ", "the harbor and the sea, "),
    "a line of On with a time": (f"{QUOTED}\nOn 10:15", " word"),
    "lines of On": (QUOTED, "\nOn 1:11 @"),
    "lines of On with times": (QUOTED, f"\nOn {'1:11 ' * 19}{'schrieb ' * 16}@"),
    "said by On": (f"{QUOTED}\nOn 1:11 @ ", " wrote:", " \t"),
    "blank lines after On": (f"{QUOTED}\nOn 1:11 @ wrote:", "\n "),
    "an article of signs": (f"{QUOTED}In article <", "@"),
    "an article of letters and signs": (f"{QUOTED}In article <", "a@"),
    "articles": (QUOTED, "In article <a@\n"),
    "blank lines after a file": (ENCODED * 2, "\n"),
    "blanks after a file": (ENCODED * 2, " \n"),
    "ends of files": (ENCODED * 2, "`\n"),
    "lines of files": ("", f"{ENCODED}x\n"),
    "starts of files": (ENCODED * 2, "begin 644 x\n"),
    "base64 without a digit": ("", "a"),
    "base64 and blanks": ("aB1/" * 15, " ", "a"),
    "pieces of base64": ("", f"{'aB1/' * 15}\n\n"),
    "dashes after a header": (OLD, "-"),
    "dashes in an old mail": (f"{QUOTED}{OLD}Subject: x\n", "-", "q"),
    "lines of dashes": (f"{OLD}\n", "-----\n"),
    "senders": ("x\n", "From: a\n"),
    "senders and receivers": ("x\n", "From: a\nTo: b\n c\n"),
    "a header that goes on": (OLD, " c\n"),
    "header fields": ("", "a: b\n"),
    "folded fields": ("From: a\nTo: b", "\n "),
    "quotes": ("", ">\n"),
    "quotes by name": (f"{QUOTED}Ann wrote:\n", "JD> \n"),
    "said": (QUOTED, "wrote:"),
    "said in German": (QUOTED, "schrieb "),
    "said and blanks": (f"{QUOTED}wrote", "\xa0"),
    "signatures": (QUOTED, "--\n"),
    "scripts": ("", "<script>"),
    "scripts that are not closed": ("", "<script "),
    "comments and scripts": ("", "<!-- <script></script>"),
    "scripts and comments": ("", "<script><!-- -->"),
    "comments and tags": ("", "<!--<b>"),
    "a style of tags": ("<style>", "<b>"),
    "declarations": ("", "<!doctype <?xml "),
    "attributes": ("<a", ' x="1"'),
    "equals": ("<a ", "x="),
    "attributes of another tag": ("</q><zz", " x=1"),
    "blanks of another tag": ("</q><zz x=1", " "),
    "names of another tag": ("</q><zz ", "x:"),
    "other tags": ("</q>", "<zz x=1 "),
    "entities": ("&amp;", "&aaaa"),
    "numbers of characters": ("&amp;", "&#1"),
    "escapes": ("", "\\u00e9\\x41\\n"),
    "addresses": ("@ ", "a.b@"),
    "links": ("", "http://www."),
}
#: By what reads them: a file by its name, or a function.
OTHERS: Mapping[str, Crafted] = {
    "x": {
        "blanks": ("", " ", "x"),
        "words": ("", "a "),
        "an mbox of times": ("From a ", "1:11 ", f"\n{'b' * 99}"),
        "documents without an end": ("", "<doc\n"),
        "ends of lines": ("a", "\r\n\r"),
    },
    "x.eml": {
        "encoded words": ("Subject: ", "=?a?q? "),
        "short encoded words": ("Subject: ", "=?utf-8?q?a?= "),
        "dates": ("Date: Mon, ", "1 Jan 10:"),
        "semicolons": ('Content-Type: text/plain; x="', ";"),
        "semicolons of parts": ('Content-Type: multipart/mixed; boundary="', ";"),
        "parts": ("Content-Type: multipart/mixed; boundary=x\n\n", "--x\n"),
        "scripts": ("Content-Type: text/html\n\n", "<script>"),
        "comments": ("Content-Type: text/html\n\n", "<!-- <script></script>"),
    },
    "x.csv": {
        "digits": ("a,b\n1,", "1", "x\n2,3\n"),
        "numbers": ("a;b\n2;", "1,", "x\n2;3\n"),
        "addresses": ("a;b\n", "a@", "x;2\n"),
        "quotes": ("a,b\n", '"'),
        "quoted fields": ("a,b\n", '"a",'),
        "escapes": ('a,b\n"', '\\"'),
        "equal names": ("a", f"!,{'a' * 20}"),
    },
    "x.json": {
        "wrong values": ("[", "x,"),
        "wrong objects": ("[", "{x},"),
        "escapes": ('{"a":"', '\\"'),
        "arrays": ("[", "["),
        "names": ("{", '"a":x,'),
        "a script": ("a", "."),
    },
    "dates": {
        "digits": ("2020-01-01 10:00:00.", "0"),
        "a comment": ("Mon, 1 Jan 2020 10:00:00 GMT (", "x"),
        "months": ("", "Jan "),
        "blanks": ("2020-01-01", " ", "x"),
    },
    "messages": {
        "schemes": ("", "a."),
        "passwords": ("a://", ":"),
        "chains": ("a://b", "::a://b"),
        "queries": ("http://a", "?a"),
    },
    "words": {
        "marks": ("e", "\u0316\u0300"),
        "composed": ("", "a\u0301\u0316"),
        "beyond ASCII": ("", "é\u200b"),
        "Chinese": ("", "漢"),
    },
}  # fmt: skip


def crafted(before: str, again: str, after: str = "") -> Callable[[int], str]:
    return lambda length: before + again * (length // len(again)) + after


def seconds(call: Callable[[str], object], text: str) -> float:
    """The CPU time of a call: the least of three, or of fewer if it takes long."""
    found: list[float] = []
    gc.disable()
    try:
        while len(found) < 3 and sum(found) < 0.1:
            start = time.process_time()
            call(text)
            found.append(time.process_time() - start)
    finally:
        gc.enable()
    return min(found)


def require_linear(call: Callable[[str], object], text: Callable[[int], str], lengths: Sequence[int]) -> None:
    """Fail if the time of a length, which is two doublings of the one before, grows too fast, twice."""
    for _ in range(2):
        times: list[float] = []
        for length in lengths:
            times.append(seconds(call, text(length)))
            if len(times) > 1 and times[-1] > MOST**2 * max(times[-2], FLOOR):
                break
        else:
            return
    pytest.fail(f"{lengths} characters take {times} CPU s")


@pytest.fixture(scope="module")
def tokens() -> Callable[[str], object]:
    tokenizer = tokenizing(boilerplate="drop")
    tokenizer(pa.array(["<p>compiled > é"]))
    return lambda text: tokenizer(pa.array([text]))


@pytest.mark.slow
@pytest.mark.parametrize("name", BOILERPLATE)
def test_boilerplate_takes_linear_time(name: str, tokens: Callable[[str], object]) -> None:
    require_linear(tokens, crafted(*BOILERPLATE[name]), LENGTHS)


def dates(text: str) -> None:
    values = pa.array([text])
    summarize(values)
    for kind in KINDS.values():
        kind.others(values)


FUNCTIONS: Mapping[str, Callable[[str], object]] = {
    "dates": dates,
    "messages": location,
    "words": lambda text: tokenizing()(pa.array([text])),
}


@pytest.mark.slow
@pytest.mark.parametrize(("what", "name"), [(what, name) for what, texts in OTHERS.items() for name in texts])
def test_layouts_dates_and_words_take_linear_time(what: str, name: str, tmp_path: Path) -> None:
    def read(text: str) -> None:
        path = put(tmp_path / what, text)
        with suppress(InputError):
            reader = guess_source(path).reader
            Read(open_source(path, reader, READER_OPTIONS[reader]()), "quarantine")

    require_linear(FUNCTIONS.get(what, read), crafted(*OTHERS[what][name]), LENGTHS)


#: What the rules look for, what is nearly that, and what they go past.
FRAGMENTS = [
    *(
        "> a",
        "\n> a\n",
        "|",
        "JD>",
        "wrote:",
        " schrieb ",
        "\nOn ",
        "10:15",
        "a@b",
        "@",
        "\nIn article <",
        ">",
    ),
    *(
        "--",
        "\n-----",
        "_____",
        "\nFrom: a\n",
        "To: b\n",
        "Subject: c\n",
        " c\n",
        "fwd:",
        "begin 644 x\n",
        "\nend",
    ),
    *(
        "`\n",
        "<script>",
        "<script",
        "</script>",
        "<style ",
        "<!--",
        "-->",
        "<b",
        "</b>",
        "<zz",
        "</zz>",
        " x=1",
        "='a'",
    ),
    *(
        '="',
        " hidden",
        "/>",
        "<!doctype ",
        "<?xml ",
        "?>",
        "&amp;",
        "&#1",
        "&",
        "\\n",
        "\\u00e9",
        "http://",
        "www.",
    ),
    *(ENCODED, "aB1/" * 15, "a", "1", ":", "=", "<", "/", "-", " ", "\t", "\n", "\r\n", "\xa0", "é", "word "),
]
PIECES = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=3).map("".join)


def search(tokens: Callable[[str], object], lengths: Sequence[int], examples: int | None = None) -> None:
    @settings(parent=settings(), max_examples=examples or settings().max_examples)
    @given(PIECES | st.just(""), PIECES, PIECES | st.just(""))
    def found(before: str, again: str, after: str) -> None:
        require_linear(tokens, crafted(before, again, after), lengths)

    found()


def test_no_text_made_of_what_rules_look_for_takes_longer(tokens: Callable[[str], object]) -> None:
    search(tokens, (8_000, 32_000))


@pytest.mark.slow
def test_no_text_of_many_takes_longer(tokens: Callable[[str], object]) -> None:
    search(tokens, (4_000, 16_000, 64_000), 300)


def test_names_of_columns_are_numbered() -> None:
    assert distinct_names(["a", "a", "a (2)", "a", "b", "a"]) == [
        "a",
        "a (3)",
        "a (2)",
        "a (4)",
        "b",
        "a (5)",
    ]
