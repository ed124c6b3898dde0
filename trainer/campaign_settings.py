"""The `[campaign]` section of hone.toml: which agent attempts which scenarios, how often, and when to stop.

Owns: names, units, defaults and their reasons. Refuses: reading any file (`trainer.tasks.scenarios` does).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


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
    """File of the scenarios to learn from: `{"id", "input", "reference"?, "rubric"?}` a line, or a table of prompts
    with criteria: `{"prompt", "task_id"?, "rubric - 1. criterion", …}`, in one JSON array or one a line."""
    val_scenarios: Path | None = None
    """File of the scenarios to measure with, in the same form. They are never trained on."""
    scenarios_per_step: int = Field(8, ge=1)
    """Scenarios in one step."""
    group_size: int = Field(8, ge=2)
    """Attempts at each of them; GRPO compares these with one another."""
    seed: int = 0
    """Of the order in which scenarios are drawn."""

    steps: int = Field(20, ge=1)
    """Steps after which the campaign ends at the latest."""
    target: float | None = None
    """The campaign ends once the measure reaches this. The measure is the share of successes, else the mean reward: of
    the validations where `val_every` is set, else of the steps' own attempts."""
    target_steps: int = Field(1, ge=1)
    """How many measurements in a row must reach the target."""
    plateau_steps: int | None = Field(None, ge=1)
    """The campaign ends when the measure has not risen for this many steps. Unset: it does not."""
    plateau_delta: float = Field(0.01, ge=0)
    """A rise smaller than this is none."""
    max_rejected: int = Field(3, ge=1)
    """The campaign gives up when this many steps in a row failed: the version was rejected, training failed, or no
    group got a score. A step in which there was nothing to learn has not failed."""

    val_every: int | None = Field(None, ge=1)
    """Steps between validations. Unset: one before the first step and one after the last."""
    val_attempts: int = Field(1, ge=1)
    """Attempts at each validation scenario."""

    success: str | None = None
    """What counts as success: a reward part's name (of the judge's recipe), or `module:function`, called with a
    trajectory (`.id .messages .tools .answer .scenario .tags`) and returning a number or bool. Unset: the measure is
    the mean reward."""
    success_threshold: float = 0.5
    """A value of at least this is a success."""

    reward_recipe: str | None = None
    """The recipe of [judge.recipes] by which its runs are judged. Default: its alias's, else `default`."""
    judge_timeout_s: float = Field(600.0, gt=0)
    """How long the scores of a step may take; a step goes on without groups that have none by then."""
    live_timeout_s: float = Field(120.0, gt=0)
    """How long a published version may take until it is in service."""
    lease_s: float = Field(15.0, gt=1)
    """How long this program's hold on the campaign and its attempts lasts unless renewed. A campaign whose program was
    killed can be gone on with at once on the same machine, elsewhere after this time."""
