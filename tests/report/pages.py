"""A page of a report as a program reads it."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from activeprune.report.gathering import Gathered
from activeprune.report.page import page
from activeprune.report.report import Report

VOID = {"meta", "link", "img", "input", "br"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    around: tuple[Element, ...] = field(repr=False)
    inner: list[Element] = field(default_factory=list, repr=False)
    text: str = ""

    @property
    def parents(self) -> tuple[str, ...]:
        return tuple(parent.tag for parent in self.around)

    def all(self, *tags: str) -> list[Element]:
        return [one for one in self.inner if one.tag in tags]


@dataclass
class Read(HTMLParser):
    """All elements of a page in their order; what is not closed as it was opened is an error."""

    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        one = self._met(tag, attrs)
        if tag not in VOID and not ("svg" in one.parents and tag == "path"):
            self.open.append(one)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._met(tag, attrs)

    def _met(self, tag: str, attrs: list[tuple[str, str | None]]) -> Element:
        one = Element(tag, dict(attrs), tuple(self.open))
        for parts in (self.elements, *(parent.inner for parent in self.open)):
            parts.append(one)
        return one

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for parent in self.open:
            parent.text += data

    def all(self, tag: str) -> list[Element]:
        return [one for one in self.elements if one.tag == tag]

    def having(self, attribute: str) -> list[Element]:
        return [one for one in self.elements if attribute in one.attributes]

    def named(self, name: str) -> Element:
        (one,) = (one for one in self.elements if one.attributes.get("id") == name)
        return one

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


def page_of(*runs: Gathered, **options: Any) -> Read:
    """The page of some runs, read."""
    return read(page(Report(runs), **options))


@dataclass
class Row:
    """A training in the provenance: its key, and those of what else belongs to it by what the page calls them."""

    seed: int
    key: str
    accuracy: float | None
    others: dict[str, str]
    text: str


def provenance_rows(page: Read, within: Element | None = None) -> list[Row]:
    """Of the whole page, or of a part of it."""
    bodies = [within] if within is not None else [one for one in page.all("tbody") if one.attributes.get("id")]
    trs = [tr for body in bodies for tr in body.all("tr")]
    return [_row(tr) for tr in trs if tr.all("code")]


def _row(tr: Element) -> Row:
    key, *others = (one.text for one in tr.all("code"))
    (seed,) = tr.all("th")
    names = [name for told in tr.all("small") for name in re.findall(r"(masks|dead before|dead after) ", told.text)]
    accuracy = tr.attributes.get("data-accuracy")
    return Row(int(seed.text), key, accuracy and float(accuracy), dict(zip(names, others, strict=True)), tr.text)
