"""Asking a recorded call again in /hone/v1.

Owns: the route and its bodies. Refuses: what is asked and how (`proxy.recorded_requests`), and reading a call
(`proxy.api.trajectories`).
"""

from __future__ import annotations

from typing import Any, Final, Literal

from litestar import post
from litestar.params import JSONBody
from pydantic import BaseModel, ConfigDict, Field

from proxy.api.actions import HoneActions
from proxy.api.route_parts import PROBLEMS, AnyRequest, CallId, Injected, caller_of
from proxy.errors import Unavailable, UnknownObject
from proxy.recorded_requests.repeat_body import MOST_ANSWERS, RequestChanges
from proxy.recorded_requests.repeater import CallRepeater
from recorder.base.beside_loop import run_beside_loop
from recorder.views.comparison.new_answers import compare_answers, recorded_answer
from recorder.views.trajectories.shapes import CallView
from recorder.views.trajectories.transcripts import load_call, trajectory_of_call

_DEFAULT_ANSWERS: Final = 1


class NewAnswersRequest(BaseModel):
    """What is asked differently. A field that is missing stays as recorded."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    model: str | None = Field(None, min_length=1, max_length=200)
    """Who answers: a version (`helpdesk@3`) or an alias. Default: the version that answered the recorded call."""
    messages: list[dict[str, Any]] | None = None
    """The whole conversation, in the form of chat completions. `GET /hone/v1/calls/{call}` has the recorded one."""
    tools: list[dict[str, Any]] | None = None
    """The tools, in the form of chat completions. An empty list: none."""
    temperature: float | None = Field(None, ge=0, le=2)
    """The temperature."""
    n: int = Field(_DEFAULT_ANSWERS, ge=1, le=MOST_ANSWERS)
    """How many answers."""


class AnswerPart(BaseModel):
    """A part of the recorded answer or of the new one."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    kind: Literal["same", "removed", "added"]
    """In both, in the recorded one alone, or in the new one alone."""
    text: str
    """The part."""


class NewAnswer(BaseModel):
    """One new answer."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    index: int
    """Its index among the answers."""
    text: str
    """What it says, then a line for each tool that it calls. No tool is run."""
    finish_reason: str | None
    """Why it ended."""
    changes: list[AnswerPart]
    """The recorded answer and this one, by words. Of very long answers the whole texts."""


class NewAnswersResult(BaseModel):
    """New answers to a recorded call."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    call_id: str
    """The new call, which has all answers as its choices."""
    trajectory_id: str | None
    """Its trajectory, with origin `shadow` and purpose `none`. null: it could not be recorded."""
    version: str | None
    """The version that answered. null: another provider's model."""
    recorded: str
    """The recorded answer, as `text` of the new ones."""
    answers: list[NewAnswer]
    """The answers, by index."""
    usage: dict[str, Any] | None
    """The tokens of the new call."""


@post("/hone/v1/calls/{call:str}/ask-again", responses=PROBLEMS)
async def ask_again(
    hone: Injected, request: AnyRequest, call: CallId, data: JSONBody[NewAnswersRequest]
) -> NewAnswersResult:
    """Ask a recorded call again: another version, other messages, tools or temperature, several answers.

    The new call is served and recorded as any call, and costs as much. Nothing is learned from it. Needs the scope
    `eval` too, and `read` for a call that another key made.
    """
    recorded = await load_recorded_call(hone, call)
    changes = RequestChanges(data.model, data.messages, data.tools, data.temperature, data.n)
    new = await repeater_of(hone).ask(caller_of(request), recorded, changes)
    text = recorded_answer(recorded)
    compared = await run_beside_loop(lambda: compare_answers(text, new.answers))
    return NewAnswersResult(
        call_id=new.call_id,
        trajectory_id=new.trajectory_id,
        version=new.version,
        recorded=text,
        answers=[
            NewAnswer(
                index=one.index,
                text=one.text,
                finish_reason=one.finish_reason,
                changes=[AnswerPart(kind=part.kind, text=part.text) for part in one.changes],
            )
            for one in compared
        ],
        usage=None if new.usage is None else dict(new.usage),
    )


async def load_recorded_call(hone: HoneActions, call: str) -> CallView:
    """Return a call of the project, without its tokens. Raises UnknownObject."""
    home = await trajectory_of_call(hone.project, call)
    found = None if home is None else await load_call(hone.project.store, call)
    if found is None:
        raise UnknownObject(f"no call {call[:200]!r}: use the id that an answer has in x-hone-call.")
    return found


def repeater_of(hone: HoneActions) -> CallRepeater:
    """Return what asks calls again. Raises Unavailable where no calls are served."""
    if hone.repeater is None:
        raise Unavailable("this process serves no calls, so it cannot ask one again: ask a proxy.")
    return hone.repeater
