"""A page as a person sees it: its text, its links, its forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx

_VOID = {"meta", "link", "input", "br", "img", "hr", "rect"}
_UNSEEN = {"script", "style", "title"}


@dataclass
class Page(HTMLParser):
    """Fed with HTML. `text` is what is written, `links` its addresses, `ids` its anchors, `elements` all tags."""

    text: str = ""
    links: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._said: list[tuple[str, list[str]]] = []  # each element that was opened, with the text in it
        self._in: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.elements.append((tag, told))
        if tag == "a" and (href := told.get("href")):
            self.links.append(href)
        if id_ := told.get("id"):
            self.ids.append(id_)
        if tag not in _VOID:
            self._open.append(tag)
            self._in.append([])
            self._said.append((tag, self._in[-1]))

    def handle_endtag(self, tag: str) -> None:
        while self._open and (self._in.pop(), self._open.pop())[1] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not _UNSEEN & set(self._open):
            self.text += data
            for said in self._in:
                said.append(data)

    def field(self, name: str) -> str | None:
        """The value of the first form field of a name."""
        inputs = (told for tag, told in self.elements if tag == "input")
        return next((told.get("value") for told in inputs if told.get("name") == name), None)

    def of(self, tag: str) -> list[str]:
        """The texts of all elements of a kind, in order."""
        return [" ".join("".join(said).split()) for name, said in self._said if name == tag]

    def classes(self, name: str) -> int:
        """How many elements are of a class."""
        return sum(name in (told.get("class") or "").split() for _, told in self.elements)


def read(answer: httpx.Response) -> Page:
    """A page that was answered; its white space as one reads it."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    page = Page()
    page.feed(answer.text)
    page.text = " ".join(page.text.split())
    return page
