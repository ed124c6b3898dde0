"""A page as a person sees it: its text, its links, its forms' hidden fields, the elements that it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx

VOID = frozenset({"meta", "link", "input", "br", "hr", "img"})


@dataclass
class Page:
    """What was read of a page. `visible`: without what is hidden."""

    status: int
    text: str = ""
    visible: str = ""
    links: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    hidden: dict[str, str] = field(default_factory=dict)
    actions: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self, page: Page) -> None:
        super().__init__()
        self.page = page
        self._open: list[tuple[str, bool]] = []  # element, whether it hides what is in it

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        self.page.tags.add(tag)
        if tag == "a":
            self.page.links.append(told.get("href", ""))
        if tag == "script":
            self.page.scripts.append(told.get("src", ""))
        if tag == "form":
            self.page.actions.append(told.get("action", ""))
        if told.get("type") == "hidden":
            self.page.hidden[told["name"]] = told["value"]
        if tag not in VOID:
            self._open.append((tag, "hidden" in told))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.page.text += data
        if not any(hides for _, hides in self._open):
            self.page.visible += data


def read(answer: httpx.Response) -> Page:
    """A page that was answered."""
    page = Page(answer.status_code)
    _Reader(page).feed(answer.text)
    page.text, page.visible = " ".join(page.text.split()), " ".join(page.visible.split())
    return page


async def seen(http: httpx.AsyncClient, path: str) -> Page:
    """A page that is there."""
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    return read(answer)
