"""A campaign played into a store: its rows in the ledger, its attempts through a real recorder, their scores.

Owns: what a campaign would have left behind, without running one. Refuses: looking at it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address
from recorder.queue import attempts, campaigns, claims
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import CampaignView, GroupBinding, NewScenario, Split
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.registry import aliases, versions
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.settings import RecorderSettings
from recorder.states import Purpose
from recorder.store import ledger
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.views.campaigns.events import STEP, VALIDATION, StepDone, Validation
from tests.recorder.score_rows import new_score
from tests.recorder.talk import PROJECT, Talk, user

SCENARIOS = ("order-1", "order-2", "order-3", "order-4")


@dataclass
class Played:
    """One campaign, whose version 0 is live."""

    store: Store
    recorder: Recorder
    alias: AliasView
    campaign: CampaignView
    zero: VersionView

    async def version(self) -> VersionView:
        """Another version."""
        return await versions.allocate_version(self.store, self.alias.id, self.zero.id)

    async def wrote(self, code: str, event: Any) -> None:
        """A row of the ledger, as a campaign writes it down."""
        row = LedgerRow(PROJECT, "campaign", self.campaign.id, code, asdict(event))
        async with self.store.write() as conn:
            await ledger.write_rows(conn, [row])

    async def attempted(
        self,
        scenario: str,
        step: int,
        version: VersionView,
        said: Sequence[tuple[str, float]],
        *,
        split: Split = "val",
        **score: Any,
    ) -> list[str]:
        """A scenario attempted by a version: what each run said, and its reward. The runs' ids."""
        listed = await campaigns.list_scenarios(self.store, self.campaign.id, split)
        purpose = Purpose.TRAIN if split == "train" else Purpose.VAL
        (one,) = [each for each in listed if each.external_id == scenario]
        name = f"{self.campaign.name}-{step}-{scenario}"
        planned = [NewAttempt(one.id, step, purpose, number, name, f"{number}~{name}") for number in range(len(said))]
        bound = [GroupBinding(name, one.id, len(said))]
        (group,) = await campaigns.bind_groups(Project(self.store, PROJECT), self.campaign.id, self.alias.id, bound)
        await attempts.new_attempts(self.store, self.campaign.id, planned)
        runs = [
            await self._run(plan, str(one.input), version, text) for plan, (text, _) in zip(planned, said, strict=True)
        ]
        claim = await claims.claim_one_for_judging(self.store, group, "judge", 60)
        assert claim is not None
        parts = [NewPart(run, "reward", reward) for run, (_, reward) in zip(runs, said, strict=True)]
        given: dict[str, Any] = {"absolute": True, "tokens_in": 100, "tokens_out": 10, "cost_usd": 0.25} | score
        await scores.record_score(self.store, claim, new_score("recipe", parts=parts, **given))
        return runs

    async def _run(self, plan: NewAttempt, asked: str, version: VersionView, text: str) -> str:
        address = Address(
            trajectory=plan.trajectory_external_id, group=plan.group_external_id, purpose=plan.purpose, done=True
        )
        made = await Talk(self.recorder).call([user(asked)], text, address, version_id=version.id)
        run = made.attribution.trajectory
        assert run is not None
        return run.id


@asynccontextmanager
async def played(
    data: Path, recorded: RecorderSettings | None = None, name: str = "orders", **settings: Any
) -> AsyncIterator[Played]:
    """A campaign that runs, with nothing done yet."""
    kept = recorded or RecorderSettings()
    store = await open_store(data, kept, migrate=True)
    recorder = Recorder(store, kept)
    await recorder.start()
    try:
        alias = await aliases.ensure_alias(Project(store, PROJECT), "helpdesk", "base", None)
        assert alias.live_version_id is not None
        zero = await versions.get_version(store, alias.live_version_id)
        made = await campaigns.create_campaign(Project(store, PROJECT), alias.id, name, {"steps": 20, **settings})
        await campaigns.add_scenarios(
            store, made.id, "val", [NewScenario(id_, f"Where is {id_}?") for id_ in SCENARIOS]
        )
        yield Played(store, recorder, alias, made, zero)
    finally:
        await recorder.stop()
        await store.close()


def step(number: int, **given: Any) -> StepDone:
    """A step that is over."""
    said: dict[str, Any] = {
        "step": number, "version": f"helpdesk@{number}", "sampled_by": f"helpdesk@{number - 1}",
        "success": min(1.0, 0.2 + 0.1 * number), "reward": min(1.0, 0.3 + 0.1 * number), "kl": 1e-4, "kl_base": 1e-3,
        "tokens_per_s": 900.0, "attempts": 64, "errored": 2, "trained": 40, "left_out": {"zero_variance": 16},
        "seconds": {"sampling": 20.0 + number, "judging": 5.0, "training": 9.0, "swapping": 1.5},
        "metrics": {"health.length": 100.0 + number, "entropy": 1.5 - 0.05 * number, "kl_engine": 1e-4},
    }  # fmt: skip
    return StepDone(**said | given)


def validated(number: int, success: float | None, **given: Any) -> Validation:
    """A validation of the version after so many steps."""
    said: dict[str, Any] = {
        "step": number, "version": f"helpdesk@{number}", "success": success, "reward": success, "attempts": 64,
        "errored": 0, "seconds": 12.0,
    }  # fmt: skip
    return Validation(**said | given)


async def climbed(world: Played, steps: int = 6) -> None:
    """The rows of a campaign that climbs; a version of each step is there."""
    await world.wrote(VALIDATION, validated(0, 0.25))
    for number in range(1, steps + 1):
        await world.version()
        await world.wrote(STEP, step(number))
        await world.wrote(VALIDATION, validated(number, min(0.95, 0.25 + 0.12 * number)))
