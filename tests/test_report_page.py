"""The page by itself: sound HTML whatever the words are, nothing from outside, everything of the contents in it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from streaming_jsmf.reporting.contents import Contents, Fact, Metric, Section, Stage, Topic, Word
from streaming_jsmf.reporting.page import FIRST_LINES, render
from tests.html_pages import Element, parse

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
    facts = tuple(Fact(text, text) for text in HOSTILE)
    return Contents(
        HOSTILE[0],
        1234567,
        7654321,
        topics,
        np.array([[1.0, 0.5], [0.5, 1.0]]),
        np.array([[0.6, 0.1], [0.1, 0.2]]),
        HOSTILE,
        (Metric(*HOSTILE[:4]),),
        HOSTILE[2],
        facts,
        (Section(HOSTILE[5], facts),),
        (Stage(HOSTILE[0], 1.5, 2**21),),
    )


def test_hostile_texts_stay_texts(contents: Contents) -> None:
    page = page_of(contents)
    assert page.text.count("<script>alert(1)</script>") >= 10
    for row in page.one("table", "topics").one("tbody").all("tr"):
        shown = [item.one("span", "word").text for item in row.all("li")]
        assert shown in (list(HOSTILE), list(HOSTILE[::-1]))
        assert [word.text for word in row.one("td", "characteristic").all("span", "word")] == shown
    assert [item.text for item in page.one("ul", "warnings").all("li")] == list(HOSTILE)
    tags = {element.tag for element in page.all()}
    assert "img" not in tags
    assert not [name for element in page.all() for name in element.attributes if name.startswith("on")]


def test_nothing_comes_from_outside_and_only_one_script_may_run(contents: Contents) -> None:
    page = page_of(contents)
    [script] = page.all("script")
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
    assert all(re.fullmatch(r"#topic-\d+", place or "") for place in places)
    assert not re.search(r"@import|url\(|https?:", page.one("style").text)
    # A policy that comes after what it is for does not hold for it.
    assert page.one("head").all()[1] is policy


def test_links_lead_to_rows(contents: Contents) -> None:
    repeated = replace(contents.topics[1], duplicate_of=0)
    page = page_of(replace(contents, topics=(contents.topics[0], repeated)))
    ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
    assert ids == ["topic-0", "topic-1"]
    links = page.all("a")
    assert {link.attributes["href"] for link in links} == {"#topic-0", "#topic-1"}
    first, second = page.all("td", "repeats")
    assert first.text == ""
    assert second.one("a").attributes["href"] == "#topic-0"


def test_columns_are_those_that_have_something_to_show(contents: Contents) -> None:
    bare = tuple(Topic(topic.number, topic.share, topic.words) for topic in contents.topics)

    def headings(case: Contents) -> list[str]:
        return [heading.text for heading in page_of(case).one("table", "topics").one("thead").all("th")]

    assert headings(contents) == [
        "Topic", "Share", "Label", "Anchor", "NPMI", "Prominent words", "Characteristic words",
    ]  # fmt: skip
    assert headings(replace(contents, topics=bare)) == ["Topic", "Share", "Prominent words"]
    tensor = tuple(replace(topic, alpha=0.5, strength=2.0) for topic in bare)
    assert headings(replace(contents, topics=tensor)) == [
        "Topic", "Share", "alpha", "lambda", "Prominent words",
    ]  # fmt: skip


def test_what_is_not_there_is_left_out_or_said(contents: Contents) -> None:
    bare = Contents("by-hand", 2, None, contents.topics[:1], np.ones((1, 1)))
    page = page_of(bare)
    assert page.one("h1").text == "1 topic"
    assert "Documents" not in page.one("dl").text
    assert "No warnings" in page.one("p", "calm").text
    assert page.all("svg", "heat") == []
    assert "no correlations between topics" in page.text
    full = page_of(contents)
    assert full.all("p", "calm") == []
    assert "1,234,567" in full.one("dl").text
    assert "7,654,321" in full.one("dl").text
    assert full.one("svg", "heat").all("title")[1].text == "topic 1 given 0: 14%"


@pytest.mark.parametrize("n_topics", [60, 61])
def test_topics_without_room_in_the_square_are_told_of(n_topics: int) -> None:
    topics = tuple(Topic(number, 1 / n_topics, (Word("a", 0.1),)) for number in range(n_topics))
    page = page_of(
        Contents("lr-jsmf", 1, 1, topics, np.eye(n_topics), np.full((n_topics, n_topics), 1 / n_topics**2))
    )
    assert ("1 more are left out" in page.text) == (n_topics == 61)
    assert len(page.one("svg", "heat").all("g")) == 60


def test_the_same_contents_give_the_same_text(contents: Contents) -> None:
    assert render(contents) == render(replace(contents))
    assert render(contents) != render(replace(contents, n_words=1))


def test_templates_are_in_the_package() -> None:
    folder = files("streaming_jsmf.reporting") / "templates"
    names = {part.name for part in folder.iterdir()}
    assert names == {"page.html.j2", "parts.html.j2", "sort.js", "style.css"}
