"""A campaign whose program is killed at random moments, some inside a version's write, comes to the same as without.

One that samples ahead is killed at each of its own moments: what ends first decides its steps, so what must hold is
that no group is lost and none is trained on twice.

One moment by default, inside a version's write; twenty in `make long`: `HONE_KILLS`.

The moments are drawn from a seed, as times; each life of the program is as long as brings the kills evenly to the end
of what is left to do. Some lives end while the files of a version are being written instead: a folder that has not got
its name proves it.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from recorder.queue import campaigns
from recorder.queue.campaigns import CampaignView
from recorder.registry import ancestry, versions
from recorder.registry.fingerprint import base_fingerprint
from recorder.report.contents import gather_report
from recorder.report.shapes import CampaignReport, MeasuredPoint
from recorder.states import CampaignState, GroupState, VersionState
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.schema import attempts, groups, scenarios, step_groups, steps
from recorder.store.schema import ledger as ledger_rows
from recorder.store.schema import versions as version_rows
from recorder.views.campaigns.events import BEGUN, ENDED
from tests.stores import Stores
from tests.trainer.campaign.living import KillPoint, Life, trainer_settings
from tests.trainer.ring import PROJECT, RecordedProgress, Ring, Script, ledger_codes
from trainer.artifacts import adapters
from trainer.runtime.train import PAGE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # many programs, one after the other

KILLS = int(os.environ.get("HONE_KILLS", "1"))
INSIDE = max(1, KILLS // 5)  # of them, inside the write of a version
LONG_S = 300.0
STEPS = 6
HILL = {0: 0.25, 1: 0.25, 2: 0.5, 3: 0.5, 4: 0.75}  # by steps from version 0; what comes after is worse
BEST = 4


@asynccontextmanager
async def ringed(data: Path, stores: Stores, base: Path, script: Script) -> AsyncIterator[Ring]:
    with stores.made(data) as settings:
        async with Ring.running(data, script, settings, base_fingerprint(base, "float32")) as ring:
            yield ring


@asynccontextmanager
async def hilly(data: Path, stores: Stores, base: Path) -> AsyncIterator[Ring]:
    script = Script(skill=lambda steps: HILL.get(steps, 0.5), by_steps=True)
    async with ringed(data, stores, base, script) as ring:
        yield ring


def settings_of(user: dict[str, Any]) -> dict[str, Any]:
    lines = [f'{{"id": "test-{i}", "input": "test {i}", "reference": "answer test {i}"}}\n' for i in range(2)]
    (user["cwd"] / "test.jsonl").write_text("".join(lines))
    more = {"test_scenarios": user["cwd"] / "test.jsonl", "success": "my_agent:solved", "val_every": 1}
    return user | more | {"val_attempts": 4, "steps": STEPS, "baselines": ["base"], "lease_s": 2.0}


# --- what is compared


async def steps_from_the_base(ring: Ring, name: str | None) -> int | None:
    """How many steps a version is from version 0: its number counts the ones that were begun in vain too."""
    if name is None:
        return None
    version = await versions.get_version_by_name(Project(ring.store, PROJECT), name)
    async with ring.store.read() as conn:
        return len(list(await conn.execute(ancestry.ancestry_ages(version.id)))) - 1


def measures(points: list[MeasuredPoint]) -> list[tuple[Any, ...]]:
    return [(one.step, one.value, one.attempts, one.errored, one.low, one.high) for one in points]


async def told_of(ring: Ring, report: CampaignReport) -> dict[str, Any]:
    """All that a report says, without times, and with versions by their steps."""
    best = report.best.version if report.best else None
    told = [report.first, best, report.served, report.live]
    names = {*told, *(one.version for one in report.validations)}
    number = {name: await steps_from_the_base(ring, name) for name in names}
    return {
        "stands": (report.status.code, report.steps_done, report.failed_steps, report.kind),
        "own": measures(list(report.own)),
        "validations": [(number[one.version], *measures([one])) for one in report.validations],
        "baselines": [(one.version, *measures([one])) for one in report.baselines],
        "tests": [(number.get(one.version, one.version), *measures([one])) for one in report.tests],
        "versions": [number[name] for name in told],
        "alarms": [(one.alarm.step, one.alarm.rule, one.alarm.then) for one in report.alarms],
        "changes": list(report.changes),
        "sums": (report.attempts, report.errored, report.trained),
        # An attempt that ran when the program was killed is told as what it is: given up, and made again.
        "left out": [one for one in report.excluded if one.code != "abandoned"],
        "health": sorted(report.health),
        "pairs": [(one.scenario, one.split, one.before.reward, one.after.reward, one.rise) for one in report.pairs],
        "notes": list(report.notes),
    }  # fmt: skip


async def the_campaign(ring: Ring) -> CampaignView | None:
    """None: the program was killed before there was one."""
    found = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    assert len(found) <= 1
    return found[0] if found else None


async def splits(ring: Ring) -> tuple[set[str], set[tuple[int, str]]]:
    """Of what parts scenarios were trained on, and in which steps, as what, the test part was attempted."""
    trained = (
        select(scenarios.c.split)
        .join(groups, groups.c.scenario_id == scenarios.c.id)
        .join(step_groups, step_groups.c.group_id == groups.c.id)
    )
    tested = select(attempts.c.step_number, attempts.c.purpose).join(
        scenarios, scenarios.c.id == attempts.c.scenario_id
    )
    async with ring.store.read() as conn:
        parts = set((await conn.execute(trained)).scalars())
        rows = await conn.execute(tested.where(scenarios.c.split == "test"))
        return parts, {(row.step_number, row.purpose) for row in rows}


async def done(ring: Ring) -> int:
    """How many attempts have come to their end."""
    async with ring.store.read() as conn:
        query = select(func.count()).select_from(attempts).where(attempts.c.state == "done")
        return int((await conn.execute(query)).scalar_one())


async def versions_are_whole(ring: Ring) -> None:
    """Every version that was ever in service has its files, as its manifest and the store say."""
    made = await versions.get_versions(Project(ring.store, PROJECT), [VersionState.LIVE, VersionState.RETIRED])
    paths = [(Path(one.path), one.manifest_sha256) for one in made if one.path is not None]
    assert len(paths) == STEPS
    for path, sha256 in paths:
        assert adapters.read_adapter(path, sha256)


# --- killing


@dataclass(frozen=True)
class Calm:
    """What a campaign that nobody kills comes to, and how long that takes: before its first step, from there to its
    end, and from there, with the report, to the end of the program.
    """

    told: Mapping[str, Any]
    attempts: int
    start_s: float
    work_s: float
    end_s: float


@dataclass
class Kills:
    """Kills that hit: each by how much of the campaign was done then, as a share of its attempts."""

    at: list[float] = field(default_factory=list)
    inside: int = 0  # the write of a version

    @property
    def left(self) -> int:
        return max(KILLS - len(self.at), INSIDE - self.inside)


async def is_on_its_last_try(ring: Ring) -> bool:
    """Whether a step that began runs with groups that were in so many dead ones that another gives them up."""
    back = select(ledger_rows.c.object_id).where(ledger_rows.c.code == ancestry.GIVEN_BACK)
    often = back.group_by(ledger_rows.c.object_id).having(func.count() >= ancestry.RETURNS)
    waiting = groups.c.state.in_((GroupState.SCORED, GroupState.TRAINING))
    async with ring.store.read() as conn:
        return bool((await conn.execute(select(groups.c.id).where(groups.c.id.in_(often), waiting))).first())


class Writing:
    """Whether a version or its checkpoint is being written, or was when the program died: by unnamed folders."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._before = self._unfinished()

    def _unfinished(self) -> set[Path]:
        return {path for kind in ("adapters", "checkpoints") for path in (self._data / kind).glob(".unfinished-*")}

    def begun(self) -> bool:
        return bool(self._unfinished() - self._before)


