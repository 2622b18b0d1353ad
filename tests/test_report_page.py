"""The page by itself: sound HTML whatever the words are, nothing from outside, everything of the contents in it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from streaming_jsmf.evaluation.metrics import Row
from streaming_jsmf.reporting.contents import Contents
from streaming_jsmf.reporting.page import FIRST_LINES, render
from streaming_jsmf.reporting.topics import Topic, Word
from tests.html_pages import Element, parse, probabilities_of, values_of
from tests.report_pages import lists_of

#: Words that would be markup or code if they were not taken for text.
HOSTILE = (
    "<script>alert(1)</script>",
    "&",
    "&amp;lt;",
    '" onmouseover="alert(1)',
    "'><img src=x onerror=alert(1)>",
    "</title></style></script>",
    "{{ 7 * 7 }}",
    "<!-- a",
    "]]>",
    "שלום",
    "a b\u00a0c",
    "javascript:alert(1)",
)


def page_of(contents: Contents) -> Element:
    text = render(contents)
    assert text.startswith(FIRST_LINES)
    return parse(text)


@pytest.fixture
def contents() -> Contents:
    """Two topics in which every text that can come from outside is hostile."""
    words = tuple(Word(text, 0.5 / 2**place) for place, text in enumerate(HOSTILE))
    topics = (
        Topic(0, 0.75, words, HOSTILE, HOSTILE, HOSTILE[0], npmi=0.25),
        Topic(1, 0.25, words[::-1], HOSTILE[::-1], (), HOSTILE[3], npmi=-0.5),
    )
    facts = dict(zip(HOSTILE, HOSTILE, strict=True))
    return Contents(
        HOSTILE[0],
        1234567,
        7654321,
        topics,
        np.array([[1.0, 0.5], [0.5, 1.0]]),
        lists_of(topics),
        np.array([[0.6, 0.1], [0.1, 0.2]]),
        HOSTILE,
        (Row(*HOSTILE[:4]),),
        HOSTILE[2],
        facts,
        {HOSTILE[5]: facts},
        {HOSTILE[0]: {"seconds": 1.5, "peak_memory": 2**21}},
    )


def one_topic(contents: Contents, *spelled: str) -> Contents:
    topic = Topic(0, 1.0, tuple(Word(text, 0.5) for text in spelled), spelled[:1], spelled[:1], spelled[0])
    return replace(
        contents,
        topics=(topic,),
        affinity=np.eye(1),
        lists=lists_of((topic,)),
        topic_topic=None,
        corpus=spelled[0],
        warnings=spelled[:1],
    )


def test_hostile_texts_stay_texts(contents: Contents) -> None:
    page = page_of(contents)
    assert page.text.count("<script>alert(1)</script>") >= 10
    for row in page.one("table", "topics").one("tbody").all("tr"):
        shown = [item.one("span", "word").text for item in row.all("li")]
        assert shown in (list(HOSTILE), list(HOSTILE[::-1]))
        assert [word.text for word in row.one("td", "characteristic").all("span", "word")] == shown
    assert [item.text for item in page.one("ul", "warnings").all("li")] == list(HOSTILE)
    assert not page.all("img")
    assert not [name for element in page.all() for name in element.attributes if name.startswith("on")]
    assert values_of(page)["words"]["vocabulary"] == list(HOSTILE)
    assert values_of(page)["topics"][0]["words"] == list(HOSTILE)
    [data] = [script for script in page.all("script") if script.attributes.get("id") == "data"]
    assert not set("<>&\u2028\u2029") & set(data.text)


def test_marks_that_turn_the_order_of_a_text_are_spelled_out(contents: Contents) -> None:
    text = render(one_topic(contents, "photo\u202egpj.exe\u2066\x1b", "שלום"))
    assert not set("\u202e\u2066\x1b") & set(text)
    page = parse(text)
    seen = ["photo\\u202egpj.exe\\u2066\\u001b", "שלום"]
    assert seen[0] in page.one("h1").text
    assert [item.one("span", "word").text for item in page.one("table", "topics").all("li")] == seen
    assert values_of(page)["topics"][0]["words"] == values_of(page)["words"]["vocabulary"] == seen


def test_nothing_comes_from_outside_and_only_one_script_may_run(contents: Contents) -> None:
    page = page_of(contents)
    values, script = page.all("script")
    assert values.attributes == {"type": "application/json", "id": "data"}
    assert not script.attributes
    [policy] = [meta for meta in page.all("meta") if meta.attributes.get("http-equiv")]
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    rules = [rule.strip() for rule in (policy.attributes["content"] or "").split(";")]
    assert "default-src 'none'" in rules
    assert f"script-src 'sha256-{digest}'" in rules
    places = [
        element.attributes[name]
        for element in page.all()
        for name in ("src", "href", "action", "data", "xlink:href")
        if name in element.attributes
    ]
    assert places
    ids = {element.attributes["id"] for element in page.all() if "id" in element.attributes}
    assert {(place or "").removeprefix("#") for place in places} <= ids
    assert not re.search(r"@import|url\(|https?:", page.one("style").text)
    # A policy that comes after what it is for does not hold for it.
    assert page.one("head").all()[1] is policy


def test_columns_are_those_that_have_something_to_show(contents: Contents) -> None:
    bare = tuple(Topic(topic.number, topic.share, topic.words) for topic in contents.topics)
    tensor = tuple(replace(topic, alpha=0.5, strength=2.0) for topic in bare)
    for topics, between in (
        (contents.topics, ["Label", "Anchor", "NPMI", "Prominent words", "Characteristic words"]),
        (bare, ["Prominent words"]),
        (tensor, ["lambda", "Prominent words"]),
    ):
        head = page_of(replace(contents, topics=topics)).one("table", "topics").one("thead")
        assert [heading.text for heading in head.all("th")] == ["Topic", "Share", *between]


def test_missing_parts_are_omitted_or_reported(contents: Contents) -> None:
    page = page_of(
        Contents("by-hand", 2, None, contents.topics[:1], np.ones((1, 1)), lists_of(contents.topics[:1]))
    )
    assert page.one("h1").text == "1 topic"
    assert "Documents" not in page.one("dl").text
    assert len(page.all("p", "calm")) == 1
    assert values_of(page)["together"] is None
    assert "no correlations between topics" in page.text
    full = page_of(contents)
    assert full.all("p", "calm") == []
    assert "1,234,567" in full.one("dl").text
    assert "7,654,321" in full.one("dl").text
    given = probabilities_of(values_of(full)["together"]["given"])
    np.testing.assert_allclose(given, [6 / 7, 1 / 7, 1 / 3, 2 / 3], rtol=1e-3)
