"""New answers to a recorded call, beside the recorded one: which calls ask it again, and the differences by words.

Owns: the addresses of such calls, finding them by these, and the comparison. Refuses: sending requests
(`proxy.recorded_requests.repeater`), and shadow answers, which Hone asks for to learn from.

Each is a trajectory of one call, with origin shadow and purpose none: lists hide it, nothing is learned from it, and no
call of an agent joins it. Its id names the call that it asks again, and one of `PLACES` places, so that an index finds
all of them by equality.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, and_, select

from recorder.messages.calls import Message
from recorder.messages.plain_text import message_text, tool_calls
from recorder.states import Origin, Purpose
from recorder.store.database import Project, Store
from recorder.store.schema import calls, trajectories
from recorder.views.comparison.word_changes import TextPart, compare_words
from recorder.views.trajectories.shapes import CallView

PLACES: Final = 32  # times that one call may be asked again; each costs a deletion of the call one index read
_PREFIX: Final = "ask-again:"
_COMPARED_WORDS: Final = 800  # words and spaces of an answer: 0.1 s at most
_PAGE: Final = 320  # ids per query


@dataclass(frozen=True, slots=True)
class Repeat:
    """A call that asks another one again. `at`: when, in unix seconds."""

    call_id: str
    trajectory_id: str
    at: float


@dataclass(frozen=True, slots=True)
class ComparedAnswer:
    """One new answer. `changes`: the recorded answer's text and this one's, by words."""

    index: int
    text: str
    finish_reason: str | None
    changes: Sequence[TextPart]


def answer_text(message: Message | None) -> str:
    """Return an answer as one text: what it says, then a line for each tool that it calls."""
    if message is None:
        return ""
    asked = [f"calls {call.name} {call.arguments}" for call in tool_calls(message)]
    return "\n".join(filter(None, [message_text(message), *asked]))


def recorded_answer(call: CallView) -> str:
    """Return the text of a call's first answer; "" if it has none."""
    return next((text for one in call.choices if (text := answer_text(one.message))), "")


def compare_answers(recorded: str, answers: Iterable[tuple[int, Message | None, str | None]]) -> list[ComparedAnswer]:
    """Return new answers (index, message, finish reason) beside the recorded text. It takes up to 0.1 s an answer."""
    made = [(index, answer_text(message), finish) for index, message, finish in answers]
    return [
        ComparedAnswer(index, text, finish, compare_words(recorded, text, most=_COMPARED_WORDS))
        for index, text, finish in made
    ]


def repeated_call_id(external_id: str | None) -> str | None:
    """Return the call that a trajectory with this external id asks again; None: it asks none."""
    of_call, _, place = (external_id or "").removeprefix(_PREFIX).rpartition(":")
    return of_call if (external_id or "").startswith(_PREFIX) and place.isdecimal() and of_call else None


def _names(call_id: str) -> list[str]:
    return [f"{_PREFIX}{call_id}:{place}" for place in range(PLACES)]


def _named(names: Sequence[str]) -> ColumnElement[bool]:
    return and_(trajectories.c.address_group == "", trajectories.c.external_id.in_(names))


def _is_repeat() -> ColumnElement[bool]:
    return and_(trajectories.c.origin == Origin.SHADOW, trajectories.c.purpose == Purpose.NONE)


async def free_name(project: Project, call_id: str) -> str | None:
    """Return an external id for a trajectory that asks a call again; None: all `PLACES` are taken."""
    names = _names(call_id)
    query = select(trajectories.c.external_id).where(trajectories.c.project_id == project.id, _named(names))
    async with project.store.read() as conn:
        taken = set((await conn.execute(query)).scalars())
    return next((name for name in names if name not in taken), None)


async def list_repeats(project: Project, call_id: str) -> list[Repeat]:
    """Return the calls that asked a call again, the newest first."""
    query = (
        select(calls.c.id, trajectories.c.id, calls.c.started_at)
        .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
        .where(trajectories.c.project_id == project.id, _named(_names(call_id)), _is_repeat())
    )
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    return sorted((Repeat(*row) for row in rows), key=lambda one: one.at, reverse=True)


async def repeat_trajectory_ids(store: Store, project_id: str, trajectory_id: str) -> list[str]:
    """Return the trajectories that asked a call of a trajectory again: they hold its conversation up to that call."""
    async with store.read() as conn:
        own = list((await conn.execute(select(calls.c.id).where(calls.c.trajectory_id == trajectory_id))).scalars())
        names = [name for call_id in own for name in _names(call_id)]
        found: list[str] = []
        for page in (names[at : at + _PAGE] for at in range(0, len(names), _PAGE)):
            of_page = select(trajectories.c.id).where(trajectories.c.project_id == project_id, _named(page))
            found += (await conn.execute(of_page.where(_is_repeat()))).scalars()
    return found
