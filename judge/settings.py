"""The `[judge]` section of hone.toml: who judges, by which rewards, and how patiently.

Owns: the settings of this package and what makes them contradict each other. Refuses: every import but pydantic's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

RUBRIC = """\
- A trajectory that achieves its goal scores clearly higher than one that does not.
- Of two that achieve it, the one with fewer detours, mistakes and needless steps scores somewhat higher.
- One that comes close to the goal scores higher than one that does not, but keeps well below those that achieve it.
- What the trajectory claims counts only where its own tool results or the user's messages support it.
- Small differences get small gaps; trajectories of equal worth get equal scores."""

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class RewardSettings(BaseModel):
    """One part of the reward: a table of `[[judge.rewards]]`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    kind: Literal["ruler", "function", "feedback", "rubric"]
    """`ruler`: the judge model ranks the group. `function`: your code. `feedback`: what users said through the API.
    `rubric`: the judge model says which criteria of its scenario (`rubric = […]`) each run meets."""
    name: str = ""
    """What scores call the part; for feedback, the feedback's name. Default: `ruler`, or the function's name."""
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Its share of the reward, relative to the other parts'. 0: measured and kept, but it moves nothing."""
    function: str = ""
    """`package.module:function`, called with a trajectory; returns a number, or a dict with `score`."""
    evidence: bool = False
    """Rubrics: a criterion counts as met only with a quote from the response; a reply with another is refused."""
    penalty: bool = False
    """Take value × weight off the combined reward, instead of entering its mean: a hard rule."""

    @model_validator(mode="after")
    def _complete(self) -> RewardSettings:
        if (self.kind == "function") != bool(self.function):
            verb = "takes no" if self.function else "needs"
            raise ValueError(f"a reward of kind {self.kind!r} {verb} `function`")
        if self.function and not _FUNCTION.fullmatch(self.function):
            raise ValueError(f"function {self.function!r} is not of the form `package.module:function`")
        if self.evidence and self.kind != "rubric":
            raise ValueError(f"a reward of kind {self.kind!r} takes no `evidence`: only a rubric's verdicts can quote")
        if self.kind == "feedback" and not self.name:
            raise ValueError("a reward of kind 'feedback' needs `name`: the feedback's name")
        if self.kind == "ruler" and self.penalty:
            raise ValueError("RULER's scores compare; they cannot be a penalty")
        self.name = self.name or self.function.rpartition(":")[2] or self.kind
        if not _NAME.fullmatch(self.name) or self.name == "reward":
            raise ValueError(f"{self.name!r} cannot name a part: use 1 to 64 of A-Z a-z 0-9 _ - (and not 'reward')")
        return self


class FeedbackSettings(BaseModel):
    """What happens to parts of the reward that are not there."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    wait_s: float = Field(0.0, ge=0)
    """How long after a group's last run ended its feedback may still come before the group is scored."""
    missing: Literal["renormalise", "hold"] = "renormalise"
    """A part that is not there then: the other parts share its weight, or the run gets no reward until it is there."""


class JudgeSettings(BaseModel):
    """What the judge may be told."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    model: str = ""
    """The judge, by its LiteLLM name (`openai/gpt-5-mini`, `anthropic/claude-…`). Empty: no model judges."""
    api_base: str | None = None
    """URL of the judge's API where it is not the provider's own. No key from the environment is ever sent to it."""
    api_key: SecretStr | None = None
    """Key for the judge. Default: the provider's own variable (`OPENAI_API_KEY`, …), unless `api_base` is set."""
    temperature: float = Field(0.0, ge=0, le=2)
    """Sampling temperature of the judge; left out where the provider does not take one."""
    timeout_s: float = Field(120.0, gt=0)
    """How long one request to the judge may take before it is cut."""
    max_tokens: int = Field(4096, gt=0)
    """Most tokens the judge may answer with, its reasoning included."""
    retries: int = Field(2, ge=0)
    """How often one request is sent again at once when the judge is unreachable, overloaded or broken."""
    retry_wait_s: float = Field(1.0, gt=0)
    """Pause before the first of these; doubled each time."""
    backoff_s: float = Field(5.0, gt=0)
    """A group that could not be scored is tried again after this long; doubled each time."""
    backoff_max_s: float = Field(600.0, gt=0)
    """Longest such pause."""
    max_context_chars: int = Field(240_000, ge=4_000)
    """Most characters of one group shown to the judge; longer ones are shortened in the middle of tool outputs."""
    rubric: str = RUBRIC
    """What the judge is told makes a trajectory good."""
    rewards: list[RewardSettings] = Field(default_factory=list)
    """The parts of the reward. Default: RULER alone, if there is a model."""
    feedback: FeedbackSettings = Field(default_factory=FeedbackSettings)
    """What happens to parts that are not there."""
    python: Path | None = None
    """The Python that runs reward functions. Default: the one that runs Hone."""
    folder: Path = Path()
    """The folder that reward functions are imported from and run in. Default: where Hone was started."""
    function_timeout_s: float = Field(30.0, gt=0)
    """How long one call of a reward function may take before its process is killed."""
    function_start_s: float = Field(60.0, gt=0)
    """How long importing the reward functions may take."""
    function_env: list[str] = []
    """Variables of the environment that reward functions see beside what any Python program needs (PATH, HOME …)."""
    function_processes: int = Field(1, gt=0)
    """How many processes run reward functions side by side."""
    concurrency: int = Field(8, gt=0)
    """How many groups one worker scores at once, and the most requests that it has open at the judge."""

    @field_validator("rewards")
    @classmethod
    def _distinct(cls, rewards: list[RewardSettings]) -> list[RewardSettings]:
        names = [reward.name for reward in rewards]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two rewards are called {doubled[0]!r}: give them a `name` each")
        if sum(reward.kind == "ruler" for reward in rewards) > 1:
            raise ValueError("there is one judge model, so RULER can be one reward only")
        if rewards and not any(reward.weight > 0 and not reward.penalty for reward in rewards):
            raise ValueError("no reward has a weight above 0, so no trajectory could get a reward")
        return rewards

    def in_force(self) -> list[RewardSettings]:
        """The parts of the reward that apply: those named, else RULER if a model is set, else none."""
        if self.rewards or not self.model:
            return list(self.rewards)
        return [RewardSettings(kind="ruler")]
