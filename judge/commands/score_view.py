"""Output of `hone score`: a table for people, JSON for programs.

Owns: the look of a score and of its prompt and reply. Refuses: scoring (`judge.scoring`), reading arguments
(`judge.commands`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from judge.scoring.group_score import GroupScore
from judge.scoring.manual_score import open_group_note
from judge.scoring.worker import score_summary
from judge.settings import DEFAULT
from recorder.base.terminal import clean_line, echo, format_number, show, show_table
from recorder.queue.judging.scores import REWARD
from recorder.states import TrajectoryState
from recorder.views.trajectories.shapes import GroupView


def score_json(group: GroupView, scored: GroupScore, *, debug: bool) -> dict[str, Any]:
    """A score for programs; with `debug`, its prompt and reply too."""
    out: dict[str, Any] = {
        "group_id": group.id,
        "group_external_id": group.external_id,
        "still_open": open_group_note(group),
        "recipe": scored.recipe,
        "shortened": bool(scored.prompt and scored.prompt.shortened),
        **{name: value for name, value in asdict(scored.new).items() if name not in ("parts", "prompt", "reply")},
        "trajectories": [
            {
                "id": id_,
                "external_id": external_id,
                "reward": part.value,
                "explanation": part.explanation,
                "parts": [asdict(row) for row in scored.new.parts if row.trajectory_id == id_ and row.part != REWARD],
            }
            for (id_, part), external_id in zip(scored.rewards.items(), _names(group, scored), strict=True)
        ],
    }
    if debug:
        out["prompt"] = scored.prompt.messages if scored.prompt else None
        out["prompt_ids"] = {name: list(ids) for name, ids in scored.prompt.ids.items()} if scored.prompt else None
        out["reply"] = scored.new.reply
    else:
        out["replies"] = [{name: value for name, value in one.items() if name != "reply"} for one in out["replies"]]
    return out


def _names(group: GroupView, scored: GroupScore) -> list[str | None]:
    names = {member.id: member.external_id for member in group.members}
    return [names[id_] for id_ in scored.rewards]


def show_open_score(group: GroupView, scored: GroupScore, *, debug: bool) -> None:
    """Print the score that an open group would get now."""
    ended = sum(member.state != TrajectoryState.OPEN for member in group.members)
    echo(
        f"Group {group.id} is still open: {ended} of its {len(group.members)} trajectories have ended, and "
        f"all are judged as they are now. Nothing is saved; `hone close {group.id}` closes it."
    )
    show_score(group, scored, debug=debug)


def show_score(group: GroupView, scored: GroupScore, *, debug: bool) -> None:
    """Print a score; with `debug`, its prompt and reply too."""
    if debug and scored.prompt:
        shown = [(m["role"], m["content"]) for m in scored.prompt.messages]
        shown += [] if scored.new.replies else [("reply", scored.new.reply or "")]
        for title, text in shown:
            _show_text(title, text)
        for name, ids in scored.prompt.ids.items():
            echo(f"{name} = {', '.join(ids)}")
        for one in scored.new.replies:
            _show_text(f"reply of {one.judge_version or one.judge_model}", one.reply or one.failed or "")
    columns = ("trajectory", "reward", "part", "value", "weight", "why")
    show_table(columns, _table_rows(group, scored), right=("reward", "value", "weight"))
    shortened = "; long texts were shortened" if scored.prompt and scored.prompt.shortened else ""
    by = "" if scored.recipe == DEFAULT else f"; by the judge recipe {scored.recipe!r}"
    show(clean_line(f"group {group.id}: {score_summary(scored)}{by}{shortened}"))
    if scored.new.disputed is not None:
        show(clean_line(f"This score does not count: {scored.new.disputed}.", "yellow"))
    if open_ := open_group_note(group):
        show(clean_line(f"{open_} This is what its ended trajectories would get now.", "yellow"))


def _show_text(title: str, text: str) -> None:
    show(clean_line(title, "bold"))
    echo(f"{text}\n")


def _table_rows(group: GroupView, scored: GroupScore) -> Iterator[Sequence[object]]:
    """A line for each trajectory, and below it one for each part of its reward."""
    for (id_, reward), name in zip(scored.rewards.items(), _names(group, scored), strict=True):
        yield name or id_, format_number(reward.value), "", "", "", reward.explanation
        for row in scored.new.parts:
            if row.trajectory_id == id_ and row.part != REWARD:
                weight = "" if row.weight is None else format_number(row.weight)
                yield "", "", row.part, format_number(row.value), weight, row.explanation
