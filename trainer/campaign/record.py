"""A campaign in the store: its row, its lease, its events and its summary.

Owns: creating or resuming the row, the settings that may not change later, the lease of a campaign and of its attempts,
marking an early end, and writing events to the ledger. Refuses: running a campaign (`trainer.campaign.loop`), the
classes of events and reading them back (`recorder.views.campaigns`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recorder.errors import Conflict, RecorderError, StoreUnavailable
from recorder.ids import check_external
from recorder.queue import attempts as store_attempts
from recorder.queue import campaigns, leases
from recorder.queue.campaigns import CampaignView, NewScenario, Split
from recorder.registry.aliases import AliasView
from recorder.settings import RecorderSettings
from recorder.states import CampaignState
from recorder.store import ledger
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.views.campaigns.events import CampaignEnded, CampaignEvent, StepDone, Validation, encode_event
from recorder.views.campaigns.history import CampaignHistory
from recorder.views.campaigns.measures import count_measured
from trainer.agents import answer
from trainer.campaign.stop_rules import StopCode, StopDecision
from trainer.campaign_settings import CampaignSettings
from trainer.errors import CampaignBusy, CampaignError, TrainerError
from trainer.progress import Notice, Progress
from trainer.step.lease_renewer import LeaseRenewer
from trainer.tasks import selection
from trainer.tasks.scenarios import Scenario

# Settings that stay as they were when the campaign began, so that its steps are comparable. After a pause the judge
# recipe may change.
SHAPE = (
    "seed", "split", "adversarial_share", "group_size", "scenarios_per_step", "choose", "explore_share", "refill",
    "val_attempts", "baselines", "beat", "judge_recipe",
)  # fmt: skip

_RENEWALS_A_LEASE = 3  # of the attempts
HICCUP_S = 1.0  # until the store is tried again


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """A campaign to run. `train` None: the scenarios are those in the store."""

    name: str  # valid as the name of a folder
    settings: CampaignSettings
    train: Sequence[Scenario] | None
    val: Sequence[Scenario]
    test: Sequence[Scenario] = ()
    fresh: bool = False  # create a new campaign even if one of that name is unfinished
    validates: bool = False  # there are scenarios to validate with, here or in the store

    @property
    def parts(self) -> dict[Split, Sequence[Scenario]]:
        """The scenarios of each part, the training part last."""
        return {"test": self.test, "val": self.val, "train": self.train or ()}


def plan_campaign(settings: CampaignSettings, *, fresh: bool = False) -> CampaignPlan:
    """Check the settings and read the scenario files.

    Raises `CampaignError` for missing settings, `ScenariosInvalid`, and `InvalidId` for the name.
    """
    if settings.scenarios is None:
        raise CampaignError("no scenarios: name a JSONL file with --scenarios or campaign.scenarios")
    require_agent(settings)
    found = selection.read_parts(settings, settings.scenarios)
    if not settings.adversarial_share and all(scenario.adversarial for scenario in found["train"]):
        raise CampaignError(
            "nothing to train on: all training scenarios are adversarial, and campaign.adversarial_share is 0"
        )
    name = check_external(settings.name or settings.scenarios.stem, "the campaign's name (--name)")
    val, test = found.get("val", []), found.get("test", [])
    return CampaignPlan(name, _anywhere(settings), found["train"], val, test, fresh, validates=bool(val))


def _anywhere(settings: CampaignSettings) -> CampaignSettings:
    """The settings with absolute paths, so that the campaign can be resumed from another folder."""
    names = ("python", "scenarios", "val_scenarios", "test_scenarios")
    paths: dict[str, Path | None] = {name: getattr(settings, name) for name in names}
    # not resolved: a virtual environment's Python is a link
    absolute = {name: path.absolute() for name, path in paths.items() if path is not None}
    return settings.model_copy(update={**absolute, "cwd": (settings.cwd or Path()).absolute()})


async def load_plan(
    data: Path, recorder: RecorderSettings, project: str, name: str, given: Mapping[str, Any]
) -> CampaignPlan:
    """The plan of an unfinished campaign, by name or id; settings `given` now take precedence.

    Raises `CampaignError` if there is none.
    """
    store = await open_store(data, recorder, migrate=False, project=project)
    try:
        listed = await campaigns.list_campaigns(Project(store, project))
        found = next((c for c in listed if name in (c.name, c.id)), None)
        validates = found is not None and bool(await campaigns.list_scenarios(store, found.id, "val"))
    finally:
        await store.close()
    if found is None or found.state is CampaignState.FINISHED:
        open_ones = ", ".join(c.name for c in listed if c.state is not CampaignState.FINISHED) or "none"
        what = "there is no such campaign" if found is None else f"it is finished ({found.reason})"
        raise CampaignError(f"campaign {name!r} cannot be resumed: {what}. Unfinished: {open_ones}")
    settings = CampaignSettings.model_validate({**found.settings, **given})
    require_agent(settings)
    return CampaignPlan(found.name, settings, None, [], validates=validates)


def require_agent(settings: CampaignSettings) -> None:
    """Raise `CampaignError` if no agent is set."""
    if not settings.agent and not settings.replay:
        raise CampaignError(
            "no agent: give `module:function` or a shell command with --agent or campaign.agent; it finds its model at "
            "task.base_url, or at OPENAI_BASE_URL"
        )
    if (settings.agent or "").startswith("hone:") and settings.agent != answer.NAME:
        raise CampaignError(f"Hone has no agent {settings.agent!r}: {answer.NAME!r} is its only agent (campaign.agent)")


async def begin_or_find(store: Store, alias: AliasView, plan: CampaignPlan, progress: Progress) -> CampaignView:
    """The campaign's row: the unfinished one of that name, or a new one with its scenarios.

    Raises `CampaignError` if a fixed setting has changed.
    """
    found = None if plan.fresh else await campaigns.find_campaign(Project(store, alias.project_id), plan.name)
    if found is None or (found.state is CampaignState.FINISHED and plan.train is not None):
        campaign = await campaigns.create_campaign(
            Project(store, alias.project_id), alias.id, plan.name, plan.settings.model_dump(mode="json")
        )
        for part, tasks in plan.parts.items():
            await campaigns.add_scenarios(store, campaign.id, part, new_scenarios(tasks))
        return campaign
    await _require_same(store, found, alias, plan)
    progress.tell(Notice(f"resuming campaign {found.name!r} ({found.id}), which was {found.state}"))
    return found


def new_scenarios(tasks: Sequence[Scenario]) -> list[NewScenario]:
    """Scenarios of a file, for writing to the store."""
    return [NewScenario(task.id, task.input, task.reference, task.rubric, task.adversarial) for task in tasks]


async def _require_same(store: Store, found: CampaignView, alias: AliasView, plan: CampaignPlan) -> None:
    now, was = plan.settings.model_dump(mode="json"), found.settings
    before = {key: was.get(key, CampaignSettings.model_fields[key].default) for key in SHAPE}
    kept = [key for key in SHAPE if key != "judge_recipe" or found.reason != StopCode.PAUSED]
    changed = [f"{key} {before[key]} → {now[key]}" for key in kept if before[key] != now[key]]
    if found.alias_id != alias.id:
        changed.append(f"alias → {alias.name}")
    if plan.train is not None:
        changed += await _other_scenarios(store, found, plan)
    elif not await campaigns.list_scenarios(store, found.id, "train"):
        raise CampaignError(
            f"campaign {found.name!r} ended before its scenarios were written: start it again with them "
            f"(`hone train --name {found.name} --scenarios …`)"
        )
    if changed:
        raise CampaignError(
            f"campaign {found.name!r} is unfinished and was started with other settings; changed: "
            f"{', '.join(changed)}. Resume it unchanged (`hone train --resume {found.name}`), or start another "
            "(--new, or --name)."
        )


async def _other_scenarios(store: Store, found: CampaignView, plan: CampaignPlan) -> list[str]:
    """The parts whose scenarios differ from those at the start."""
    changed = []
    begun = bool(await campaigns.list_scenarios(store, found.id, "train"))  # written last, so the others are there too
    for part, tasks in plan.parts.items():
        stored = await campaigns.list_scenarios(store, found.id, part)
        if not (begun or stored):  # an earlier process was killed before it wrote them
            await campaigns.add_scenarios(store, found.id, part, new_scenarios(tasks))
        elif [_as_given(one) for one in stored] != new_scenarios(tasks):
            changed.append(f"the {part} scenarios")
    return changed


def _as_given(stored: campaigns.Scenario) -> NewScenario:
    return NewScenario(stored.external_id, stored.input, stored.reference, stored.rubric, stored.adversarial)


@asynccontextmanager
async def hold_campaign(
    store: Store, campaign: CampaignView, owner: str, lease_s: float
) -> AsyncIterator[LeaseRenewer]:
    """Hold the campaign's lease. Attempts that a killed process left running are planned again.

    Raises `CampaignBusy`.
    """
    name = campaigns.lease_name(campaign.id)
    await leases.release_dead(Project(store, campaign.project_id), name)
    lease = await leases.acquire_lease(Project(store, campaign.project_id), name, owner, lease_s)
    if lease is None:
        raise CampaignBusy(
            f"another process runs campaign {campaign.name!r}. Stop it, or wait {lease_s:g} s if its machine died."
        )
    async with LeaseRenewer(store, lease, lease_s).running() as keeper:
        await store_attempts.abandon_running(store, campaign.id)
        await campaigns.resume_campaign(store, campaign.id)
        renewing = asyncio.create_task(_keep_attempts(store, campaign.id, owner, lease_s), name="keep attempts")
        try:
            yield keeper
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)


async def _keep_attempts(store: Store, campaign_id: str, owner: str, lease_s: float) -> None:
    wait_s = lease_s / _RENEWALS_A_LEASE
    while True:
        await asyncio.sleep(wait_s)
        try:
            await store_attempts.renew_attempts(store, campaign_id, owner, lease_s)
            wait_s = lease_s / _RENEWALS_A_LEASE
        except StoreUnavailable:
            wait_s = min(wait_s, HICCUP_S)  # busy for a moment: the next renewal may still be in time


def require_lease(keeper: LeaseRenewer, campaign: CampaignView) -> None:
    """Raise `CampaignBusy` if the campaign's lease was lost."""
    if keeper.lost.is_set():
        raise CampaignBusy(f"campaign {campaign.name!r} was taken over by another process while this one was suspended")


