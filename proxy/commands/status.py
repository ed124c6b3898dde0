"""`hone status` and `hone config`: running programs, versions in service, and the settings in force.

Owns: printing. Refuses: changing anything, and reading the store (`proxy.commands.status_view`). `hone status` works
with and without a running proxy, because it reads the store.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from proxy.errors import ConfigError
from recorder.base.terminal import (
    build_table,
    clean_line,
    echo,
    format_duration,
    format_number,
    percent,
    show,
    write_json,
)
from recorder.commands.context import Context, run

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from proxy.settings.hone import LoadedSettings
    from recorder.store.database import Project
    from recorder.views.status.stages import LoopSettings


VERSIONS_SHOWN: Final = 8  # of an alias, in its line of rewards

Row = tuple[str, tuple[str, ...]]  # what, and its cells


@click.command()
@click.argument("key", required=False)
@click.option("--preset", metavar="NAME", help="With the defaults of this preset, as `hone train --preset NAME`.")
@click.option("--set", "value", metavar="VALUE", help="Change KEY at run time, for all programs; '': not set.")
@click.option("--undo", is_flag=True, help="Undo the change of KEY: hone.toml, variables and flags hold again.")
@click.pass_obj
def config(context: Context, key: str | None, preset: str | None, value: str | None, undo: bool) -> None:
    """Show the settings in force and where each value came from. Secrets are masked.

    With a KEY (`judge.model`) or a section (`judge`), show only those, each with its description. `page`: the value was
    changed at run time, on the page Settings, by the API or by --set, and wins over all others. hone.toml is never
    written.
    """
    from proxy.commands.setting_changes import change_setting, load_with_changes

    if (value is not None or undo) and (key is None or (value is not None and undo)):
        raise click.UsageError("give --set or --undo, and the KEY that it changes.")
    context.override("campaign.preset", preset)
    if key is not None and (value is not None or undo):
        change_setting(context, key, value)
    loaded = load_with_changes(context)
    settings = _settings(loaded, key)
    if context.json:
        write_json({"file": str(loaded.file) if loaded.file else None, "settings": settings})
        return
    width = max(map(len, settings))
    for name, one in settings.items():
        line = f"{name:<{width}}  {json.dumps(one['value'], ensure_ascii=False)}"
        echo(line, *([] if one["from"] == "default" else ["  ", (f"<- {one['from']}", "cyan")]))
        if key is not None:
            echo(click.wrap_text(one["what"], initial_indent="    ", subsequent_indent="    "))


def _settings(loaded: LoadedSettings, prefix: str | None) -> dict[str, dict[str, Any]]:
    """Return the settings at or below a key, or all. Raises ConfigError if there are none."""
    from proxy.settings.display import describe_leaves, display_value

    matching = {
        key: {"value": display_value(key, value), "from": loaded.origin[key], "what": what}
        for key, value, what in describe_leaves(loaded.settings)
        if prefix is None or f"{key}.".startswith(f"{prefix}.")
    }
    if not matching:
        near = difflib.get_close_matches(prefix or "", loaded.origin, 1)
        hint = f"Did you mean {near[0]!r}?" if near else "`hone config` lists them."
        raise ConfigError(f"there is no setting {prefix!r}. {hint}")
    return matching


@click.command()
@click.pass_obj
def status(context: Context) -> None:
    """Show what runs on this data folder, which versions are in service, how learning goes, and what is wrong.

    `hone top` shows the most important of it, live.
    """
    settings = context.settings()

    async def read(project: Project) -> dict[str, Any]:
        from recorder.setting_changes.follower import SettingsFollower
        from recorder.views.status.stages import LoopSettings

        follower = SettingsFollower(project, settings)
        await follower.refresh()
        return await _read(project, settings.data, LoopSettings.current(follower))

    view = run(context, read)
    if context.json:
        write_json(view)
        return
    show(_table((*_running(view), *_learning(view), *_wrong(view))), folded=True)


def _table(rows: Iterable[Row]) -> Table:
    def cells(what: str, values: tuple[str, ...]) -> list[Text]:
        return [clean_line(what, "red" if what == "alarm" else ""), *map(clean_line, (*values, "")[:2])]

    return build_table(("", "", ""), (cells(*row) for row in rows), headed=False)


async def _read(project: Project, data: Path, settings: LoopSettings) -> dict[str, Any]:
    from proxy.commands.status_view import status_json

    return await status_json(project, data, settings)


def _pauses(pauses: dict[str, Any]) -> tuple[str, str]:
    """Return what pauses of the engine for training cost within the last hour, and when the next may begin."""
    spent = f"{pauses['pauses']} in the last hour, {format_duration(pauses['seconds'])} with refills"
    limit = f"{percent(pauses['share'])} of at most {percent(pauses['limit'])}"
    following = f", the next in {format_duration(pauses['free_in_s'])}" if pauses["free_in_s"] else ""
    return spent, limit + following


def _running(view: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows of programs and of versions in service."""
    yield "data", (view["data"],)
    yield "hone up", (_up(view),)
    for one in view["engines"]:
        since = f" (no report for {format_duration(one['last_seen_s'])})" if one["state"] == "unknown" else ""
        yield "engine", (f"{one['url']} {one['state']}{since}", one["detail"] or ", ".join(one["loaded"]))
    if view["pauses"] is not None:
        yield "pauses", _pauses(view["pauses"])
    for one in view["proxies"]:
        there = (
            f"{one['in_flight']} in flight"
            if one["alive"]
            else f"dead, last seen {format_duration(one['last_seen_s'])} ago"
        )
        yield "proxy", (one["url"], there)
    for one in view["workers"]:
        there = "alive" if one["alive"] else f"dead, its lease ends in {format_duration(one['lease_left_s'])}"
        yield "worker", (one["name"], there)
    for one in view["aliases"]:
        canary = f", canary {one['canary']} ({one['canary_share']:.0%})" if one["canary"] else ""
        since = "" if one["live_for_s"] is None else f" for {format_duration(one['live_for_s'])}"
        yield "alias", (one["name"], f"live {one['live']}{since}{canary}{_watched(one)}")


