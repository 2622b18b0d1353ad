"""Mail in files of its own, mbox files, folders of maildir and archives: texts decoded, headers as columns."""

from __future__ import annotations

from email import policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.outcomes import Command, Outcome
from tests.readers import KEEP_ALL
from tests.sources import in_tar, in_zip, put, small


def mail(number: int = 0, text: str = "un café naïf", **parts: Any) -> bytes:
    message = EmailMessage(policy=policy.SMTP)
    message["From"] = "Zoë <zoe@a.example>"
    message["To"] = "b@c.example, d@e.example"
    message["Date"] = "Thu, 01 Jan 2004 10:00:00 +0100"
    message["Subject"] = f"été sujet{number}"
    message["Message-ID"] = f"<{number}@a.example>"
    message.set_content(text, cte=parts.get("cte", "quoted-printable"), charset=parts.get("charset", "utf-8"))
    if html := parts.get("html"):
        message.add_alternative(html, subtype="html")
    if attached := parts.get("attached"):
        message.add_attachment(attached, maintype="application", subtype="pdf", filename="a.pdf")
    return message.as_bytes()


def mbox(*messages: bytes) -> bytes:
    lines = (message.replace(b"\nFrom ", b"\n>From ") for message in messages)
    return b"".join(b"From a@b.example Thu Jan  1 00:00:00 1970\r\n" + each + b"\r\n" for each in lines)


@pytest.fixture
def ingested(invoke: Command, tmp_path: Path) -> Command:
    def call(source: Path, *options: object) -> Outcome:
        command = ("ingest", source, tmp_path / "c", "--quiet", "--scheduler", "synchronous", *KEEP_ALL)
        return invoke(*command, "--preset", "papers", "--overwrite", *options)

    return call


def documents(tmp_path: Path) -> list[dict[str, Any]]:
    words = pq.read_table(tmp_path / "c" / "vocabulary.parquet").column("word").to_pylist()
    rows = pq.read_table(tmp_path / "c" / "documents").to_pylist()
    return [
        {**row, "words": {words[i]: n for i, n in zip(row["ids"], row["counts"], strict=True)}}
        for row in rows
    ]


BOTH = {"un": 1, "café": 1, "naïf": 1, "été": 1, "sujet0": 1}
DIGEST = b"""From: a@b.example
Subject: =?utf-8?q?=C3=A9t=C3=A9?= sujet0
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: message/rfc822

From: c@d.example

un caf\xc3\xa9
--x
Content-Type: text/plain; charset=klingon

na\xefve
--x--
"""


@pytest.mark.parametrize(
    ("data", "expected", "attachments"),
    [
        (mail(), BOTH, 0),
        (mail(cte="base64"), BOTH, 0),
        (mail(charset="iso-8859-1"), BOTH, 0),
        (mail(html="<p>un <b>caf&eacute;</b> na\u00eff <img src=x>"), BOTH, 0),
        (mail(attached=b"%PDF" * 50, html="<p>other"), BOTH, 1),
        (mail(text="<style>p {}</style><p>un caf&eacute; naïf").replace(b"text/plain", b"text/html"), BOTH, 0),
        (DIGEST, {"été": 1, "sujet0": 1, "un": 1, "café": 1, "naïve": 1}, 0),
        (b"no header at all", {"no": 1, "header": 1, "at": 1, "all": 1}, 0),
        (b"Subject: =?x?q?a?=\nDate: x\nContent-Type: multipart/mixed\n\nb", dict.fromkeys("xqab", 1), 0),
    ],
    # Boundaries of parts are random, and the workers of pytest-xdist must find the same names.
    ids=lambda value: "mail" if isinstance(value, bytes) else None,
)  # fmt: skip
def test_the_text_of_a_message(
    data: bytes, expected: dict[str, int], attachments: int, ingested: Command, tmp_path: Path
) -> None:
    done = ingested(put(tmp_path / "in" / "1.eml", data).parent)
    assert done.code == 0, done.err
    [found] = documents(tmp_path)
    assert found["document_id"] == "1.eml"
    assert found["attachments"] == attachments
    assert found["words"] == expected


def test_headers_are_columns(ingested: Command, tmp_path: Path) -> None:
    put(tmp_path / "in" / "sent" / "1.eml", mail(7))
    assert ingested(tmp_path / "in").code == 0
    [found] = documents(tmp_path)
    assert found["from"] == "Zoë <zoe@a.example>"
    assert found["to"] == "b@c.example, d@e.example"
    assert (found["subject"], found["message_id"], found["label"]) == ("été sujet7", "<7@a.example>", "sent")
    assert found["date"].isoformat() == "2004-01-01T09:00:00+00:00"


@pytest.mark.parametrize("place", ["a.mbox", "in/a.mbox", "in/Inbox", "t.zip", "t.tar.gz", "in/cur/1:2,S"])
def test_messages_of_an_mbox(place: str, ingested: Command, tmp_path: Path) -> None:
    """A line of a text that begins with From is no message; long mboxes are not held in memory."""
    quoted = "ant\n\nFrom here on bee\n"
    data = mbox(mail(0), mail(1, text=quoted), mail(2))
    packed = {"t.zip": in_zip, "t.tar.gz": in_tar}.get(place)
    path = put(tmp_path / place, packed({"d/a.mbox": data}) if packed else data)
    source = tmp_path / "in" if place.startswith("in/") else path
    for unit in (1 << 20, 500):
        with small(batch=10, unit=unit):
            done = ingested(source)
        assert done.code == 0, done.err
        found = documents(tmp_path)
        name = {"t.zip": "d/a.mbox", "t.tar.gz": "d/a.mbox"}.get(place, place.removeprefix("in/"))
        assert [each["document_id"] for each in found] == [name, f"{name}:2", f"{name}:3"]
        assert found[1]["words"] == dict.fromkeys(["ant", "from", "here", "on", "bee", "été", "sujet1"], 1)


@pytest.mark.parametrize("text", ["ant\n\n-- \nAnn Bee\n", "> bee\nant\n", "ant\n\nAnn wrote:\n> bee\n"])
def test_what_is_not_of_the_author_is_removed(text: str, ingested: Command, tmp_path: Path) -> None:
    """A message in a file has the words of one with its header in a table, also without several quoted lines."""
    put(tmp_path / "in" / "1.eml", mail(text=text))
    assert ingested(tmp_path / "in", "--boilerplate", "drop").code == 0
    [found] = documents(tmp_path)
    assert found["words"] == {"été": 1, "sujet0": 1, "ant": 1}


def test_messages_that_cannot_be_read(ingested: Command, tmp_path: Path) -> None:
    nested = (b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (i, i) for i in range(3000))
    deep = b"".join([b"Subject: x\n", *nested])
    for name, data in {"1.eml": mail(), "2.eml": b"%PDF-1.4", "3.eml": deep}.items():
        put(tmp_path / "in" / name, data)
    done = ingested(tmp_path / "in", "--on-bad-record", "quarantine", "--max-dropped", "100%")
    assert done.code == 0, done.err
    bad = pq.read_table(tmp_path / "c" / "quarantine.parquet").to_pylist()
    assert [each["reason"].partition(" ")[0] for each in bad] == ["2.eml:", "3.eml:"]
    assert len(documents(tmp_path)) == 1
