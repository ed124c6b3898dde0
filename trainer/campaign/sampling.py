"""Sample one round of a campaign: create its groups, run their attempts, wait for their scores.

Owns: a round's groups and attempts (which a restarted process finds by their names), and how long to wait for the
judge. Refuses: running an attempt (`trainer.agents.attempts`), scoring (the judge does), and the use of the scores.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from recorder.queue import attempts as store_attempts
from recorder.queue import campaigns
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import CampaignView, GroupBinding, GroupStatus, Scenario
from recorder.queue.groups import closure
from recorder.queue.groups.disputes import CODE as DISPUTED
from recorder.queue.groups.readiness import GroupCode
from recorder.states import AttemptState, GroupState, Purpose
from recorder.store import ledger
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.views.trajectories.shapes import TrajectoryView
from trainer.agents.attempts import AttemptFeed, AttemptRunner, EndedAttempt, EndReason
from trainer.campaign_settings import CampaignSettings
from trainer.errors import CampaignError
from trainer.progress import Notice, PhaseStatus, Progress

SETTLED = frozenset({GroupState.SCORED, GroupState.TRIED, GroupState.TRAINED, GroupState.LEFT_OUT, GroupState.MEASURED})
_JUDGE_CHECK_S = 5.0
_REASON_CHARS = 300


def is_decided(group: GroupStatus) -> bool:
    """Whether a step need not wait for a group: it is scored, excluded, or no judge will retry it by itself."""
    waits_for_person = group.reason == DISPUTED and group.try_after is None
    return group.state in SETTLED or (group.state is GroupState.UNSCORED and waits_for_person)


def is_unmeasured(group: GroupStatus) -> bool:
    """Whether a group that is only measured ended without the score that it was meant to get."""
    return group.state is GroupState.MEASURED and group.reason not in (None, GroupCode.MEASURED)


@dataclass(frozen=True, slots=True)
class AttemptRound:
    """Attempts at several scenarios, one group each. `numbers`: the attempts' numbers in a group, from which the runner
    knows the model of each. `key` distinguishes rounds of one step and purpose.
    """

    step: int
    purpose: Purpose
    scenarios: Sequence[Scenario]
    numbers: Sequence[int]
    key: str = ""
    called: str = "step"  # the noun for `step` in messages

    @property
    def total(self) -> int:
        """The number of attempts."""
        return len(self.scenarios) * len(self.numbers)


@dataclass(slots=True)
class RoundTally:
    """The outcomes of a round's attempts, in this process and before.

    `done` includes failed ones. `ended_now`: those that ended in this process.
    """

    total: int
    done: int = 0
    ended_now: int = 0
    failed: Counter[str] = field(default_factory=Counter)  # by reason, those that are not repeated
    first_error: str | None = None

    def add(self, ended: EndedAttempt) -> None:
        """Count an ended attempt."""
        if ended.again:
            return
        self.ended_now += 1
        if ended.reason is not None:
            self.fail(ended.reason, ended.error)
        else:
            self.done += 1

    def fail(self, reason: str, error: str | None) -> None:
        """Count a failed attempt."""
        self.done += 1
        self.failed[reason] += 1
        self.first_error = self.first_error or error


def attempt_number(member: TrajectoryView) -> int:
    """Which of its round's `numbers` an attempt has, from its external id; -1 if it was not made here."""
    name = (member.external_id or "").partition("~")[0]
    return int(name) if name.isdigit() else -1


def refuse_broken_agent(of: AttemptRound, tally: RoundTally) -> None:
    """Raise `CampaignError` if every attempt of a round failed, at least one of them in this process."""
    # Earlier failures are not repeated: after a fix of the agent the campaign continues with the next round.
    if tally.ended_now and sum(tally.failed.values()) == tally.total:
        reasons = ", ".join(f"{reason} {count}" for reason, count in tally.failed.most_common())
        raise CampaignError(
            f"all {tally.total} attempts of {of.called} {of.step} failed ({reasons}). The first: {tally.first_error}"
        )


