"""The page of a trajectory (conversation, timeline, tokens, outcome), and its forms, of which one is a call's too.

The forms give feedback, change tags and delete the trajectory. Refuses: how a trajectory is shown as a conversation
(`recorder.views.trajectory_detail`), the changes themselves (`proxy.api.actions`, `recorder.maintenance.deletion`), the
page of a call (`call.py`), and scopes (`proxy.admission.pages`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

from litestar import Response, get, post
from litestar.params import FromQuery, PathParameter, QueryParameter
from litestar.status_codes import HTTP_302_FOUND

from proxy.api import actions
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.dashboard import forms, page_budget
from proxy.dashboard.renderer import ForPages, PageContext, render_page
from proxy.engine.replica import Replica, token_texts
from proxy.errors import BadRequest, EngineError, EngineUnreachable
from recorder.maintenance import deletion
from recorder.queue.feedback import DEMONSTRATION, set_tag
from recorder.reasons import explain_reason
from recorder.views.lists.short_ids import expand_id
from recorder.views.lists.titles import load_tasks, title_of, trajectory_outcome
from recorder.views.trajectories.shapes import TrajectoryView
from recorder.views.trajectories.transcripts import find_trajectory, load_trajectory, trajectory_of_call
from recorder.views.trajectory_detail.conversation import ConversationMessage, answers_at
from recorder.views.trajectory_detail.loader import TrajectoryDetail, load_detail
from recorder.views.trajectory_detail.timeline import Timeline
from recorder.views.trajectory_detail.tokens import TokenPage, load_tokens

Name = Annotated[str, PathParameter()]
Start = Annotated[int | None, QueryParameter(name="from")]

_MAX_BARS: Final = 600
_MIN_PAUSE: Final = 0.004  # of the axis: a narrower one is invisible
_MAX_LINES: Final = 120  # of the timeline's table
_STEPS: Final = tuple(map(math.log, (0.99, 0.95, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.01)))  # between ten colours


@dataclass(frozen=True, slots=True)
class TokenCell:
    """A token on a page. `text` None: no engine knows it; `step`: its colour, from 0 (most probable) to 9."""

    at: int
    id: int
    text: str | None
    logprob: float | None
    step: int | None


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The tokens of one answer, or of its prompt. `why_no_text`: the reason for showing ids only."""

    page: TokenPage
    tokens: tuple[TokenCell, ...]
    why_no_text: str | None
    trainable: bool  # whether they are trainable
    training_note: str  # the same as a sentence


