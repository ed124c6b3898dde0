"""The `[campaign]` section of hone.toml: the agent, its scenarios and attempts, stop rules and health rules.

Owns: names, units, defaults and their reasons. Refuses: reading files (`trainer.tasks.scenarios`), and the health rules
with their defaults (`trainer.campaign.health`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from recorder.settings import HealthSettings as HealthSettings
from recorder.settings import RuleName as RuleName

BASE = "base"  # the baseline that is the alias's version 0
UNIFORM = "uniform"  # of `choose`: scenarios in their turn
_ROUNDING = 1e-6  # shares are written in decimals: as floats, 0.7 + 0.2 + 0.1 is not 1


class BeatSettings(BaseModel):
    """A baseline that the trained model must beat before its target counts."""

    model_config = ConfigDict(extra="forbid")

    baseline: str = BASE
    """The baseline: `base`, or the name of a model of `[[proxy.models]]`."""
    margin: float = Field(0.0, ge=0, lt=1)
    """The required lead: the lower bound (95 %) of the live version's measure minus the baseline's must be above this.
    """


class GoalSettings(BaseModel):
    """A bound on a mean over a validation's attempts, beside the target: a table of `[[campaign.goals]]`."""

    model_config = ConfigDict(extra="forbid")

    metric: str = Field(pattern=r"^(turns|tokens|seconds|part\.[A-Za-z0-9_-]{1,64})$")
    """A mean over attempts: `turns` (the model's answers), `tokens` (sampled), `seconds`, or `part.NAME` (a part of the
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
    """Training over scenarios that Hone runs itself (`hone train`)."""

    model_config = ConfigDict(extra="forbid")

    preset: Literal["rlvr"] | None = None
    """The preset whose values are the defaults of this and other sections (docs/rlvr.md)."""
    name: str | None = None
    """Name of the campaign. An unfinished campaign of this name is resumed. Default: the scenario file's name."""
    alias: str | None = None
    """The alias to train. Default: the only one."""

    agent: str | None = None
    """What attempts a scenario: `module:function`, called with a task (`.id .input .base_url .api_key .model`), or a
    shell command, which receives OPENAI_BASE_URL, OPENAI_API_KEY, HONE_MODEL, HONE_TASK_ID and HONE_TASK_INPUT (JSON)
    in its environment. `hone:answer` is built in: it sends the input in one request, and the model's answer is the
    attempt."""
    max_tokens: int | None = Field(None, ge=1)
    """`hone:answer`: most tokens of an answer. Default: what the engine's context leaves."""
    temperature: float = Field(1.0, ge=0.1, le=2)
    """`hone:answer`: the sampling temperature. Below 0.1 nothing can be trained on."""
    replay: bool = False
    """Hone attempts the scenarios itself, without an agent, and answers tool calls from the record of each scenario's
    trajectory. The file must come from `hone scenarios from-traffic --replay`."""
    allow_writes: bool = False
    """Attempts may use tools of Hone's MCP gateway that their server does not mark read-only (`readOnlyHint`). If
    false, such tools are not offered to attempts of campaigns and gates."""
    python: Path | None = None
    """The Python that runs the agent. Default: the one that runs Hone."""
    cwd: Path | None = None
    """The folder the agent runs in. Default: where Hone was started."""
    agent_env: list[str] = []
    """Environment variables that the agent and the success function receive, beside those that any Python program needs
    (PATH, HOME …)."""
    concurrency: int = Field(64, ge=1)
    """Most attempts at one time."""
    attempt_timeout_s: float = Field(300.0, gt=0)
    """An attempt that takes longer is stopped."""
    on_agent_error: Literal["exclude", "judge"] = "exclude"
    """What happens to an attempt whose agent raises or times out. `exclude`: it is errored, and neither judged nor
    trained on. `judge`: it is completed as it is, and judged."""
    harness_retries: int = Field(2, ge=0)
    """How often an attempt is repeated after a fault of the engine, the network or Hone."""

    scenarios: Path | None = None
    """File of the training scenarios: `{"id", "input", "reference"?, "rubric"?, "adversarial"?}` a line, or a table of
    prompts with criteria: `{"prompt", "task_id"?, "rubric - 1. criterion", …}`, as one JSON array or one object a line.
    """
    val_scenarios: Path | None = None
    """File of the validation scenarios, in the same form. They are never trained on."""
    test_scenarios: Path | None = None
    """File of the test scenarios, in the same form. They are attempted once, at the end, and never trained on."""
    split: list[float] | None = Field(None, min_length=2, max_length=3)
    """Instead of these two files: shares of `scenarios` for training, validation and test, such as `[0.8, 0.1, 0.1]`.
    With two shares there is no test part. A scenario's part depends only on its id and `seed`."""
    adversarial_share: float = Field(0.1, ge=0, lt=1)
    """Share of training attempts at scenarios that tempt to cheat (`"adversarial": true`), as far as there are any.
    They are measured separately. 0: they are not trained on."""
    scenarios_per_step: int = Field(8, ge=1)
    """Scenarios in one step."""
    group_size: int = Field(8, ge=2, le=1000)
    """Attempts at each scenario. GRPO compares these with one another."""
    max_lag: int = Field(0, ge=0)
    """The attempts of so many next steps begin while a step is judged, trained and gated. A group enters the step that
    is open when its last attempt ends, so a slow one delays no step; its tokens may be older than the step's parent
    (`trainer.max_age`). Nothing is sampled ahead of a validation. 0: each step waits for its own attempts."""
    choose: Literal["uniform", "learnability"] = "uniform"
    """Which training scenarios a step attempts. `uniform`: all in turn, each pass in another order. `learnability`:
    rather those whose attempts are expected to get different rewards, by what their earlier groups got (docs/tasks.md).
    """
    explore_share: float = Field(0.1, ge=0, le=1)
    """`learnability`: share of a step's scenarios that is drawn uniformly from the others."""
    refill: float = Field(0.0, ge=0, le=1)
    """Largest share of extra attempts in a step, at other scenarios in the place of groups whose rewards are all equal.
    Such groups teach nothing. It needs `max_lag = 0`. 0: none is replaced."""
    seed: int = 0
    """Random seed of the order of scenarios, and of `split`."""

    steps: int = Field(20, ge=1)
    """The campaign ends after this many steps at the latest."""
    target: float | None = None
    """The campaign ends once the measure reaches this. The measure is the share of successes, else the mean reward: of
    the validations if `val_every` is set, else of the steps' own attempts."""
    target_steps: int = Field(1, ge=1)
    """How many measurements in a row must reach the target."""
    plateau_steps: int | None = Field(None, ge=1)
    """The campaign ends when the measure has not risen for this many steps. Default: 10 with validation every
    `val_every` steps, else no limit."""
    plateau_delta: float = Field(0.01, ge=0)
    """Smallest increase that counts as a rise."""
    epochs: int | None = Field(None, ge=1)
    """Most times that each scenario is trained on. Default: as often as `steps` allow."""
    max_minutes: float | None = Field(None, gt=0)
    """Most minutes of the campaign, summed over all times that it was resumed. A step that has begun is finished."""
    max_judge_usd: float | None = Field(None, gt=0)
    """Most US dollars that judging its attempts may cost, by LiteLLM's prices. A step that has begun is finished."""
    max_judge_tokens: int | None = Field(None, ge=1)
    """Most tokens that the judge may receive and answer with. A step that has begun is finished."""
    health: dict[RuleName, HealthSettings] = {}
    """Health rules by name: the threshold of each, and what happens at an alarm."""
    max_rejected: int = Field(3, ge=1)
    """The campaign gives up when this many steps in a row failed: the version was rejected, training failed, or no
    group got a score. A step with nothing to train on has not failed."""

    val_every: int | None = Field(None, ge=1)
    """Steps between validations. Default: one validation before the first step and one after the last."""
    val_attempts: int = Field(1, ge=1, le=1000)
    """Attempts at each validation scenario."""
    baselines: list[str] = []
    """Models measured once before the first step, for comparison: `base` (version 0), names of `[[proxy.models]]`."""
    beat: BeatSettings | None = None
    """The target counts only if this baseline is beaten."""
    goals: list[GoalSettings] = []
    """The target counts only if the newest validation meets these goals too."""
    serve: Literal["best", "last"] = "best"
    """Which version serves at the end: the best validated one, or the one that is live then."""

    success: str | None = None
    """What counts as success: the name of a reward part (of the judge recipe), or `module:function`, called with a
    trajectory (`.id .messages .tools .answer .scenario .tags`) and returning a number or bool. Default: none; the
    measure is the mean reward."""
    success_threshold: float = 0.5
    """A value of at least this is a success."""

    judge_recipe: str | None = None
    """The judge recipe of its trajectories, a name of [judge.recipes]. Default: its alias's, else `default`."""
    judge_timeout_s: float = Field(600.0, gt=0)
    """How long the scores of a step may take. The step continues without groups that have none by then."""
    live_timeout_s: float = Field(120.0, gt=0)
    """How long a published version may take to come into service."""
    lease_s: float = Field(15.0, gt=1)
    """How long this program's lease on the campaign and its attempts lasts unless it is renewed. A campaign whose
    program was killed can be resumed at once on the same machine, and elsewhere after this time. On one machine with
    the proxy, a program that runs and is only late keeps its attempts."""

    @model_validator(mode="after")
    def _refill_without_lag(self) -> CampaignSettings:
        if self.refill and self.max_lag:
            raise ValueError(
                "campaign.refill replaces groups within their step, and with campaign.max_lag a step takes the groups "
                "that have ended: set one of the two to 0"
            )
        return self

    @model_validator(mode="after")
    def _parts_of_a_whole(self) -> CampaignSettings:
        if self.split is None:
            return self
        if min(self.split) <= 0 or abs(sum(self.split) - 1) > _ROUNDING:
            raise ValueError(f"campaign.split {self.split}: its shares must be above 0 and add up to 1")
        if self.val_scenarios is not None or self.test_scenarios is not None:
            raise ValueError("campaign.split divides one file into parts: remove val_scenarios and test_scenarios")
        return self
