"""Reading what a model wrote: drafts of scenarios, found as tolerantly as the judge's verdicts are.

Owns: which documents of a reply are drafts. Fences, prose and thoughts around them are passed over, as are lists and
objects that hold them; what is broken or cut off is counted. Refuses: whether a draft is any good
(`trainer.generating.checking`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from recorder.documents import Twice, find_documents
from recorder.errors import ReplyUnreadable

_HOLDERS: Final = ("scenarios", "tasks")


@dataclass(frozen=True, slots=True)
class Draft:
    """A scenario as a model wrote it. `tools`: those that it says a good agent calls, in order."""

    input: str
    tools: tuple[str, ...] = ()
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """The drafts of a reply in their order, and how many things in it were none."""

    drafts: list[Draft]
    unreadable: int


def read(reply: str) -> Read:
    """What a reply holds. A reply without any JSON is one unreadable thing."""
    try:
        found = find_documents(reply)
    except ReplyUnreadable:
        return Read([], 1)
    read = [_draft(entry) for document in found.documents for entry in _entries(document)]
    drafts = [draft for draft in read if draft is not None]
    return Read(drafts, len(read) - len(drafts) + (found.unfinished or not read))


def _entries(document: Any) -> Iterator[Any]:
    if isinstance(document, list):
        yield from document
        return
    held = [document[key] for key in _HOLDERS if isinstance(document.get(key), list)]
    if held and "input" not in document:
        yield from held[0]
    else:
        yield document


def _draft(entry: Any) -> Draft | None:
    if not isinstance(entry, dict) or isinstance(entry, Twice):
        return None
    said, tools, expected = entry.get("input", ""), entry.get("tools") or [], entry.get("expected")
    named = [tools] if isinstance(tools, str) else tools
    if not isinstance(said, str) or not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        return None
    told = expected.strip() if isinstance(expected, str) else ""
    return Draft(said.strip(), tuple(name.strip() for name in named), told)
