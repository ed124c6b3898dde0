"""The `[campaign.health]` section of hone.toml: what looks unhealthy in a campaign, and what then happens.

Owns: the rules' names, and what of each may be set. Refuses: the rules and their defaults (`trainer.health`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

RuleName = Literal[
    "reward_hacking", "converged", "reward_jump", "perfect_scores", "repetition", "length_drift", "tool_drift",
    "latency_drift", "entropy_collapse", "kl_engine", "zero_variance", "part_divergence", "judge_drift",
]  # fmt: skip


class HealthSettings(BaseModel):
    """One health rule, by its name: `[campaign.health] length_drift = {at = 3, then = "pause"}` (docs/health.md)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    at: float | None = Field(None, gt=0, allow_inf_nan=False)
    """From how much on it speaks, in the rule's unit. Default: the rule's own."""
    then: Literal["note", "pause", "off"] | None = None
    """`note`: it is told and written down. `pause`: the campaign stops as well, and can be gone on with. `off`: it is
    not looked at. Default: the rule's own: `pause` for reward_hacking, the end of the campaign for converged, and
    `note` for all others."""
