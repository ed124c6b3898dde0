"""Campaigns: training over a list of scenarios that Hone attempts itself.

Owns: campaigns, their scenarios, the groups bound to a scenario before their first call, and evaluations, which are
rows of the same table and train nothing. Refuses: single attempts (`recorder.queue.attempts`), requests of gates (also
rows of this table, `recorder.queue.gate_requests`), running agents (trainer).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from sqlalchemy import Select, and_, exists, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound
from recorder.ids import check_external, new_id
from recorder.queue.step_membership import is_of_step
from recorder.states import CampaignState, GroupState, Purpose
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import aliases, attempts, campaigns, groups, leases, scenarios
from recorder.store.sql import now
from recorder.store.transitions import move_state

Split = Literal["train", "val", "test"]

EVALUATES: Final = "evaluates"  # a key in an evaluation's settings: what it compares (`trainer.evaluation`)
_EVALUATES: Final = campaigns.c.settings[EVALUATES].as_string().is_not(None)
TRAINS: Final = and_(campaigns.c.version_id.is_(None), ~_EVALUATES)  # else a gate's request or an evaluation
_PAGE: Final = 200  # scenarios per SELECT
# Columns of a group that determine its judge recipe: its alias's name, and its campaign's recipe, if any.
ALIAS: Final = select(aliases.c.name).where(aliases.c.id == groups.c.alias_id).scalar_subquery().label("alias")
# The key of the judge recipe in a campaign's stored settings, as earlier releases wrote it.
_OLDER_JUDGE_RECIPE: Final = "reward_recipe"
_JUDGE_RECIPE: Final = "judge_recipe"
_OLDER_RULE: Final = "kl_engine"  # a health rule of earlier releases; the rule that replaced it has another unit
NAMED_RECIPE: Final = func.coalesce(
    campaigns.c.settings[_JUDGE_RECIPE].as_string(), campaigns.c.settings[_OLDER_JUDGE_RECIPE].as_string()
)
REWARD_RECIPE: Final = (
    select(NAMED_RECIPE).where(campaigns.c.id == groups.c.campaign_id).scalar_subquery().label("judge_recipe")
)


@dataclass(frozen=True, slots=True)
class CampaignView:
    """One campaign. `steps_done` counts its finished steps; times are unix seconds."""

    id: str
    project_id: str
    alias_id: str
    name: str
    settings: dict[str, Any]
    state: CampaignState
    reason: str | None
    steps_done: int
    started_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class NewScenario:
    """One task to attempt: the user's id for it, the agent's input, and the judge's reference.

    `adversarial`: it tempts the agent to cheat.
    """

    external_id: str
    input: Any
    reference: Any = None
    rubric: Any = None
    adversarial: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """One task of a campaign, as stored."""

    id: str
    campaign_id: str
    external_id: str
    split: Split
    input: Any
    reference: Any
    rubric: Any
    adversarial: bool


@dataclass(frozen=True, slots=True)
class GroupBinding:
    """A group to create for a scenario before its first call."""

    group_external_id: str
    scenario_id: str
    declared_size: int


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The facts of a campaign's group that its runner needs. `try_after`: unix seconds."""

    group_id: str
    external_id: str
    scenario_external_id: str
    state: GroupState
    reason: str | None
    tries: int
    try_after: float | None
    current_score_id: str | None
    version_id: str | None
    adversarial: bool = False  # its scenario tempts the agent to cheat


async def create_campaign(project: Project, alias_id: str, name: str, settings: Mapping[str, Any]) -> CampaignView:
    """Begin a campaign, and return it."""
    campaign_id = new_id("camp")
    statement = insert(campaigns).values(
        id=campaign_id,
        project_id=project.id,
        alias_id=alias_id,
        name=name,
        settings=dict(settings),
        state=CampaignState.RUNNING,
        started_at=now(),
    )
    async with project.store.write() as conn:
        await conn.execute(statement)
        return await _one(conn, campaign_id)


async def get_campaign(store: Store, campaign_id: str) -> CampaignView:
    """Return one campaign. Raises NotFound."""
    async with store.read() as conn:
        return await _one(conn, campaign_id)


async def find_campaign(project: Project, name: str) -> CampaignView | None:
    """Return the newest campaign of that name, or None."""
    query = select(campaigns).where(campaigns.c.project_id == project.id, campaigns.c.name == name, TRAINS)
    async with project.store.read() as conn:
        row = (await conn.execute(query.order_by(campaigns.c.started_at.desc(), campaigns.c.id.desc()))).first()
    return campaign_view(row) if row else None