@asynccontextmanager
async def mark_ended_early(store: Store, campaign: CampaignView) -> AsyncIterator[None]:
    """Mark the campaign failed or stopped if something ends it early; it can be resumed."""
    try:
        yield
    except (TrainerError, RecorderError) as e:
        await _leave(store, campaign, CampaignState.FAILED, str(e))
        raise
    except asyncio.CancelledError:
        await asyncio.shield(_leave(store, campaign, CampaignState.STOPPED, "interrupted"))
        raise


async def _leave(store: Store, campaign: CampaignView, state: CampaignState, reason: str) -> None:
    with contextlib.suppress(Conflict):  # it has already finished
        await campaigns.finish_campaign(store, campaign.id, state, reason)


_UNMEASURED: Final[tuple[tuple[float | None, int], tuple[float | None, int]]] = ((None, 0), (None, 0))


async def write_event(store: Store, campaign: CampaignView, code: str, event: CampaignEvent) -> None:
    """Write an event of a campaign to the ledger."""
    row = LedgerRow(campaign.project_id, "campaign", campaign.id, code, encode_event(event))
    async with store.write() as conn:
        await ledger.write_rows(conn, [row])


def summarize_campaign(
    name: str, stop: StopDecision, history: CampaignHistory, live: str, seconds: float
) -> CampaignEnded:
    """The summary of a whole campaign."""
    seen: Sequence[StepDone | Validation] = history.validations or history.steps
    measured = [(one.success, count_measured(one)) for one in seen if one.success is not None]
    (before, attempts_before), (after, attempts_after) = (measured[0], measured[-1]) if measured else _UNMEASURED
    left_out: Counter[str] = Counter()
    for step in history.steps:
        left_out.update(step.left_out)
    return CampaignEnded(
        campaign=name,
        reason=stop.code,
        detail=stop.detail,
        steps=history.steps_done,
        version=live,
        seconds=seconds,
        success_before=before,
        success_after=after,
        attempts_before=attempts_before,
        attempts_after=attempts_after,
        versions=success_by_version(history.steps),
        trained=sum(step.trained for step in history.steps),
        left_out=dict(left_out),
    )


def success_by_version(done: Sequence[StepDone]) -> dict[str, float | None]:
    """The share of successes among the attempts that each version sampled, in the order of the steps."""
    by_version: dict[str, list[float]] = {}
    for step in done:
        by_version.setdefault(step.sampled_by, []).extend([] if step.success is None else [step.success])
    return {name: sum(shares) / len(shares) if shares else None for name, shares in by_version.items()}
