"""A page of a report as a program reads it."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "img", "input", "br"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    parents: tuple[str, ...]
    text: str = ""


@dataclass
class Read(HTMLParser):
    """All elements of a page in their order; what is not closed as it was opened is an error."""

    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        one = Element(tag, dict(attrs), tuple(parent.tag for parent in self.open))
        self.elements.append(one)
        if tag not in VOID and not ("svg" in one.parents and tag == "path"):
            self.open.append(one)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs), tuple(parent.tag for parent in self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for parent in self.open:
            parent.text += data

    def all(self, tag: str) -> list[Element]:
        return [one for one in self.elements if one.tag == tag]

    def having(self, attribute: str) -> list[Element]:
        return [one for one in self.elements if attribute in one.attributes]

    @property
    def payload(self) -> dict[str, Any]:
        (one,) = (script for script in self.all("script") if script.attributes.get("id") == "payload")
        return json.loads(gzip.decompress(b64decode(one.text)))


def read(text: str) -> Read:
    page = Read()
    page.feed(text)
    page.close()
    assert not page.open
    return page