async def list_campaigns(project: Project) -> list[CampaignView]:
    """Return the project's campaigns, newest first."""
    query = select(campaigns).where(campaigns.c.project_id == project.id, TRAINS)
    async with project.store.read() as conn:
        rows = await conn.execute(query.order_by(campaigns.c.started_at.desc(), campaigns.c.id.desc()))
        return [campaign_view(row) for row in rows]


async def unfinished_evaluations(store: Store, alias_id: str) -> list[CampaignView]:
    """Return the unfinished evaluations of an alias's versions, newest first."""
    query = select(campaigns).where(
        campaigns.c.alias_id == alias_id, _EVALUATES, campaigns.c.state != CampaignState.FINISHED
    )
    async with store.read() as conn:
        rows = await conn.execute(query.order_by(campaigns.c.started_at.desc(), campaigns.c.id.desc()))
        return [campaign_view(row) for row in rows]


def lease_name(campaign_id: str) -> str:
    """Return the name of the lease that a campaign's process holds."""
    return f"campaign:{campaign_id}"


async def list_running(store: Store, alias_id: str) -> list[CampaignView]:
    """Return the campaigns that run on an alias now: the learner does not train the alias meanwhile."""
    held = exists().where(
        leases.c.project_id == campaigns.c.project_id,
        leases.c.name == literal(lease_name("")) + campaigns.c.id,
        leases.c.lease_owner.is_not(None),
        leases.c.lease_expires_at > now(),
    )
    query = select(campaigns).where(campaigns.c.alias_id == alias_id, held, TRAINS).order_by(campaigns.c.id)
    async with store.read() as conn:
        return [campaign_view(row) for row in await conn.execute(query)]


async def finish_campaign(
    store: Store, campaign_id: str, state: CampaignState, reason: str | None = None
) -> CampaignView:
    """End a campaign: finished, stopped or failed. Raises Conflict if it does not run."""
    async with store.write() as conn:
        await move_state(conn, campaigns, campaign_id, state, reason=reason, ended_at=now())
        return await _one(conn, campaign_id)


async def set_settings(store: Store, campaign_id: str, settings: Mapping[str, Any]) -> None:
    """Store the settings with which a campaign continues."""
    statement = update(campaigns).where(campaigns.c.id == campaign_id).values(settings=dict(settings))
    async with store.write() as conn:
        await conn.execute(statement)


async def resume_campaign(store: Store, campaign_id: str) -> CampaignView:
    """Set a stopped or failed campaign to running; a campaign whose process died is still running. Raises Conflict."""
    async with store.write() as conn:
        if (await _one(conn, campaign_id)).state != CampaignState.RUNNING:
            await move_state(conn, campaigns, campaign_id, CampaignState.RUNNING, reason=None, ended_at=None)
        return await _one(conn, campaign_id)


async def add_scenarios(store: Store, campaign_id: str, split: Split, tasks: Iterable[NewScenario]) -> None:
    """Write scenarios; existing scenarios of the campaign are not changed."""
    campaign = await get_campaign(store, campaign_id)
    common = {"project_id": campaign.project_id, "campaign_id": campaign_id, "split": split}
    listed = list(tasks)
    ids = sorted(new_id("scen") for _ in listed)  # sorted: `list_scenarios` keeps the user's order
    rows = [{"id": id_, **common, **asdict(task)} for id_, task in zip(ids, listed, strict=True)]
    for row in rows:
        check_external(row["external_id"], "the scenario id")
    if rows:
        async with store.write() as conn:
            await conn.execute(sql.insert_ignore(conn, scenarios), rows)


async def list_scenarios(store: Store, campaign_id: str, split: Split) -> list[Scenario]:
    """Return a campaign's scenarios of one split, in the order in which they were added."""
    query = select(scenarios).where(scenarios.c.campaign_id == campaign_id, scenarios.c.split == split)
    async with store.read() as conn:
        return sql.as_views(Scenario, await conn.execute(query.order_by(scenarios.c.id)))


async def load_rubrics(store: Store, scenario_ids: Collection[str]) -> dict[str, Any]:
    """Return rubrics by scenario id; missing scenarios are omitted."""
    found: dict[str, Any] = {}
    ids = sorted(scenario_ids)
    for page in (ids[at : at + _PAGE] for at in range(0, len(ids), _PAGE)):
        async with store.read() as conn:
            rows = await conn.execute(select(scenarios.c.id, scenarios.c.rubric).where(scenarios.c.id.in_(page)))
            found |= {row.id: row.rubric for row in rows}
    return found


