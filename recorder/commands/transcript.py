"""How a trajectory, a group and a call look on a terminal.

Owns: what is shown, in which order, and where long text is cut. Refuses: escaping (`recorder.base.terminal` does it for
every string), and reading the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from recorder.base.terminal import build_table, clean, clean_line, color_line, format_number, format_time
from recorder.messages import plain_text
from recorder.messages.calls import DROPPED_ITEMS, DROPPED_TOOLS
from recorder.views.lists.titles import title_of

if TYPE_CHECKING:
    from recorder.messages.calls import Message
    from recorder.queue.judging.scores import NewPart, StoredScore
    from recorder.views.follow_ups.events import FollowUp
    from recorder.views.trajectories.shapes import CallView, ChoiceView, GroupView, ToolCallView, TrajectoryView

SHOWN_CHARS: Final = 4000  # of one message, without --full
_ROLE_STYLES: Final = {
    "system": "magenta",
    "developer": "magenta",
    "user": "green",
    "assistant": "bold cyan",
    "tool": "yellow",
}


def render_trajectory(
    view: TrajectoryView,
    score: StoredScore | None,
    versions: Mapping[str, str],
    follow_ups: Sequence[FollowUp] = (),
    *,
    task: str | None = None,
    full: bool = False,
) -> RenderableType:
    """Render a trajectory: its times, its rewards, the conversation up to its last main call, and what came next.

    `versions`: version id → name.
    """
    shown: list[RenderableType] = [_trajectory_head(view, versions, task), *_dropped(view.calls)]
    shown += [_rewards(view, score), _feedback(view), Text()]
    by_id = {call.id: call for call in view.calls}
    sampled = {len(by_id[id_].messages): (by_id[id_], choice) for id_, choice in view.main_path if id_ in by_id}
    for index, message in enumerate(view.messages):
        shown.append(_message(message, _sampled_note(sampled.get(index), versions), full))
        if index in sampled:
            shown += _tool_results(view, *sampled[index])
    on_path = {id_ for id_, _ in view.main_path}
    shown.append(_other_calls([c for c in view.calls if c.id not in on_path]))
    shown.append(_other_tools([t for t in view.tool_calls if (t.call_id, t.choice) not in set(view.main_path)]))
    if follow_ups:
        shown.append(_follow_ups(follow_ups, view.id, full))
    return Group(*shown)


def _follow_ups(events: Sequence[FollowUp], trajectory_id: str, full: bool) -> RenderableType:
    """Render what came after the answers, each with the call that it is about and the trajectory that recorded it."""
    rows = [
        (
            format_time(one.at),
            str(one.kind).replace("_", " "),
            f"after {one.call_id}",
            "" if one.source_trajectory_id == trajectory_id else f"in {one.source_trajectory_id}",
            " ".join(filter(None, (one.name, None if one.value is None else json.dumps(one.value)))),
            one.text if full else one.text[:SHOWN_CHARS],
        )
        for one in events
    ]
    return Group(Text("what came next", style="dim"), build_table(("",) * 6, rows))


def render_group(
    view: GroupView, score: StoredScore | None, versions: Mapping[str, str], task: str | None = None
) -> RenderableType:
    """Render a group: its members by reward, with the parts of each reward and their explanations."""
    about = [view.id, view.external_id and f"named {view.external_id}"]
    about.append(view.version_id and versions.get(view.version_id))
    about += [f"scenario {view.scenario.id}" if view.scenario else None, f"{len(view.members)} members"]
    parts = {member.id: score.parts_of(member.id) if score else [] for member in view.members}
    ordered = sorted(view.members, key=lambda m: -(_reward(parts[m.id]) or 0.0))
    rows = [row for member in ordered for row in _member_rows(member, parts[member.id])]
    columns = ("trajectory", "state", "why", "calls", "part", "value", "weight", "explanation")
    members = build_table(columns, rows, right=("calls", "value"))
    return Group(
        _title(title_of(task, view.external_id, view.id), view.state, view.reason),
        clean_line(" · ".join(a for a in about if a), "dim"),
        _judge(score),
        Text(),
        members,
    )


def render_call(view: CallView, versions: Mapping[str, str], *, full: bool = False) -> RenderableType:
    """Render one call: its prompt, its choices, and how it was sampled."""
    about = _call_facts(view, versions)
    shown: list[RenderableType] = [
        _title(view.id, view.state, view.superseded_by),
        clean_line(" · ".join(about), "dim"),
    ]
    if view.error:
        shown.append(clean_line(view.error, "red"))
    shown += _dropped([view])
    shown += [Text(), *(_message(message, None, full) for message in view.messages)]
    for choice in view.choices:
        if choice.message is not None:
            shown.append(_message(choice.message, _choice_note(choice), full))
    return Group(*shown)


def _dropped(calls: Sequence[CallView]) -> list[RenderableType]:
    """Render what the client sent and the model did not receive."""
    shown: list[RenderableType] = []
    for entry, what in ((DROPPED_TOOLS, "tools"), (DROPPED_ITEMS, "of the conversation")):
        types = dict.fromkeys(type_ for call in calls for type_ in (call.response_meta or {}).get(entry, ()))
        if types:
            shown.append(clean_line(f"not sent to the model, {what}: {', '.join(types)}", "yellow"))
    return shown


def _title(words: str, state: str, why: str | None) -> Text:
    title = clean_line(words, "bold").append("  ").append_text(color_line(state))
    return title.append_text(clean_line(f" ({why})")) if why else title


def _trajectory_head(view: TrajectoryView, versions: Mapping[str, str], task: str | None) -> RenderableType:
    title = _title(title_of(task, view.external_id, view.id), view.state, view.end_reason)
    about = [
        view.id,
        view.external_id and f"named {view.external_id}",
        view.session and f"session {view.session}",
        view.group_id and f"group {view.group_id}",
        view.version_id and versions.get(view.version_id, view.version_id),
        "mixed" if view.mixed else None,
        view.purpose,
        view.origin,
        view.selection,
        f"{len(view.calls)} calls",
        format_time(view.started_at),
        None if view.ended_at is None else f"{view.ended_at - view.started_at:.1f} s",
    ]
    shown = [title, clean_line(" · ".join(str(a) for a in about if a), "dim")]
    if view.continues:
        shown.append(clean_line(f"continues {view.continues}", "dim"))
    if view.tags:
        shown.append(clean_line("tags " + " ".join(f"{k}={v}" for k, v in view.tags.items()), "dim"))
    return Group(*shown)


def _rewards(view: TrajectoryView, score: StoredScore | None) -> RenderableType:
    own = score.parts_of(view.id) if score else []
    if not own:
        return Text("no reward yet", style="dim")
    rows = [_part_cells(part) for part in own]
    return Group(build_table(("part", "value", "weight", "explanation"), rows, right=("value",)), _judge(score))


def _part_cells(part: NewPart) -> tuple[object, ...]:
    return part.part, format_number(part.value), "" if part.weight is None else f"× {part.weight:g}", part.explanation


def _member_rows(view: TrajectoryView, parts: Sequence[NewPart]) -> Iterable[Sequence[object]]:
    """Yield a row for a member and its reward, and one for each part of the reward."""
    about = (view.id, view.state, view.selection or view.end_reason, len(view.calls))
    first, *others = [_part_cells(part) for part in parts] or [("reward", format_number(None), "", None)]
    yield *about, *first
    for cells in others:
        yield *[""] * len(about), *cells


def _reward(parts: Sequence[NewPart]) -> float | None:
    return next((part.value for part in parts if part.part == "reward"), None)


def _judge(score: StoredScore | None) -> RenderableType:
    if score is None:
        return Text("not judged yet", style="dim")
    model = score.judge_version or score.judge_model or "checks alone"
    cached = f", {score.tokens_cached} of them cached" if score.tokens_cached else ""
    tokens = f"{score.tokens_in}+{score.tokens_out} tokens{cached}"
    return clean_line(f"judged by {model} at {format_time(score.created_at)}, {tokens}", "dim")


def _feedback(view: TrajectoryView) -> RenderableType:
    rows = [("feedback", f.name, json.dumps(f.value), f.comment) for f in view.feedback]
    return build_table(("", "name", "value", "comment"), rows) if rows else Text()


def _message(message: Message, note: Text | None, full: bool) -> RenderableType:
    role = str(message.get("role", "?"))
    title = Text.assemble(clean_line(role, _ROLE_STYLES.get(role, "bold")))
    if message.get("name") or message.get("tool_call_id"):
        title.append_text(clean_line(f"  {message.get('name') or message.get('tool_call_id')}", "dim"))
    if note is not None:
        title.append_text(note)
    thought = plain_text.thinking_text(message)
    body = [Text(_cut(clean(thought), full), style="dim italic")] if thought else []
    for text, part in plain_text.content_parts(message.get("content")):
        body.append(Text(_cut(clean(_label(part) if text is None else text), full)))
    body += [_tool_call(one, full) for one in message.get("tool_calls") or () if isinstance(one, Mapping)]
    return Group(title, Padding(Group(*body), (0, 0, 1, 2), expand=False))


def _label(part: object) -> str:
    return plain_text.kind_label(part) if isinstance(part, Mapping) else f"[{part}]"


def _tool_call(one: Mapping[str, Any], full: bool) -> Text:
    function = one.get("function")
    told = function if isinstance(function, Mapping) else {}
    name, arguments = clean(told.get("name", "?")), told.get("arguments", "")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Text.assemble("→ ", (name, "bold"), "(", _cut(clean(text), full), ")")


def _cut(text: str, full: bool) -> str:
    more = len(text) - SHOWN_CHARS
    return text if full or more <= 0 else f"{text[:SHOWN_CHARS]}… [{more:,} more characters: --full]"


def _sampled_note(sampled: tuple[CallView, int] | None, versions: Mapping[str, str]) -> Text | None:
    if sampled is None:
        return None
    view, index = sampled
    note = clean_line("  " + " · ".join(_call_facts(view, versions)), "dim")
    chosen = next((c for c in view.choices if c.index == index), None)
    return note.append_text(_choice_note(chosen)) if chosen else note


def _call_facts(view: CallView, versions: Mapping[str, str]) -> list[str]:
    version = versions.get(view.version_id or "", view.version_id or view.model)
    took = None if view.finished_at is None else f"{view.finished_at - view.started_at:.2f} s"
    side = None if view.call_kind == "main" else str(view.call_kind)
    known = f"{view.attribution_source}/{view.attribution_confidence}"
    return [fact for fact in (view.id, version, known, took, side, f"T={view.sampling.temperature:g}") if fact]


def _choice_note(choice: ChoiceView) -> Text:
    count = "" if choice.token_ids is None else f" · {len(choice.token_ids)} tokens"
    why = "trainable" if choice.trainable else f"context: {choice.untrainable_reason}"
    return clean_line(f" · choice {choice.index} · {choice.finish_reason}{count} · {why}", "dim")


def _other_calls(calls: Sequence[CallView]) -> RenderableType:
    rows = [
        (c.id, c.state, c.call_kind, f"{c.attribution_source}/{c.attribution_confidence}",
         f"after {c.parent_call_id}" if c.parent_call_id else "first",
         f"superseded by {c.superseded_by}" if c.superseded_by else c.error)
        for c in calls
    ]  # fmt: skip
    return Group(Text("calls outside the main path", style="dim"), build_table(("",) * 6, rows)) if rows else Text()


def _tool_results(view: TrajectoryView, asked: CallView, choice: int) -> Iterable[RenderableType]:
    """Yield the tool calls of a sampled message, with server, duration and outcome."""
    for one in view.tool_calls:
        if (one.call_id, one.choice) == (asked.id, choice):
            style = "red" if one.error is not None else "dim"
            yield Padding(clean_line("⚒ " + " · ".join(_tool_facts(one)), style), (0, 0, 1, 2), expand=False)


def _tool_facts(one: ToolCallView) -> list[str]:
    declared = one.annotations or {}
    kind = "read-only" if declared.get("readOnlyHint") else "destructive" if declared.get("destructiveHint") else None
    took = f"{one.finished_at - one.started_at:.2f} s"
    known = f"{one.join_source}/{one.join_confidence}"
    facts = (one.name, one.server and f"by {one.server}", one.outcome, took, kind, known, one.error)
    return [fact for fact in facts if fact]


def _other_tools(calls: Sequence[ToolCallView]) -> RenderableType:
    rows = [(format_time(t.started_at), t.outcome, t.name, json.dumps(t.arguments)[:200], t.error) for t in calls]
    title = Text("tool calls outside the main path", style="dim")
    return Group(title, build_table(("", "", "", "", ""), rows)) if rows else Text()
