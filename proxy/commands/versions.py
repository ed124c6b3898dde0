"""`hone versions`, `promote`, `canary`, `rollback`: the versions of an alias, and decisions about them.

Owns: reading arguments and printing. Refuses: the decisions themselves (`recorder.registry.alias_moves` guards them).
The commands work with and without a running proxy, because a proxy follows the store.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from proxy.commands import completion
from recorder.base.terminal import (
    build_table,
    clean_line,
    clock_or_date,
    confirm,
    echo,
    format_number,
    show,
    show_lines,
    write_json,
    write_json_line,
)
from recorder.commands.context import Context, run

if TYPE_CHECKING:
    from rich.text import Text

    from proxy.api.actions import MovedAlias
    from recorder.registry.aliases import AliasView
    from recorder.registry.versions import VersionView
    from recorder.store.database import Project
    from recorder.views.versions.detail import VersionDetail
    from recorder.views.versions.evidence import Decision
    from recorder.views.versions.rewards import VersionReward

RELATIVE: Final = "relative to its groups"  # said of a reward by which versions cannot be compared
_METRICS = {"kl": "kl_engine", "tokens": "tokens"}  # column → the trainer's name of the figure of its step
_PADDING = (0, 1)


@click.command()
@click.argument("alias", required=False, shell_complete=completion.aliases)
@click.option("--moves", is_flag=True, help="Show decisions about versions instead: time, author, reason and evidence.")
@click.pass_obj
def versions(context: Context, alias: str | None, moves: bool) -> None:
    """List the versions of ALIAS, or of every alias, newest first; or show one version (helpdesk@3).

    The reward is the mean over the trajectories that the version sampled, with a 95 % interval. Of one version, show
    its evidence, the held-out tasks at which it beats its parent and at which it loses, and what it was trained on.
    """
    if alias is not None and "@" in alias and not moves:
        _print_version(context, run(context, lambda project: _version(project, alias)))
        return
    if moves:
        _print_moves(context, run(context, lambda project: _moves(project, alias)))
        return
    listed = run(context, lambda project: _versions(project, alias))
    if context.json:
        write_json([_version_json(one, version) for one in listed for version in one.versions])
        return
    for one in listed:
        columns = ("version", "state", "parent", "verified", "since", "reward", *_METRICS, "reason")
        show(build_table(columns, (_row(one, v) for v in one.versions), padding=_PADDING), folded=True)


@dataclass(frozen=True, slots=True)
class _AliasVersions:
    """The versions of an alias, and the rewards of those that have one, by id."""

    alias: AliasView
    versions: list[VersionView]
    rewards: Mapping[str, VersionReward]

    def parent_of(self, version: VersionView) -> str:
        """Return the name of a version's parent, "" without one."""
        return next((one.name for one in self.versions if one.id == version.parent_id), "")


def _row(of: _AliasVersions, version: VersionView) -> list[Text]:
    reward = of.rewards.get(version.id)
    figures = [_figure(version.metrics.get(name)) for name in _METRICS.values()]
    cells = (
        of.parent_of(version),
        version.verified or "",
        clock_or_date(version.state_at),
        format_reward(asdict(reward)) if reward is not None else "",
        *figures,
        version.reason or "",
    )
    return [clean_line(version.name), clean_line(*_state(of.alias, version)), *map(clean_line, cells)]


async def _versions(project: Project, alias: str | None) -> list[_AliasVersions]:
    from recorder.registry.aliases import get_alias, get_aliases
    from recorder.registry.versions import list_versions
    from recorder.views.versions.rewards import load_rewards

    listed = []
    for one in [await get_alias(project, alias)] if alias else await get_aliases(project):
        its_versions = await list_versions(project.store, one.id)
        async with project.store.read() as conn:
            listed.append(_AliasVersions(one, its_versions, await load_rewards(conn, [v.id for v in its_versions])))
    return listed


async def _version(project: Project, name: str) -> VersionDetail:
    from recorder.views.versions.detail import version_detail

    return await version_detail(project, name)


def _print_version(context: Context, detail: VersionDetail) -> None:
    from proxy.commands.version_view import version_lines

    if context.json:
        write_json(detail)
    else:
        show_lines(version_lines(detail))


async def _moves(project: Project, alias: str | None) -> list[Decision]:
    from recorder.registry.aliases import get_alias
    from recorder.views.versions.evidence import list_decisions

    one = await get_alias(project, alias) if alias else None
    return await list_decisions(project, alias=one.name if one else None)


def _print_moves(context: Context, moves: list[Decision]) -> None:
    if context.json:
        write_json([asdict(move) for move in moves])
        return
    columns = ("when", "version", "move", "who", "why", "evidence")
    show(build_table(columns, map(_move_row, moves), padding=_PADDING), folded=True)


def _move_row(move: Decision) -> list[Text]:
    figures = " ".join(f"{name}={_figure(value) or value}" for name, value in move.figures.items())
    evidence = " ".join(map(str, move.evidence)) or figures
    cells = (clock_or_date(move.at), move.version, move.move, move.who or "", move.why or "", evidence)
    return [clean_line(cell) for cell in cells]


