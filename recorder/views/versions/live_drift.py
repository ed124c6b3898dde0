"""Whether an alias's live version is too far from the base, with transcripts of what it answers.

Owns: when it is, its sentence, and which transcripts are named. Refuses: measuring it (`trainer.step.drift`), and what
follows (`recorder.registry.live_findings`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select

from recorder.registry import versions
from recorder.registry.aliases import AliasView
from recorder.states import TrajectoryState
from recorder.store.database import Store
from recorder.store.schema import trajectories

FIGURE: Final = "drift.kl_base"  # among the metrics of a version: nats a token, over its alias's drift set
TRANSCRIPTS: Final = 3  # the newest of the version


@dataclass(frozen=True, slots=True)
class LiveDrift:
    """A live version above `trainer.kl_base_max`. `trajectories`: the newest that it sampled."""

    version_id: str
    kl_base: float
    most: float
    trajectories: Sequence[str]

    @property
    def figures(self) -> dict[str, Any]:
        """The figures, as a finding stores them."""
        return {"kl_base": self.kl_base, "most": self.most, "trajectories": list(self.trajectories)}

    def describe(self) -> str:
        """What is found, as the middle of a sentence."""
        shown = ", ".join(f"`hone show {id_}`" for id_ in self.trajectories)
        read = f"; read what it answers: {shown}" if shown else ""
        return (
            f"its KL from the base is {self.kl_base:.3g} nats a token on the drift set, where trainer.kl_base_max is "
            f"{self.most:g}{read}"
        )


async def find_drift(store: Store, alias: AliasView, most: float) -> LiveDrift | None:
    """Return the live version if its measured divergence from the base is above `most`, in nats a token."""
    if alias.live_version_id is None:
        return None
    live = await versions.get_version(store, alias.live_version_id)
    measured = live.metrics.get(FIGURE)
    if measured is None or measured <= most:
        return None
    t = trajectories.c
    newest = select(t.id).where(t.version_id == live.id, t.state == TrajectoryState.COMPLETED)
    async with store.read() as conn:
        found = (await conn.execute(newest.order_by(t.id.desc()).limit(TRANSCRIPTS))).scalars()
        return LiveDrift(live.id, float(measured), most, list(found))
