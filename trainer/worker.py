"""One alias's trainer: scored groups in, a published version out.

Owns: the alias's lease, the model in memory, the order of a step's phases. Refuses: deciding when to train
(campaign and learner do) and serving what it publishes (the proxy does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.errors import TrainerError
from trainer.settings import TrainerSettings

if TYPE_CHECKING:
    from recorder.aliases import AliasView
    from recorder.claims import GroupClaim
    from recorder.steps import StepView
    from recorder.store import Store
    from recorder.versions import VersionView


@dataclass(frozen=True, slots=True)
class StepReport:
    """What `train_once` did. No version means that nothing was trained; `reason` then says why."""

    step: StepView | None
    version: VersionView | None  # state `written`: the proxy's controller takes it from here
    reason: str | None = None
    # loss, reward_mean, reward_std, kl_engine (mean |Δlogprob|), kl_engine_max, ratio_mean, ratio_max, clip_fraction,
    # entropy, grad_norm, lr, kl_base, tokens, trained_tokens, tokens_per_s, rows, rows_per_trajectory
    metrics: Mapping[str, float] = field(default_factory=dict)
    trained: int = 0  # trajectories
    left_out: Mapping[str, int] = field(default_factory=dict)  # trajectories and choices by ledger code
    seconds: Mapping[str, float] = field(default_factory=dict)  # load, rows, forward_backward, probe, publish, commit


class AliasTrainer:
    """Trains one alias. Use as ``async with await AliasTrainer.open(...) as trainer``."""

    @classmethod
    async def open(cls, store: Store, alias: AliasView, settings: TrainerSettings, data: Path) -> AliasTrainer:
        """Take the lease ``trainer:<alias>`` and load the base (`settings.base` must be set).

        Raises `AliasBusy` when another trainer holds the alias, `BaseMismatch` when the base is not the alias's,
        `UnsupportedModel` when its logprobs cannot be reproduced.
        """
        raise TrainerError("not here yet")

    async def __aenter__(self) -> AliasTrainer:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give the lease back and end the torch thread. A running step is stopped between two packs."""
        raise TrainerError("not here yet")

    async def train_once(self, claims: Sequence[GroupClaim], *, campaign_id: str | None = None) -> StepReport:
        """Train one step on the claimed groups and publish the new version.

        The parent is the version live now. Groups that teach nothing are left out, with the reason in the ledger;
        where none is left no step begins (`version` is None). After a failed step the groups are given back, or
        left out after `max_tries`, and `StepFailed` is raised. Leases (alias and groups) are renewed meanwhile.
        """
        raise TrainerError("not here yet")
