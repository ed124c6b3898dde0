"""Scenarios from recorded trajectories: the first user message as a task, or a whole first call to replay.

Owns: which trajectories give a task, redaction as the recorder does it, and joining near-duplicates. Refuses: `--where`
conditions (`trainer.tasks.conditions`), the form of a scenario file (`trainer.tasks.scenarios`), replaying
(`trainer.agents.replay`), output and writing (`trainer.commands`).

A task is the text of the one user message that a trajectory began with, because that is what the user's agent accepts.
A trajectory that began with more (an earlier conversation, an image) is counted and skipped.

A scenario to replay needs no agent: the system message, the tools and the rest of the first request come from the
record. Later user messages are not replayed; an attempt is the answer to the first turns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from recorder.messages.calls import Message
from recorder.messages.plain_text import content_parts, message_text
from recorder.messages.redaction import Redactor
from recorder.states import CallKind, Origin, Purpose, TrajectoryState
from recorder.store.database import Project
from recorder.views.lists.filters import TrajectoryFilter
from recorder.views.lists.trajectories import list_trajectories
from recorder.views.trajectories.shapes import CallView, TrajectoryView
from recorder.views.trajectories.transcripts import load_trajectories
from trainer.agents.replay import canonical_arguments
from trainer.errors import NoTasks
from trainer.tasks.conditions import Condition, condition_facts
from trainer.tasks.scenarios import Scenario

PAGE: Final = 50  # trajectories read at a time
ALIKE: Final = 0.8  # share of common pieces of two texts: with less, a word of a short question differs
_PIECE: Final = 4  # characters
_INSTRUCTIONS: Final = ("system", "developer")


class SkipReason(StrEnum):
    """Why a trajectory gives no task."""

    NO_OPENING = "no answered first call"
    SEVERAL_MESSAGES = "began with more than one message"
    NOT_TEXT = "began with something other than text"
    EMPTY = "nothing is left of its text"


Opening = Callable[[TrajectoryView], str | SkipReason]


@dataclass(slots=True)
class TrafficTask:
    """A task, and the trajectories that began with it or nearly so, newest first."""

    run: TrajectoryView
    text: str
    runs: int = 1


@dataclass(frozen=True, slots=True)
class TrafficTasks:
    """The tasks, newest first, and the number of skipped trajectories for each reason."""

    found: Sequence[TrafficTask]
    looked_at: int
    passed_over: Mapping[SkipReason, int]


async def traffic_tasks(
    project: Project,
    alias: str | None,
    wanted: Sequence[Condition],
    redaction: Redactor,
    *,
    runs: int,
    opening: Opening | None = None,
    dataset: str | None = None,
) -> TrafficTasks:
    """The tasks of the newest `runs` completed trajectories of an alias's traffic, or of a dataset, that match.

    `opening` gives the first turns of a trajectory [`opening_text`]. Of an alias, only what clients asked for counts;
    of a dataset, attempts and replays count too. Held-out trajectories never do.

    Raises `NoTasks` if there is none.
    """
    joined = TaskCollector()
    passed_over: Counter[SkipReason] = Counter()
    looked_at = 0
    async for view in _runs(project, alias, dataset, wanted, runs):
        looked_at += 1
        text = (opening or opening_text)(view)
        if isinstance(text, SkipReason):
            passed_over[text] += 1
        elif not (kept := redaction.text(text).strip()):
            passed_over[SkipReason.EMPTY] += 1
        else:
            joined.add(view, kept)
    if not joined.tasks:
        why = "; ".join(f"{count} {reason}" for reason, count in passed_over.items())
        seen = (
            f"none of {looked_at} trajectories gives a task: {why}" if looked_at else "no completed trajectory matches"
        )
        source = f"the alias {alias!r}" if dataset is None else f"the dataset {dataset!r}"
        raise NoTasks(f"{source} gives no scenario: {seen}. `hone trajectories` lists its trajectories.")
    return TrafficTasks(joined.tasks, looked_at, passed_over)


async def _runs(
    project: Project, alias: str | None, dataset: str | None, wanted: Sequence[Condition], most: int
) -> AsyncIterator[TrajectoryView]:
    completed = TrajectoryFilter(
        states=(TrajectoryState.COMPLETED,), purpose=Purpose.TRAIN, alias=alias, dataset=dataset
    )
    origins = (Origin.LIVE, Origin.IMPORT) if dataset is None else tuple(Origin)
    before: str | None = None
    while most > 0:
        page = await list_trajectories(project, completed, before=before, limit=min(PAGE, most))
        by_id = {line.id: line for line in page.lines if line.origin in origins}
        for view in await load_trajectories(project.store, list(by_id)):
            if view.selection is None and all(one.holds(condition_facts(by_id[view.id], view)) for one in wanted):
                yield view
        if page.next is None:
            return
        before, most = page.next, most - len(page.lines)


def first_call(view: TrajectoryView) -> CallView | None:
    """The first call of a trajectory; None if it was never answered."""
    if not view.main_path:
        return None
    return next((call for call in view.calls if call.id == view.main_path[0][0]), None)


def opening_text(view: TrajectoryView) -> str | SkipReason:
    """The task that a trajectory began with, or why it gives none."""
    call = first_call(view)
    if call is None:
        return SkipReason.NO_OPENING
    asked = [message for message in call.messages if message.get("role") not in _INSTRUCTIONS]
    if len(asked) != 1 or asked[0].get("role") != "user":
        return SkipReason.SEVERAL_MESSAGES
    text = plain_text(asked[0])
    if text is None:
        return SkipReason.NOT_TEXT
    return text.strip() or SkipReason.EMPTY


def plain_text(message: Message) -> str | None:
    """The text of a message that consists of text only."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        return None
    return None if any(text is None for text, _ in content_parts(content)) else message_text(message)


