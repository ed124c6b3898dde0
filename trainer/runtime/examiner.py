"""The examiner: serves the gate requests of an alias by attempting held-out scenarios as the new and the live version.

Owns: taking a request under a lease, the rounds (their groups and attempts are found by name after a restart), the
value of each attempt, abandoning a request once its gate has decided, and checking file, agent and success function of
every such gate beforehand. Refuses: running an attempt (`trainer.agents.attempts`), success
(`trainer.campaign.measurement`), starting services (a version that waits for its gate has a proxy), and the decision:
the gate decides from the pairs, and then ends the request.

No step of the alias begins while its version is undecided, so attempts and training never overlap.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from proxy.settings.hone import HoneSettings
from recorder.base.findings import Finding, FindingLevel
from recorder.errors import Conflict, StoreUnavailable
from recorder.queue import attempts as store_attempts
from recorder.queue import campaigns, gate_requests, leases
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import GroupBinding
from recorder.queue.campaigns import Scenario as StoredScenario
from recorder.queue.gate_requests import GateArm, GateRequest
from recorder.queue.groups import closure
from recorder.registry import keys, replicas, tool_permissions
from recorder.registry.aliases import AliasView
from recorder.states import CampaignState, GroupState, Purpose
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.views.trajectories import transcripts
from recorder.views.trajectories.shapes import GroupView
from trainer.agents.attempts import AttemptRunner
from trainer.campaign import record
from trainer.campaign.measurement import RoundMeasurer
from trainer.campaign_settings import CampaignSettings
from trainer.errors import AgentUnusable, CampaignBusy, ScenariosInvalid, ServiceUnavailable
from trainer.progress import Notice, Progress
from trainer.runtime.services import RECENT_S, endpoint_of, find_proxy, start_agents
from trainer.tasks import scenarios
from trainer.tasks.scenarios import Scenario

ROUND: Final = 8  # scenarios between two decisions of the gate
AGAIN: Final = 4  # most attempts at one scenario: more would give it too much weight

T = TypeVar("T")


def gate_rounds(tasks: Sequence[T], pairs: int, seed: str) -> list[list[T]]:
    """The scenarios of each round, at most `pairs` in all: as many passes as allowed, each in another order."""
    found: list[list[T]] = []
    for turn in range(AGAIN):
        order = list(tasks)
        random.Random(f"{seed}:{turn}").shuffle(order)
        order = order[: pairs - sum(map(len, found))]
        found += [order[at : at + ROUND] for at in range(0, len(order), ROUND)]
    return found


class GateExamination:
    """One gate request, from its current state to its last round."""

    def __init__(
        self,
        store: Store,
        request: GateRequest,
        runner: AttemptRunner,
        measurer: RoundMeasurer,
        still_ours: Callable[[], None],
    ) -> None:
        self._store = store
        self._request = request
        self._row = request.row
        self._runner = runner
        self._measurer = measurer
        self._still_ours = still_ours  # raises CampaignBusy if the request's lease was lost

    async def run(self) -> None:
        """Attempt and measure what is not done yet, then mark all as attempted."""
        tasks = await campaigns.list_scenarios(self._store, self._row.id, "val")
        for number, drawn in enumerate(gate_rounds(tasks, self._request.pairs, self._request.version), start=1):
            if number > self._row.steps_done:
                self._still_ours()
                await self._plan(number, drawn)
                await self._runner.run_all(self._row.id, lambda ended: None)
                await self._measure(number)
        await gate_requests.end_request(self._store, self._row.id, CampaignState.FINISHED, gate_requests.ATTEMPTED)

    async def give_up(self) -> None:
        """Close the attempts and groups of a request that has ended: no process continues them."""
        await store_attempts.abandon_running(self._store, self._row.id)
        for number in range(1, len(await self._planned()) + 1):
            for group in await campaigns.group_states(self._store, self._row.id, number, Purpose.EVAL):
                if group.state is GroupState.OPEN:
                    await closure.close_group(Project(self._store, self._row.project_id), group.group_id)

    async def _planned(self) -> list[list[StoredScenario]]:
        tasks = await campaigns.list_scenarios(self._store, self._row.id, "val")
        return gate_rounds(tasks, self._request.pairs, self._request.version)

    async def _plan(self, number: int, drawn: Sequence[StoredScenario]) -> None:
        row = self._row
        named = [
            (f"{row.id}.{number:04d}.{index:04d}.{arm.name.lower()}", scenario.id, arm)
            for index, scenario in enumerate(drawn)
            for arm in GateArm
        ]
        bindings = [GroupBinding(group, scenario_id, 1) for group, scenario_id, _ in named]
        await campaigns.bind_groups(Project(self._store, row.project_id), row.id, row.alias_id, bindings)
        new = [NewAttempt(task, number, Purpose.EVAL, int(arm), group, "0") for group, task, arm in named]
        await store_attempts.new_attempts(self._store, row.id, new)

    async def _measure(self, number: int) -> None:
        """Run the success function on a round's attempts, and store the results."""
        there = await campaigns.group_states(self._store, self._row.id, number, Purpose.EVAL)
        groups = await transcripts.load_groups(self._store, [group.group_id for group in there])
        worth = await asyncio.gather(*(self._worth(group) for group in groups))
        known = {
            group.external_id or "": float(won) for group, won in zip(groups, worth, strict=True) if won is not None
        }
        await gate_requests.write_round(self._store, self._row.id, number, known)

    async def _worth(self, group: GroupView) -> bool | None:
        """Whether the attempt that counts succeeded: the last one, because earlier ones were repeated."""
        successes = [await self._measurer.success(member, {}) for member in group.members]
        return next((won for won in reversed(successes) if won is not None), None)


