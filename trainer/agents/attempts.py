"""Run a campaign's attempts: claim them from the store, run the agent, and end them with the party at fault.

Owns: how many run at once, an attempt's address and environment, the distinction between the agent's faults and all
others, repeating attempts that failed for other faults, and batching of store writes. Refuses: which attempts there are
(`trainer.campaign.sampling`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeVar

from recorder.queue.attempts import AttemptEnd as StoredEnding
from recorder.queue.attempts import AttemptView, LastCall, claim_attempts, finish_attempts, last_calls
from recorder.states import AttemptState, CallState, Purpose, TrajectoryState
from recorder.store.database import Store
from trainer.agents import answer, replay
from trainer.agents.user_agent import AttemptEnding, AttemptOutcome, UserAgent
from trainer.campaign_settings import CampaignSettings

log = logging.getLogger(__name__)

# Pause after a fault of the engine or the network, so that a restart can begin before the services are waited for.
FAULT_PAUSE_S = 2.0
NO_CALL = (
    "the agent ended without a model call at its own address: it must use task.base_url, "
    "or OPENAI_BASE_URL as set while the function or command runs"
)


class EndReason(StrEnum):
    """The `end_reason` of an attempt's trajectory that did not simply complete."""

    AGENT_ERROR = "agent_error"
    AGENT_TIMEOUT = "agent_timeout"
    NO_CALL = "no_call"
    HARNESS_FAULT = "harness_fault"
    NOT_RECORDED = "not_recorded"  # a replay's tool call has no recorded result