def task_scenarios(tasks: Iterable[TrafficTask]) -> list[Scenario]:
    """Tasks as scenarios; each has the id of the newest trajectory that began with it."""
    return [Scenario(task.run.id, task.text) for task in tasks]


@dataclass(slots=True)
class TaskCollector:
    """Tasks in order of arrival; near-duplicates are counted with the earlier one.

    Texts with different numbers are never joined: an order's number is the task.
    """

    tasks: list[TrafficTask] = field(default_factory=list)
    _same: dict[tuple[str, ...], TrafficTask] = field(default_factory=dict)
    _alike: dict[tuple[str, ...], list[tuple[frozenset[str], TrafficTask]]] = field(default_factory=dict)

    def add(self, view: TrajectoryView, text: str) -> None:
        """Add a trajectory's task, or count the trajectory with an equal task."""
        words = tuple(_words(text))
        known = self._same.get(words)
        numbers, found = tuple(sorted(filter(_has_digit, words))), text_pieces(words)
        others = self._alike.setdefault(numbers, [])
        if known is None:
            known = next((task for other, task in others if is_similar(found, other)), None)
        if known is None:
            known = TrafficTask(view, text, runs=0)
            self.tasks.append(known)
            others.append((found, known))
        self._same[words] = known
        known.runs += 1


def _words(text: str) -> Iterator[str]:
    """A text's words as they are compared, ignoring case, white space and punctuation."""
    return (word.casefold() for word in re.findall(r"\w+", text)) if re.search(r"\w", text) else iter(text.split())


def _has_digit(word: str) -> bool:
    return any(char.isdigit() for char in word)


def text_pieces(words: Iterable[str]) -> frozenset[str]:
    """All sequences of `_PIECE` characters in a text."""
    line = " ".join(words)
    return frozenset(line[at : at + _PIECE] for at in range(max(1, len(line) - _PIECE + 1)))


def is_similar(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two texts share most of their pieces (Jaccard index)."""
    if min(len(one), len(other)) < ALIKE * max(len(one), len(other)):
        return False  # they cannot
    return len(one & other) >= ALIKE * len(one | other)


# The request parameters that decide how the model samples. The others concern only the agent and its server.
_SAMPLING: Final = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop")


def opening_key(view: TrajectoryView) -> str | SkipReason:
    """The identity of a trajectory's first turns, or why they cannot be replayed; any text messages are allowed."""
    call = first_call(view)
    if call is None:
        return SkipReason.NO_OPENING
    found = [plain_text(message) for message in call.messages if message.get("role") == "user"]
    known = [text for text in found if text is not None]
    if len(known) < len(found):
        return SkipReason.NOT_TEXT
    return "\n".join(known).strip() or SkipReason.EMPTY


def replay_scenarios(tasks: Iterable[TrafficTask], redaction: Redactor) -> list[Scenario]:
    """Tasks as scenarios with all that an attempt needs, redacted; each has the id of its trajectory."""
    return [Scenario(task.run.id, _input(task.run, redaction)) for task in tasks]


def _input(view: TrajectoryView, redaction: Redactor) -> dict[str, Any]:
    call = first_call(view)
    assert call is not None, "a trajectory without first turns is skipped"
    return {
        "messages": list(redaction.messages(call.messages)),
        "tools": redaction.value(list(call.tools or ())),
        "sampling": {name: call.rest[name] for name in _SAMPLING if call.rest.get(name) is not None},
        "results": redaction.value(tool_results(view.calls)),
    }


def tool_results(calls: Sequence[CallView]) -> list[dict[str, Any]]:
    """The results of a trajectory's tools, in order, by name and canonical arguments, from its later calls."""
    found: dict[str, dict[str, Any]] = {}
    for call in calls:
        if call.call_kind is CallKind.MAIN:
            for id_, one in _results_in(call.messages):
                found.setdefault(id_, one)
    return list(found.values())


def _results_in(messages: Sequence[Message]) -> Iterable[tuple[str, dict[str, Any]]]:
    asked: dict[str, Mapping[str, Any]] = {}
    for at, message in enumerate(messages):
        asked |= {call["id"]: call["function"] for call in message.get("tool_calls") or () if "function" in call}
        function = asked.pop(str(message.get("tool_call_id")), None) if message.get("role") == "tool" else None
        if function is not None:
            key = {"name": function["name"], "arguments": canonical_arguments(function["arguments"])}
            yield f"{at} {message['tool_call_id']}", {**key, "content": message.get("content")}