@get("/trajectories/{trajectory:str}", include_in_schema=False)
async def trajectory_page(
    context: ForPages,
    request: AnyRequest,
    trajectory: Name,
    group: FromQuery[str | None] = None,
    start: Start = None,
    tokens: FromQuery[str | None] = None,
    choice: FromQuery[int] = 0,
    at: FromQuery[int] = 0,
    prompt: FromQuery[bool] = False,
) -> Response[str] | Response[None]:
    """The page. A short id, an external id or a call's id redirects to the page of the full id."""
    if (onward := await _elsewhere(context, trajectory, group)) is not None:
        return Response(None, status_code=HTTP_302_FOUND, headers={"location": onward})
    detail = await load_detail(context.project.store, trajectory)
    table = None if tokens is None else await _tokens(context, detail, tokens, choice, at, of_prompt=prompt)
    first = None if start is None else max(0, start - 1)
    budget_bytes = page_budget.PAGE_BYTES if table is None else page_budget.PAGE_BYTES // 3
    window = page_budget.turn_window(detail.conversation.messages, first, budget_bytes)
    if first is None and table is not None and not window.whole:
        window = page_budget.turn_window(
            detail.conversation.messages, _turn_of(detail.conversation.messages, table.page.call_id), budget_bytes
        )
    around = (detail.outcome.before, detail.outcome.after, detail.outcome.continues, detail.outcome.continued_by)
    others = [one.source_trajectory_id for one in detail.follow_ups] + [one.id for one in around if one is not None]
    tasks = await load_tasks(context.project.store, runs={detail.view.id, *others})
    score = detail.outcome.score
    return render_page(
        request,
        "trajectory.html",
        run=detail.view,
        tasks=tasks,
        title=title_of(tasks.get(detail.view.id), detail.view.external_id, detail.view.id),
        ended=trajectory_outcome(detail.view.state, None if score is None else score.reward),
        outcome=detail.outcome,
        conversation=detail.conversation,
        window=window,
        timeline=_drawn(detail.timeline),
        follow_ups=detail.follow_ups,
        totals=_totals(detail),
        tokens=table,
        budget=page_budget.ByteBudget(budget_bytes + budget_bytes // 4),
        start=start,
        why_not=_why_not(detail.view),
    )


async def _elsewhere(context: PageContext, trajectory: str, group: str | None) -> str | None:
    """The address for an id of another kind; None if it is the trajectory's full id. Raises NotFound."""
    full = await expand_id(context.project, trajectory)
    of_call = await trajectory_of_call(context.project, full)
    if of_call is not None:
        return f"/hone/trajectories/{quote(of_call, safe='')}/calls/{quote(full, safe='')}"
    found = await find_trajectory(context.project, full, group)
    return None if found == trajectory else f"/hone/trajectories/{quote(found, safe='')}"


def _turn_of(turns: tuple[ConversationMessage, ...], call_id: str) -> int | None:
    """The index of the message that shows a call's answer; None if there is none."""
    return next((turn.at for turn in turns if any(one.call_id == call_id for one in answers_at(turn))), None)


def _totals(run: TrajectoryDetail) -> dict[str, Any]:
    """The figures of a trajectory: turns, calls, tool calls, tokens, seconds."""
    choices = [choice for call in run.view.calls for choice in call.choices]
    token_counts = {(one.call_id, one.choice): one.tokens or 0 for one in run.conversation.answers()}
    ended = run.view.ended_at or run.view.last_call_at
    return {
        "turns": len(run.view.main_path),
        "calls": len(run.view.calls),
        "tools": run.conversation.count_tool_calls(),
        "failed_tools": sum(one.outcome != "complete" for one in run.view.tool_calls),
        "tokens": sum(token_counts.values()),
        "seconds": max(0.0, ended - run.view.started_at),
        "trainable": sum(choice.trainable for choice in choices),
        "answers": len(choices),
    }


def _why_not(view: TrajectoryView) -> Counter[str]:
    """How many answers are not trainable, by reason."""
    answers = [choice for call in view.calls for choice in call.choices if not choice.trainable]
    return Counter(choice.untrainable_reason or "not_complete" for choice in answers)


def _drawn(timeline: Timeline) -> dict[str, Any]:
    """A timeline for the template: as many bars and lines of the table as a page may have."""
    bars = timeline.bars[:_MAX_BARS]
    lines = bars[:_MAX_LINES]
    pauses = [pause for pause in timeline.pauses if pause.width >= _MIN_PAUSE]
    return {
        "whole": timeline,
        "bars": bars,
        "pauses": pauses,
        "lines": lines,
        "left_out": len(timeline.bars) - len(lines),
    }


# --- tokens


async def _tokens(
    context: PageContext, run: TrajectoryDetail, call: str, choice: int, at: int, *, of_prompt: bool
) -> TokenTable:
    page = await load_tokens(context.project.store, run.view.id, call, choice, of_prompt=of_prompt, first=at)
    texts, why = await _texts(context, page)
    cells = tuple(
        TokenCell(token.at, token.id, texts[place] if texts is not None else None, token.logprob, _step(token.logprob))
        for place, token in enumerate(page.tokens)
    )
    trainable, training_note = (False, "The prompt is never trained on.") if of_prompt else _training_note(run, page)
    return TokenTable(page, cells, why, trainable, training_note)


def _training_note(run: TrajectoryDetail, page: TokenPage) -> tuple[bool, str]:
    """Whether an answer's tokens are trainable, and the same as a sentence."""
    own = run.conversation.answer(page.call_id, page.choice)
    why = own.why if own is not None else None
    if why is not None or not page.trainable:
        return False, f"Not trained on: {explain_reason(why or '') or why or 'the answer was excluded'}"
    if own is not None and own.trained:
        return True, "The underlined tokens were trained on."
    return True, "The underlined tokens are trainable."


async def _texts(context: PageContext, page: TokenPage) -> tuple[list[str] | None, str | None]:
    """The text of each token, or the reason for having none."""
    serving = context.hone.versions.serving(page.base_fingerprint)
    if serving is None or not page.tokens:
        return None, "No engine with this base model is running, and only an engine can decode token ids."
    engine, key = serving
    replica = Replica(engine.url, key)
    try:
        found = await token_texts(replica, engine.base_model or "", [token.id for token in page.tokens])
    except (EngineError, EngineUnreachable) as e:
        return None, str(e)
    finally:
        await replica.close()
    return found, None if found is not None else "The engine tokenizes the same text differently."


def _step(logprob: float | None) -> int | None:
    """The colour of a logprob, from 0 (most probable) to 9."""
    if logprob is None:
        return None
    return next((step for step, least in enumerate(_STEPS) if logprob >= least), len(_STEPS))


_VERDICTS = {"good": True, "bad": False}


@post("/trajectories/{trajectory:str}/feedback", include_in_schema=False)
async def give_feedback(context: ForPages, request: AnyRequest, trajectory: Name) -> Response[None]:
    """Record feedback on a trajectory, or on one of its calls. Raises BadRequest."""
    form = await forms.read_fields(request)
    trajectory_id = await _find(context, trajectory)
    call_id, comment = forms.field_text(form, "call") or None, forms.field_text(form, "comment") or None
    answer = forms.field_text(form, "answer")
    value = _value(forms.field_text(form, "verdict"), forms.field_text(form, "score"))
    given: list[tuple[str, object, str | None]] = []
    if value is not None:
        given.append((forms.field_text(form, "name"), value, comment))
    elif comment is not None:
        given.append(("comment", comment, None))
    if answer:
        given.append((DEMONSTRATION, answer, None))
    if not given:
        raise BadRequest("the form is empty: choose good or bad, or give a score, a comment or a corrected answer.")
    for name, content, note in given:
        tags = {"by": actions.caller_id(caller_of(request))}
        await actions.write_feedback(
            context.hone, caller_of(request), trajectory_id, name, content, comment=note, call_id=call_id, tags=tags
        )
    if call_id is not None and forms.field_text(form, "from_call"):
        return forms.back_to(f"{_path(trajectory_id)}/calls/{quote(call_id, safe='')}#correction")
    return forms.back_to(f"{_path(trajectory_id)}#feedback")


@post("/trajectories/{trajectory:str}/tags", include_in_schema=False)
async def change_tag(context: ForPages, request: AnyRequest, trajectory: Name) -> Response[None]:
    """Set or remove a tag of a trajectory. Raises BadRequest."""
    form = await forms.read_fields(request)
    trajectory_id = await _find(context, trajectory)
    redact = context.hone.recorder.redaction.redact_value
    value = None if forms.field_text(form, "remove") else str(await redact(forms.field_text(form, "value")))
    try:
        await set_tag(context.hone.project, trajectory_id, forms.field_text(form, "tag"), value)
    except ValueError as e:
        raise BadRequest(f"{e}.", param="tag") from e
    return forms.back_to(f"{_path(trajectory_id)}#tags")


@get("/trajectories/{trajectory:str}/delete", include_in_schema=False)
async def ask_delete(context: ForPages, request: AnyRequest, trajectory: Name) -> Response[str]:
    """The confirmation page for deleting a trajectory: what is deleted with it."""
    run = await load_trajectory(context.project.store, await _find(context, trajectory))
    tasks = await load_tasks(context.project.store, runs=[run.id])
    return render_page(request, "trajectory_delete.html", run=run, tasks=tasks)


@post("/trajectories/{trajectory:str}/delete", include_in_schema=False)
async def delete_trajectory(context: ForPages, request: AnyRequest, trajectory: Name) -> Response[str]:
    """Delete a trajectory, which must have ended, for good. Raises BadRequest."""
    form = await forms.read_fields(request)
    if forms.field_text(form, "sure") != "yes":
        raise BadRequest("a trajectory is deleted from its confirmation page: open that page first.")
    trajectory_id = await _find(context, trajectory)
    why = ", ".join(filter(None, (forms.field_text(form, "why")[:500], f"by {actions.caller_id(caller_of(request))}")))
    try:
        gone = await deletion.delete_trajectory(context.hone.project, trajectory_id, why)
    finally:
        erased = await deletion.erase_deleted_words(context.hone.project.store)
    return render_page(request, "trajectory_deleted.html", gone=gone, erased=erased)


async def _find(context: PageContext, trajectory: str) -> str:
    return await find_trajectory(context.hone.project, trajectory)


def _path(trajectory_id: str) -> str:
    return f"/hone/trajectories/{quote(trajectory_id, safe='')}"


def _value(verdict: str, score: str) -> bool | float | None:
    """The value of the feedback; None if the form has none. Raises BadRequest."""
    if not score:
        return _VERDICTS.get(verdict)
    try:
        value = float(score)
    except ValueError as e:
        raise BadRequest(f"the score {score[:100]!r} is not a number.", param="score") from e
    if not math.isfinite(value):
        raise BadRequest("the score must be finite.", param="score")
    return value
