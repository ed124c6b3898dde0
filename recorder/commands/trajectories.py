"""`hone show`, `export`, `ledger` and `delete`: recorded trajectories on a terminal.

Owns: reading arguments and printing. Refuses: queries, and the look of a conversation
(`recorder.commands.transcript`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

from recorder.base.terminal import clean_line, confirm, echo, format_time, show_table, to_json, write_json
from recorder.base.terminal import show as print_shown
from recorder.commands.context import Context, TimeParam, run
from recorder.errors import NotFound
from recorder.reasons import explain_reason

if TYPE_CHECKING:
    from recorder.maintenance.deletion import DeletionResult
    from recorder.queue.judging.scores import StoredScore
    from recorder.store.database import Project, Store
    from recorder.store.ledger import Entry
    from recorder.views.follow_ups.events import FollowUp
    from recorder.views.status.judging import JudgingFailure
    from recorder.views.trajectories.shapes import CallView, GroupView, TrajectoryView

_TRAINED = ("trained",)  # the ledger's code of every trajectory that was trained on: most entries
_limit = click.option("--limit", default=50, show_default=True, type=click.IntRange(1), help="How many, newest first.")


@click.command()
@click.argument("object_id", metavar="ID")
@click.option(
    "--group", help="The group part of the trajectory's address, if trajectories of several groups share an id."
)
@click.option("--full", is_flag=True, help="Show long messages in full.")
@click.pass_obj
def show(context: Context, object_id: str, group: str | None, full: bool) -> None:
    """Show one trajectory, call or group: by Hone's id, the end of it, or the id that its caller gave."""
    found = run(context, lambda project: _find(project, object_id, group))
    from recorder.commands import transcript
    from recorder.views.trajectories.shapes import CallView, TrajectoryView

    kind = {TrajectoryView: "trajectory", CallView: "call"}.get(type(found.view), "group")
    if context.json:
        shown = {"kind": kind, kind: found.view, "score": found.score, "failed": found.failed}
        write_json(shown | ({"follow_ups": found.follow_ups} if kind == "trajectory" else {}))
    elif isinstance(found.view, TrajectoryView):
        about = (found.score, found.versions, found.follow_ups)
        print_shown(transcript.render_trajectory(found.view, *about, task=found.task, full=full))
    elif isinstance(found.view, CallView):
        print_shown(transcript.render_call(found.view, found.versions, full=full))
    else:
        print_shown(transcript.render_group(found.view, found.score, found.versions, found.task))
        if found.failed is not None:
            print_shown(clean_line(found.failed.sentence(), "yellow"))


@dataclass(frozen=True, slots=True)
class _NamedObject:
    """The object with an id, its group's current score, and the names of all versions."""

    view: TrajectoryView | CallView | GroupView
    score: StoredScore | None
    versions: dict[str, str]
    failed: JudgingFailure | None = None  # set if it is a group that could not be judged
    follow_ups: Sequence[FollowUp] = ()  # of a trajectory
    task: str | None = None  # of a trajectory or a group


async def _find(project: Project, object_id: str, group: str | None) -> _NamedObject:
    from recorder.registry.versions import get_versions
    from recorder.views.follow_ups.loader import load_follow_ups
    from recorder.views.lists.short_ids import expand_id
    from recorder.views.lists.titles import load_tasks
    from recorder.views.trajectories.transcripts import find_trajectory, load_group, trajectory_of_call

    names = {v.id: v.name for v in await get_versions(project)}
    object_id = await expand_id(project, object_id)
    of_call = await trajectory_of_call(project, object_id)
    if of_call is not None:
        home, score = await _trajectory_with_score(project.store, of_call)
        return _NamedObject(next(c for c in home.calls if c.id == object_id), score, names)
    try:
        view, score = await _trajectory_with_score(project.store, await find_trajectory(project, object_id, group))
        tasks = await load_tasks(project.store, runs=[view.id])
        follow_ups = await load_follow_ups(project.store, view)
        return _NamedObject(view, score, names, follow_ups=follow_ups, task=tasks.get(view.id))
    except NotFound:
        group_id = await _group_id(project, object_id)
    from recorder.views.status.judging import find_judging_failure

    found = await load_group(project.store, group_id)
    return _NamedObject(
        found,
        await _score(project.store, found.current_score_id),
        names,
        await find_judging_failure(project.store, found.id),
        task=(await load_tasks(project.store, groups=[found.id])).get(found.id),
    )


