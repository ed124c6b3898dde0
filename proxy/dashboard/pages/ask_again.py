"""Ask a recorded call again: the form with what may be changed, and the new answers beside the recorded one.

Refuses: sending the request (`proxy.recorded_requests`), the comparison (`recorder.views.comparison.new_answers`), and
the same for programs (`proxy.api.calls`).

The form has a field for each message that is a plain text, as far as the page has room. What a field does not change
stays as recorded; an empty one leaves its message out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

from litestar import Response, get, post
from litestar.datastructures import FormMultiDict
from litestar.params import FromQuery, PathParameter
from litestar.status_codes import HTTP_200_OK

from proxy.api.calls import load_recorded_call, repeater_of
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.dashboard import forms, page_budget
from proxy.dashboard.renderer import ForPages, PageContext, render_page
from proxy.errors import BadRequest, CallerError, UnknownObject
from proxy.recorded_requests.repeat_body import MOST_ANSWERS, RequestChanges
from recorder.base.beside_loop import run_beside_loop
from recorder.base.json_limits import parse_json_text
from recorder.errors import Conflict
from recorder.messages.calls import Message
from recorder.views.comparison.new_answers import (
    ComparedAnswer,
    Repeat,
    compare_answers,
    list_repeats,
    recorded_answer,
)
from recorder.views.lists.titles import load_tasks
from recorder.views.trajectories.by_response_id import add_reasoning
from recorder.views.trajectories.shapes import CallView
from recorder.views.trajectories.transcripts import load_call
from recorder.views.trajectory_detail.outcome import version_names

Name = Annotated[str, PathParameter()]

_FIELDS_BYTES: Final = 60_000  # of all fields of the form, as HTML
_ANSWER_CHARS: Final = 4_000  # of an answer on the page; the page of the call has all of it
_USUAL_ANSWERS: Final = 4
_MESSAGE: Final = "message-"  # the prefix of a message's field; its number follows
_UNSENT: Final = re.compile("\r(?!\n)|[\x00\ud800-\udfff]")  # what a browser would send back as something else


@dataclass(frozen=True, slots=True)
class MessageField:
    """A message of the form. `text` None: it cannot be changed here."""

    number: int
    role: str
    text: str | None


@dataclass(frozen=True, slots=True)
class AskForm:
    """The form as it is shown: as recorded, or as it was sent."""

    model: str
    temperature: str
    answers: str
    messages: Sequence[MessageField]
    further: str  # a user's message at the end
    tools: str | None  # JSON; None: too long for the form


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """New answers on the page, and how their call differs from the recorded one."""

    call: CallView
    version: str | None
    recorded: str
    answers: Sequence[ComparedAnswer]
    differences: Sequence[str]


@get("/trajectories/{trajectory:str}/calls/{call:str}/ask-again", include_in_schema=False)
async def ask_page(
    context: ForPages, request: AnyRequest, trajectory: Name, call: Name, answers: FromQuery[str | None] = None
) -> Response[str]:
    """The form; with `answers`, a call that asked this one again, its answers too. Raises UnknownObject."""
    recorded = await _call(context, trajectory, call)
    repeats = await list_repeats(context.project, recorded.id)
    table = None if answers is None else await _table(context, recorded, repeats, answers)
    return await _page(context, request, recorded, repeats, await _recorded_form(context, recorded), table)


@post("/trajectories/{trajectory:str}/calls/{call:str}/ask-again", status_code=HTTP_200_OK, include_in_schema=False)
async def ask_again(
    context: ForPages, request: AnyRequest, trajectory: Name, call: Name
) -> Response[str] | Response[None]:
    """Ask, and redirect to the answers. A failure is shown above the form as it was sent."""
    fields = await forms.read_fields(request)
    recorded = await _call(context, trajectory, call)
    sent = _sent_form(await _recorded_form(context, recorded), fields)
    try:
        messages = await add_reasoning(context.project.store, recorded)
        changes = _changes(recorded, messages, sent)
        new = await repeater_of(context.hone).ask(caller_of(request), recorded, changes)
    except (CallerError, Conflict) as e:
        repeats = await list_repeats(context.project, recorded.id)
        status = e.status if isinstance(e, CallerError) and e.status < 500 else HTTP_200_OK
        return await _page(context, request, recorded, repeats, sent, failure=str(e), status=status)
    return forms.back_to(f"{_path(recorded)}?answers={quote(new.call_id, safe='')}#answers")


async def _call(context: PageContext, trajectory: str, call: str) -> CallView:
    found = await load_recorded_call(context.hone, call)
    if found.trajectory_id != trajectory:
        raise UnknownObject(f"the trajectory {trajectory[:200]!r} has no call {call[:200]!r}.")
    return found


def _path(call: CallView) -> str:
    return f"/hone/trajectories/{quote(call.trajectory_id, safe='')}/calls/{quote(call.id, safe='')}/ask-again"


async def _page(
    context: PageContext,
    request: AnyRequest,
    call: CallView,
    repeats: Sequence[Repeat],
    form: AskForm,
    table: AnswerTable | None = None,
    *,
    failure: str | None = None,
    status: int = HTTP_200_OK,
) -> Response[str]:
    return render_page(
        request,
        "ask_again.html",
        status=status,
        call=call,
        path=_path(call),
        tasks=await load_tasks(context.project.store, runs=[call.trajectory_id]),
        form=form,
        offered=_served(context),
        most=MOST_ANSWERS,
        most_chars=_ANSWER_CHARS,
        repeats=repeats,
        table=table,
        failure=failure,
    )


def _served(context: PageContext) -> list[str]:
    """The names that can be asked now: aliases, versions in service, other providers' models."""
    return list(dict.fromkeys(str(card["id"]) for card in context.hone.versions.models()))


