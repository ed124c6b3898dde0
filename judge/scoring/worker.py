"""The judge worker: claims groups that are ready, scores them concurrently, and writes the results.

Owns: claims and their renewal, backoff, a clean stop, its heartbeat in the store, the sweep, and logging once when a
budget or `learn.hours` holds judging back. Refuses: scoring (`judge.scoring.group_score`) and the budgets' rules
(`recorder.queue.training.budgets`). A group that cannot be scored, or whose score cannot be written, never gets a
reward: it is unscored with a reason and tried again later, or excluded with a reason.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any, TypeVar

from judge.errors import CheckUndecided, JudgeFailed, JudgeUnavailable, JudgeUsage, NoFollowUp
from judge.rewards.judge_context import JudgeContext
from judge.scoring import cross_check
from judge.scoring.cross_check import CrossChecker, JudgeAssignment
from judge.scoring.group_score import NEEDS_TWO, NEEDS_TWO_WHY, GroupScore, is_comparison_only, score_group
from proxy.settings.hone import HoneSettings
from recorder.base.connection_failures import describe_failure
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import Conflict, StoreError
from recorder.maintenance.sweep import Sweeper
from recorder.queue import claims
from recorder.queue.claims import GroupClaim
from recorder.queue.judging import scores
from recorder.queue.judging.rescoring import needs_new_prompt
from recorder.queue.leases import JUDGE, holder_name, keep_presence
from recorder.queue.training import budgets
from recorder.queue.training.budgets import BudgetHold
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import RecorderSettings
from recorder.states import GroupState
from recorder.store import ledger, sql
from recorder.store.changes import ChangeSignal, Topic
from recorder.store.database import Project
from recorder.views.trajectories.shapes import GroupView
from recorder.views.trajectories.transcripts import load_group

log = logging.getLogger(__name__)


class JudgeBudget:
    """The budget and hours of one judge."""

    def __init__(self, project: Project, follower: SettingsFollower) -> None:
        self._project = project
        self._follower = follower
        self._why: str | None = None

    async def held(self) -> BudgetHold | None:
        """Why judging of live groups is paused now, logged when a pause begins and ends. None: it is not paused."""
        held = await budgets.judging_hold(self._project, self._follower.learn)
        why = held.why if held else None
        if why != self._why:
            log.info(held.sentence("Judging")) if held else log.info("Judging continues.")
            self._why = why
        return held


RENEWALS_A_LEASE = 3
UNDECIDED_TRIES = 3  # a function may have met a fault that passes; a rule decides the same each time
HICCUP_S = 1.0  # pause after the store refused something
WRITES_A_TRY = 60  # failed writes after which the score itself may be the fault: its group waits for longer
_MOST_DOUBLINGS = 20
_LATE_S = 60.0  # a group may appear this long after its timestamp, because its transaction ended later

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _ScoredGroup:
    """A group with its score, and the judge for its cross-check."""

    group: GroupView
    seat: JudgeAssignment
    scored: GroupScore


class JudgeWorker:
    """The work of one judge process. `run()` until `stop` is set; any number of workers may share a store."""

    def __init__(
        self,
        project: Project,
        context: JudgeContext,
        recorder: RecorderSettings,
        owner: str | None = None,
        follower: SettingsFollower | None = None,
    ) -> None:
        self.owner = owner or holder_name()
        self._project = project
        self._context = context
        self._recorder = recorder
        self._follower = follower or SettingsFollower(project, HoneSettings())
        self._budget = JudgeBudget(project, self._follower)
        self._second = CrossChecker(project.store)
        self._settled = False  # whether the scoring judge was settled under these settings
        self._looked_at: float | None = None  # when all ready groups were last looked through, by time.monotonic
        self._running: set[asyncio.Task[None]] = set()
        self._news = ChangeSignal()
        self._store_away, self._broken, self._no_judge = RateLimitedLog(log), RateLimitedLog(log), RateLimitedLog(log)

    async def run(self, stop: asyncio.Event) -> None:
        """Score groups as they become ready until `stop` is set; then groups in progress are given back."""
        stopping = asyncio.create_task(stop.wait())
        lease_s = self._recorder.lease_s
        try:
            async with (
                keep_presence(self._project, JUDGE, self.owner, lease_s),
                Sweeper(self._project, self._recorder, self.owner).running(),
            ):
                watch = self._project.store.watch
                with watch.on(Topic.GROUPS) as self._news, self._follower.telling(self._news.tell):
                    stopping.add_done_callback(lambda _: self._news.tell())
                    within_s: float | None = None
                    while not stop.is_set():
                        await self._news.wait(within_s)
                        within_s = await self._round()
        finally:
            stopping.cancel()
            await self._give_all_back()

    async def _round(self) -> float | None:
        """Start scoring ready groups, as far as there is room. Return when to look again without a change signal."""
        try:
            if not self._settled:
                await cross_check.settle_switch(self._project, self._context.settings)
                self._settled = True
            await self._exclude_hopeless()
            held = await self._budget.held()
            while len(self._running) < self._context.settings.concurrency:
                claim = await claims.claim_for_judging(
                    self._project,
                    self.owner,
                    self._recorder.lease_s,
                    of_campaigns=held is not None,
                )
                if claim is None:
                    next_s = await claims.next_try_in(self._project, of_campaigns=held is not None)
                    waits = (next_s, held.for_s if held else None)
                    return min((wait_s for wait_s in waits if wait_s is not None), default=None)
                task = asyncio.create_task(self._judge(claim))
                self._running.add(task)
                task.add_done_callback(self._ended)
        except StoreError as e:
            self._store_away(logging.WARNING, "the judge waits until the store answers: %s", e)
            return HICCUP_S
        return None  # no room: the end of any group wakes the worker

    async def _exclude_hopeless(self) -> None:
        # A validation makes hundreds of groups of one: one transaction for all instead of one each.
        recipes = (self._context, *self._context.others.values())
        if all(is_comparison_only(context.settings.in_force()) for context in recipes):
            detail, began = {"detail": NEEDS_TWO_WHY}, time.monotonic()
            # after the first look, only new groups; a missed one is excluded when it is claimed
            new_s = None if self._looked_at is None else began - self._looked_at + _LATE_S
            left = await scores.exclude_lone_groups(self._project, NEEDS_TWO, detail, new_s)
            self._looked_at = began
            if left:
                log.info("%d groups excluded: %s", left, NEEDS_TWO_WHY)
        if (max_age_s := self._follower.learn.max_age_s) is not None:
            waiting = (GroupState.READY, GroupState.UNSCORED)
            left = await scores.exclude_old_groups(self._project, waiting, max_age_s)
            if left:
                log.info("%d groups excluded: complete for longer than learn.max_age_s", left)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._news.tell()
        if not task.cancelled() and (e := task.exception()):
            self._broken(logging.ERROR, "a group could not be written; its claim expires: %s", e, error=e)

    # One group

    async def _judge(self, claim: GroupClaim) -> None:
        """Score a claimed group while its claim is renewed; if the claim is lost, drop the work.

        Then cross-check it, if there is a second judge; by then the group has its score and is no longer claimed.
        """
        done: _ScoredGroup | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                keeper = tasks.create_task(self._keep(claim))
                done = await self._score(claim)
                keeper.cancel()
        except* (Conflict, StoreError) as group:
            # Conflict: another process has the group now. StoreError: no process can take it until the claim expires.
            for e in group.exceptions:
                self._store_away(logging.WARNING, "group %s: the score was dropped: %s", claim.group_id, e)
        except* asyncio.CancelledError:
            with suppress(Conflict, StoreError):  # then its claim expires by itself
                await claims.return_claim(self._project.store, claim)
        if done is not None:
            await self._second.look(done.group, done.seat, done.scored)

    async def _keep(self, claim: GroupClaim) -> None:
        while True:
            await asyncio.sleep(self._recorder.lease_s / RENEWALS_A_LEASE)
            try:
                await claims.renew_claim(self._project.store, claim, self._recorder.lease_s)
            except StoreError as e:
                self._store_away(logging.WARNING, "group %s: its claim could not be renewed yet: %s", claim.group_id, e)

    async def _score(self, claim: GroupClaim) -> _ScoredGroup | None:
        """Score a group and write the score; None: it has none."""
        try:
            group = await self._persistently(lambda: load_group(self._project.store, claim.group_id))
            anew = await self._persistently(lambda: needs_new_prompt(self._project.store, claim.group_id))
            context = self._context.afresh() if anew else self._context
            seat = await self._persistently(lambda: cross_check.assign_judge(self._project.store, group, context))
            scored = await score_group(group, seat.scores)
            await self._write(claim, scored)
        except JudgeUnavailable as e:
            code, why = e.code, sql.storable_text(str(e))
            log.warning("group %s excluded: %s", claim.group_id, why)
            await self._persistently(lambda: scores.exclude_group(self._project.store, claim, code, why))
        except CheckUndecided as e:
            await self._undecided(claim, e)
        except NoFollowUp as e:
            await self._without_follow_up(claim, e)
        except JudgeFailed as e:
            await self._unscored(claim, e)
        except (Conflict, StoreError):
            raise
        # A boundary: a bug that one group triggers must not stop the others.
        except Exception as e:  # noqa: BLE001
            self._broken(logging.ERROR, "group %s cannot be scored: this is a fault of Hone", claim.group_id, error=e)
            await self._unscored(claim, JudgeFailed("judge_fault", f"{type(e).__name__}: {e}"))
        else:
            log.info("group %s scored: %s", claim.group_id, score_summary(scored))
            return _ScoredGroup(group, seat, scored)
        return None

    async def _write(self, claim: GroupClaim, scored: GroupScore) -> None:
        """Write the score. A failed write counts as a failed try; the reply is kept."""
        new = scored.new
        try:
            await self._persistently(lambda: scores.record_score(self._project.store, claim, new), WRITES_A_TRY)
        except Conflict:
            raise
        except Exception as e:
            spent = JudgeUsage(
                tokens_in=new.tokens_in,
                tokens_cached=new.tokens_cached,
                tokens_out=new.tokens_out,
                cost_usd=new.cost_usd,
                latency_s=new.latency_s or 0.0,
            )
            self._broken(logging.ERROR, "group %s: its score cannot be written", claim.group_id, error=e)
            why = f"its score could not be written: {describe_failure(e)}"
            raise JudgeFailed("score_not_written", why, spent=spent) from e

    async def _unscored(self, claim: GroupClaim, failure: JudgeFailed) -> None:
        wait_s = failure.wait_s if failure.wait_s is not None else self._backoff_s(claim.tries)
        detail = _failure_detail(failure)
        self._no_judge(
            logging.WARNING, "group %s is unscored, tried again in %.0f s: %s", claim.group_id, wait_s, failure
        )
        await self._persistently(lambda: scores.mark_unscored(self._project.store, claim, failure.code, detail, wait_s))

    async def _undecided(self, claim: GroupClaim, failure: CheckUndecided) -> None:
        """Exclude the group after its last try: code that cannot decide it now will not later either."""
        entries = await self._persistently(lambda: ledger.object_entries(self._project.store, "group", claim.group_id))
        before = takewhile(lambda entry: entry.code == failure.code, reversed(entries))
        if len(list(before)) + 1 < UNDECIDED_TRIES:
            await self._unscored(claim, failure)
            return
        log.warning("group %s excluded after %d tries: %s", claim.group_id, UNDECIDED_TRIES, failure)
        detail = {"detail": _failure_detail(failure), "tries": UNDECIDED_TRIES}
        await self._persistently(lambda: scores.exclude_group(self._project.store, claim, failure.code, detail))

    async def _without_follow_up(self, claim: GroupClaim, failure: NoFollowUp) -> None:
        """Exclude the group: what users write later changes no reward."""
        log.info("group %s excluded: %s", claim.group_id, failure)
        detail = {"detail": _failure_detail(failure)}
        await self._persistently(lambda: scores.exclude_group(self._project.store, claim, failure.code, detail))

    def _backoff_s(self, tries: int) -> float:
        settings = self._context.settings
        return min(settings.backoff_max_s, settings.backoff_s * 2.0 ** min(tries, _MOST_DOUBLINGS))

    async def _persistently(self, write: Callable[[], Awaitable[T]], times: int | None = None) -> T:
        """Repeat a write until the store accepts it, because a reply was paid for. The claim's end stops it.

        `times`: the maximum number of tries; then the store's error is raised.
        """
        for tried in count(1):
            try:
                return await write()
            except StoreError as e:
                if tried == times:
                    raise
                self._store_away(logging.WARNING, "a write to the store failed and is retried: %s", e)
            await asyncio.sleep(HICCUP_S)
        raise AssertionError("unreachable: the count has no end")

    async def _give_all_back(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


def score_summary(scored: GroupScore) -> str:
    """One line about a score."""
    values = [part.value for part in scored.rewards.values() if part.value is not None]
    spread = f"{len(values)} of {len(scored.rewards)} rewarded"
    if values:
        spread += f", {min(values):.3f} to {max(values):.3f}"
    new = scored.new
    if scored.ruling is None:
        return spread
    if scored.ruling.unasked:
        return f"{spread}, no judge asked: its trajectories are identical"
    if new.agreement is not None:
        spread += f", agreement {new.agreement:.2f} of {sum(not one.failed for one in new.replies)} replies"
    if new.disputed is not None:
        spread += ", too low: the group waits for a person"
    if scored.ruling.asked == 0:
        return f"{spread}, by stored replies" if new.replies else f"{spread}, by a stored reply"
    cost = "" if new.cost_usd is None else f", ${new.cost_usd:.4f}"
    return f"{spread}, {new.latency_s:.1f} s, {new.tokens_in}+{new.tokens_out} tokens{cost}"


def _failure_detail(failure: JudgeFailed) -> dict[str, Any]:
    """Why a group has no score, and what the judge was paid in vain, as the ledger stores it."""
    spent = failure.spent
    return {
        "message": sql.storable_text(str(failure)),
        "tokens_in": spent.tokens_in,
        "tokens_cached": spent.tokens_cached,
        "tokens_out": spent.tokens_out,
        "cost_usd": spent.cost_usd,
    }
