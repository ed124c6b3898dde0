"""A page as a person meets it: its text, the rows of its tables, its links and pictures, and its forms to be sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx

_VOID = {"meta", "link", "input", "br", "img", "hr", "rect", "source"}
_UNSEEN = {"script", "style", "title"}
_APART = {
    "br",
    "dd",
    "div",
    "dl",
    "dt",
    "h1",
    "h2",
    "h3",
    "li",
    "ol",
    "option",
    "p",
    "pre",
    "summary",
    "td",
    "th",
    "ul",
}


@dataclass
class Form:
    """A form: where it goes, and its fields as a browser would send them unchanged."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class Page(HTMLParser):
    """A page, read. `elements`: each tag with its attributes; texts have their white space folded."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.forms: list[Form] = []
        self._words: list[str] = []
        self._rows: list[list[list[str]]] = []
        self._open: list[str] = []
        self._inside: list[list[str]] = []  # of each element that is open, the text in it
        self._said: list[tuple[str, list[str]]] = []
        self._select: str | None = None
        self._cut = False  # in the middle of an id, which a page does not show
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if ("class", "cut") in attrs:
            self._say("…")
            self._cut = True
        if tag in _APART:
            self._say(" ")
        self._note_form(tag, {name: value or "" for name, value in attrs})
        if tag not in _VOID:
            self._open.append(tag)
            self._inside.append([])
            self._said.append((tag, self._inside[-1]))
        if tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append(self._inside[-1])

    def _note_form(self, tag: str, given: dict[str, str]) -> None:
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get")))
        elif tag == "select":
            self._select = given.get("name")
        elif tag in ("input", "textarea") and self.forms:
            self.forms[-1].fields[given.get("name", "")] = given.get("value", "")
        elif tag == "option" and self._select and ("selected" in given or self._select not in self.forms[-1].fields):
            self.forms[-1].fields[self._select] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        self._cut = False
        while self._open and (self._inside.pop(), self._open.pop())[1] != tag:
            pass
        if tag in _APART:
            self._say(" ")

    def handle_data(self, data: str) -> None:
        if not _UNSEEN & set(self._open) and not self._cut:
            self._say(data)

    def _say(self, text: str) -> None:
        self._words.append(text)
        for said in self._inside:
            said.append(text)

    @property
    def text(self) -> str:
        """All that is written."""
        return _folded(self._words)

    @property
    def tags(self) -> list[str]:
        """The names of all elements."""
        return [tag for tag, _ in self.elements]

    @property
    def links(self) -> list[str]:
        """Where it leads."""
        return self._all("a", "href")

    @property
    def ids(self) -> list[str]:
        """Its anchors."""
        return [id_ for _, told in self.elements if (id_ := told.get("id"))]

    @property
    def images(self) -> dict[str, str]:
        """Its pictures: address → what is said in their place."""
        return dict(zip(self._all("img", "src"), self._all("img", "alt"), strict=True))

    @property
    def rows(self) -> list[list[str]]:
        """The rows of its tables, a text a cell."""
        return [[_folded(cell) for cell in row] for row in self._rows]

    def row(self, first: str) -> list[str]:
        """The one row whose first cell begins so."""
        [found] = [row for row in self.rows if row and row[0].removeprefix("● ").removeprefix("○ ").startswith(first)]
        return found

    def form(self, action: str | None = None, **fields: str) -> Form:
        """The first form that goes to a path, or to any, with these fields filled in so."""
        there = (form for form in self.forms if action is None or form.action == action)
        return next(form for form in there if fields.items() <= form.fields.items())

    def of(self, tag: str) -> list[str]:
        """The texts of all elements of a kind, in order."""
        return [_folded(said) for name, said in self._said if name == tag]

    def classes(self, name: str) -> int:
        """How many elements are of a class."""
        return sum(name in (told.get("class") or "").split() for _, told in self.elements)

    def _all(self, tag: str, attribute: str) -> list[str]:
        return [told.get(attribute) or "" for name, told in self.elements if name == tag]


def _folded(said: list[str]) -> str:
    return " ".join("".join(said).split())


def read(answer: httpx.Response) -> Page:
    """A page that was answered."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.text)


async def opened(http: httpx.AsyncClient, path: str, status: int = 200) -> Page:
    """A page, opened."""
    answer = await http.get(path)
    assert answer.status_code == status, answer.text
    return Page(answer.text)


async def sent(http: httpx.AsyncClient, form: Form, status: int = 303, **fields: str) -> httpx.Response:
    """A form, sent with some fields filled in."""
    told = form.fields | fields
    answer = await (http.get(form.action, params=told) if form.method == "get" else http.post(form.action, data=told))
    assert answer.status_code == status, answer.text
    return answer