async def calm_run(ring: Ring, settings: Mapping[str, Any], base: Path) -> Calm:
    life = await Life.of(ring, settings, base)
    await life.lasts(LONG_S)
    gone = time.time()
    assert not await life.killed()
    campaign = await the_campaign(ring)
    assert campaign is not None
    at = {row.code: row.at for row in await ledger.object_entries(ring.store, "campaign", campaign.id)}
    told = await told_of(ring, await gather_report(ring.store, campaign))
    return Calm(told, await done(ring), at[BEGUN] - life.began, at[ENDED] - at[BEGUN], gone - at[ENDED])


async def kill_until_it_is_over(
    ring: Ring, settings: Mapping[str, Any], base: Path, calm: Calm, chance: random.Random, kills: Kills
) -> None:
    """Run a campaign, killed again and again; at last, or where it came to its end between two kills, to its end.

    Lives in which nothing came to its end grow longer one after the other: what is left may take a busy machine more
    time than a calm campaign took, and would otherwise be begun for ever.
    """
    assert ring.data is not None
    before, vain = -1, 0
    while (campaign := await the_campaign(ring)) is None or campaign.state is CampaignState.RUNNING:
        ended = await done(ring)
        before, vain = ended, vain + 1 if ended == before else 0
        share = min(1.0, ended / calm.attempts)
        rest_s = calm.work_s * (1 - share) + calm.end_s
        written = Writing(ring.data)
        inside = kills.inside < INSIDE and kills.inside <= INSIDE * share
        life = await Life.of(ring, settings, base)
        if kills.left:
            longest_s = calm.start_s + max(rest_s / 2, calm.end_s)
            drawn_s = chance.uniform(0, 2) * (calm.start_s + rest_s / (kills.left + 1))
            await life.lasts(min(drawn_s, longest_s) * (1 + vain / 4), written.begun if inside else None)
            while await is_on_its_last_try(ring) and life.process.is_alive():
                await life.lasts(time.time() - life.began + 0.05)
        else:
            await life.lasts(LONG_S)
        hit = await life.killed()
        if hit and campaign is not None:
            kills.at.append(min(1.0, await done(ring) / calm.attempts))
            kills.inside += written.begun()


