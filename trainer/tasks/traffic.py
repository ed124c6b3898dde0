"""Tasks from traffic: what agents were first asked, as scenarios.

Owns: which recorded runs give a task, redacting it as the recorder does, joining those that are nearly the same.
Refuses: the form of a scenario file (`trainer.tasks.scenarios`), which runs are wanted (`trainer.tasks.wanted`),
showing and writing (`trainer.commands`).

A task is the text of the one user message that a run began with: that is what the user's agent can be given. A run that
began with more (an earlier conversation, a picture) is counted and passed over: nothing is made up in its place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from recorder.content.redaction import Redaction
from recorder.content.said import message_text, parts
from recorder.content.turns import Message
from recorder.listing.filters import RunFilter
from recorder.listing.trajectories import TrajectoryLine, list_trajectories
from recorder.reading.transcripts import load_trajectories
from recorder.reading.views import CallView, TrajectoryView
from recorder.states import Origin, Purpose, TrajectoryState
from recorder.store.project import Project
from trainer.errors import NoTasks
from trainer.tasks.scenarios import Scenario
from trainer.tasks.wanted import Condition

PAGE: Final = 50  # runs read at a time
ALIKE: Final = 0.8  # of the pieces of two texts: below it a word of a short question differs
_PIECE: Final = 4  # characters
_INSTRUCTIONS: Final = ("system", "developer")


class PassedOver(StrEnum):
    """Why a run gives no task."""

    NO_OPENING = "no answered first call"
    SEVERAL_MESSAGES = "began with more than one message"
    NOT_TEXT = "began with something else than text"
    EMPTY = "nothing is left of its text"


Opening = Callable[[TrajectoryView], str | PassedOver]


@dataclass(slots=True)
class Task:
    """A task, and the runs that began with it or nearly so, newest first."""

    run: TrajectoryView
    text: str
    runs: int = 1


@dataclass(frozen=True, slots=True)
class Tasks:
    """What was found, newest first, and how many runs were passed over for each reason."""

    found: Sequence[Task]
    looked_at: int
    passed_over: Mapping[PassedOver, int]


async def tasks_of(
    project: Project,
    alias: str,
    wanted: Sequence[Condition],
    redaction: Redaction,
    *,
    runs: int,
    opening: Opening | None = None,
) -> Tasks:
    """The tasks of the newest `runs` completed runs of an alias, those of its traffic that are wanted.

    `opening` says what a run began with [`opening_text`].

    Raises `NoTasks` where there is none.
    """
    joined = Joined()
    passed_over: Counter[PassedOver] = Counter()
    looked_at = 0
    async for view in _runs(project, alias, wanted, runs):
        looked_at += 1
        text = (opening or opening_text)(view)
        if isinstance(text, PassedOver):
            passed_over[text] += 1
        elif not (kept := redaction.text(text).strip()):
            passed_over[PassedOver.EMPTY] += 1
        else:
            joined.add(view, kept)
    if not joined.tasks:
        why = "; ".join(f"{count} {reason}" for reason, count in passed_over.items())
        seen = f"of {looked_at} runs none gives a task: {why}" if looked_at else "no completed run of it fits"
        raise NoTasks(f"nothing of alias {alias!r} can be a scenario: {seen}. `hone trajectories` lists what there is.")
    return Tasks(joined.tasks, looked_at, passed_over)


async def _runs(project: Project, alias: str, wanted: Sequence[Condition], most: int) -> AsyncIterator[TrajectoryView]:
    completed = RunFilter(states=(TrajectoryState.COMPLETED,), purpose=Purpose.TRAIN, alias=alias)
    before: str | None = None
    while most > 0:
        page = await list_trajectories(project, completed, before=before, limit=min(PAGE, most))
        by_id = {line.id: line for line in page.lines if line.origin in (Origin.LIVE, Origin.IMPORT)}
        for view in await load_trajectories(project.store, list(by_id)):
            if view.selection is None and all(one.holds(facts(by_id[view.id], view)) for one in wanted):
                yield view
        if page.next is None:
            return
        before, most = page.next, most - len(page.lines)


def facts(line: TrajectoryLine, view: TrajectoryView) -> dict[str, Any]:
    """What a condition may ask of a run."""
    known = {"reward": line.reward, "calls": line.call_count, "started": line.started_at, "version": line.version}
    return known | {f"tag.{name}": value for name, value in view.tags.items()}


def first_call(view: TrajectoryView) -> CallView | None:
    """The call that opened a run; None where it was never answered."""
    if not view.main_path:
        return None
    return next((call for call in view.calls if call.id == view.main_path[0][0]), None)


def opening_text(view: TrajectoryView) -> str | PassedOver:
    """The task that a run began with, or why it gives none."""
    call = first_call(view)
    if call is None:
        return PassedOver.NO_OPENING
    asked = [message for message in call.messages if message.get("role") not in _INSTRUCTIONS]
    if len(asked) != 1 or asked[0].get("role") != "user":
        return PassedOver.SEVERAL_MESSAGES
    text = texts_of(asked[0])
    if text is None:
        return PassedOver.NOT_TEXT
    return text.strip() or PassedOver.EMPTY


def texts_of(message: Message) -> str | None:
    """The text of a message that is nothing but text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        return None
    return None if any(text is None for text, _ in parts(content)) else message_text(message)


def scenarios(tasks: Iterable[Task]) -> list[Scenario]:
    """Tasks as scenarios; each bears the id of the newest run that began with it."""
    return [Scenario(task.run.id, task.text) for task in tasks]


@dataclass(slots=True)
class Joined:
    """Tasks in the order they came; one that is nearly an earlier one is counted there.

    Texts whose numbers differ are never joined: an order's number is the task.
    """

    tasks: list[Task] = field(default_factory=list)
    _same: dict[tuple[str, ...], Task] = field(default_factory=dict)
    _alike: dict[tuple[str, ...], list[tuple[frozenset[str], Task]]] = field(default_factory=dict)

    def add(self, view: TrajectoryView, text: str) -> None:
        """Keep a run's task, or count the run to the task that it is."""
        words = tuple(_words(text))
        known = self._same.get(words)
        numbers, found = tuple(sorted(filter(_has_digit, words))), pieces(words)
        others = self._alike.setdefault(numbers, [])
        if known is None:
            known = next((task for other, task in others if alike(found, other)), None)
        if known is None:
            known = Task(view, text, runs=0)
            self.tasks.append(known)
            others.append((found, known))
        self._same[words] = known
        known.runs += 1


def _words(text: str) -> Iterator[str]:
    """A text's words as they are compared: case, white space and punctuation tell no tasks apart."""
    return (word.casefold() for word in re.findall(r"\w+", text)) if re.search(r"\w", text) else iter(text.split())


def _has_digit(word: str) -> bool:
    return any(char.isdigit() for char in word)


def pieces(words: Iterable[str]) -> frozenset[str]:
    """All runs of `_PIECE` characters in a text."""
    line = " ".join(words)
    return frozenset(line[at : at + _PIECE] for at in range(max(1, len(line) - _PIECE + 1)))


def alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two texts share most of their pieces (Jaccard)."""
    if min(len(one), len(other)) < ALIKE * max(len(one), len(other)):
        return False  # they cannot
    return len(one & other) >= ALIKE * len(one | other)
