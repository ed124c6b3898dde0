"""A campaign: sample, judge, train, swap, and again, until a rule says stop.

Owns: the order of a campaign's steps, validation, going on from a rejected version, what is written down so that a
killed campaign goes on where it was. Refuses: how any of it is done (`sampling`, `measure`, `trainer.step`, the proxy).

A step is found again by what the store holds: attempts that are done are not run again, groups that are scored or
trained are not touched, and a step is over when the campaign's ledger says so.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from recorder.registry import aliases, replicas, versions
from recorder.registry.aliases import AliasView
from recorder.registry.retention import VALIDATION
from recorder.registry.versions import VersionView
from recorder.states import CampaignState, GroupState, Purpose, StepState, VersionState
from recorder.store import ledger
from recorder.store.changes import Topic
from recorder.store.database import Store
from recorder.store.ledger import LedgerRow
from recorder.work import campaigns, claims, steps
from recorder.work.campaigns import CampaignView, GroupStatus, Scenario
from trainer.campaign.measure import Measured, Measurer
from trainer.campaign.sampling import Sampler, Tally
from trainer.campaign.stop import Measure, Rules, Stop, decide
from trainer.campaign_settings import CampaignSettings
from trainer.errors import CampaignError, StepFailed
from trainer.progress import PHASES, Ended, Progress, Said, Status, StepDone, Validated
from trainer.step.report import StepReport, StepTrainer
from trainer.tasks.scenarios import draw

STEP = "step"  # a code of the ledger's rows about a campaign, as VALIDATION: their detail is the event shown
# A proxy that has not seen the new version by then serves the old one a little longer: its samples are of age 1.
_SEEN_TIMEOUT_S = 5.0
_PROXY_GONE_S = 15.0  # a proxy shows every ten seconds that it lives

_UNMEASURED: tuple[tuple[float | None, int], tuple[float | None, int]] = ((None, 0), (None, 0))

E = TypeVar("E", StepDone, Validated)


@dataclass(slots=True)
class History:
    """What a campaign has written down so far, in order."""

    steps: list[StepDone] = field(default_factory=list)
    validations: list[Validated] = field(default_factory=list)

    @property
    def steps_done(self) -> int:
        """How many steps are over."""
        return len(self.steps)

    def measures(self, settings: CampaignSettings) -> list[Measure]:
        """What the stop rules look at: validations where they are regular, else the steps' own attempts."""
        seen = self.validations if settings.val_every and self.validations else self.steps
        values = [(e.step, e.reward if e.success is None else e.success) for e in seen]
        return [Measure(step, value) for step, value in values if value is not None]