async def _trajectory_with_score(store: Store, trajectory_id: str) -> tuple[TrajectoryView, StoredScore | None]:
    from recorder.views.lists.groups import current_score_of
    from recorder.views.trajectories.transcripts import load_trajectory

    view = await load_trajectory(store, trajectory_id, with_tokens=True)
    return view, await _score(store, await current_score_of(store, view.group_id))


async def _group_id(project: Project, object_id: str) -> str:
    from recorder.queue.groups.lookup import find_group

    try:
        return await find_group(project, object_id)
    except NotFound as e:
        raise NotFound(
            f"no trajectory, call or group {object_id!r} in project {project.id!r}: "
            "`hone trajectories`, `hone groups` list them"
        ) from e


async def _score(store: Store, score_id: str | None) -> StoredScore | None:
    from recorder.queue.judging.scores import get_score

    return await get_score(store, score_id) if score_id else None


@click.command()
@click.option("--format", "form", type=click.Choice(["raw", "openai", "tools"]), default="raw", show_default=True)
@click.option("--trajectory", "trajectory_id", help="One trajectory only (its id).")
@click.option("--since", type=TimeParam(), help="Trajectories that began since: 24h, 7d, 2026-11-20 …")
@click.option("--dataset", metavar="NAME", help="Only trajectories of this dataset.")
@click.option(
    "--include",
    type=click.Choice(["gate", "shadow", "replay", "import"]),
    multiple=True,
    help="openai: include these trajectories too. Repeatable.",
)
@click.option("--min-reward", type=float, help="openai: only trajectories with at least this reward.")
@click.option(
    "--output", type=click.File("w", encoding="utf-8", lazy=True), default="-", help="File [standard output]."
)
@click.pass_obj
def export(
    context: Context,
    form: str,
    trajectory_id: str | None,
    since: float | None,
    dataset: str | None,
    include: tuple[str, ...],
    min_reward: float | None,
    output: TextIO,
) -> None:
    """Print JSON lines: one per call (raw), one per tool call (tools), or fine-tuning data (openai).

    Fine-tuning data are completed trajectories for training, of live traffic and campaigns. Held-out scenarios are
    never among them. The last line on standard error counts what was excluded, by reason.
    """
    if form != "openai" and (include or min_reward is not None):
        raise click.UsageError("--include and --min-reward choose fine-tuning data: add --format openai")

    async def write(project: Project) -> None:
        from recorder.curation.datasets import get_dataset
        from recorder.maintenance.export import ExportCounts, openai_lines, raw_lines, tool_lines
        from recorder.views.lists.short_ids import expand_id
        from recorder.views.trajectories.transcripts import find_trajectory

        named = await expand_id(project, trajectory_id) if trajectory_id else None
        one = await find_trajectory(project, named) if named else None
        if dataset is not None:
            await get_dataset(project, dataset)  # raises NotFound
        counts = ExportCounts()
        if form == "openai":
            lines = openai_lines(
                project,
                trajectory_id=one,
                since=since,
                dataset=dataset,
                include=include,
                min_reward=min_reward,
                counts=counts,
            )
        else:
            form_lines = {"raw": raw_lines, "tools": tool_lines}[form]
            lines = form_lines(project, trajectory_id=one, since=since, dataset=dataset)
        async for row in lines:
            output.write(to_json(row, compact=True) + "\n")
        if form == "openai":
            echo(counts.sentence(), err=True)

    run(context, write)


