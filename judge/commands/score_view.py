"""Output of `hone score` and `hone score --all`: tables and lines for people, JSON for programs, and progress.

Owns: the format of one score with its prompt and reply, and of the results of rescoring. Refuses: scoring and its
figures (`judge.scoring`), reading arguments (`judge.commands.score`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from judge.scoring.group_score import GroupScore
from judge.scoring.manual_score import open_group_note
from judge.scoring.request_count import CHARS_A_TOKEN, RequestCount
from judge.scoring.rescoring import RescoreOutcome, RescoreTally, Tell
from judge.scoring.worker import score_summary
from judge.settings import DEFAULT
from recorder.base.terminal import (
    clean_line,
    echo,
    format_number,
    show,
    show_lines,
    show_progress,
    show_table,
    write_json,
)
from recorder.queue.judging.scores import REWARD
from recorder.states import TrajectoryState
from recorder.stats.agreement import PairAgreement
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


MOST_SHOWN: Final = 10  # groups in a table, or with one reason


@contextmanager
def watch_rescore(tally: RescoreTally) -> Iterator[Tell]:
    """A callback for outcomes: it adds each to the tally, and a terminal shows the progress."""
    with show_progress("selecting groups …", only_on_terminal=True) as count:

        def tell(outcome: RescoreOutcome) -> None:
            tally.add(outcome)
            count(f"{tally.over} of {tally.groups} groups", tally.over, tally.groups)

        yield tell


def print_rescore(tally: RescoreTally, counted: RequestCount | None, *, as_json: bool) -> None:
    """Print all results; `counted` is set for a dry run."""
    if as_json:
        write_json(_as_json(tally, counted))
    else:
        show_lines((*(_foreseen(tally, counted) if counted else _scored(tally)), *_others(tally)))
        _show_reversed(tally)


def _foreseen(tally: RescoreTally, counted: RequestCount) -> Iterator[tuple[str, str]]:
    history = len(tally.done["history"])
    yield f"{len(tally.scored)} of {_many(tally.groups)} would be scored{_kept(history, 'would keep')}.", "bold"
    yield (
        f"{_many(counted.requests, 'request')} to the judge: about {counted.tokens_in:,} tokens in (characters / "
        f"{CHARS_A_TOKEN}), at most {counted.most_tokens_out:,} out (judge.max_tokens each). Stored replies are "
        "not counted, except with --again, and repairs never. Nothing was written.",
        "",
    )


def _scored(tally: RescoreTally) -> Iterator[tuple[str, str]]:
    spent, pairs = tally.spent, tally.pairs
    cost = "" if spent.cost_usd is None else f", ${spent.cost_usd:.4f}"
    kept = _kept(len(tally.done["history"]), "kept")
    if not tally.groups:
        yield "There is no such group to rescore.", ""
        return
    yield f"{len(tally.scored)} of {_many(tally.groups)} rescored{kept}.", "bold"
    yield f"The judge used {spent.tokens_in:,}+{spent.tokens_out:,} tokens{cost}.", ""
    if pairs.count:
        tied = f"{pairs.tied_before} tied before, {pairs.tied_now} tied now, {pairs.tied} both times"
        yield (
            f"Old against new: Kendall's tau {format_number(pairs.tau)} over {pairs.count} pairs of trajectories; "
            f"{pairs.turned} reversed, {pairs.kept} in the same order, {tied}.",
            "",
        )


def _kept(count: int, keep: str) -> str:
    return f"; {count} of them {keep} the score that was trained on, with the new one beside it" if count else ""


def _many(count: int, what: str = "group") -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _others(tally: RescoreTally) -> Iterator[tuple[str, str]]:
    """The groups that were not scored, with reasons."""
    for one in tally.done["passed"]:
        yield f"skipped: group {one.group_id}: {one.why}", "yellow"
    for code, these in tally.failed().items():
        named = ", ".join(one.group_id for one in these[:MOST_SHOWN])
        more = f" and {len(these) - MOST_SHOWN} more" if len(these) > MOST_SHOWN else ""
        yield f"failed: {code}: {_many(len(these))} ({named}{more}), unchanged: {these[0].why}", "red"
    if tally.stopped:
        yield f"stopped: {_many(tally.groups - tally.over)} not reached; what was saved stays.", "yellow"


def _show_reversed(tally: RescoreTally) -> None:
    rows = [
        (one.group_id, pairs.turned, pairs.count, format_number(pairs.tau))
        for one, pairs in _compared(tally)
        if pairs.turned
    ]
    if rows:
        right = ("reversed", "pairs", "tau")
        show_table(("group", *right), rows[:MOST_SHOWN], right=right)
    if len(rows) > MOST_SHOWN:
        show(clean_line(f"and {_many(len(rows) - MOST_SHOWN)} with fewer"))


def _compared(tally: RescoreTally) -> list[tuple[RescoreOutcome, PairAgreement]]:
    """The groups that had a score, those with most reversed pairs first."""
    found = [(one, one.pairs) for one in tally.scored if one.pairs]
    return sorted(found, key=lambda of: (-of[1].turned, of[0].group_id))


def _as_json(tally: RescoreTally, counted: RequestCount | None) -> dict[str, Any]:
    out: dict[str, Any] = {
        "dry_run": counted is not None,
        "groups": tally.groups,
        "stopped": tally.stopped,
        "current": [one.group_id for one in tally.done["current"]],
        "history": [one.group_id for one in tally.done["history"]],
        "passed": {one.group_id: one.why for one in tally.done["passed"]},
        "failed": {code: {one.group_id: one.why for one in these} for code, these in tally.failed().items()},
    }
    return out | (_count_as_json(counted) if counted else _scores_as_json(tally))


def _count_as_json(counted: RequestCount) -> dict[str, Any]:
    return {
        "requests": counted.requests,
        "tokens_in": counted.tokens_in,
        "most_tokens_out": counted.most_tokens_out,
        "tokens_counted_by": f"characters / {CHARS_A_TOKEN}",
    }


def _scores_as_json(tally: RescoreTally) -> dict[str, Any]:
    groups = [{"group_id": one.group_id, **_pairs_as_json(pairs)} for one, pairs in _compared(tally)]
    return {"spent": tally.spent, "agreement": {**_pairs_as_json(tally.pairs), "by_group": groups}}


def _pairs_as_json(pairs: PairAgreement) -> dict[str, Any]:
    return {
        "tau": pairs.tau,
        "pairs": pairs.count,
        "reversed": pairs.turned,
        "same_order": pairs.kept,
        "tied_before": pairs.tied_before,
        "tied_now": pairs.tied_now,
        "tied": pairs.tied,
    }