class RoundSampler:
    """Runs the rounds of one campaign."""

    def __init__(
        self,
        store: Store,
        campaign: CampaignView,
        settings: CampaignSettings,
        runner: AttemptRunner,
        progress: Progress,
        judge_runs: Callable[[], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._campaign = campaign
        self._settings = settings
        self._runner = runner
        self._progress = progress
        self._judge_runs = judge_runs

    async def sample(self, of: AttemptRound) -> RoundTally:
        """Run the attempts of a round that are not done yet."""
        await self.plan(of)
        tally = await self.tally_of(of)
        phase = "sampling" if of.purpose is Purpose.TRAIN else "validating"

        def on_end(ended: EndedAttempt) -> None:
            tally.add(ended)
            self._progress.tell(PhaseStatus(of.step, phase, tally.done, tally.total))

        self._progress.tell(PhaseStatus(of.step, phase, tally.done, tally.total))
        await self._runner.run_all(self._campaign.id, on_end, of.purpose)
        await self.close_what_is_open(of)
        self.tell_unanswered(tally)
        return tally

    def tell_unanswered(self, tally: RoundTally) -> None:
        """Report how many attempts of a round asked a replay for what is not recorded, if any did."""
        if unanswered := tally.failed[EndReason.NOT_RECORDED]:
            text = f"{unanswered} of {tally.total} attempts ended at a tool call without a recorded result"
            self._progress.tell(Notice(text))

    async def run_ahead(self, feed: AttemptFeed, on_end: Callable[[EndedAttempt], None]) -> None:
        """Run the training attempts that wait, and those that the feed plans meanwhile."""
        await self._runner.run_all(self._campaign.id, on_end, Purpose.TRAIN, feed)

    async def plan(self, of: AttemptRound) -> None:
        """Write the groups and attempts of a round; those that are written already are not changed."""
        campaign = self._campaign
        named = list(zip(self._names(of), (scenario.id for scenario in of.scenarios), strict=True))
        bindings = [GroupBinding(group, scenario_id, len(of.numbers)) for group, scenario_id in named]
        await campaigns.bind_groups(Project(self._store, campaign.project_id), campaign.id, campaign.alias_id, bindings)
        planned = [
            NewAttempt(scenario_id, of.step, of.purpose, number, group, f"{place:03d}")
            for group, scenario_id in named
            for place, number in enumerate(of.numbers)
        ]
        await store_attempts.new_attempts(self._store, campaign.id, planned)

    def _names(self, of: AttemptRound) -> list[str]:
        key = f"{of.key}." if of.key else ""
        return [
            f"{self._campaign.id}.{of.step:04d}.{of.purpose}.{key}{place:04d}" for place in range(len(of.scenarios))
        ]

    async def tally_of(self, of: AttemptRound) -> RoundTally:
        """The outcomes of a round's attempts that ended before, as the store has them."""
        which = (self._store, self._campaign.id, of.step, of.purpose, of.numbers)
        tally = RoundTally(of.total, (await store_attempts.count_by_state(*which)).get(AttemptState.DONE, 0))
        for failure in await store_attempts.list_failures(*which):
            tally.fail(failure.reason or AttemptState.ERRORED, failure.error)
        return tally

    async def close_what_is_open(self, of: AttemptRound) -> None:
        """Close a round's open groups: one that lacks a member would wait for that member."""
        for group in await self.groups(of):
            if group.state is GroupState.OPEN:
                await closure.close_group(Project(self._store, self._campaign.project_id), group.group_id)

    async def groups(self, of: AttemptRound) -> list[GroupStatus]:
        """The current state of a round's groups."""
        found = await campaigns.group_states(self._store, self._campaign.id, of.step, of.purpose)
        if of.purpose is Purpose.TRAIN:  # a step's own round; its groups may have been planned for other steps
            return found
        own = set(self._names(of))
        return [group for group in found if group.external_id in own]

    async def scored(self, of: AttemptRound) -> list[GroupStatus]:
        """Wait until every group of a round is scored or excluded, or the time limit ends; return the groups."""
        deadline = time.monotonic() + self._settings.judge_timeout_s
        reported: set[tuple[str, int]] = set()
        look_for_judge = time.monotonic() + _JUDGE_CHECK_S
        with self._store.watch.on(Topic.GROUPS) as news:
            while True:
                await news.wait(min(look_for_judge, deadline) - time.monotonic())
                found = await self.groups(of)
                waiting = [group for group in found if not is_decided(group)]
                self._progress.tell(PhaseStatus(of.step, "judging", len(found) - len(waiting), len(found)))
                await self._report_unscored(found, reported)
                if not waiting:
                    return found
                if time.monotonic() >= deadline:
                    self._warn(
                        f"{of.called} {of.step} continues without {len(waiting)} of {len(found)} groups: they had no "
                        f"score after {self._settings.judge_timeout_s:g} s (campaign.judge_timeout_s)"
                    )
                    return found
                if time.monotonic() >= look_for_judge:
                    look_for_judge = time.monotonic() + _JUDGE_CHECK_S
                    await self._look_for_judge(len(waiting))

    async def _look_for_judge(self, waiting: int) -> None:
        if not await self._judge_runs():
            self._warn(f"{waiting} groups wait for scores, but no judge runs: start one with `hone judge`")

    async def _report_unscored(self, groups: Sequence[GroupStatus], reported: set[tuple[str, int]]) -> None:
        """Report each failure once, also of a group that has been scored since; and each exclusion that followed."""
        for group in groups:
            excluded, unmeasured = group.state is GroupState.LEFT_OUT, is_unmeasured(group)
            tries = (group.group_id, -1 if excluded or unmeasured else group.tries)
            if group.tries and tries not in reported:
                reported.add(tries)
                why = await self._why(group)
                waits = "it waits for a person" if is_decided(group) else "it is tried again"
                if excluded or unmeasured:
                    waits = f"it {'is excluded' if excluded else 'gets none'}, and the campaign goes on without it"
                self._warn(f"the group of scenario {group.scenario_external_id!r} could not be scored ({why}); {waits}")

    async def why_undecided(self, groups: Sequence[GroupStatus]) -> str | None:
        """Why a whole step was excluded, if code could not decide the checks of its groups; else None."""
        if any(group.state is not GroupState.LEFT_OUT for group in groups):
            return None
        undecided = [group for group in groups if group.reason == GroupCode.CHECK_UNDECIDED]
        if not undecided:
            return None
        return f"all {len(groups)} groups were excluded; the first: {await self._why(undecided[0])}"

    async def _why(self, group: GroupStatus) -> str:
        entries = await ledger.object_entries(self._store, "group", group.group_id)
        detail = entries[-1].detail if entries else None
        inner = detail.get("detail") if detail else None
        message = inner.get("message") if isinstance(inner, dict) else inner
        reason = group.reason or (entries[-1].code if entries else None)
        return f"{reason}: {message}"[:_REASON_CHARS] if message else str(reason)

    def _warn(self, text: str) -> None:
        self._progress.tell(Notice(text, warning=True))