def _watched(alias: dict[str, Any]) -> str:
    if alias["watched_for_s"] is None:
        return ""
    watched = format_duration(alias["watched_for_s"])
    return f", {alias['holdback_share']:.0%} on {alias['previous']}, compared for {watched}"


def _up(view: dict[str, Any]) -> str:
    if view["run"]:
        return f"running (process {view['run']['pids']['up']}), {view['run']['proxy_url']}/v1"
    return "not running: it was killed" if view["killed"] else "not running"


def _learning(view: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows of recorded, scored and trained trajectories."""
    yield "traffic", (f"{view['calls_per_s']:.2g} calls/s, {view['open_trajectories']} open trajectories",)
    yield "groups", (_counts(view["groups"], ""),)
    yield "waiting", (view["waiting"],)
    for one in view["stages"]:
        yield one["stage"], (one["text"], one["alias"] or "")
    yield "trained", (f"{view['trained']} trajectories", _counts(view["excluded"], "excluded: "))
    yield "judge today", (_spending(view["spent_today"]),)
    for purpose, spent in view["spent_by_purpose"].items():
        yield "", (f"  {purpose}: {_spending(spent)}",)
    yield from _rewards(view)
    for one in view["shadow_answers"]:
        cost = f"{one['prompt_tokens']} tokens read and {one['sampled_tokens']} sampled in 24 h"
        yield "shadow answers", (f"{one['alias']}: {one['answers']}", cost)
    for one in view["steps"]:
        ago = "" if one["ended_s_ago"] is None else f" {format_duration(one['ended_s_ago'])} ago"
        made = one["version"] or one["reason"] or ""
        made += f", computed on {copy}" if (copy := one["metrics"].get("computed_on")) else ""
        yield "last step", (f"{one['alias']} {one['number']} {one['state']}{ago}", made)
    for one in view["campaigns"]:
        most = "" if one["steps"] is None else f" of at most {one['steps']}"
        measured = _measure(one["measured"][-1]) if one["measured"] else "nothing measured yet"
        yield "campaign", (f"{one['name']} ({one['alias']}): {one['steps_done']}{most} steps", measured)
    for one in view["gate"]:
        scenarios = f", its scenarios: {one['attempts']}" if one["attempts"] else ""
        yield "gate", (one["version"], f"{one['state']} for {format_duration(one['for_s'])}{scenarios}")


def _spending(spent: dict[str, Any]) -> str:
    cost = "price unknown" if spent["cost_usd"] is None else f"${spent['cost_usd']:.4f}"
    return f"{spent['groups']} groups, {spent['tokens']} tokens, {cost}"


def _rewards(view: dict[str, Any]) -> Iterator[Row]:
    """Yield rows of rewards: of the newest versions that can be compared, and of the newest one that cannot."""
    from proxy.commands.versions import RELATIVE, format_reward

    for alias, of_alias in groupby(view["rewards"], key=itemgetter("alias")):
        trend = list(of_alias)
        compared = [one for one in trend if not one["relative"]][-VERSIONS_SHOWN:]
        if compared:
            means = [f"{one['version'].rpartition('@')[2]}: {format_number(one['mean'])}" for one in compared[:-1]]
            newest = f"{compared[-1]['version'].rpartition('@')[2]}: {format_reward(compared[-1])}"
            yield "reward", (f"{alias} by version", ", ".join([*means, newest]))
        if trend[-1]["relative"]:
            text = format_reward(trend[-1]).removesuffix(f", {RELATIVE}")
            yield "reward", (f"{trend[-1]['version']}, {RELATIVE}", f"{text}; do not compare versions by it")


def _measure(newest: dict[str, Any]) -> str:
    """Return a campaign's newest measurement: mean, 95 % interval, number of attempts, and how many errored."""
    one = newest["measure"]
    format_value = format_number if one["kind"] == "reward" else percent
    interval = (
        f" ({format_value(one['interval']['low'])} to {format_value(one['interval']['high'])})"
        if one["interval"]
        else ""
    )
    of = "comparisons" if one["kind"] == "win rate" else "attempts"
    errored = f", {one['errored']} errored" if one["errored"] else ""
    return f"{one['kind']} {format_value(one['value'])}{interval} of {one['of']} {of}{errored} by {newest['version']}"


def _counts(by: dict[str, int], what: str) -> str:
    return what + ", ".join(f"{count} {code}" for code, count in by.items()) if by else ""


def _wrong(view: dict[str, Any]) -> Iterator[Row]:
    for one in view["never_trained"]:
        yield "never trained on", (f"{one['client']} ({one['alias']}): {one['why']}", one["advice"])
    for one in view["attribution_missing"]:
        what = f"{one['client']} ({one['alias']}): {one['calls']} calls, each a trajectory of its own"
        yield "attribution missing", (what, one["advice"])
    for alarm in view["alarms"]:
        yield "alarm", (alarm,)
