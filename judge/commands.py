"""`hone judge` and `hone score`.

Owns: reading arguments, signals, printing. Refuses: scoring (`judge.scoring.score`) and the worker's ways
(`judge.scoring.worker`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from judge.settings import DEFAULT, JudgeSettings

if TYPE_CHECKING:
    from judge.scoring.score import GroupScore
    from recorder.reading.views import GroupView
    from recorder.settings import LearnSettings, RecorderSettings
    from recorder.store.database import Store


class Settings(Protocol):
    """What these commands read of Hone's settings."""

    project: str
    data: Path
    judge: JudgeSettings
    recorder: RecorderSettings
    learn: LearnSettings


class Context(Protocol):
    """What these commands find in click's context."""

    json: bool

    def settings(self) -> Settings:
        """The settings in force."""


@click.command()
@click.option("--check", "only_check", is_flag=True, help="Only say whether its settings can work, and end.")
@click.pass_obj
def judge(context: Context, only_check: bool) -> None:
    """Score groups as they become ready, until stopped."""
    if only_check:
        _check(context)
        return
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("judge").setLevel(logging.INFO)
    asyncio.run(run_worker(context.settings()))


def _check(context: Context) -> None:
    """Tell what is right and wrong; exit status 1 where something is wrong."""
    from judge.scoring.checks import check
    from recorder.commands.support import echo_findings

    echo_findings(asyncio.run(check(context.settings().judge)), as_json=context.json)


async def run_worker(settings: Settings) -> None:
    """Run one judge worker until SIGTERM or SIGINT. Raises JudgeMisconfigured, StoreError, SchemaMismatch."""
    from judge.scoring.bench import check_settings, open_bench, told_parts
    from judge.scoring.worker import JudgeWorker
    from recorder.store.migrate import open_store

    check_settings(settings.judge)
    known = settings.judge.known_recipes()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    try:
        async with open_bench(settings.judge, store, settings.project) as bench:
            worker = JudgeWorker(store, settings.project, bench, settings.recorder, learn=settings.learn)
            told = "; ".join(f"{name}: {told_parts(settings.judge.by_recipe(name)) or 'nothing'}" for name in known)
            logging.getLogger(__name__).info(
                "judge %s: %s (%s)", worker.owner, told, settings.judge.model or "no model"
            )
            await worker.run(stop)
    finally:
        await store.close()


@click.command()
@click.argument("group", required=False)
@click.option("--open", "still_open", is_flag=True, help="A group that is still open, as it is; without GROUP, all.")
@click.option("--debug", is_flag=True, help="Show the prompt, the reply and what was read from it.")
@click.option("--save", is_flag=True, help="Make this the group's score, also where it has one.")
@click.option("--again", is_flag=True, help="Save, also where the group was left out because its version was rejected.")
@click.pass_obj
def score(context: Context, group: str | None, still_open: bool, debug: bool, save: bool, again: bool) -> None:
    """Judge one GROUP (its id, or the name it was given) and show how.

    Changes nothing in the store without --save or --again. With --open, runs that go on are judged as if they had
    ended now.
    """
    from judge.errors import JudgeUnanswered
    from recorder.commands.terminal import clean

    if group is None and not still_open:
        raise click.UsageError("name a group, or say --open for all that are open.")
    if still_open and (save or again):
        raise click.UsageError("an open group keeps no score: `hone close GROUP`, then `hone score GROUP --save`.")
    try:
        if still_open:
            _score_open(context, group, debug=debug)
        else:
            assert group is not None
            found, scored = asyncio.run(run_score(context.settings(), group, save=save or again, again=again))
            if context.json:
                click.echo(json.dumps(as_json(found, scored, debug=debug), ensure_ascii=False, indent=2))
            else:
                _show(found, scored, debug=debug)
    except JudgeUnanswered as e:
        if debug:
            click.echo(clean("\n\n".join(f"{m['role']}\n{m['content']}" for m in e.exchange)), err=context.json)
        raise


def _score_open(context: Context, group: str | None, *, debug: bool) -> None:
    from recorder.commands.terminal import clean, console

    shown = []
    for found, scored in asyncio.run(run_score_open(context.settings(), group)):
        if isinstance(scored, str):
            click.echo(clean(f"group {found.id}: {scored}"), err=True)
        elif context.json:
            shown.append(as_json(found, scored, debug=debug))
        else:
            ended = sum(member.state != "open" for member in found.members)
            console().print(
                f"Group {found.id} is still open: {ended} of its {len(found.members)} runs have ended, and all are "
                f"judged as they are now. Nothing is saved; `hone close {found.id}` closes it.",
                soft_wrap=True,
            )
            _show(found, scored, debug=debug)
    if context.json:
        click.echo(json.dumps(shown, ensure_ascii=False, indent=2))


async def run_score(settings: Settings, group: str, *, save: bool, again: bool = False) -> tuple[GroupView, GroupScore]:
    """Score a group by its internal or external id; with `save` the score becomes its current one.

    With `again` also where it was left out because of a version that was trained on it: it may be trained on anew.

    Raises JudgeError, NotFound, and Conflict where it is still open, or is to be saved and cannot be claimed.
    """
    from judge.scoring.bench import check_settings, open_bench
    from judge.scoring.score import score_group
    from recorder.errors import Conflict
    from recorder.reading.transcripts import load_group
    from recorder.store.migrate import open_store

    check_settings(settings.judge)
    store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    try:
        found = await load_group(store, await _named(store, settings.project, group))
        if open_ := still_open(found):
            raise Conflict(
                f"{open_} `hone score --open {found.id}` judges it as it is, `hone close {found.id}` closes it."
            )
        async with open_bench(settings.judge, store, settings.project, keep=save) as bench:
            scored = await score_group(found, bench)
        if save:
            await _save(store, settings, found, scored, again=again)
        return found, scored
    finally:
        await store.close()


