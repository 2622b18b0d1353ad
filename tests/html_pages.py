"""A strict reader of HTML for tests: every tag must be closed, in order; nothing is repaired."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VOID = {"meta", "link", "img", "br", "hr", "input", "wbr"}


@dataclass
class Element:
    """A tag with its attributes and what is in it, texts and elements in order."""

    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    def all(self, tag: str | None = None, kind: str | None = None) -> list[Element]:
        """All elements below with this tag and, if given, this class."""
        return [
            element
            for element in self._below()
            if tag in (None, element.tag) and (kind is None or kind in element.classes)
        ]

    def one(self, tag: str | None = None, kind: str | None = None) -> Element:
        [found] = self.all(tag, kind)
        return found

    def one_or_none(self, tag: str) -> Element | None:
        found = self.all(tag)
        return found[0] if len(found) == 1 else None

    @property
    def classes(self) -> list[str]:
        return (self.attributes.get("class") or "").split()

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def value(self, name: str = "data-value") -> float:
        return float(self.attributes[name] or "")

    def _below(self) -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child._below()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)


def parse(text: str) -> Element:
    """The page as a tree; ``AssertionError`` if a tag is not closed where it should be."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    [root] = reader.open
    return root


def page_at(path: Path | str) -> Element:
    return parse(Path(path).read_text(encoding="utf-8"))


def values_of(page: Element) -> Any:
    """What the scripts of a report draw from."""
    [found] = [script for script in page.all("script") if script.attributes.get("id") == "data"]
    return json.loads(found.text)


def integers_of(text: str, size: int = 2) -> NDArray[np.int64]:
    """A row of numbers of a report."""
    return np.frombuffer(base64.b64decode(text), dtype=f"<u{size}").astype(np.int64)


def probabilities_of(text: str) -> NDArray[np.float64]:
    """A row of probabilities of a report, to 0.04 %."""
    steps = integers_of(text)
    return np.where(steps == 2**16 - 1, 0.0, 2.0 ** (-steps / 1024))