async def test_a_campaign_that_is_killed_at_random_moments_comes_to_the_same(
    tmp_path: Path, user: dict[str, Any], stores: Stores, tiny_base: Path
) -> None:
    settings = settings_of(user)
    async with hilly(tmp_path / "calm", stores, tiny_base) as ring:
        calm = await calm_run(ring, settings, tiny_base)
    assert calm.told["stands"] == ("steps", STEPS, 0, "success")
    assert calm.told["versions"] == [0, BEST, BEST, BEST]
    assert len(calm.told["pairs"]) == 3
    chance, kills, number = random.Random(13), Kills(), 0
    while kills.left:
        data, number = tmp_path / f"killed-{number}", number + 1
        async with hilly(data, stores, tiny_base) as ring:
            await kill_until_it_is_over(ring, settings, tiny_base, calm, chance, kills)
            campaign = await the_campaign(ring)
            assert campaign is not None
            assert campaign.state is CampaignState.FINISHED
            assert await told_of(ring, await gather_report(ring.store, campaign)) == calm.told
            assert await splits(ring) == ({"train"}, {(STEPS, "eval")})
            await versions_are_whole(ring)
            assert (data / "campaigns" / campaign.name / PAGE).stat().st_size > 0
            assert (await ledger_codes(ring.store, campaign.id)).count(BEGUN) > 1
    assert len(kills.at) >= KILLS
    assert kills.inside >= INSIDE
    thirds = Counter(int(min(at, 0.999) * 3) for at in kills.at)
    assert KILLS < 20 or min(thirds[third] for third in range(3)) >= 1, f"the kills hit at {kills.at}"


# --- sampling ahead

