"""An alias that has learnt: versions, steps and decisions as trainer and controller would have left them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import update

from recorder.queue import campaigns, claims, leases
from recorder.queue.campaigns import NewScenario
from recorder.queue.training import steps
from recorder.registry import alias_moves, aliases, versions
from recorder.registry.versions import VersionView
from recorder.states import VersionState
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import score_parts
from recorder.views.campaigns.events import VALIDATION
from tests.recorder.rows import PROJECT, Rows

METRICS = {
    "reward_mean": 0.4, "reward_std": 0.2, "kl_engine": 0.001, "entropy": 1.5, "clip_fraction": 0.02,
    "tokens_per_s": 1234.0, "seconds.train": 3.5, "seconds.load": 0.25, "part.solved": 0.5,
}  # fmt: skip
FIGURES = {"success": 0.75, "success_live": 0.5, "pairs": 16, "win_rate": 0.62}


@dataclass
class Learned:
    """Steps of an alias, one after the other."""

    store: Store
    alias_id: str
    alias: str = "helpdesk"

    @property
    def rows(self) -> Rows:
        """Writes rows."""
        return Rows(self.store)

    async def live(self) -> str:
        """The live version's id."""
        live = (await aliases.get_alias(Project(self.store, PROJECT), self.alias)).live_version_id
        assert live is not None
        return live

    async def group(self, number: int, *, purpose: str = "train", absolute: bool = True, **values: Any) -> str:
        """A scored group of the live version, with ids of its own. `absolute`: no ranking has a part in its rewards."""
        group_id, live = f"grp_{number:04d}", await self.live()
        more = {"alias_id": self.alias_id, "version_id": live, "external_id": f"order-{number}", **values}
        await self.rows.group(id=group_id, state="ready", **more)
        for side in range(2):
            run = f"traj_{number:04d}_{side}"
            of_run = {"alias_id": self.alias_id, "version_id": live, "purpose": purpose}
            await self.rows.trajectory(group_id, id=run, state="completed", answered=False, **of_run)
            await self.rows.call(run, id=f"call_{number:04d}_{side}", version_id=live)
        await self.rows.score(group_id, absolute=absolute)
        return group_id

    async def set_rewards(self, number: int, *values: float) -> None:
        """Change the rewards of a group's members."""
        async with self.store.write() as conn:
            for side, value in enumerate(values):
                of_run = score_parts.c.trajectory_id == f"traj_{number:04d}_{side}"
                await conn.execute(update(score_parts).where(of_run).values(value=value))

    async def step(self, number: int, metrics: dict[str, Any] | None = None, **of_group: Any) -> VersionView:
        """One step on one group: a version that is written."""
        await self.group(number, **of_group)
        lease = await leases.acquire_lease(Project(self.store, PROJECT), leases.trainer_lease(self.alias), "test", 60)
        assert lease is not None
        parent = await self.live()
        held = await claims.claim_for_training(self.store, self.alias_id, "test", 60, limit=1)
        assert held, "groups of campaigns are left to these"
        step = await steps.begin_step(self.store, self.alias_id, parent, groups=held, lease=lease)
        version = await versions.allocate_version(self.store, self.alias_id, parent, step_id=step.id)
        await steps.finish_step(
            self.store, step.id, version_id=version.id, path="/nowhere", engine_name=version.engine_name,
            manifest_sha256="0", metrics=METRICS | (metrics or {}), checkpoint_path=None, groups=held,
            trained=[f"traj_{number:04d}_1"], lease=lease,
        )  # fmt: skip
        await leases.release_lease(self.store, lease)
        return version

    async def gated(
        self, number: int, figures: dict[str, Any] | None = None, metrics: dict[str, Any] | None = None, **of_group: Any
    ) -> VersionView:
        """A step whose version passed its gate."""
        version = await self.step(number, metrics, **of_group)
        await versions.mark_version(self.store, version.id, VersionState.LOADED, verified="logprobs")
        return await versions.pass_gate(self.store, version.id, "sane", who="controller", figures=figures or FIGURES)

    async def accepted(self, number: int, figures: dict[str, Any] | None = None, **of_group: Any) -> VersionView:
        """A step whose version is live."""
        version = await self.gated(number, figures, **of_group)
        await alias_moves.set_live(self.store, self.alias_id, version.id, why="gate", who="controller")
        return version

    async def campaign(self, **settings: Any) -> str:
        """A campaign that runs, with one scenario; its id."""
        made = await campaigns.create_campaign(
            Project(self.store, PROJECT), self.alias_id, "orders", {"steps": 20, **settings}
        )
        await campaigns.add_scenarios(self.store, made.id, "train", [NewScenario("order-1", "Where is it?")])
        return made.id

    async def scenario(self, campaign_id: str) -> str:
        """The id of its scenario."""
        return (await campaigns.list_scenarios(self.store, campaign_id, "train"))[0].id

    async def validated(self, campaign_id: str, step: int, version: str, success: float, attempts: int) -> None:
        """A validation, as a campaign writes it down."""
        said: dict[str, Any] = {
            "step": step,
            "version": version,
            "success": success,
            "reward": None,
            "attempts": attempts,
        }
        async with self.store.write() as conn:
            await ledger.write_rows(conn, [LedgerRow(PROJECT, "campaign", campaign_id, VALIDATION, said)])
