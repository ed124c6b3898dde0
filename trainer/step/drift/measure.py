"""Exact divergences of the policy in memory on a drift set: from the base, its parent, and earlier versions.

Owns: the passes, and their sums over the ranks of a trainer. Refuses: which rows and versions
(`trainer.step.drift.set_reader`).

At each position whose next token was sampled, the distribution over the whole vocabulary at temperature 1 is compared
with that of each reference: KL(new ‖ reference), in nats. Hidden states are kept for the positions of one pass, logits
for one chunk of them. A reference has its own LoRA, so its weights are put into the policy for its pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from trainer.batch.weights import WeightedRow
from trainer.policy.logprobs import full_divergence, full_logprobs
from trainer.policy.model import Policy
from trainer.policy.packs.plan import plan_update
from trainer.policy.packs.tokens import gather_tokens
from trainer.policy.update import run_passes
from trainer.ranks.rounds import DealtPack
from trainer.settings import TrainerSettings
from trainer.step.drift.request import BASE, PARENT, PREFIX, DriftJob

LoraState = Mapping[str, Tensor]

_NEW: Final = "new"


@dataclass(slots=True)
class DriftSums:
    """Sums over positions: of the entropy, and of the divergence from each reference, in nats."""

    positions: int = 0
    entropy: float = 0.0
    divergences: dict[str, float] = field(default_factory=dict)

    def add(self, other: DriftSums) -> None:
        """Add the sums of other positions."""
        self.positions += other.positions
        self.entropy += other.entropy
        for name, total in other.divergences.items():
            self.divergences[name] = self.divergences.get(name, 0.0) + total

    def means(self) -> dict[str, float]:
        """The means, by their names among a step's metrics."""
        means = {f"kl_{name}": total for name, total in self.divergences.items()} | {"entropy": self.entropy}
        return {f"{PREFIX}{name}": total / self.positions for name, total in means.items()}


class PolicyVersions:
    """The policy as itself and as each reference, one at a time."""

    def __init__(self, policy: Policy, references: Mapping[str, LoraState]) -> None:
        self._policy = policy
        self._states = {_NEW: policy.state(), **references}
        self._current = _NEW
        self.names = (BASE, *references)

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Within: the policy computes as this one."""
        if name == BASE:
            with self._policy.base_only():
                yield
            return
        if name != self._current:
            self._policy.load_state(self._states[name])
            self._current = name
        yield

    def at_head(self, name: str) -> AbstractContextManager[None]:
        """Within: the head computes as this one's. Only a LoRA on the head makes a difference."""
        return self.at(name) if self._policy.adapts_head else nullcontext()

    def restore(self) -> None:
        """Go back to the policy itself."""
        self._policy.load_state(self._states[_NEW])
        self._current = _NEW


def measure_drift(
    policy: Policy, job: DriftJob, parent: LoraState, settings: TrainerSettings, stopped: Callable[[], bool]
) -> dict[str, float]:
    """Return the metrics of the policy's drift from the base, from `parent` and from the job's versions.

    The weights in memory are the same afterwards. All ranks call it together. Raises as `run_passes`.
    """
    rows = [WeightedRow(row, 0.0, 0.0) for row in job.rows]
    planned = plan_update(policy, rows, settings, policy.pass_budget)
    versions = PolicyVersions(policy, {PARENT: parent, **job.states})
    sums = DriftSums()

    def measure(dealt: DealtPack) -> None:
        before = gather_tokens(dealt.pack, rows, policy.device).before
        hidden = {}
        for name in (_NEW, *versions.names):
            with versions.at(name):
                hidden[name] = policy.hidden(dealt.pack)[before]
        for start in range(0, len(before), settings.logprob_chunk):
            part = slice(start, start + settings.logprob_chunk)
            found = _compare_chunk(policy, versions, {name: states[part] for name, states in hidden.items()})
            if dealt.counts:
                sums.add(found)

    try:
        with torch.no_grad():
            run_passes(policy, planned.packs, stopped, measure)
    finally:
        versions.restore()
    whole = DriftSums()
    for one in policy.ranks.gather(sums):
        whole.add(one)
    return whole.means()


def _compare_chunk(policy: Policy, versions: PolicyVersions, hidden: Mapping[str, Tensor]) -> DriftSums:
    """The sums over some positions. `hidden`: the states there, by each version's name."""
    with versions.at_head(_NEW):
        new = full_logprobs(hidden[_NEW], policy.head)
    sums = DriftSums(len(new), -float((new.exp() * new).sum(dtype=torch.float64)))
    for name in versions.names:
        with versions.at_head(name):
            reference = full_logprobs(hidden[name], policy.head)
        sums.divergences[name] = float(full_divergence(new, reference).sum(dtype=torch.float64))
    return sums