AGENTS_OWN = frozenset({EndReason.AGENT_ERROR, EndReason.AGENT_TIMEOUT, EndReason.NO_CALL})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the agent finds its model: the proxy's URL without `/v1`, an API key, the alias's name.

    `models`: by the attempt's number, where attempts ask for different versions.
    """

    url: str
    api_key: str
    model: str
    models: Mapping[int, str] = field(default_factory=dict)

    def of(self, attempt: AttemptView) -> str:
        """The address of one attempt."""
        return f"{self.url}/g/{attempt.group_external_id}/t/{attempt.trajectory_external_id}/v1"

    def model_of(self, attempt: AttemptView) -> str:
        """The model that one attempt asks for."""
        return self.models.get(attempt.number, self.model)


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """One attempt that has ended. `reason` None: it completed. `again`: it is repeated."""

    attempt: AttemptView
    reason: EndReason | None
    error: str | None
    again: bool


class AttemptFeed(Protocol):
    """Plans further attempts of a campaign while a runner has room for them."""

    @property
    def is_over(self) -> bool:
        """Whether no more will come."""

    async def plan_more(self) -> bool:
        """Plan the attempts that may begin next; False: none may yet."""

    async def until_more(self) -> None:
        """Return when `plan_more` may have more than at its last call, or none will come."""


class AttemptRunner:
    """Runs attempts of one campaign."""

    def __init__(
        self,
        store: Store,
        agent: UserAgent,
        endpoint: Endpoint,
        settings: CampaignSettings,
        owner: str,
        recovered: Callable[[], Awaitable[object]],
    ) -> None:
        self._store = store
        self._agent = agent
        self._endpoint = endpoint
        self._settings = settings
        self._owner = owner
        # The sampling settings apply only to Hone's own agent: other agents choose theirs.
        self._own = {"sampling": agent_sampling(settings)} if settings.agent == answer.NAME else {}
        self._recovered = recovered  # returns when proxy and engine are reachable (again)
        self._faults: Counter[tuple[str, int]] = Counter()  # faults of the services, by attempt
        # The store's cost is per transaction: attempts that end together are ended together.
        self._endings = Batcher(self._end)

    async def run_all(
        self,
        campaign_id: str,
        on_end: Callable[[EndedAttempt], None],
        purpose: Purpose | None = None,
        feed: AttemptFeed | None = None,
    ) -> None:
        """Run every waiting attempt of a campaign, at most `concurrency` at a time, until none is left.

        `purpose`: only attempts of it. `feed`: plans further attempts meanwhile; without one, none follow.

        Raises `AgentUnusable` if the agent cannot be run at all, `ServiceUnavailable` if the services do not come back.
        """
        running: set[asyncio.Task[EndedAttempt]] = set()
        more = True
        try:
            while more or running or (feed is not None and not feed.is_over):
                if more and (room := self._settings.concurrency - len(running)):
                    claimed = await claim_attempts(
                        self._store, campaign_id, self._owner, self._settings.lease_s, limit=room, purpose=purpose
                    )
                    more = len(claimed) == room
                    running |= {asyncio.create_task(self._attempt(attempt)) for attempt in claimed}
                if feed is not None and not more and len(running) < self._settings.concurrency:
                    more = await feed.plan_more()
                    if more:
                        continue
                if running or (feed is not None and not feed.is_over):
                    done = await _first_done(running, feed)
                    running -= done
                    # with a feed, attempts that another process planned again are looked for too
                    more = more or feed is not None
                    for ended in await asyncio.gather(*done, return_exceptions=True):
                        if isinstance(ended, BaseException):
                            raise ended  # an exception here is not an attempt's ending: it stops all
                        on_end(ended)
                        more = more or ended.again
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self._endings.idle()

    async def _attempt(self, attempt: AttemptView) -> EndedAttempt:
        if faults := self._faults[attempt.group_external_id, attempt.number]:
            await asyncio.sleep(FAULT_PAUSE_S * faults)
            await self._recovered()
        outcome = await self._agent.run(
            agent_task(attempt, self._endpoint) | self._own,
            agent_environment(attempt, self._endpoint),
            self._settings.attempt_timeout_s,
        )
        return await self._endings.do((attempt, outcome))

    async def _end(self, batch: Sequence[tuple[AttemptView, AttemptOutcome]]) -> list[EndedAttempt]:
        last = await last_calls(self._store, [attempt.trajectory_id for attempt, _ in batch])
        over = [self._ended(attempt, outcome, last.get(attempt.trajectory_id)) for attempt, outcome in batch]
        endings = [self._ending(ended, outcome) for ended, (_, outcome) in zip(over, batch, strict=True)]
        for attempt in await finish_attempts(self._store, endings):
            # This process was suspended for longer than its lease: the attempt is planned again, this result dropped.
            log.warning("attempt %s was taken over while it ran", attempt.id)
        return over

    def _ended(self, attempt: AttemptView, outcome: AttemptOutcome, last: LastCall | None) -> EndedAttempt:
        reason, error = find_fault(outcome, last)
        if reason is EndReason.HARNESS_FAULT and outcome.ending is not AttemptEnding.LOST:
            self._faults[attempt.group_external_id, attempt.number] += 1
        again = reason is EndReason.HARNESS_FAULT and attempt.try_number < self._settings.harness_retries
        return EndedAttempt(attempt, reason, error, again)

    def _ending(self, ended: EndedAttempt, outcome: AttemptOutcome) -> StoredEnding:
        agents = ended.reason in {EndReason.AGENT_ERROR, EndReason.AGENT_TIMEOUT}
        judged = agents and self._settings.on_agent_error == "judge"
        return StoredEnding(
            ended.attempt,
            AttemptState.ERRORED if ended.reason else AttemptState.DONE,
            outcome.answer,
            ended.error,
            trajectory_state=TrajectoryState.COMPLETED if judged else None,
            reason=ended.reason,
            retry=ended.again,
        )


async def _first_done(
    running: Collection[asyncio.Task[EndedAttempt]], feed: AttemptFeed | None
) -> set[asyncio.Task[EndedAttempt]]:
    """Wait until one of the attempts has ended, or the feed may have more; return those that have ended."""
    if feed is None:
        return (await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))[0]
    news = asyncio.ensure_future(feed.until_more())
    try:
        await asyncio.wait({*running, news}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        news.cancel()
    return {task for task in running if task.done()}


def find_fault(outcome: AttemptOutcome, last: LastCall | None) -> tuple[EndReason | None, str | None]:
    """The end reason of an attempt, if any, from the outcome that its host saw and from its last recorded call."""
    if outcome.ending is AttemptEnding.LOST:
        return EndReason.HARNESS_FAULT, outcome.error
    fault = engine_fault(last) or (outcome.error if outcome.network else None)
    if fault is not None:
        return EndReason.HARNESS_FAULT, fault
    if outcome.ending is AttemptEnding.TIMEOUT:
        return EndReason.AGENT_TIMEOUT, outcome.error or "it took longer than campaign.attempt_timeout_s"
    if outcome.ending is AttemptEnding.ERROR and (outcome.error or "").startswith(replay.NOT_RECORDED):
        return EndReason.NOT_RECORDED, outcome.error
    if outcome.ending is AttemptEnding.ERROR:
        return EndReason.AGENT_ERROR, outcome.error
    return (EndReason.NO_CALL, NO_CALL) if last is None else (None, None)


def engine_fault(last: LastCall | None) -> str | None:
    """The failure of a trajectory's last call; None if the engine refused it, which is the agent's fault."""
    if last is None or last.state is not CallState.ERRORED:
        return None
    if last.http_status is not None and last.http_status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return None
    return f"the last call failed: {last.error or last.http_status}"


def agent_task(attempt: AttemptView, endpoint: Endpoint) -> dict[str, Any]:
    """The argument of an agent function."""
    return {
        "id": attempt.trajectory_id,
        "scenario_id": attempt.scenario.external_id,
        "input": attempt.scenario.input,
        "base_url": endpoint.of(attempt),
        "api_key": endpoint.api_key,
        "model": endpoint.model_of(attempt),
    }


def agent_sampling(settings: CampaignSettings) -> dict[str, Any]:
    """The sampling parameters of `hone:answer`."""
    asked = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
    return {name: value for name, value in asked.items() if value is not None}


def agent_environment(attempt: AttemptView, endpoint: Endpoint) -> dict[str, str]:
    """The environment variables of an agent."""
    return {
        "OPENAI_BASE_URL": endpoint.of(attempt),
        "OPENAI_API_KEY": endpoint.api_key,
        "HONE_MODEL": endpoint.model_of(attempt),
        "HONE_TASK_ID": attempt.trajectory_id,
        "HONE_TASK_INPUT": json.dumps(attempt.scenario.input),
    }


T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Calls `work` with a list of items; it returns their results in the same order.

    Items that arrive while a batch is in progress form the next batch.
    """

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._work = work
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def do(self, item: T) -> R:
        """The item's result. An exception of `work` is raised for every item of its batch."""
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, result))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._drain())
        return await result

    async def idle(self) -> None:
        """Wait until nothing is being worked on."""
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _drain(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                results: Sequence[R | Exception] = await self._work([item for item, _ in batch])
            except Exception as e:  # noqa: BLE001 - boundary: it is raised where each item is waited for
                results = [e] * len(batch)
            for (_, future), result in zip(batch, results, strict=True):
                _settle(future, result)


def _settle(future: asyncio.Future[R], result: R | Exception) -> None:
    if future.done():  # no caller waits any more
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
