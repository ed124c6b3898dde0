"""The `[trainer]` section of hone.toml: the base, the loss, the optimizer, what a step holds.

Owns: names, units, defaults and their reasons. Refuses: torch (settings are read by processes that have none).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class TrainerSettings(BaseModel):
    """What the trainer may be told."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    base: str | None = None
    """Folder or hub id of the base model. Default: the engine's base."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train. `auto`: the GPU where there is one."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the base's weights: it must be the engine's. `auto`: bfloat16 on a GPU, float32 on a CPU."""
    threads: int = Field(1, ge=1)
    """CPU threads of the trainer. One, because two beside a busy engine on two cores nearly stall."""
    seed: int = 42
    """Of the first LoRA weights, and of everything random after them."""

    loss: Literal["grpo", "cispo"] = "grpo"
    """`grpo`: the token-clipped ratio. `cispo`: the clipped importance weight, without its gradient."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """grpo: a ratio below 1 − this is clipped."""
    clip_high: float = Field(0.28, gt=0)
    """grpo: a ratio above 1 + this is clipped (higher than below: rare tokens may grow)."""
    cispo_cap: float = Field(5.0, ge=1)
    """cispo: the largest importance weight of a token."""
    importance_cap: float = Field(2.0, ge=1)
    """grpo: the largest importance weight of a token whose advantage is negative, which clipping leaves unbounded."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL divergence to the base. 0 also saves its forward pass."""
    advantage_std: bool = False
    """Divide advantages by the standard deviation of what they were compared with (it favours very easy and very hard
    tasks)."""
    baseline: Literal["group", "running"] = "group"
    """What `hone learn` compares a run's reward with, where an alias has no `baseline` of its own.

    `group`: the mean of the runs at the same task. `running`: the mean of the last 256 rewards of the alias by the same
    recipe, so that tasks that never repeat are learnt from. It takes reward functions or feedback, and 64 rewards to
    begin with. What RULER had a part in is compared inside its group all the same."""

    shadow_weight: float = Field(0.5, gt=0, le=1)
    """What a single turn that Hone answered again (`[aliases.NAME.shadow]`) counts in the loss against a whole run."""

    lr: float = Field(2e-5, gt=0)
    """Learning rate. LoRA needs about ten times that of full fine-tuning."""
    substeps: int = Field(1, ge=1)
    """Optimizer steps in one training step: its groups are dealt out over so many, and each is trained on once."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the learning rate rises from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate goes on after the warm-up."""
    schedule_steps: int = Field(1000, gt=0)
    """linear, cosine: the step at which the learning rate reaches 0."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's decoupled decay."""
    grad_clip: float = Field(1.0, gt=0)
    """Largest norm of the whole gradient."""

    rank: int = Field(8, ge=1)
    """Rank of the LoRA matrices. The engine's `max_lora_rank` must be as large."""
    alpha: float = Field(16.0, gt=0)
    """LoRA's scale is alpha / rank."""
    target: Literal["all-linear"] | list[str] = "all-linear"
    """Which modules get a LoRA: every linear layer but the output head, or the names listed."""

    token_budget: int = Field(16384, ge=1)
    """Tokens in one forward and backward pass. A row longer than this is left out."""
    logprob_chunk: int = Field(1024, ge=1)
    """Positions whose logits exist at one time (each costs the vocabulary in float32)."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Recompute activations in the backward pass: a third slower, far smaller. `auto`: on a GPU."""

    min_groups: int = Field(4, ge=1)
    """`hone learn`: scored groups that must wait before a step begins."""
    max_wait_s: float = Field(1800.0, gt=0)
    """`hone learn`: when the first of them has waited this long, two are enough."""
    max_groups: int = Field(64, ge=1)
    """`hone learn`: most groups in one step."""
    max_age: int = Field(4, ge=0)
    """Steps between the version that sampled a token and the version being trained; older tokens are left out."""
    max_tries: int = Field(3, ge=1)
    """Failed steps (a loss that is not finite) after which a group is left out."""
    keep_versions: int = Field(8, ge=1)
    """Newest versions whose folders (adapter and optimizer state) are kept, beside those that are live, were live
    before, are a canary, or that a run, an engine or a proxy still holds."""
    lease_s: float = Field(60.0, gt=0)
    """How long the trainer's hold on its alias and groups lasts unless renewed."""
