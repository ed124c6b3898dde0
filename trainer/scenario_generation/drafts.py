"""Drafts of scenarios: parsed tolerantly from a model's reply, then checked by code. Pure.

Owns: which documents of a reply are drafts (fences, prose and reasoning are skipped, lists and objects are unwrapped,
broken or cut-off documents are counted), the reasons for dropping one, near-duplicates, and a scenario's id. Refuses:
requesting replacements (`trainer.scenario_generation.generation`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from recorder.errors import ReplyUnreadable
from recorder.llm.json_reply import DuplicateKeys, find_documents
from recorder.messages.text_masking import mask_text
from trainer.scenario_generation.prompts import Difficulty
from trainer.tasks.scenarios import Scenario
from trainer.tasks.traffic import is_similar, text_pieces

_HOLDERS: Final = ("scenarios", "tasks")


@dataclass(frozen=True, slots=True)
class Draft:
    """A scenario as a model wrote it. `tools`: the calls of a good agent according to the model, in order."""

    input: str
    tools: tuple[str, ...] = ()
    expected: str = ""


@dataclass(frozen=True, slots=True)
class ParsedDrafts:
    """The drafts of a reply in order, and the number of unreadable items."""

    drafts: list[Draft]
    unreadable: int


def parse_drafts(reply: str) -> ParsedDrafts:
    """The drafts of a reply. A reply without any JSON counts as one unreadable item."""
    try:
        found = find_documents(reply)
    except ReplyUnreadable:
        return ParsedDrafts([], 1)
    read = [_draft(entry) for document in found.documents for entry in _entries(document)]
    drafts = [draft for draft in read if draft is not None]
    return ParsedDrafts(drafts, len(read) - len(drafts) + (found.unfinished or not read))


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
    if not isinstance(entry, dict) or isinstance(entry, DuplicateKeys):
        return None
    text, tools, expected = entry.get("input", ""), entry.get("tools") or [], entry.get("expected")
    named = [tools] if isinstance(tools, str) else tools
    if not isinstance(text, str) or not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        return None
    summary = expected.strip() if isinstance(expected, str) else ""
    return Draft(text.strip(), tuple(name.strip() for name in named), summary)


MOST_CHARS: Final = 8_000  # of one user message: a model that writes more does not stop
_WORD: Final = re.compile(r"[A-Za-z0-9_./:-]+")


class DropReason(StrEnum):
    """Why a draft is dropped."""

    UNREADABLE = "unreadable"  # no JSON object with an input, or cut off
    NO_INPUT = "no_input"
    TOO_LONG = "too_long"
    ABSENT_TOOL = "absent_tool"  # it names a tool that the agent will not have
    OTHER_DIFFICULTY = "other_difficulty"  # its tools do not fit the requested difficulty
    DUPLICATE = "duplicate"
    NEAR_DUPLICATE = "near_duplicate"  # the same words except numbers, dates and names, or nearly


class DraftChecker:
    """Checks drafts one after the other, also against each other.

    `tools`: the names that scenarios may need. `absent`: the server's tools that the agent will not be offered.
    """

    def __init__(self, tools: Collection[str], absent: Collection[str] = ()) -> None:
        self._tools = frozenset(tools)
        self._absent = frozenset(absent) - self._tools
        self._inputs: set[str] = set()
        self._pieces: list[frozenset[str]] = []

    def know(self, task: str) -> None:
        """Register the task of an existing scenario."""
        self._likeness(task)

    def check(self, draft: Draft, kind: Difficulty) -> Scenario | DropReason:
        """The scenario of a draft, or why it is dropped."""
        why = self._form(draft) or self._tooling(draft, kind) or self._likeness(draft.input)
        return why if why is not None else _scenario(draft, kind)

    def _form(self, draft: Draft) -> DropReason | None:
        if not draft.input:
            return DropReason.NO_INPUT
        return DropReason.TOO_LONG if len(draft.input) > MOST_CHARS else None

    def _tooling(self, draft: Draft, kind: Difficulty) -> DropReason | None:
        if not self._tools.issuperset(draft.tools) or self._absent.intersection(_WORD.findall(draft.input)):
            return DropReason.ABSENT_TOOL
        return None if self._fits(len(draft.tools), kind) else DropReason.OTHER_DIFFICULTY

    def _fits(self, calls: int, kind: Difficulty) -> bool:
        """Whether the number of calls fits a difficulty; without tools there is nothing to count."""
        if kind is Difficulty.NOTHING_TO_DO or not self._tools:
            return calls == 0
        least, most = {Difficulty.ONE_TOOL: (1, 1), Difficulty.SEVERAL_STEPS: (2, None)}.get(kind, (0, None))
        return calls >= least and (most is None or calls <= most)

    def _likeness(self, task: str) -> DropReason | None:
        """Why a task is not new; a new one is registered."""
        plain = " ".join(task.casefold().split())
        if plain in self._inputs:
            return DropReason.DUPLICATE
        found = text_pieces(re.findall(r"\w+", mask_text(plain)))
        if any(is_similar(found, other) for other in self._pieces):
            return DropReason.NEAR_DUPLICATE
        self._inputs.add(plain)
        self._pieces.append(found)
        return None


def _scenario(draft: Draft, kind: Difficulty) -> Scenario:
    digest = blake2b(draft.input.encode(errors="backslashreplace"), digest_size=6).hexdigest()
    reference = {"difficulty": str(kind), "tools": list(draft.tools), "expected": draft.expected}
    return Scenario(
        f"{kind.replace('_', '-')}-{digest}", draft.input, reference, adversarial=kind is Difficulty.ADVERSARIAL
    )
