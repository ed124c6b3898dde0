"""A page as a person reads it: its text, its links, its forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx


@dataclass
class Form:
    """A form: where it goes, and its fields as a browser would send them unchanged."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class Page(HTMLParser):
    """A page, read."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: list[str] = []
        self.forms: list[Form] = []
        self.tags: list[str] = []
        self._select: str | None = None
        self.feed(html)

    @property
    def text(self) -> str:
        """All text, white space folded."""
        return " ".join(" ".join(self.words).split())

    def form(self, action: str) -> Form:
        """The form that goes to a path."""
        return next(form for form in self.forms if form.action == action)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links, forms and their fields."""
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        if tag == "a":
            self.links.append(given.get("href", ""))
        elif tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get")))
        elif tag == "select":
            self._select = given.get("name")
        elif tag == "input" and self.forms:
            self.forms[-1].fields[given.get("name", "")] = given.get("value", "")
        elif tag == "option" and self._select and ("selected" in given or self._select not in self.forms[-1].fields):
            self.forms[-1].fields[self._select] = given.get("value", "")

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.words.append(data)


async def opened(http: httpx.AsyncClient, path: str, status: int = 200) -> Page:
    """A page, opened."""
    answer = await http.get(path)
    assert answer.status_code == status, answer.text
    return Page(answer.text)


async def sent(http: httpx.AsyncClient, page: Page, action: str, status: int = 303, **fields: str) -> httpx.Response:
    """A form of a page, sent with some fields filled in."""
    answer = await http.post(action, data={**page.form(action).fields, **fields})
    assert answer.status_code == status, answer.text
    return answer
