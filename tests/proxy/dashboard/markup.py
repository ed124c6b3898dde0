"""A page's markup, read as a browser would: what in it is none of ours.

Owns: what may stand on a page: elements without handlers or styles, scripts and pictures of ours, links within it.
"""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

_NEVER: Final = {
    "iframe", "object", "embed", "base", "style", "math", "marquee", "video", "audio", "portal", "isindex", "keygen",
    "template", "noscript", "frame", "frameset", "image", "applet",
}  # fmt: skip
_LEAD: Final = {"href", "src", "action", "formaction", "data", "poster", "srcset", "xlink:href", "background"}
_OURS: Final = ("/hone", "#", "?")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        is_fallback = tag == "noscript" and named == {"class": "image"}  # a chart's image
        if (tag in _NEVER and not is_fallback) or (
            tag == "script" and not named.get("src", "").startswith("/hone/static/")
        ):
            self.foreign.append(self.get_starttag_text() or tag)
        for name, value in named.items():
            leads_away = name in _LEAD and (not value.startswith(_OURS) or value.startswith("//"))
            if name.startswith("on") or name in ("style", "srcdoc") or leads_away:
                self.foreign.append(f"{tag} {name}={value}")
        if tag == "meta" and "http-equiv" in named:
            self.foreign.append(self.get_starttag_text() or tag)


def foreign(page: str) -> list[str]:
    """What on a page is none of ours."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.foreign