@click.command()
@click.argument("version", shell_complete=completion.versions)
@click.option("--alias", help="The alias, if there are several.", shell_complete=completion.aliases)
@click.option("--why", help="The reason. It is stored with the decision.")
@click.pass_obj
def promote(context: Context, version: str, alias: str | None, why: str | None) -> None:
    """Make VERSION live: its number or name (helpdesk@3)."""
    from proxy.api import actions

    _print_move(context, run(context, lambda project: actions.promote_version(project, version, alias, why=why)))


@click.command()
@click.argument("version", shell_complete=completion.versions)
@click.argument("percent", type=click.FloatRange(0, 100))
@click.option("--alias", help="The alias, if there are several.", shell_complete=completion.aliases)
@click.option("--why", help="The reason. It is stored with the decision.")
@click.pass_obj
def canary(context: Context, version: str, percent: float, alias: str | None, why: str | None) -> None:
    """Give VERSION (its number or name) PERCENT of new groups, which makes it the canary.

    `hone rollback` removes it, `hone promote` makes it live.
    """
    from proxy.api import actions

    part = percent / 100
    after = run(context, lambda project: actions.set_share(project, version, part, alias, why=why))
    name = f"{after.name}@{version.rpartition('@')[2]}"
    if context.json:
        write_json_line({"alias": after.name, "canary": name, "share": after.canary_share})
    else:
        echo(f"{name} gets {percent:g}% of new groups")


@click.command()
@click.argument("alias", required=False, shell_complete=completion.aliases)
@click.option("--why", help="The reason. It is stored with the decision.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def rollback(context: Context, alias: str | None, why: str | None, yes: bool) -> None:
    """Remove the canary of ALIAS; without a canary, return to the version that was live before.

    Running trajectories move at once. In a terminal the command asks first.
    """
    from proxy.api import actions

    if not (yes or context.json) and in_terminal():
        confirm(run(context, lambda project: _rollback_question(project, alias)), abort=True, err=True)
    _print_move(context, run(context, lambda project: actions.roll_back_alias(project, alias, why=why)))


def in_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty()


async def _rollback_question(project: Project, named: str | None) -> str:
    from proxy.api import actions
    from recorder.registry.versions import get_version
    from recorder.views.versions.ancestry import load_ancestry_version
    from recorder.views.versions.detail import load_evidence

    alias = await actions.get_alias(project, named)
    leaves = alias.canary_version_id or alias.live_version_id
    if leaves is None:
        return f"Roll {alias.name} back?"
    version = await load_ancestry_version(project.store, alias, await get_version(project.store, leaves))
    evidence = [f"  {one}\n" for one in await load_evidence(project, version)]
    told = f"{version.name}:\n{''.join(evidence)}" if evidence else ""
    if alias.canary_version_id is not None:
        return f"{told}Remove the canary {version.name}?"
    return f"{told}Take {version.name} back, and make the version before it live?"


def _print_move(context: Context, moved: MovedAlias) -> None:
    before, after = moved.previous, moved.live
    if context.json:
        write_json_line({"alias": after.alias_name, "live": after.name, "previous": before})
    else:
        echo(f"{after.name} is live" + (f" (replaces {before})" if before and before != after.name else ""))


def _version_json(of: _AliasVersions, version: VersionView) -> dict[str, Any]:
    reward = of.rewards.get(version.id)
    shown = (
        "name",
        "number",
        "state",
        "reason",
        "engine_name",
        "path",
        "verified",
        "metrics",
        "created_at",
        "state_at",
    )
    return {
        "alias": of.alias.name,
        **{name: getattr(version, name) for name in shown},
        "reward": None if reward is None else asdict(reward),
        "parent_id": version.parent_id,
        "id": version.id,
        "live": version.id == of.alias.live_version_id,
    }


def _state(alias: AliasView, version: VersionView) -> tuple[str, str]:
    """Return a version's state as text, and its colour."""
    colours = {"live": "bold green", "canary": "yellow", "rejected": "red", "abandoned": "dim", "retired": "dim"}
    shares = {alias.canary_version_id: alias.canary_share}
    if alias.watched_until is not None:
        shares[alias.previous_version_id] = alias.holdback_share
    share = f" {shares[version.id]:.0%}" if version.id in shares else ""
    colour = colours.get(version.state, "default")
    return f"{version.state}{share}", colour


def format_reward(reward: Mapping[str, Any]) -> str:
    """Return a version's reward as text: the mean, its 95 % interval, and whether it is relative to its groups."""
    low_high = reward["interval"]
    interval = f" ({format_number(low_high['low'])} to {format_number(low_high['high'])})" if low_high else ""
    return f"{format_number(reward['mean'])}{interval}" + (f", {RELATIVE}" if reward["relative"] else "")


def _figure(value: object) -> str:
    return format_number(value, ".4g") if isinstance(value, int | float) else ""
