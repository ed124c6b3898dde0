"""`hone scenarios from-traffic`.

Owns: its flags, and how tasks print. Refuses: what a task is (`trainer.tasks.traffic`), replaying (`trainer.campaign`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recorder.base.json_output import write_json
from recorder.base.terminal import confirm, echo, show_table
from recorder.commands.context import Context
from trainer.commands.support import path_option

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings
    from recorder.content.redaction import Redaction
    from trainer.tasks.traffic import Opening, Tasks


@click.command("from-traffic")
@click.option("--alias", required=True, metavar="NAME", help="Tasks that this alias was asked.")
@click.option(
    "--where", "conditions", multiple=True, metavar="CONDITION",
    help="Of such runs only: reward<0.5, calls>=3, version=NAME@2, tag.team=billing. Repeatable: all must hold.",
)  # fmt: skip
@click.option("--replay", is_flag=True, help="With the run's own tools and their results, for `hone train --replay`.")
@click.option("--runs", default=2000, show_default=True, type=click.IntRange(1), help="Newest runs that are looked at.")
@path_option("--out", "JSONL file to write [they are only shown].")
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.pass_obj
def from_traffic(
    context: Context, alias: str, conditions: tuple[str, ...], replay: bool, runs: int, out: Path | None, yes: bool
) -> None:
    """Show what agents were first asked, as scenarios, and write them to a file for `hone train`.

    Your agent attempts them; with --replay Hone does, and tools are answered from the record, or not at all. Tasks that
    are nearly the same are one. What `recorder.redact` matches is marked, as in the record. With --json the file is
    written only with --yes.
    """
    from recorder.content.redaction import Redaction
    from trainer.campaign import replaying
    from trainer.tasks import scenarios as files
    from trainer.tasks import traffic

    settings = context.settings()
    redaction = Redaction(settings.recorder.redact)
    opening = replaying.opening if replay else traffic.opening_text
    tasks = asyncio.run(_tasks(settings, alias, conditions, redaction, opening, runs))
    found = replaying.scenarios(tasks.found, redaction) if replay else traffic.scenarios(tasks.found)
    if not context.json:
        _show_tasks(tasks)
        yes = yes or (out is not None and confirm(f"Write {len(found)} scenarios to {out}?"))
    written = out if yes else None
    if written is not None:
        files.write(written, found)
    if context.json:
        write_json(_tasks_as_json(tasks, written))
    elif written is not None:
        who = "--replay" if replay else "--agent …"
        echo(f"Wrote {written}: hone train --scenarios {written} --alias {alias} {who}")
    elif out is None:
        echo("Nothing was written: name a file with --out.")


async def _tasks(
    settings: HoneSettings, alias: str, conditions: Sequence[str], redaction: Redaction, opening: Opening, runs: int
) -> Tasks:
    from recorder.registry.aliases import get_alias
    from recorder.store.migrate import open_store
    from recorder.store.project import Project
    from trainer.tasks import traffic, wanted

    asked = [wanted.parse(text) for text in conditions]
    store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    try:
        await get_alias(Project(store, settings.project), alias)  # raises NotFound, with the names that there are
        return await traffic.tasks_of(
            Project(store, settings.project), alias, asked, redaction, runs=runs, opening=opening
        )
    finally:
        await store.close()


def _show_tasks(tasks: Tasks) -> None:

    rows = [(task.run.id, task.runs, task.text) for task in tasks.found]
    show_table(("scenario", "runs", "task"), rows, right=("runs",))
    counted = [f"{tasks.looked_at} runs gave {len(tasks.found)} tasks"]
    counted += [f"{count} runs {why}" for why, count in sorted(tasks.passed_over.items())]
    echo("; ".join(counted) + ".")


def _tasks_as_json(tasks: Tasks, written: Path | None) -> dict[str, Any]:
    return {
        "scenarios": [{"id": task.run.id, "input": task.text, "runs": task.runs} for task in tasks.found],
        "runs": tasks.looked_at,
        "passed_over": {str(why): count for why, count in tasks.passed_over.items()},
        "written": str(written) if written is not None else None,
    }
