"""The `[campaign.health]` section of hone.toml: what looks unhealthy in a campaign, and what then happens.

Owns: the rules' names, and what of each may be set. Refuses: the rules and their defaults (`trainer.campaign.health`).

The `[campaign]` section of hone.toml: which agent attempts which scenarios, how often, and when to stop.

Owns: names, units, defaults and their reasons. Refuses: reading any file (`trainer.tasks.scenarios` does).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

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


BASE = "base"  # the baseline that is the alias's version 0
_HAIR = 1e-6  # shares are written in decimals: 0.7 + 0.2 + 0.1 is not 1


class BeatSettings(BaseModel):
    """What the trained model must be better than before its target counts."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    baseline: str = BASE
    """Which one: `base`, or the name of a model of `[[proxy.models]]`."""
    margin: float = Field(0.0, ge=0, lt=1)
    """How much better: the lower bound (95 %) of the live version's measure minus the baseline's must be above this."""


class GoalSettings(BaseModel):
    """A bound on what a validation's attempts looked like, beside the target: a table of `[[campaign.goals]]`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    metric: str = Field(pattern=r"^(turns|tokens|seconds|part\.[A-Za-z0-9_-]{1,64})$")
    """A mean over attempts: `turns` (the model's answers), `tokens` (sampled), `seconds`, or `part.NAME` (of the
    reward)."""
    at_most: float | None = None
    """The mean must not be above this."""
    at_least: float | None = None
    """The mean must not be below this."""

    @model_validator(mode="after")
    def _one_bound(self) -> GoalSettings:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError(f"the goal {self.metric!r} needs either at_most or at_least")
        return self


class CampaignSettings(BaseModel):
    """What `hone train` may be told."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    preset: Literal["rlvr"] | None = None
    """The published recipe whose values are the defaults of this and other sections (docs/rlvr.md)."""
    name: str | None = None
    """Names the campaign; an unfinished one of this name is gone on with. Default: the scenario file's name."""
    alias: str | None = None
    """The alias to train. Default: the only one there is."""

    agent: str | None = None
    """`module:function`, called with a task (`.id .input .base_url .api_key .model`), or a shell command, which finds
    OPENAI_BASE_URL, OPENAI_API_KEY, HONE_MODEL, HONE_TASK_ID and HONE_TASK_INPUT (JSON) in its environment.
    `hone:answer` is Hone's own: the input is one turn, and what the model says to it is the attempt."""
    max_tokens: int | None = Field(None, ge=1)
    """`hone:answer`: most tokens of an answer. Unset: what the engine's context leaves."""
    temperature: float = Field(1.0, ge=0.1, le=2)
    """`hone:answer`: the temperature that answers are sampled at. Below 0.1 nothing could be trained on."""
    replay: bool = False
    """Hone attempts the scenarios itself, in the agent's place: tools are answered from the record of each scenario's
    run. The file is one of `hone scenarios from-traffic --replay`."""
    allow_writes: bool = False
    """Attempts may use tools of Hone's MCP gateway that their server does not mark read-only (`readOnlyHint`). Else
    these are not offered to attempts, nor to those of a version's gate."""
    python: Path | None = None
    """The Python that runs the agent. Default: the one that runs Hone."""
    cwd: Path | None = None
    """The folder the agent runs in. Default: where Hone was started."""
    agent_env: list[str] = []
    """Variables of the environment that the agent and the success function see beside what any Python program needs
    (PATH, HOME …)."""
    concurrency: int = Field(64, ge=1)
    """Most attempts that run at one time."""
    attempt_timeout_s: float = Field(300.0, gt=0)
    """An attempt that takes longer is stopped."""
    on_agent_error: Literal["exclude", "judge"] = "exclude"
    """What an exception or timeout of the agent's own makes of its attempt. `exclude`: errored, neither judged nor
    trained. `judge`: completed as it stands, and judged."""
    harness_retries: int = Field(2, ge=0)
    """How often an attempt is run again when the engine, the network or Hone was at fault."""

    scenarios: Path | None = None
    """File of the scenarios to learn from: `{"id", "input", "reference"?, "rubric"?, "adversarial"?}` a line, or a
    table of prompts with criteria: `{"prompt", "task_id"?, "rubric - 1. criterion", …}`, in one JSON array or one a
    line."""
    val_scenarios: Path | None = None
    """File of the scenarios to measure with, in the same form. They are never trained on."""
    test_scenarios: Path | None = None
    """File of the scenarios that are attempted once, at the end, in the same form. They are never trained on."""
    split: list[float] | None = Field(None, min_length=2, max_length=3)
    """In the place of these two files: the shares of `scenarios` to learn from, to measure with and for the end, as
    `[0.8, 0.1, 0.1]`; of two, none is left for the end. A scenario's part hangs on its id and `seed` alone."""
    adversarial_share: float = Field(0.1, ge=0, lt=1)
    """Share of what is attempted to learn from that tempts to cheat (`"adversarial": true`), as far as there are such
    scenarios. They are measured apart. 0: they are not learnt from."""
    scenarios_per_step: int = Field(8, ge=1)
    """Scenarios in one step."""
    group_size: int = Field(8, ge=2, le=1000)
    """Attempts at each of them; GRPO compares these with one another."""
    seed: int = 0
    """Of the order in which scenarios are drawn, and of `split`."""

    steps: int = Field(20, ge=1)
    """Steps after which the campaign ends at the latest."""
    target: float | None = None
    """The campaign ends once the measure reaches this. The measure is the share of successes, else the mean reward: of
    the validations where `val_every` is set, else of the steps' own attempts."""
    target_steps: int = Field(1, ge=1)
    """How many measurements in a row must reach the target."""
    plateau_steps: int | None = Field(None, ge=1)
    """The campaign ends when the measure has not risen for this many steps. Unset: 10 where there is validation every
    `val_every` steps, else it does not."""
    plateau_delta: float = Field(0.01, ge=0)
    """A rise smaller than this is none."""
    epochs: int | None = Field(None, ge=1)
    """Most times that every scenario is learnt from. Unset: as often as `steps` come to."""
    max_minutes: float | None = Field(None, gt=0)
    """Most minutes that the campaign runs, over all its runs. A step that has begun is finished."""
    max_judge_usd: float | None = Field(None, gt=0)
    """Most dollars that judging its attempts may cost, by LiteLLM's prices. A step that has begun is finished."""
    max_judge_tokens: int | None = Field(None, ge=1)
    """Most tokens that the judge may be sent and answer with. A step that has begun is finished."""
    health: dict[RuleName, HealthSettings] = {}
    """What looks unhealthy, and what then happens, by the rule's name."""
    max_rejected: int = Field(3, ge=1)
    """The campaign gives up when this many steps in a row failed: the version was rejected, training failed, or no
    group got a score. A step in which there was nothing to learn has not failed."""

    val_every: int | None = Field(None, ge=1)
    """Steps between validations. Unset: one before the first step and one after the last."""
    val_attempts: int = Field(1, ge=1, le=1000)
    """Attempts at each validation scenario."""
    baselines: list[str] = []
    """What is measured beside it, once, before the first step: `base` (version 0), names of `[[proxy.models]]`."""
    beat: BeatSettings | None = None
    """The target counts only where this baseline is beaten."""
    goals: list[GoalSettings] = []
    """The target counts only where these hold too, in the newest validation."""
    serve: Literal["best", "last"] = "best"
    """Which version serves at the end: the best one validated, or the one that is live then."""

    success: str | None = None
    """What counts as success: a reward part's name (of the judge's recipe), or `module:function`, called with a
    trajectory (`.id .messages .tools .answer .scenario .tags`) and returning a number or bool. Unset: the measure is
    the mean reward."""
    success_threshold: float = 0.5
    """A value of at least this is a success."""

    judge_recipe: str | None = None
    """The recipe of [judge.recipes] by which its runs are judged. Default: its alias's, else `default`."""
    judge_timeout_s: float = Field(600.0, gt=0)
    """How long the scores of a step may take; a step goes on without groups that have none by then."""
    live_timeout_s: float = Field(120.0, gt=0)
    """How long a published version may take until it is in service."""
    lease_s: float = Field(15.0, gt=1)
    """How long this program's hold on the campaign and its attempts lasts unless renewed. A campaign whose program was
    killed can be gone on with at once on the same machine, elsewhere after this time."""

    @model_validator(mode="after")
    def _parts_of_a_whole(self) -> CampaignSettings:
        if self.split is None:
            return self
        if min(self.split) <= 0 or abs(sum(self.split) - 1) > _HAIR:
            raise ValueError(f"campaign.split {self.split}: its shares must be above 0 and come to 1 together")
        if self.val_scenarios is not None or self.test_scenarios is not None:
            raise ValueError("campaign.split makes parts of one file: leave out val_scenarios and test_scenarios")
        return self