async def run_score_open(settings: Settings, group: str | None) -> list[tuple[GroupView, GroupScore | str]]:
    """Score an open group, or the newest of all that are, as if what still runs had ended now; nothing is written.

    Where one cannot be judged, the reason stands in its score's place. Raises NotFound, Conflict for a closed one.
    """
    from judge.errors import CannotJudge
    from judge.scoring.bench import check_settings, open_bench
    from judge.scoring.score import as_if_ended, score_group
    from recorder.reading.transcripts import load_group
    from recorder.store.migrate import open_store

    check_settings(settings.judge)
    store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    judged: list[tuple[GroupView, GroupScore | str]] = []
    try:
        async with open_bench(settings.judge, store, settings.project, keep=False) as bench:
            for group_id in await _open_groups(store, settings.project, group):
                found = await load_group(store, group_id)
                try:
                    judged.append((found, await score_group(as_if_ended(found), bench)))
                except CannotJudge as e:
                    judged.append((found, str(e)))
        return judged
    finally:
        await store.close()


async def _open_groups(store: Store, project: str, group: str | None) -> list[str]:
    from recorder.errors import Conflict
    from recorder.reading.listing import list_groups
    from recorder.reading.transcripts import load_group
    from recorder.states import GroupState

    if group is None:
        found = await list_groups(store, project, states=[GroupState.OPEN])
        return [one.id for one in found]
    named = await load_group(store, await _named(store, project, group))
    if named.state is not GroupState.OPEN:
        raise Conflict(f"group {named.id} is not open any more, it is {named.state}: score it without --open")
    return [named.id]


async def _named(store: Store, project: str, group: str) -> str:
    from recorder.groups.lookup import find_group
    from recorder.reading.short_ids import in_full

    return await find_group(store, project, await in_full(store, project, group))


def still_open(group: GroupView) -> str | None:
    """That a group is still open, and what it waits for; None where it is not."""
    from recorder.states import GroupState, TrajectoryState

    if group.state != GroupState.OPEN:
        return None
    running = sum(member.state == TrajectoryState.OPEN for member in group.members)
    waits = f"{running} of its {len(group.members)} runs have not ended" if running else "more runs may join it"
    return f"group {group.id} is still open: {waits}."


async def _save(store: Store, settings: Settings, group: GroupView, scored: GroupScore, *, again: bool) -> None:
    # Claimed only now: a judge that fails must not cost the group the score it has.
    from recorder.errors import Conflict
    from recorder.holding.holders import holder_name
    from recorder.work import claims, scores

    lease_s = settings.recorder.lease_s
    claim = await claims.claim_one_for_judging(store, group.id, holder_name(), lease_s, again=again)
    if claim is None:
        raise Conflict(
            f"group {group.id} cannot be given a score: it is not ready, unscored or scored, or somebody works on it. "
            "Nothing was saved. One that was left out for its version takes --again."
        )
    await scores.record_score(store, claim, scored.new)


def as_json(group: GroupView, scored: GroupScore, *, debug: bool) -> dict[str, Any]:
    """A score for a program; with `debug`, prompt and reply too."""
    from recorder.work.scores import REWARD

    out: dict[str, Any] = {
        "group_id": group.id,
        "group_external_id": group.external_id,
        "still_open": still_open(group),
        "recipe": scored.recipe,
        "shortened": bool(scored.prompt and scored.prompt.shortened),
        **{name: value for name, value in asdict(scored.new).items() if name not in ("parts", "reply")},
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
    return out


def _names(group: GroupView, scored: GroupScore) -> list[str | None]:
    names = {member.id: member.external_id for member in group.members}
    return [names[id_] for id_ in scored.rewards]


def _show(group: GroupView, scored: GroupScore, *, debug: bool) -> None:
    from judge.scoring.worker import summary
    from recorder.commands.terminal import clean, console, line, table

    out = console()
    if debug and scored.prompt:
        shown = [(m["role"], m["content"]) for m in scored.prompt.messages]
        for title, text in (*shown, ("reply", scored.new.reply or "")):
            out.print(line(title, "bold"))
            out.print(clean(text), "", sep="\n", soft_wrap=True)
        for name, ids in scored.prompt.ids.items():
            out.print(f"{name} = {', '.join(ids)}", soft_wrap=True)
    columns = ("trajectory", "reward", "part", "value", "weight", "why")
    out.print(table(columns, _table_rows(group, scored), right=("reward", "value", "weight")))
    shortened = "; long texts were shortened" if scored.prompt and scored.prompt.shortened else ""
    by = "" if scored.recipe == DEFAULT else f"; by the recipe {scored.recipe!r}"
    out.print(line(f"group {group.id}: {summary(scored)}{by}{shortened}"))
    if open_ := still_open(group):
        out.print(line(f"{open_} This is what its runs that ended would get now.", "yellow"))


def _table_rows(group: GroupView, scored: GroupScore) -> Iterator[Sequence[object]]:
    """A line for each trajectory, and under it one for each part of its reward."""
    from recorder.commands.terminal import number
    from recorder.work.scores import REWARD

    for (id_, reward), name in zip(scored.rewards.items(), _names(group, scored), strict=True):
        yield name or id_, number(reward.value), "", "", "", reward.explanation
        for row in scored.new.parts:
            if row.trajectory_id == id_ and row.part != REWARD:
                weight = "" if row.weight is None else number(row.weight)
                yield "", "", row.part, number(row.value), weight, row.explanation
