"""The pairs in a step on groups: their passes without gradients, and their weights before each optimizer step.

Owns: which sums are computed when. Refuses: the weights themselves (`trainer.objectives.prefer`), and choosing pairs
(`trainer.step.fits.joined_data`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from trainer.batch.weights import WeightedRow
from trainer.objectives.prefer import NAME, weigh_by_margins
from trainer.policy.model import Policy
from trainer.policy.packs.logprob_sums import at_reference, sum_logprobs
from trainer.settings import TrainerSettings

PairSums = Mapping[str, Sequence[float]]
"""A pair → for each of its rows the sum of the logprobs of its trained tokens, in nats."""


@dataclass(frozen=True, slots=True)
class SubstepRows:
    """The rows of an optimizer step with final weights. `figures`: of its pairs; empty without any."""

    rows: list[WeightedRow]
    figures: Mapping[str, float] = field(default_factory=dict)

    def correct(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics of the optimizer step with the figures of its pairs: the loss is DPO's, and not that of
        the cross-entropy whose gradient it has.
        """
        if not self.figures:
            return dict(metrics)
        own = {f"objective.{NAME}.{name}": value for name, value in self.figures.items()}
        loss = metrics["loss"] - metrics[f"objective.{NAME}.loss"] + self.figures["loss"]
        return {**metrics, **own, "loss": loss}


class JoinedPairs:
    """The pairs of a step. All ranks use it together."""

    def __init__(
        self,
        policy: Policy,
        settings: TrainerSettings,
        stopped: Callable[[], bool],
        rows: Sequence[WeightedRow],
        reference: Mapping[str, Tensor] | None,
    ) -> None:
        """Measure all pairs among `rows` at the reference; None: the base.

        Raises `StepInterrupted`, and what a full memory raises (`trainer.policy.memory`).
        """
        self._policy, self._settings, self._stopped = policy, settings, stopped
        self._reference: PairSums = {}
        if any(one.pair is not None for one in rows):
            with at_reference(policy, reference):
                self._reference = self._sum(rows)

    def weigh(self, rows: Sequence[WeightedRow]) -> SubstepRows:
        """Weigh the rows of an optimizer step by the weights in memory, which it begins with. Raises as above."""
        if not any(one.pair is not None for one in rows):
            return SubstepRows(list(rows))
        return SubstepRows(*weigh_by_margins(rows, self._sum(rows), self._reference, self._settings.dpo.beta))

    def _sum(self, rows: Sequence[WeightedRow]) -> PairSums:
        own = [(one.pair, one.row) for one in rows if one.pair is not None]
        budget = self._policy.pass_budget
        sums = sum_logprobs(self._policy, [row for _, row in own], self._settings, budget, self._stopped)
        found: dict[str, list[float]] = {}
        for (pair, _), value in zip(own, sums, strict=True):
            found.setdefault(pair, []).append(value)
        return found