def list_group_ids(campaign: CampaignView) -> Select[tuple[str]]:
    """The query for the ids of a campaign's groups, by the names in its attempts: groups have no index by campaign."""
    names = select(attempts.c.group_external_id).where(attempts.c.campaign_id == campaign.id)
    return select(groups.c.id).where(
        groups.c.project_id == campaign.project_id,
        groups.c.external_id.in_(names),
        groups.c.campaign_id == campaign.id,
    )


async def bind_groups(project: Project, campaign_id: str, alias_id: str, bindings: Sequence[GroupBinding]) -> list[str]:
    """Create declared groups before their first calls, each tied to its scenario; returns their ids, in order.

    All or none, in one transaction. Binding again changes nothing. Raises InvalidId, and Conflict if a group of that
    name is bound to something else.
    """
    for binding in bindings:
        check_external(binding.group_external_id, "the group")
        if binding.declared_size < 1:
            raise ValueError(f"a group's size must be at least 1, not {binding.declared_size}")
    if not bindings:
        return []
    rows = [_group_row(project.id, campaign_id, alias_id, binding) for binding in bindings]
    async with project.store.write() as conn:
        at = await sql.current_time(conn)
        times = dict.fromkeys(("opened_at", "joined_at", "last_call_at"), at)
        await conn.execute(sql.insert_ignore(conn, groups), [row | times for row in rows])
        return await _bound(conn, project.id, campaign_id, bindings)


def _group_row(project_id: str, campaign_id: str, alias_id: str, binding: GroupBinding) -> dict[str, Any]:
    return {
        "id": new_id("group"),
        "project_id": project_id,
        "alias_id": alias_id,
        "external_id": binding.group_external_id,
        "declared_size": binding.declared_size,
        "state": GroupState.OPEN,
        "campaign_id": campaign_id,
        "scenario_id": binding.scenario_id,
        "made_by": campaign_id,
    }


async def _bound(
    conn: AsyncConnection, project_id: str, campaign_id: str, bindings: Sequence[GroupBinding]
) -> list[str]:
    """Return the groups' ids. Raises Conflict if a group that existed before is bound to something else."""
    wanted = {binding.group_external_id for binding in bindings}
    query = select(groups.c.id, groups.c.external_id, groups.c.campaign_id, groups.c.scenario_id).where(
        groups.c.project_id == project_id, groups.c.external_id.in_(wanted), groups.c.sequence == 0
    )
    found = {row.external_id: row for row in await conn.execute(query)}
    for binding in bindings:
        row = found[binding.group_external_id]
        if (row.campaign_id, row.scenario_id) != (campaign_id, binding.scenario_id):
            raise Conflict(
                f"group {binding.group_external_id!r} exists already, for {row.campaign_id or 'no campaign'} and "
                f"{row.scenario_id or 'no scenario'}: use another group id"
            )
    return [str(found[binding.group_external_id].id) for binding in bindings]


async def group_states(store: Store, campaign_id: str, step_number: int, purpose: Purpose) -> list[GroupStatus]:
    """Return the groups of a step's attempts, by external id."""
    of_step = select(attempts.c.group_external_id).where(
        is_of_step(campaign_id, step_number), attempts.c.purpose == purpose
    )
    query: Select[Any] = (
        select(
            groups.c.id.label("group_id"),
            groups.c.external_id,
            scenarios.c.external_id.label("scenario_external_id"),
            groups.c.state,
            groups.c.reason,
            groups.c.tries,
            groups.c.try_after,
            groups.c.current_score_id,
            groups.c.version_id,
            scenarios.c.adversarial,
        )
        .join(scenarios, scenarios.c.id == groups.c.scenario_id)
        .join(campaigns, and_(campaigns.c.id == campaign_id, campaigns.c.project_id == groups.c.project_id))
        .where(groups.c.external_id.in_(of_step), groups.c.campaign_id == campaign_id)
        .order_by(groups.c.external_id)
    )
    async with store.read() as conn:
        rows = await conn.execute(query)
        return [sql.as_view(GroupStatus, row, state=GroupState(row.state)) for row in rows]


async def _one(conn: AsyncConnection, campaign_id: str) -> CampaignView:
    row = (await conn.execute(select(campaigns).where(campaigns.c.id == campaign_id))).first()
    if row is None:
        raise NotFound(f"no campaign {campaign_id}")
    return campaign_view(row)


def campaign_view(row: Any) -> CampaignView:
    """Return a campaign's row as a view. Settings with an older key get the current key."""
    settings = {_JUDGE_RECIPE if key == _OLDER_JUDGE_RECIPE else key: value for key, value in row.settings.items()}
    if isinstance(rules := settings.get("health"), Mapping):
        settings["health"] = {name: rule for name, rule in rules.items() if name != _OLDER_RULE}
    return sql.as_view(CampaignView, row, state=CampaignState(row.state), settings=settings)