class Campaign:
    """One campaign, from where it stands to its end."""

    def __init__(
        self,
        store: Store,
        campaign: CampaignView,
        alias: AliasView,
        settings: CampaignSettings,
        *,
        sampler: Sampler,
        measurer: Measurer,
        trainer: Awaitable[StepTrainer],
        lease_s: float,
        max_tries: int,
        progress: Progress,
        still_ours: Callable[[], None],
    ) -> None:
        self._store = store
        self._campaign = campaign
        self._alias = alias
        self._settings = settings
        self._sampler = sampler
        self._measurer = measurer
        # Loading torch and the base takes longer than starting to sample: it is waited for when there is data.
        self._trainer_to_be = asyncio.ensure_future(trainer)
        self._lease_s = lease_s
        self._max_tries = max_tries
        self._progress = progress
        self._still_ours = still_ours  # raises CampaignBusy when the campaign's lease was lost
        self._seconds: dict[str, float] = {}

    async def run(self) -> Ended:
        """Run to the end and mark the campaign finished.

        Raises `CampaignError` and whatever else of the trainer's errors makes going on impossible.
        """
        began = time.monotonic()
        history = await read_history(self._store, self._campaign)
        train = await campaigns.list_scenarios(self._store, self._campaign.id, "train")
        val = await campaigns.list_scenarios(self._store, self._campaign.id, "val")
        await self._validate(history, val, last=False)
        while (stop := self._stop(history)) is None:
            step = history.steps_done + 1
            drawn = draw(train, self._settings.scenarios_per_step, step, self._settings.seed)
            done = await self._step(step, drawn)
            await self._write_down(STEP, done)
            history.steps.append(done)
            self._refuse_hopeless(history)
            await self._validate(history, val, last=False)
        await self._validate(history, val, last=True)
        await campaigns.finish(self._store, self._campaign.id, CampaignState.FINISHED, stop.code)
        live = await self._live()
        return summary(self._campaign.name, stop, history, live.name, time.monotonic() - began)

    def _stop(self, history: History) -> Stop | None:
        s = self._settings
        rules = Rules(s.steps, s.target, s.target_steps, s.plateau_steps, s.plateau_delta)
        return decide(history.measures(s), history.steps_done, rules)

    def _refuse_hopeless(self, history: History) -> None:
        """Give up when the newest steps all failed: going on would only cost."""
        last = history.steps[-self._settings.max_rejected :]
        if len(last) == self._settings.max_rejected and all(step.failed for step in last):
            raise CampaignError(
                f"campaign {self._campaign.name!r} gave up after {len(last)} failed steps in a row "
                f"(campaign.max_rejected); the last: {last[-1].note}"
            )

    # --- a step

    async def _step(self, step: int, scenarios: Sequence[Scenario]) -> StepDone:
        self._seconds = {}
        self._still_ours()
        self._raise_early()
        await self._until_decided(step)
        before = await self._live()
        with self._timed("sampling"):
            tally = await self._sampler.sample(step, Purpose.TRAIN, scenarios, self._settings.group_size)
        self._refuse_broken_agent(step, tally)
        with self._timed("judging"):
            groups = await self._sampler.scored(step, Purpose.TRAIN)
        measured = await self._measurer.measure(groups)
        with self._timed("training"):
            self._progress.tell(Status(step, "training"))
            report, failure = await self._train(groups)
        version = report.version if report and report.version else await self._trained_before(groups)
        with self._timed("swapping"):
            failure = (await self._swap(step, version) if version else None) or failure
        return await self._done(step, before, tally, measured, groups, report, failure)

    async def _until_decided(self, step: int) -> None:
        """Wait for the decision on a version that was made before, by whomever: no step begins while there is one."""
        deadline = time.monotonic() + self._settings.live_timeout_s
        with self._store.watch.on(Topic.SERVICE) as news:
            while (waiting := await versions.undecided(self._store, self._alias.id)) is not None:
                self._progress.tell(Status(step, "swapping", detail=f"{waiting.name} is not decided yet"))
                if time.monotonic() >= deadline:
                    raise self._not_in_service(waiting)
                await news.wait(deadline - time.monotonic())

    def _refuse_broken_agent(self, step: int, tally: Tally) -> None:
        if tally.total and sum(tally.failed.values()) == tally.total:
            reasons = ", ".join(f"{reason} {count}" for reason, count in tally.failed.most_common())
            raise CampaignError(
                f"all {tally.total} attempts of step {step} failed ({reasons}). The first: {tally.first_error}"
            )

    async def _train(self, groups: Sequence[GroupStatus]) -> tuple[StepReport | None, str | None]:
        """Train on the scored groups; the report, or why there is none. A failed step is tried with what is left.

        Groups of earlier steps that are scored again, because their version came to nothing, are trained on too.
        """
        trainer = await self._trainer_to_be
        failure: str | None = None
        for _ in range(self._max_tries):
            claimed = await claims.claim_for_training(
                self._store,
                self._alias.id,
                trainer.owner,
                self._lease_s,
                limit=2 * len(groups),
                campaign_id=self._campaign.id,
            )
            if not claimed:
                return None, failure
            try:
                return await trainer.train_once(claimed, campaign_id=self._campaign.id), None
            except StepFailed as e:
                failure = str(e)
                self._progress.tell(Said(f"training failed: {e}", warning=True))
        return None, failure

    async def _trained_before(self, groups: Sequence[GroupStatus]) -> VersionView | None:
        """The version that this step made before the program was killed."""
        used = {group.group_id for group in groups if group.state is GroupState.TRAINED}
        newest = await steps.list_steps(
            self._store, self._alias.id, state=StepState.DONE, campaign_id=self._campaign.id, limit=1
        )
        if not used or not newest or newest[0].version_id is None:
            return None
        if not used & set(await steps.groups_of(self._store, newest[0].id)):
            return None
        return await versions.get_version(self._store, newest[0].version_id)

    async def _swap(self, step: int, version: VersionView) -> str | None:
        """Wait until a version is in service; why it will not be, if so."""
        deadline = time.monotonic() + self._settings.live_timeout_s
        self._progress.tell(Status(step, "swapping", detail=""))
        with self._store.watch.on(Topic.SERVICE) as news:
            while True:
                await news.wait(deadline - time.monotonic())
                version = await versions.get_version(self._store, version.id)
                if version.state in (VersionState.LIVE, VersionState.RETIRED):  # retired: another is live already
                    await self._seen_by_proxies()
                    return None
                if version.state in (VersionState.REJECTED, VersionState.ABANDONED):
                    live = await self._live()
                    text = f"{version.name} was {version.state}: {version.reason}"
                    self._progress.tell(Said(f"{text}; going on from {live.name}", warning=True))
                    return text
                if time.monotonic() >= deadline:
                    raise self._not_in_service(version)

    def _not_in_service(self, version: VersionView) -> CampaignError:
        return CampaignError(
            f"{version.name} is {version.state}, and not in service after {self._settings.live_timeout_s:g} s. "
            "Look whether the proxy runs (`hone status`), and whether versions are promoted by themselves "
            f"(aliases.{self._alias.name}.promote, .canary_share). Then go on with the same command."
        )

    async def _seen_by_proxies(self) -> None:
        """Wait a moment until every proxy offers the live version: the next groups are then sampled from it."""
        deadline = time.monotonic() + _SEEN_TIMEOUT_S
        alias = await aliases.get_alias(self._store, self._alias.project_id, self._alias.name)
        with self._store.watch.on(Topic.PROXIES) as news:
            while time.monotonic() < deadline:
                await news.wait(deadline - time.monotonic())
                proxies = await replicas.proxies_seen(self._store, self._alias.project_id, _PROXY_GONE_S)
                if all(proxy.generations.get(alias.id, 0) >= alias.generation for proxy in proxies):
                    return

    async def _done(
        self,
        step: int,
        before: VersionView,
        tally: Tally,
        measured: Measured,
        groups: Sequence[GroupStatus],
        report: StepReport | None,
        failure: str | None,
    ) -> StepDone:
        metrics = report.metrics if report else {}
        unscored = sum(group.current_score_id is None for group in groups)
        failure = failure or ("no group was scored" if unscored == len(groups) else None)
        return StepDone(
            step=step,
            version=(await self._live()).name,
            sampled_by=before.name,
            success=measured.success,
            reward=measured.reward,
            kl=metrics.get("kl_engine"),
            kl_base=metrics.get("kl_base"),
            tokens_per_s=metrics.get("tokens_per_s"),
            attempts=tally.total,
            errored=sum(tally.failed.values()),
            trained=report.trained if report and failure is None else 0,
            left_out=dict(report.left_out) if report else {},
            seconds=dict(self._seconds),
            note=failure or (report.reason if report and report.reason else ""),
            failed=failure is not None,
            metrics=dict(metrics),
        )

    # --- validation

    async def _validate(self, history: History, scenarios: Sequence[Scenario], *, last: bool) -> None:
        """Measure the live version where it is time to: before the first step, every `val_every`, after the last."""
        step, every = history.steps_done, self._settings.val_every
        due = last or step == 0 or (every is not None and step % every == 0)
        if not due or not scenarios or any(v.step == step for v in history.validations):
            return
        self._raise_early()
        began, version = time.monotonic(), await self._live()
        tally = await self._sampler.sample(step, Purpose.VAL, scenarios, self._settings.val_attempts)
        self._refuse_broken_agent(step, tally)
        if self._measurer.needs_scores:
            groups = await self._sampler.scored(step, Purpose.VAL)
        else:
            groups = await self._sampler.groups(step, Purpose.VAL)
        measured = await self._measurer.measure(groups)
        done = Validated(
            step=step,
            version=version.name,
            success=measured.success,
            reward=measured.reward,
            attempts=measured.attempts,
            errored=sum(tally.failed.values()),
            seconds=time.monotonic() - began,
        )
        await self._write_down(VALIDATION, done)
        history.validations.append(done)

    # --- small things

    def _raise_early(self) -> None:
        """Raise what the trainer's start met, before attempts are made that nobody could train on."""
        if self._trainer_to_be.done():
            self._trainer_to_be.result()

    async def _live(self) -> VersionView:
        alias = await aliases.get_alias(self._store, self._alias.project_id, self._alias.name)
        assert alias.live_version_id is not None  # an alias is made with version 0 live
        return await versions.get_version(self._store, alias.live_version_id)

    async def _write_down(self, code: str, event: StepDone | Validated) -> None:
        row = LedgerRow(self._campaign.project_id, "campaign", self._campaign.id, code, asdict(event))
        async with self._store.write() as conn:
            await ledger.write(conn, [row])
        self._progress.tell(event)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        assert phase in PHASES
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[phase] = time.monotonic() - began


async def read_history(store: Store, campaign: CampaignView) -> History:
    """What a campaign wrote down before."""
    history = History()
    for entry in await ledger.of(store, "campaign", campaign.id):
        if entry.detail is not None and entry.code == STEP:
            history.steps.append(_event(StepDone, entry.detail))
        elif entry.detail is not None and entry.code == VALIDATION:
            history.validations.append(_event(Validated, entry.detail))
    return history


def _event(kind: type[E], detail: Mapping[str, Any]) -> E:
    return kind(**detail)


def summary(name: str, stop: Stop, history: History, live: str, seconds: float) -> Ended:
    """What a whole campaign came to."""
    measured = [(e.success, e.attempts) for e in (history.validations or history.steps) if e.success is not None]
    (before, attempts_before), (after, attempts_after) = (measured[0], measured[-1]) if measured else _UNMEASURED
    left_out: Counter[str] = Counter()
    for step in history.steps:
        left_out.update(step.left_out)
    return Ended(
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
