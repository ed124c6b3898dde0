"""The page of one call: its answer, its request, a correction, and the request as a command to be copied.

Refuses: a trajectory's page and the form of feedback (`trajectory.py`), asking again (`ask_again.py`), and how a
request becomes a command (`proxy.recorded_requests`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, is_dataclass
from typing import Annotated, Any, Final

from litestar import Response, get
from litestar.params import PathParameter

from proxy.api.route_parts import AnyRequest
from proxy.dashboard import page_budget
from proxy.dashboard.formatters import as_json
from proxy.dashboard.renderer import ForPages, PageContext, render_page
from proxy.errors import UnknownObject
from proxy.recorded_requests.client_body import client_body, client_path
from proxy.recorded_requests.code_samples import curl_command, is_short, python_program
from recorder.messages.media import has_media
from recorder.messages.plain_text import message_text
from recorder.queue.feedback import DEMONSTRATION, MAX_TEXT_CHARS
from recorder.states import Origin
from recorder.views.comparison.attempts import TurnCredit
from recorder.views.comparison.loader import load_rank
from recorder.views.comparison.new_answers import repeated_call_id
from recorder.views.comparison.word_changes import compare_words
from recorder.views.lists.titles import load_tasks
from recorder.views.trajectories.by_response_id import add_reasoning
from recorder.views.trajectories.shapes import CallView, TrajectoryView
from recorder.views.trajectories.transcripts import find_trajectory, load_trajectory
from recorder.views.trajectory_detail.outcome import version_names

Name = Annotated[str, PathParameter()]

_RAW_BYTES: Final = 90_000  # of all parts of a call, as HTML
_SAMPLE_BYTES: Final = 40_000  # of its commands, as HTML


@dataclass(frozen=True, slots=True)
class CodeSample:
    """The request as text to be copied, without its media. `name`: as the page's buttons and summaries say."""

    name: str
    id: str  # of its element
    text: str


@get("/trajectories/{trajectory:str}/calls/{call:str}", include_in_schema=False)
async def call_page(context: ForPages, request: AnyRequest, trajectory: Name, call: Name) -> Response[str]:
    """The request and the answer of one call. Raises UnknownObject."""
    view = await load_trajectory(context.project.store, await find_trajectory(context.project, trajectory))
    one = next((own for own in view.calls if own.id == call), None)
    if one is None:
        raise UnknownObject(f"the trajectory {trajectory[:200]!r} has no call {call[:200]!r}.")
    names = await version_names(context.project.store, {one.version_id} if one.version_id else set())
    said, corrected, raw = _answer_text(one), _newest_correction(view, one), _RawParts()
    answered = [(choice, raw.fold(choice.message)) for choice in one.choices]
    return render_page(
        request,
        "call.html",
        run=view,
        tasks=await load_tasks(context.project.store, runs=[view.id]),
        number=next((at for at, own in enumerate(view.calls, 1) if own.id == one.id), None),
        call=one,
        version=names.get(one.version_id or ""),
        answered=answered,
        sampling=raw.fold(one.sampling),
        more={"usage": raw.fold(one.usage), "response_meta": raw.fold(one.response_meta)},
        sent=[(name, raw.fold(value)) for name, value in _chat_body(one).items()],
        repeated=repeated_call_id(view.external_id) if view.origin is Origin.SHADOW else None,
        has_media=has_media(one.messages),
        samples=await _samples(context, one, str(request.base_url).rstrip("/")),
        said=said,
        turn=await _turn_credit(context, view, one),
        correction=None if corrected is None else compare_words(said or "", corrected),
    )


async def _turn_credit(context: PageContext, view: TrajectoryView, call: CallView) -> TurnCredit | None:
    """The value of the call's turn in its group's current score; None: it has none."""
    number = next((at for at, (id_, _) in enumerate(view.main_path, 1) if id_ == call.id), None)
    if number is None or view.group_id is None:
        return None
    rank = await load_rank(context.project.store, view.group_id, view.id)
    return None if rank is None else rank.attempt.turn(number)


def _answer_text(call: CallView) -> str | None:
    """The text of the first answer that has one; None: none has, or it is longer than feedback may be."""
    texts = (message_text(choice.message) for choice in call.choices if choice.message is not None)
    found = next((text for text in texts if text), None)
    return found if found is None or len(found) <= MAX_TEXT_CHARS else None


def _newest_correction(view: TrajectoryView, call: CallView) -> str | None:
    texts = [one for one in view.feedback if one.call_id == call.id and one.name == DEMONSTRATION]
    newest = max(texts, key=lambda one: one.created_at, default=None)
    return None if newest is None else str(newest.value)


class _RawParts:
    """The parts of a call as JSON, together as long as a page may be."""

    def __init__(self) -> None:
        self._budget = page_budget.ByteBudget(_RAW_BYTES)

    def fold(self, value: object) -> page_budget.FoldedText | None:
        """A part, cut if it is very long; None for None."""
        if value is None:
            return None
        text = as_json(_plain(page_budget.without_media(value)))
        return self._budget.fold(text, _RAW_BYTES, _RAW_BYTES)


def _plain(value: Any) -> Any:
    """A dataclass as a mapping; anything else unchanged."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _chat_body(call: CallView) -> dict[str, Any]:
    """The request as the model received it: in the fields of chat completions, and the client's other fields."""
    body: dict[str, Any] = {"model": call.model, "messages": list(call.messages), "tools": call.tools}
    body |= {"response_format": call.response_format, **call.rest}
    return {name: value for name, value in body.items() if value is not None}


async def _samples(context: PageContext, call: CallView, base_url: str) -> list[CodeSample]:
    """The call in the client's format as commands; empty if it is too long for that."""
    messages = page_budget.without_media(await add_reasoning(context.project.store, call))
    body, path = client_body(call, messages), client_path(call)
    if not is_short(body):
        return []
    made = [
        CodeSample("curl", "as-curl", curl_command(base_url, path, body)),
        CodeSample("Python", "as-python", python_program(base_url, path, body)),
    ]
    return made if sum(page_budget.html_size(one.text) for one in made) <= _SAMPLE_BYTES else []
