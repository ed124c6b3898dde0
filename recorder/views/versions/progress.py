"""What an alias has learned: its newest versions with their measures, and one task before and after the live version.

Owns: which versions are shown, and choosing the task. Refuses: the measures (`recorder.views.versions.ancestry`,
`recorder.views.versions.rewards`), and what they mean (`recorder.views.status.answers`).

The status reads this often, so every read is bounded: a number of versions, of validations and of aliases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from recorder.registry.aliases import AliasView
from recorder.registry.moves import list_moves
from recorder.registry.versions import VersionView
from recorder.store.database import Project, Store
from recorder.views.campaigns.measures import Measure
from recorder.views.versions.ancestry import (
    find_gate_decision,
    load_validation_measures,
    measure_gate_success,
    measure_gate_wins,
)
from recorder.views.versions.rewards import VersionReward

if TYPE_CHECKING:
    from recorder.views.versions.before_after import SharedTask

SHOWN: Final = 12  # versions of an alias, the newest
PAIRS: Final = 4  # aliases that get a task before and after
_VALIDATIONS: Final = 200
_DECISIONS: Final = 20  # moves of a version
_UNNAMED: Final = "a task"  # it has neither a name nor a text


@dataclass(frozen=True, slots=True)
class VersionProgress:
    """The measures of one version.

    `in_line`: it is live, or an ancestor of the live version. `held_out`: at held-out scenarios, by a validation or its
    gate. `reward`: of the trajectories that it sampled. `gate`: the share of the gate's pairs that it won.
    """

    version: str
    state: str
    in_line: bool
    held_out: Measure | None
    reward: VersionReward | None
    gate: Measure | None

    @property
    def has_measure(self) -> bool:
        """Whether anything was measured that compares it with other versions."""
        return bool(self.held_out or self.gate or (self.reward is not None and not self.reward.relative))


@dataclass(frozen=True, slots=True)
class TaskPair:
    """A task that the live version and its parent both attempted, with the mean rewards of both.

    `key` names it on the page of the version `after`. `task`: its scenario or the beginning of its first message.
    `relative`: the rewards rank attempts of one group, and do not compare the versions.
    """

    before: str
    after: str
    key: str
    task: str
    reward_before: float | None
    reward_after: float | None
    relative: bool


@dataclass(frozen=True, slots=True)
class AliasProgress:
    """The newest versions of an alias, oldest first, and the task at which the live version changed most."""

    alias: str
    versions: Sequence[VersionProgress]
    pair: TaskPair | None = None


async def load_progress(
    project: Project, aliases: Sequence[AliasView], versions: Sequence[VersionView], rewards: Sequence[VersionReward]
) -> list[AliasProgress]:
    """Return the progress of each alias. `versions`: of all aliases; `rewards`: by version, those that are known."""
    by_id = {one.id: one for one in versions}
    of_version = {one.version: one for one in rewards}
    found = []
    for number, alias in enumerate(aliases):
        own = sorted((one for one in versions if one.alias_id == alias.id), key=lambda one: one.number)
        shown = await _measured(project, alias, own[-SHOWN:], {one.id for one in _line(alias, by_id)}, of_version)
        pair = await _pair(project.store, alias, by_id) if number < PAIRS else None
        found.append(AliasProgress(alias.name, shown, pair))
    return found


def _line(alias: AliasView, by_id: Mapping[str, VersionView]) -> Iterator[VersionView]:
    """Yield the live version and its ancestors."""
    one = by_id.get(alias.live_version_id or "")
    while one is not None:
        yield one
        one = by_id.get(one.parent_id or "")


async def _measured(
    project: Project,
    alias: AliasView,
    shown: Sequence[VersionView],
    line: set[str],
    rewards: Mapping[str, VersionReward],
) -> list[VersionProgress]:
    ids = [one.id for one in shown]
    decided = await list_moves(project, version_ids=ids, limit=_DECISIONS * len(ids) or 1)
    async with project.store.read() as conn:
        validated = await load_validation_measures(conn, alias.id, _VALIDATIONS)
    found = []
    for one in shown:
        checked = find_gate_decision(decided, one.id)
        held_out = validated.get(one.name) or measure_gate_success(checked)
        wins, reward = measure_gate_wins(checked), rewards.get(one.name)
        found.append(VersionProgress(one.name, one.state, one.id in line, held_out, reward, wins))
    return found


async def _pair(store: Store, alias: AliasView, by_id: Mapping[str, VersionView]) -> TaskPair | None:
    """Return the task with the largest change from the live version's parent; else one that was judged for both."""
    live = by_id.get(alias.live_version_id or "")
    parent = by_id.get(live.parent_id or "") if live is not None else None
    if live is None or parent is None:
        return None
    # only where a version was trained: its imports cost `hone status` some milliseconds
    from recorder.views.versions.before_after import list_shared_tasks

    judged = [one for one in await list_shared_tasks(store, parent, live) if _is_judged(one)]
    chosen = next((one for one in judged if not one.relative), next(iter(judged), None))
    if chosen is None:
        return None
    words = chosen.task or chosen.scenario or _UNNAMED
    rewards = (chosen.reward_before, chosen.reward_after)
    return TaskPair(parent.name, live.name, chosen.key, words, *rewards, chosen.relative)


def _is_judged(one: SharedTask) -> bool:
    return one.reward_before is not None and one.reward_after is not None
