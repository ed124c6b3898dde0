"""Attach what came next to the answers of a trajectory, whichever trajectory recorded it. Pure.

Owns: what counts as a follow-up, and the turn that each of them answers. Refuses: queries
(`recorder.views.follow_ups.loader`), which call continues which (`recorder.capture`), and what a follow-up says about
the answer (`judge.rewards.follow_ups`).

A follow-up is untrusted text of users and tools. Only certain links count: what is not attributed for certain is
attached to nothing. A message that begins a conversation answers nothing, unless it repeats the one before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from recorder.base.json_limits import parse_json_text
from recorder.messages.calls import Message, ParentCall
from recorder.messages.plain_text import message_text
from recorder.queue.feedback import RESERVED
from recorder.states import CallState, ToolOutcome, TrajectoryState
from recorder.views.follow_ups.events import FollowUp, FollowUpKind
from recorder.views.trajectories.shapes import FeedbackView, ToolCallView

MOST_EVENTS: Final = 4  # that are attached to one answer, the earliest
MOST_TEXT_CHARS: Final = 20_000  # of one follow-up
FEWEST_SHARED_WORDS: Final = 0.5  # of all words of two first messages: the later one repeats the earlier

_ANSWERED: Final = frozenset({CallState.COMPLETE, CallState.ABORTED})  # the user saw an answer, or a part of it
_FAILED: Final = frozenset({ToolOutcome.FAILED, ToolOutcome.ERRORED})
_ERROR: Final = re.compile(r"\s*(?:[\w.]*(?:Error|Exception)\s*:|error\s*:|traceback \(most recent call last\))", re.I)
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class LinkedCall:
    """The facts of a main call that the rules need.

    `prompt` identifies its whole request. `tail`: the last messages of it, from behind the last assistant message on.
    """

    id: str
    trajectory_id: str
    parent: ParentCall | None
    prompt: bytes | None
    tail: Sequence[Message]
    state: CallState
    started_at: float
    finished_at: float | None

    @property
    def ended_at(self) -> float:
        """When its answer was complete, as far as it is known."""
        return self.started_at if self.finished_at is None else self.finished_at


@dataclass(frozen=True, slots=True)
class TrajectoryEnd:
    """The facts of a trajectory beside its calls. `waits_for_tools`: its last answer called tools."""

    state: TrajectoryState
    ended_at: float | None
    leaf: ParentCall | None
    waits_for_tools: bool = False
    feedback: Sequence[FeedbackView] = ()
    tool_calls: Sequence[ToolCallView] = ()
    choices: Mapping[str, int] = field(default_factory=dict)  # call id → the choice on the main path


def attach_follow_ups(own: Sequence[LinkedCall], others: Sequence[LinkedCall], end: TrajectoryEnd) -> list[FollowUp]:
    """Return the follow-ups to a trajectory's answers: by answer in time order, then by time, at most `MOST_EVENTS`.

    `own`: the trajectory's main calls. `others`: main calls of other trajectories that continue one of these calls or
    of their parents, or that begin a conversation of the same session or address.
    """
    calls = sorted((*own, *others), key=_age)
    found: list[FollowUp] = []
    for call in sorted(own, key=_age):
        events = list(_behind(call, calls, end))
        found += _distinct(sorted(events, key=lambda one: one.at))[:MOST_EVENTS]
    return [*found, *_abandonment(own, found, end)]


def _age(call: LinkedCall) -> tuple[float, str]:
    return call.started_at, call.id


def _behind(call: LinkedCall, calls: Sequence[LinkedCall], end: TrajectoryEnd) -> Iterator[FollowUp]:
    """Yield what came after one call's answer."""
    choice = end.choices.get(call.id, 0)
    yield from _feedback(call, choice, end)
    if call.state not in _ANSWERED:
        return
    failed = [one for one in end.tool_calls if one.call_id == call.id and one.outcome in _FAILED]
    yield from (_gateway_error(call, one) for one in failed)
    children = [one for one in calls if one.parent is not None and one.parent.call_id == call.id]
    for child in children:
        yield from _continuation(call, child, failed)
    if not children:
        yield from _repetitions(call, choice, calls)


def _continuation(call: LinkedCall, child: LinkedCall, failed: Sequence[ToolCallView]) -> Iterator[FollowUp]:
    """Yield what a call that continues an answer brought: the user's words, and errors that the gateway did not see."""
    assert child.parent is not None
    at = (call.id, child.parent.choice)
    for message in child.tail:
        if is_tool_error(message) and not any(_is_result(message, one) for one in failed):
            yield _from(child, FollowUpKind.TOOL_ERROR, at, message_text(message), _tool_name(message))
    if text := user_text(child.tail):
        yield _from(child, FollowUpKind.MESSAGE, at, text)


