"""A page with a list, as a person sees it: its lines, its links, and what its form would send."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urlencode


class Listed(HTMLParser):
    """A page, read."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.lines: list[str] = []  # of the list, each as one text
        self.opens: list[str] = []  # where the first link of each line leads
        self.links: dict[str, str] = {}  # text → address, of those outside the list
        self.options: dict[str, list[str]] = {}
        self.sent: list[tuple[str, str]] = []  # what the form has filled in
        self.marked: list[str] = []
        self.text = ""
        self.folded = True
        self._line = False
        self._link: str | None = None
        self._select = ""
        self._mark = False
        self._of_list = True  # not in a form that changes something
        self._cut = False  # in the middle of an id, which a page does not show
        self.feed(html)
        self.lines = [" ".join(line.split()) for line in self.lines]

    @property
    def query(self) -> str:
        """The form as a browser would send it, without what is empty."""
        return urlencode([(name, value) for name, value in self.sent if value])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what this is."""
        given = dict(attrs)
        if given.get("class") == "cut":
            self.handle_data("…")
            self._cut = True
        if tag == "form":
            self._of_list = given.get("method") == "get"
        if tag == "tr" and "data-line" in given:
            self._line = True
            self.lines.append("")
        elif tag == "a":
            self._link = given.get("href") or ""
            if self._line and len(self.opens) < len(self.lines):
                self.opens.append(self._link)
        elif tag == "input" and self._of_list and (given.get("type") != "checkbox" or "checked" in given):
            self.sent.append((given.get("name") or "", given.get("value") or ""))
        elif tag == "select":
            self._select = given.get("name") or ""
        elif tag == "option":
            self.options.setdefault(self._select, []).append(given.get("value") or "")
            if "selected" in given:
                self.sent.append((self._select, given.get("value") or ""))
        elif tag == "mark":
            self._mark = True
        elif tag == "details":
            self.folded = "open" not in given

    def handle_endtag(self, tag: str) -> None:
        """Note where a line or a link ends."""
        self._cut = False
        if tag == "form":
            self._of_list = True
        if tag == "tr":
            self._line = False
        elif tag == "a":
            self._link = None
        elif tag == "mark":
            self._mark = False

    def handle_data(self, data: str) -> None:
        """Keep what is read."""
        if self._cut:
            return
        self.text += data
        if self._mark:
            self.marked.append(data)
        if self._line:
            self.lines[-1] += data
        elif self._link is not None:
            self.links[data.strip()] = self._link