# Each life of the campaign ends at the next of these; each is at a later step than the one before it.
POINTS = (
    KillPoint("trainer.campaign.sampling", "store_attempts.new_attempts", 2),  # step 2: groups without attempts
    KillPoint("trainer.campaign.sampling", "RoundSampler.plan", after=True),  # step 2 is planned, nothing entered
    KillPoint("trainer.agents.attempts", "finish_attempts", after=True),  # an attempt ended while others run
    KillPoint("trainer.campaign.pipeline", "entered_steps.enter_groups"),  # step 1 has its groups, unwritten
    KillPoint("trainer.campaign.pipeline", "entered_steps.enter_groups", after=True),  # they are written
    KillPoint("trainer.campaign.loop", "claims.claim_for_training", after=True),
    KillPoint("trainer.step.alias_trainer", "AliasTrainer.train_once", after=True),  # a version is written
    KillPoint("trainer.campaign.loop", "write_event", of="step"),  # the step is over, and nobody has said so
    KillPoint("trainer.campaign.loop", "write_event", of="step", after=True),
    KillPoint("trainer.campaign.pipeline", "entered_steps.enter_groups", 2),  # a later step's
    KillPoint("trainer.campaign.pipeline", "entered_steps.end_waiting_groups", after=True),  # at the end
    KillPoint("trainer.campaign.loop", "write_event", of="ended"),
)
AHEAD_STEPS = 5


async def groups_of_steps(ring: Ring) -> Counter[tuple[str, int | None]]:
    """The attempts that count of each training group, with the step that it entered."""
    async with ring.store.read() as conn:
        query = select(attempts.c.group_external_id, attempts.c.entered_step).where(attempts.c.purpose == "train")
        rows = await conn.execute(query.where(attempts.c.state == "done"))
        return Counter((row.group_external_id, row.entered_step) for row in rows)


async def times_trained(ring: Ring) -> Counter[str]:
    """How often versions that served were trained on each group."""
    served = version_rows.c.state.in_((VersionState.LIVE, VersionState.RETIRED))
    query = (
        select(step_groups.c.group_id)
        .join(steps, steps.c.id == step_groups.c.step_id)
        .join(version_rows, version_rows.c.id == steps.c.version_id)
        .where(served)
    )
    async with ring.store.read() as conn:
        return Counter((await conn.execute(query)).scalars())


async def test_a_campaign_that_samples_ahead_loses_and_doubles_nothing_wherever_it_is_killed(
    tmp_path: Path, user: dict[str, Any], stores: Stores, tiny_base: Path
) -> None:
    settings = {key: value for key, value in user.items() if key != "val_scenarios"}
    settings |= {"max_lag": 1, "steps": AHEAD_STEPS, "lease_s": 2.0}
    async with ringed(tmp_path / "data", stores, tiny_base, Script(skill=lambda number: 0.5)) as ring:
        for point in POINTS:
            life = await Life.of(ring, settings, tiny_base, point)
            await life.lasts(LONG_S)
            assert await life.killed(), f"it came to its end without {point}"
        told = RecordedProgress()
        ended = await ring.train(settings, told, trainer=trainer_settings(tiny_base))
        assert (ended.reason, ended.steps) == ("steps", AHEAD_STEPS)
        campaign = await the_campaign(ring)
        assert campaign is not None
        assert campaign.state is CampaignState.FINISHED
        codes = await ledger_codes(ring.store, campaign.id)
        assert codes.count("step") == AHEAD_STEPS
        report = await gather_report(ring.store, campaign)
        assert [(one.step, one.attempts, one.trained) for one in report.steps] == [
            (step, 8, 8) for step in range(1, AHEAD_STEPS + 1)
        ]
        found = await groups_of_steps(ring)
        assert Counter(step for _, step in found) == dict.fromkeys(range(1, AHEAD_STEPS + 1), 2)
        assert len({name for name, _ in found}) == len(found)  # none is in two steps
        assert set(found.values()) == {4}
        assert set((await times_trained(ring)).values()) == {1}
        assert len(await times_trained(ring)) == 2 * AHEAD_STEPS
        assert not told.steps()  # all was done before the last life