AGAIN_S: Final = 2.0  # pause before a retry: another process holds the request, or no proxy answers
SERVICES_S: Final = 120.0  # a restarted engine may take this long


class Examiner:
    """Serves the gate requests of one alias."""

    def __init__(self, store: Store, alias: AliasView, settings: HoneSettings, progress: Progress) -> None:
        self._store = store
        self._alias = alias
        self._everything = settings
        self._progress = progress
        self._last_notice = ""

    async def run(self) -> None:
        """Serve requests until cancelled. While the store is unavailable, wait for it."""
        within_s: float | None = None
        with self._store.watch.on(Topic.CAMPAIGNS) as news:
            while True:
                await news.wait(within_s)
                within_s = None
                try:
                    while request := await gate_requests.next_request(self._store, self._alias.id):
                        if not await self._answer(request):
                            within_s = AGAIN_S
                            break
                except StoreUnavailable as e:
                    self._say(f"held-out scenarios wait until the store answers: {e}", warning=True)
                    within_s = AGAIN_S

    async def _answer(self, request: GateRequest) -> bool:
        """Serve one request, or report why it cannot be served. False: not now."""
        try:
            settings, tasks = load_held_out(self._everything, self._alias.name)
            await self._attempt(request, settings, tasks)
        except (AgentUnusable, ScenariosInvalid) as e:
            await gate_requests.end_request(self._store, request.row.id, CampaignState.FAILED, str(e))
            self._say(f"the gate of {request.version} continues without its held-out scenarios: {e}", warning=True)
        except (CampaignBusy, ServiceUnavailable, Conflict) as e:
            self._say(f"the gate of {request.version} waits: {e}")
            return False
        return True

    async def _attempt(self, request: GateRequest, settings: CampaignSettings, tasks: list[Scenario]) -> None:
        async with AsyncExitStack() as stack:
            owner = leases.holder_name()
            keeper = await stack.enter_async_context(
                record.hold_campaign(self._store, request.row, owner, settings.lease_s)
            )
            await tool_permissions.set_writes_allowed(self._store, request.row.id, allowed=settings.allow_writes)
            await campaigns.add_scenarios(self._store, request.row.id, "val", record.new_scenarios(tasks))
            agent, success = agents = await start_agents(settings, self._everything.data, stack)
            for started in agents:
                await started.ready()
            url = await self._services()
            scopes = [keys.Scope.INFER, keys.Scope.EVAL]
            endpoint = await endpoint_of(self._store, url, self._alias, request.row, scopes, stack)
            models: dict[int, str] = {GateArm.CANDIDATE: request.version, GateArm.LIVE: request.beside}
            runner = AttemptRunner(
                self._store, agent, replace(endpoint, models=models), settings, owner, self._services
            )
            measurer = RoundMeasurer(self._store, settings, success, self._progress)
            still_ours = partial(record.require_lease, keeper, request.row)
            self._say(f"{request.version} attempts the held-out scenarios beside {request.beside}")
            await self._while_wanted(request, GateExamination(self._store, request, runner, measurer, still_ours))

    async def _while_wanted(self, request: GateRequest, examination: GateExamination) -> None:
        """Run the examination until it is done, or until its gate has decided without the rest."""
        running = asyncio.create_task(examination.run())
        over = asyncio.create_task(self._over(request))
        try:
            await asyncio.wait({running, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            unfinished = not running.done()
            for task in (running, over):
                task.cancel()
            await asyncio.gather(running, over, return_exceptions=True)
        if unfinished:
            await examination.give_up()
        else:
            running.result()

    async def _over(self, request: GateRequest) -> None:
        with self._store.watch.on(Topic.CAMPAIGNS, Topic.SERVICE) as news:
            while await gate_requests.is_open(self._store, request.row.id):
                await news.wait()

    async def _services(self) -> str:
        """The proxy's URL, once it and an engine answer. Raises ServiceUnavailable."""
        project_id = self._alias.project_id
        try:
            async with asyncio.timeout(SERVICES_S):
                with self._store.watch.on(Topic.ENGINES, Topic.PROXIES) as news:
                    while True:
                        await news.wait(AGAIN_S)
                        engines = await replicas.list_replicas(Project(self._store, project_id), RECENT_S)
                        url = await find_proxy(self._store, self._everything.data, project_id)
                        if url is not None and any(engine.state == "up" for engine in engines):
                            return url
        except TimeoutError:
            raise ServiceUnavailable("no proxy with an engine answers. Check `hone status`.") from None

    def _say(self, text: str, *, warning: bool = False) -> None:
        if text != self._last_notice:
            self._last_notice = text
            self._progress.tell(Notice(text, warning))


def load_held_out(settings: HoneSettings, alias: str) -> tuple[CampaignSettings, list[Scenario]]:
    """The attempt settings and the held-out scenarios of an alias. Raises ScenariosInvalid."""
    declared = settings.aliases.get(alias)
    gate = declared.gate if declared is not None else None
    if gate is None or gate.scenarios is None:
        raise ScenariosInvalid(
            f"this learner's settings name no held-out scenarios: set aliases.{alias}.gate as in the proxy's settings"
        )
    same = {"agent": gate.agent, "success": gate.success, "replay": False, "on_agent_error": "exclude"}
    return settings.campaign.model_copy(update=same), scenarios.read_scenarios(gate.scenarios)


async def check_gates(settings: HoneSettings) -> list[Finding]:
    """All findings."""
    gated = [name for name, alias in settings.aliases.items() if alias.gate.scenarios is not None]
    return [await _of_alias(settings, name) for name in gated]


async def _of_alias(settings: HoneSettings, alias: str) -> Finding:
    what = f"gate of {alias}"
    try:
        attempting, tasks = load_held_out(settings, alias)
        async with AsyncExitStack() as stack:
            for started in await start_agents(attempting, settings.data, stack):
                await started.ready()
    except (AgentUnusable, ScenariosInvalid) as e:
        todo = f"Fix aliases.{alias}.gate: until then its versions pass on their answers alone."
        return Finding(what, FindingLevel.WRONG, f"{e}", todo)
    found = f"{attempting.agent} attempts {len(tasks)} held-out scenarios, {attempting.success} measures success."
    if ignored := "; ".join(map(str, scenarios.ignored_columns(tasks))):
        return Finding(what, FindingLevel.NOTE, f"{found} {ignored}.", "Rename the columns that are to count.")
    return Finding(what, FindingLevel.FINE, found)