# --- the form


async def _recorded_form(context: PageContext, call: CallView) -> AskForm:
    """The form of a call as recorded; where its version cannot be asked, with what its client asked for."""
    names = await version_names(context.project.store, {call.version_id} if call.version_id else set())
    version = names.get(call.version_id or "", call.model)
    tools = "" if not call.tools else json.dumps(list(call.tools), ensure_ascii=False, indent=2)
    left = _FIELDS_BYTES - page_budget.html_size(tools)
    return AskForm(
        model=version if version in _served(context) else call.model,
        temperature=f"{call.sampling.temperature:g}",
        answers=str(_USUAL_ANSWERS),
        messages=_message_fields(call.messages, left if left > 0 else _FIELDS_BYTES),
        further="",
        tools=tools if left > 0 else None,
    )


def _message_fields(messages: Sequence[Message], room: int) -> list[MessageField]:
    """A field for each message: those that people change first (system messages, the newest) get room first."""
    order = sorted(range(len(messages)), key=lambda at: (messages[at].get("role") not in ("system", "developer"), -at))
    shown: dict[int, str] = {}
    for at in order:
        content = messages[at].get("content")
        if not isinstance(content, str) or _UNSENT.search(content):
            continue
        if (size := page_budget.html_size(content)) <= room:
            shown[at] = content
            room -= size
    return [
        MessageField(at, str(message.get("role")), _one_line_end(shown[at]) if at in shown else None)
        for at, message in enumerate(messages)
    ]


def _sent_form(recorded: AskForm, fields: FormMultiDict) -> AskForm:
    """The form as it was sent. A field that is missing stays as recorded."""

    def sent(name: str, value: str) -> str:
        return forms.field_text(fields, name) if name in fields else value

    return AskForm(
        model=sent("model", recorded.model),
        temperature=sent("temperature", recorded.temperature),
        answers=sent("n", recorded.answers),
        messages=[
            one if one.text is None else MessageField(one.number, one.role, sent(f"{_MESSAGE}{one.number}", one.text))
            for one in recorded.messages
        ],
        further=sent("further", ""),
        tools=None if recorded.tools is None else sent("tools", recorded.tools),
    )


def _changes(call: CallView, messages: Sequence[Message], sent: AskForm) -> RequestChanges:
    """What the form changes. `messages`: the call's, with their reasoning. Raises BadRequest."""
    edited = [_edited(messages[one.number], one.text) for one in sent.messages]
    said = [message for message in edited if message is not None]
    if sent.further:
        said.append({"role": "user", "content": sent.further})
    temperature = _number(sent.temperature, "temperature")
    return RequestChanges(
        model=sent.model or None,
        messages=said if said != list(messages) else None,
        tools=_tools(call, sent.tools),
        temperature=None if sent.temperature == f"{call.sampling.temperature:g}" else temperature,
        answers=int(_number(sent.answers, "number of answers")),
    )


def _edited(message: Message, text: str | None) -> Message | None:
    """A message with the text of its field; None: it is left out."""
    content = message.get("content")
    if text is None or (isinstance(content, str) and text.strip() == _one_line_end(content).strip()):
        return message
    if not text.strip() and not message.get("tool_calls"):
        return None
    return {**message, "content": text}


def _one_line_end(text: str) -> str:
    return text.replace("\r\n", "\n")


def _tools(call: CallView, text: str | None) -> list[Mapping[str, Any]] | None:
    """The tools of the form; None: as recorded. Raises BadRequest."""
    if text is None:
        return None
    try:
        tools = parse_json_text(text) if text else []
    except (ValueError, RecursionError) as e:
        raise BadRequest(f"the tools are not JSON: {e}.", param="tools") from e
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise BadRequest("the tools are not a JSON list of objects, as in chat completions.", param="tools")
    return None if tools == list(call.tools or ()) else tools


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError as e:
        raise BadRequest(f"the {what} {text[:80]!r} is not a number.") from e
    if not math.isfinite(value) or not 0 <= value <= 100:
        raise BadRequest(f"the {what} {text[:80]!r} is out of range.")
    return value


# --- the answers


async def _table(context: PageContext, recorded: CallView, repeats: Sequence[Repeat], call_id: str) -> AnswerTable:
    """The answers of a call that asked this one again. Raises UnknownObject."""
    new = await load_call(context.project.store, call_id) if any(one.call_id == call_id for one in repeats) else None
    if new is None:
        raise UnknownObject(
            f"no call {call_id[:200]!r} asked this one again, or it is not recorded yet: reload in a moment."
        )
    names = await version_names(context.project.store, {one for one in (recorded.version_id, new.version_id) if one})
    text = recorded_answer(recorded)
    given = [(one.index, one.message, one.finish_reason) for one in new.choices]
    answers = await run_beside_loop(lambda: compare_answers(text, given))
    version = names.get(new.version_id or "")
    return AnswerTable(new, version, text, answers, _differences(recorded, new, names))


def _differences(recorded: CallView, new: CallView, names: Mapping[str, str]) -> list[str]:
    """How a call differs from the recorded one, each as a phrase."""
    found = []
    if new.version_id != recorded.version_id:
        answered = (names.get(one.version_id or "", one.model) for one in (recorded, new))
        found.append("version {} → {}".format(*answered))
    if new.sampling.temperature != recorded.sampling.temperature:
        found.append(f"temperature {recorded.sampling.temperature:g} → {new.sampling.temperature:g}")
    if list(new.messages) != list(recorded.messages):
        found.append("other messages")
    if list(new.tools or ()) != list(recorded.tools or ()):
        found.append("other tools")
    return found