@click.command()
@click.argument("names", metavar="TRAJECTORY...", nargs=-1, required=True)
@click.option(
    "--group", help="The group part of the trajectory's address, if trajectories of several groups share an id."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(context: Context, names: tuple[str, ...], group: str | None, yes: bool) -> None:
    """Delete recorded trajectories for good: their calls, messages, tokens, scores and feedback.

    TRAJECTORY is Hone's id, the end of it, or the id that its caller gave; the last deletes everything recorded at that
    address.
    """
    ids = run(context, lambda project: _named(project, names, group))
    if not yes:
        confirm(f"Delete {len(ids)} trajectories ({', '.join(ids)}) for good?", abort=True, err=True)
    done, erased = run(context, lambda project: _delete(project, ids))
    if context.json:
        write_json({"deleted": done, "log_erased": erased})
        return
    for one in done:
        echo(f"Deleted {one.trajectory_id}: {one.calls} calls, {one.nodes} messages, {one.blobs} blobs.")
    if not erased:
        echo(
            "Open readers keep the store's log, which still contains the deleted bytes. Repeat the command when "
            "nothing reads the store.",
            err=True,
        )


async def _named(project: Project, names: tuple[str, ...], group: str | None) -> list[str]:
    from recorder.maintenance.deletion import trajectory_ids
    from recorder.views.lists.short_ids import expand_id

    wanted = [await expand_id(project, name) for name in names]
    found = [id_ for name in wanted for id_ in await trajectory_ids(project, name, group)]
    return list(dict.fromkeys(found))


async def _delete(project: Project, ids: list[str]) -> tuple[list[DeletionResult], bool]:
    from recorder.maintenance.deletion import delete_trajectory, erase_deleted_words

    try:
        done = [await delete_trajectory(project, id_) for id_ in ids]
    finally:
        erased = await erase_deleted_words(project.store)
    return done, erased


@click.command()
@click.argument("object_id", metavar="[ID]", required=False)
@click.option(
    "--kind", help="Only objects of this kind: trajectory, group, call, version, step, attempt, alias, client."
)
@click.option("--code", help="Only entries with this reason.")
@click.option("--counts", is_flag=True, help="Count the entries of each reason, by kind.")
@click.option("--trained", is_flag=True, help="Include what was trained on, which is most entries.")
@click.option("--since", type=TimeParam(), help="Only entries since: 24h, 7d, 2026-11-20 …")
@_limit
@click.pass_obj
def ledger(
    context: Context,
    object_id: str | None,
    kind: str | None,
    code: str | None,
    counts: bool,
    trained: bool,
    since: float | None,
    limit: int,
) -> None:
    """Show why things were excluded, refused or moved: one object, or the newest entries.

    The newest entries omit what was trained on, unless --trained is given.
    """
    if counts:
        _print_counts(context, kind, since)
        return

    async def read(project: Project) -> list[Any]:
        from recorder.store.ledger import latest_entries
        from recorder.views.lists.short_ids import expand_id

        named = None if object_id is None else await expand_id(project, object_id)
        asked_for = trained or object_id is not None or code is not None
        rows = await latest_entries(
            project,
            object_kind=kind,
            object_id=named,
            code=code,
            since=since,
            without=() if asked_for else _TRAINED,
            limit=limit,
        )
        clients = await _clients(project, since) if kind in (None, "client") else []
        wanted = [c for c in clients if named in (None, c.object_id) and code in (None, c.code)]
        return [*wanted, *rows][:limit]

    found = run(context, read)
    if context.json:
        write_json(found)
        return
    from recorder.views.lists.short_ids import shorten_id

    rows = [
        (format_time(e.at), e.object_kind, shorten_id(e.object_id), e.code, json.dumps(e.detail) if e.detail else "")
        for e in found
    ]
    show_table(("at", "kind", "object", "reason", "detail"), rows)
    for code_shown in sorted({e.code for e in found}):
        if (sentence := explain_reason(code_shown)) is not None:
            echo(f"{code_shown}: {sentence}")


async def _clients(project: Project, since: float | None) -> list[Entry]:
    """Return clients that cannot be trained on as rows of the ledger, which has no rows about clients."""
    from recorder.store.ledger import Entry
    from recorder.views.status.client_problems import find_untrainable_clients

    found = [one for one in await find_untrainable_clients(project) if since is None or one.at >= since]
    return [
        Entry(
            id=0,
            project_id=project.id,
            object_kind="client",
            object_id=one.client,
            code="never_trained",
            detail={"alias": one.alias, "calls": one.calls, "why": one.why(), "advice": one.advice()},
            at=one.at,
        )
        for one in found
    ]


def _print_counts(context: Context, kind: str | None, since: float | None) -> None:
    kinds = (kind,) if kind else ("trajectory", "group", "call", "version", "step", "attempt", "alias")

    async def read(project: Project) -> dict[str, dict[str, int]]:
        from recorder.store.ledger import count_codes

        found = {one: await count_codes(project, one, since) for one in kinds}
        return {one: codes for one, codes in found.items() if codes}

    found = run(context, read)
    if context.json:
        write_json(found)
        return
    rows = [(one, code, count, explain_reason(code)) for one, codes in found.items() for code, count in codes.items()]
    show_table(("kind", "reason", "objects", "meaning"), rows, right=("objects",))
