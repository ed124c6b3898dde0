"""The tokens of a pass that fitted into memory, which the store remembers for a base and a device.

Refuses: lowering them (`trainer.step.core`), and the store's rows (`recorder.queue.training.pass_budgets`).
"""

from __future__ import annotations

from recorder.queue.training import pass_budgets
from recorder.store.database import Project
from trainer.settings import TrainerSettings
from trainer.step.state.step_core import StepCore


class PassBudgetMemory:
    """What is stored of one trainer's passes."""

    def __init__(self, project: Project, fingerprint: str, core: StepCore, settings: TrainerSettings) -> None:
        self._project = project
        self._fingerprint = fingerprint
        self._core = core
        self._limit = settings.token_budget
        self._stored = self._limit

    async def load(self) -> None:
        """Give the trainer the tokens that fitted before."""
        self._core.pass_budget = self._stored = await pass_budgets.load_pass_budget(
            self._project, self._fingerprint, self._core.device_name, self._limit
        )

    async def remember(self) -> str | None:
        """Store the tokens of a pass that fitted. Return what to report, once, if they are fewer than before."""
        before, now, limit = self._stored, self._core.pass_budget, self._limit
        if now == before:
            return None
        device = self._core.device_name
        await pass_budgets.record_pass_budget(
            self._project, self._fingerprint, device, token_budget=limit, pass_budget=now
        )
        self._stored = now
        return (
            f"passes of {before} tokens did not fit into the memory of {device}: a pass now has at most {now} tokens, "
            "and a longer trajectory has one of its own. Results are the same; steps take longer. This is remembered "
            f"until trainer.token_budget ({limit}) changes."
        )
