"""What `hone status` tells, as data: what runs and what is dead, what is in service, how learning stands, alarms.

Owns: putting it together from the store, run.json and the leases. Refuses: printing (`proxy.commands.status`).

Who is there is told by three things: a process number on this machine, a lease in force, and how long ago somebody was
heard of. What a dead controller wrote of its engines is not repeated as if it were so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from proxy.programs.run_file import left_behind, read_run_file
from recorder.holding import holders, leases
from recorder.reading.never_trained import never_trained
from recorder.reading.shadow_costs import shadow_costs
from recorder.reading.unattributed import ADVICE, unattributed
from recorder.registry import replicas
from recorder.registry.aliases import BY_HAND, AliasView, get_aliases
from recorder.registry.moves import list_moves
from recorder.registry.replicas import ProxyView, ReplicaView
from recorder.registry.versions import VersionView, get_versions
from recorder.settings import RecorderSettings
from recorder.store.database import Store
from recorder.telling.figures import Figures, figures
from recorder.telling.happenings import clock

RECENT_S: Final = 30.0  # engines and proxies are reported every ten seconds
DAY_S: Final = 86400.0
MOVES_LIVE: Final = ("gate", "promote", "rollback")
REMEMBERED_S: Final = 86400.0  # what was not heard of for longer is forgotten here

Json = dict[str, Any]


async def standing(store: Store, project: str, data: Path, settings: RecorderSettings) -> Json:
    """All that `hone status --json` prints."""
    found = await figures(store, project, settings)
    versions = {v.id: v for v in await get_versions(store, project)}
    engines = await replicas.list_replicas(store, project, REMEMBERED_S)
    proxies = await replicas.proxies_seen(store, project, REMEMBERED_S)
    there = await get_aliases(store, project)
    told: Json = {
        "data": str(data),
        "run": read_run_file(data),
        "killed": left_behind(data),
        "engines": [_engine(one, found.at) for one in engines],
        "proxies": [_proxy(one, found.at) for one in proxies],
        "workers": [_worker(lease, found.at) for lease in await leases.holders(store, project)],
        "aliases": [_alias(one, versions, found.at) for one in there],
        "taken_back": [one for alias in there if (one := await _taken_back(store, project, alias, found.at))],
        **_learning(found),
        "shadow_answers": [asdict(one) for one in await shadow_costs(store, project, found.at - DAY_S)],
        "never_trained": [
            {**asdict(one), "why": one.why(), "advice": one.advice()} for one in await never_trained(store, project)
        ],
        "attribution_missing": [{**asdict(one), "advice": ADVICE} for one in await unattributed(store, project)],
    }
    return told | {"alarms": list(alarms(told))}


def _engine(one: ReplicaView, at: float) -> Json:
    heard_s = at - one.seen_at
    return {
        "url": one.url,
        "state": one.state if heard_s <= RECENT_S else "unknown",
        "detail": one.detail,
        "loaded": one.loaded,
        "base_model": one.base_model,
        "heard_s_ago": heard_s,
    }


def _proxy(one: ProxyView, at: float) -> Json:
    heard_s = at - one.seen_at
    dead = holders.is_dead(one.id) or heard_s > RECENT_S
    return {
        "url": one.url,
        "process": one.id,
        "alive": not dead,
        "in_flight": sum(one.in_flight.values()),
        "heard_s_ago": heard_s,
    }


def _worker(lease: leases.Lease, at: float) -> Json:
    """A lease in force. One whose process is gone is in force until it runs out, or somebody takes it over."""
    alive = not holders.is_dead(lease.owner)
    return {"name": lease.name, "process": lease.owner, "alive": alive, "lease_left_s": lease.expires_at - at}


def _alias(one: AliasView, versions: Mapping[str, VersionView], at: float) -> Json:
    def name(version_id: str | None) -> str | None:
        found = versions.get(version_id or "")
        return found.name if found else None

    live = versions.get(one.live_version_id or "")
    return {
        "name": one.name,
        "live": name(one.live_version_id),
        "live_for_s": at - live.state_at if live else None,
        "previous": name(one.previous_version_id),
        "canary": name(one.canary_version_id),
        "canary_share": one.canary_share,
        "held_back_share": one.holdback_share if one.watched_until is not None else 0.0,
        "watched_for_s": one.watched_until - at if one.watched_until is not None else None,
        "generation": one.generation,
    }


async def _taken_back(store: Store, project: str, alias: AliasView, at: float) -> Json | None:
    """What the alias's runs took out of service, where nobody moved it since."""
    moves = [move for move in await list_moves(store, project, alias=alias.name) if move.move in MOVES_LIVE]
    if not moves or moves[0].move != "rollback" or moves[0].who == BY_HAND:
        return None
    return {"alias": alias.name, "live": moves[0].version, "for_s": at - moves[0].at, "why": moves[0].why}


def _learning(found: Figures) -> Json:
    there = found.waiting
    return {
        "calls_per_s": found.calls_per_s,
        "runs_open": there.runs_open,
        "groups": dict(there.groups),
        "groups_due_in_s": {state: there.in_s(state) for state in there.due},
        "waiting": there.sentence(),
        "trained": found.trained,
        "left_out": dict(found.left_out),
        "groups_left_out": dict(found.groups_left_out),
        "spent_today": asdict(found.spent_today),
        "rewards": [asdict(one) for one in found.rewards],
        "steps": [
            asdict(one) | {"ended_s_ago": found.at - one.ended_at if one.ended_at else None} for one in found.steps
        ],
        "gate": [asdict(one) | {"for_s": found.at - one.since} for one in found.undecided],
        "missing_parts": [asdict(one) for one in found.missing_parts],
        "unscored": [
            asdict(one) | {"next_in_s": None if one.next_at is None else max(0.0, one.next_at - found.at)}
            for one in found.troubles
        ],
    }


def alarms(told: Json) -> Iterator[str]:
    """What somebody should look at, as sentences."""
    if told["killed"]:
        yield "`hone up` was killed: run.json is there and its process is not. Start it again."
    for one in told["taken_back"]:
        ago = clock(one["for_s"])
        yield f"{one['live']} is live again since {ago}: {one['why']}. `hone versions --moves` has the figures"
    for one in told["engines"]:
        if one["state"] == "down":
            yield f"engine {one['url']} is down: {one['detail']}"
    for one in _dead(told["workers"]):
        yield f"{one['name']} is dead; its lease runs out in {clock(one['lease_left_s'])}"
    for one in told["unscored"]:
        again = "" if one["next_in_s"] is None else f", tried again in {clock(one['next_in_s'])}"
        yield f"{_groups(one['groups'])} could not be judged ({one['code']}{again}): {one['said']}"
    for one in told["missing_parts"]:
        yield f"reward {one['part']!r} is missing for {one['runs']} of the newest {one['of']} runs: {one['said']}"
    if told["groups"].get("ready") and not any(_is_judge(one) for one in told["workers"]):
        yield f"{_groups(told['groups']['ready'])} ready and no judge runs: start one with `hone judge`"
    for one in told["steps"]:
        if one["state"] == "abandoned":
            yield f"step {one['number']} of {one['alias']} was given up ({one['reason']})"


def _groups(number: int) -> str:
    return f"{number} group{'' if number == 1 else 's'}"


def _dead(workers: Sequence[Json]) -> list[Json]:
    return [one for one in workers if not one["alive"]]


def _is_judge(worker: Json) -> bool:
    return bool(worker["alive"]) and str(worker["name"]).startswith("judge:")