def _repetitions(call: LinkedCall, choice: int, calls: Sequence[LinkedCall]) -> Iterator[FollowUp]:
    """Yield requests in place of a call's that were sent after its answer, which nothing continues."""
    asked = user_text(call.tail)
    for one in calls:
        if one is call or one.parent != call.parent or one.started_at < call.ended_at:
            continue
        at, text = (call.id, choice), user_text(one.tail)
        if one.prompt is not None and one.prompt == call.prompt:
            yield _from(one, FollowUpKind.RETRY, at, text)
        elif asked and text and (call.parent is not None or is_similar(asked, text)):
            yield _from(one, FollowUpKind.EDITED, at, text)


def _from(source: LinkedCall, kind: FollowUpKind, at: tuple[str, int], text: str, name: str | None = None) -> FollowUp:
    return FollowUp(
        kind, *at, text[:MOST_TEXT_CHARS], source.started_at, source.trajectory_id, source_call_id=source.id, name=name
    )


def _gateway_error(call: LinkedCall, one: ToolCallView) -> FollowUp:
    return FollowUp(
        FollowUpKind.TOOL_ERROR,
        call.id,
        one.choice or 0,
        _error_text(one)[:MOST_TEXT_CHARS],
        one.finished_at,
        one.trajectory_id or call.trajectory_id,
        name=one.name,
    )


def _error_text(one: ToolCallView) -> str:
    return one.error or (message_text(one.result) if isinstance(one.result, Mapping) else "")


def _is_result(message: Message, one: ToolCallView) -> bool:
    """Whether a tool's message brings the result of a call that the gateway made."""
    if one.tool_call_id is not None and one.tool_call_id == message.get("tool_call_id"):
        return True
    text = _error_text(one).strip()
    return bool(text) and text in message_text(message)


def _feedback(call: LinkedCall, choice: int, end: TrajectoryEnd) -> Iterator[FollowUp]:
    """Yield feedback with words about a call; feedback about the whole trajectory belongs to its last answer."""
    for one in end.feedback:
        about = one.call_id or (end.leaf.call_id if end.leaf is not None else None)
        text = one.comment or (one.value if one.name in RESERVED and isinstance(one.value, str) else "")
        if about == call.id and text:
            value = None if one.value == text else one.value
            yield FollowUp(
                FollowUpKind.FEEDBACK,
                call.id,
                choice,
                text[:MOST_TEXT_CHARS],
                one.created_at,
                call.trajectory_id,
                name=one.name,
                value=value,
            )


LEFT_IN_ANSWER: Final = "the client ended the connection before the answer was complete"
LEFT_TOOLS: Final = "the answer called tools, and no result came"
GIVEN_UP: Final = "the trajectory was ended as abandoned"


def _abandonment(own: Sequence[LinkedCall], found: Sequence[FollowUp], end: TrajectoryEnd) -> Iterator[FollowUp]:
    """Yield that the conversation was left, if its last call has no follow-up and the trajectory ended."""
    if not own or end.ended_at is None:
        return
    last = max(own, key=_age)
    why = GIVEN_UP if end.state is TrajectoryState.ABANDONED else LEFT_TOOLS if end.waits_for_tools else ""
    why = LEFT_IN_ANSWER if last.state is CallState.ABORTED else why
    if why and not any(one.call_id == last.id for one in found):
        choice = end.choices.get(last.id, 0)
        yield FollowUp(FollowUpKind.ABANDONED, last.id, choice, why, end.ended_at, last.trajectory_id)


def _distinct(events: Iterable[FollowUp]) -> list[FollowUp]:
    """Return the first of equal events: parallel calls repeat a message, and the gateway's error comes back as text."""
    kept: dict[tuple[FollowUpKind, str], FollowUp] = {}
    for one in events:
        kept.setdefault((one.kind, normal_form(one.text) or one.text), one)
    return list(kept.values())


def user_text(messages: Iterable[Message]) -> str:
    """Return the text of the user's messages among some, or ""."""
    texts = (message_text(one).strip() for one in messages if one.get("role") == "user")
    return "\n".join(text for text in texts if text)


def is_tool_error(message: Message) -> bool:
    """Whether a message is a tool's result that reports an error: by its mark, its JSON, or how its text begins."""
    if message.get("role") not in ("tool", "function"):
        return False
    text = message_text(message)
    return message.get("is_error") is True or _ERROR.match(text) is not None or _reports_error(text)


def _reports_error(text: str) -> bool:
    if not text.lstrip().startswith("{"):
        return False
    try:
        value = parse_json_text(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, Mapping) and (bool(value.get("error")) or value.get("isError") is True)


def _tool_name(message: Message) -> str | None:
    name = message.get("name") or message.get("tool_call_id")
    return str(name) if name else None


def normal_form(text: str) -> str:
    """Return a text's words in small letters, so that case, white space and punctuation do not count."""
    return " ".join(_WORD.findall(text.casefold()))


def is_similar(one: str, other: str) -> bool:
    """Whether two texts share at least `FEWEST_SHARED_WORDS` of their words. Linear in their lengths."""
    words, others = set(normal_form(one).split()), set(normal_form(other).split())
    return bool(words and others) and len(words & others) >= FEWEST_SHARED_WORDS * len(words | others)
