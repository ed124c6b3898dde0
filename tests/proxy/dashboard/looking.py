"""A page as a person meets it: its text, the rows of its tables, its links and pictures, and its forms to be sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx

_BREAKS = ("br", "div", "li", "ul")


@dataclass
class Form:
    """A form with what is filled in."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class Page(HTMLParser):
    """What is on a page."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.text = ""
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.images: dict[str, str] = {}  # address → alt
        self.forms: list[Form] = []
        self._cells = 0
        self._hidden = 0
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if self._cells and tag in _BREAKS:
            self.rows[-1][-1] += " "
        match tag:
            case "tr":
                self.rows.append([])
            case "td" | "th":
                self.rows[-1].append("")
                self._cells += 1
            case "a":
                self.links.append(has["href"])
            case "img":
                self.images[has["src"]] = has["alt"]
            case "form":
                self.forms.append(Form(has.get("action", ""), has["method"]))
            case "input" | "textarea" if self.forms:
                self.forms[-1].fields[has["name"]] = has.get("value", "")
            case "style" | "script":
                self._hidden += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cells -= 1
            self.rows[-1][-1] = " ".join(self.rows[-1][-1].split())
        self._hidden -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        self.text += data
        if self._cells:
            self.rows[-1][-1] += data

    def row(self, first: str) -> list[str]:
        """The one row whose first cell begins so."""
        [found] = [row for row in self.rows if row and row[0].removeprefix("● ").removeprefix("○ ").startswith(first)]
        return found

    def form(self, **fields: str) -> Form:
        """The one form that has these fields filled in so."""
        [found] = [form for form in self.forms if fields.items() <= form.fields.items()]
        return found


async def look(http: httpx.AsyncClient, path: str, status: int = 200) -> Page:
    """Open a page."""
    answer = await http.get(path)
    assert answer.status_code == status, answer.text
    return Page(answer.text)


async def submit(http: httpx.AsyncClient, form: Form, status: int = 303, **fields: str) -> httpx.Response:
    """Send a form, some of its fields filled in."""
    told = form.fields | fields
    if form.method == "get":
        answer = await http.get(form.action, params=told)
    else:
        answer = await http.post(form.action, data=told)
    assert answer.status_code == status, answer.text
    return answer
