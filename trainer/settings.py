"""The `[trainer]` section of hone.toml: base model, loss, optimizer, size of a step.

Owns: names, units, defaults and their reasons, and recipes: published algorithms as defaults. Refuses: torch, because
processes without torch read settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from proxy.settings.gpus import check_gpus
from recorder.base.urls import is_safe_address

ObjectiveName = Literal["group", "imitate", "prefer", "hindsight", "distill"]
RecipeName = Literal["hone", "grpo", "dapo", "dr_grpo", "gspo", "cispo", "rloo"]

_GRPO: Final = {"loss": "grpo", "clip_low": 0.2, "clip_high": 0.2, "importance_cap": math.inf}

# No recipe sets `kl_coef`. `hone` is the defaults of the settings themselves.
RECIPES: Final[Mapping[RecipeName, Mapping[str, Any]]] = {
    "hone": {},
    "grpo": {**_GRPO, "normaliser": "trajectory", "advantage": "mean_std"},
    "dapo": {**_GRPO, "clip_high": 0.28, "normaliser": "token", "advantage": "mean_std"},
    "dr_grpo": {**_GRPO, "normaliser": "constant", "advantage": "mean"},
    "gspo": {**_GRPO, "loss": "gspo", "clip_low": 3e-4, "clip_high": 4e-4, "advantage": "mean_std"},
    "cispo": {"loss": "cispo", "cispo_cap": 5.0, "normaliser": "token", "advantage": "mean_std"},
    "rloo": {**_GRPO, "normaliser": "token", "advantage": "rloo"},
}


class ObjectiveSettings(BaseModel):
    """One of the learning signals of a step, as `{name = "imitate", weight = 0.1, where = "reward >= 0.9"}`."""

    model_config = ConfigDict(extra="forbid")

    name: ObjectiveName
    """`group`: scored groups. `imitate`: recorded answers that `where` selects. `prefer`: recorded pairs, with the
    reference, the beta and the margin of `trainer.dpo` (docs/fine-tuning.md). `hindsight`: answers and what came next,
    `distill`: answers that a stronger model scores (docs/learning-signals.md)."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """What multiplies its loss."""
    where: str | Annotated[list[str], Field(max_length=20)] = []
    """imitate, prefer: conditions on the trajectories, all of which hold, as in `hone sft --where` and `hone dpo
    --where`."""
    epochs: int = Field(1, ge=1)
    """imitate, prefer: how many steps at most use the same trajectory, or the same pair. hindsight, distill: the same
    answer."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of `where`."""
        return (self.where,) if isinstance(self.where, str) else tuple(self.where)

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.name == "group" and (self.conditions or self.epochs != 1):
            raise ValueError('the objective "group" has no where and no epochs: it trains on each scored group once.')
        if self.name in ("hindsight", "distill") and self.conditions:
            raise ValueError(f'the objective "{self.name}" has no where: it takes the newest answers of the alias.')
        if self.name == "imitate" and not self.conditions:
            raise ValueError(
                'the objective "imitate" needs where: which trajectories it imitates, as where = "reward >= 0.9".'
            )
        return self


class SftSettings(BaseModel):
    """`hone sft`: training on demonstrations alone."""

    model_config = ConfigDict(extra="forbid")

    epochs: int = Field(3, ge=1)
    """Passes over the demonstrations. The version is made of the one with the smallest held-out loss."""
    batch_tokens: int = Field(8192, ge=1)
    """Most tokens of one optimizer step, prompts included; a longer demonstration has one of its own."""
    lr: float = Field(1e-4, gt=0)
    """Learning rate."""
    held_out_share: float = Field(0.05, ge=0, le=0.5)
    """Share of the tasks whose demonstrations are not trained on, so that the loss on them shows when to stop."""


class DpoSettings(BaseModel):
    """`hone dpo`: training on pairs, a chosen answer against a rejected one (DPO, arXiv 2305.18290). The objective
    `prefer` has the same beta, reference and margin."""

    model_config = ConfigDict(extra="forbid")

    epochs: int = Field(1, ge=1)
    """Passes over the pairs. The version is made of the one with the smallest held-out loss."""
    batch_tokens: int = Field(8192, ge=1)
    """Most tokens of one optimizer step, both sides and their prompts included; a longer pair has one of its own."""
    lr: float = Field(5e-6, gt=0)
    """Learning rate."""
    held_out_share: float = Field(0.05, ge=0, le=0.5)
    """Share of the tasks whose pairs are not trained on, so that the loss on them shows when to stop."""
    beta: float = Field(0.1, gt=0, allow_inf_nan=False)
    """How far the version may move from the reference: the larger, the less."""
    reference: str = Field("base", pattern=r"^(base|.+@\d+)$")
    """The model whose preference is compared with the version's: `base`, or a version as `helpdesk@3`."""
    margin: float = Field(0.5, ge=0, allow_inf_nan=False)
    """The smallest difference between the best and the worst reward of a scored group that makes them a pair. Rewards
    are usually between 0 and 1. Above that range, only people's preferences are pairs."""


class HindsightSettings(BaseModel):
    """The objective `hindsight`: an answer is taught by what the model would say of it after it saw what came next."""

    model_config = ConfigDict(extra="forbid")

    teacher: Literal["parent", "base", "ema"] = "parent"
    """Whose logprobs with the hint are compared: those of the version that the step begins from, of the base, or of an
    exponential moving average of the versions (a twentieth of each new one), which checkpoints keep."""
    clip: float = Field(1.0, gt=0, allow_inf_nan=False)
    """The largest advantage of a token, in nats, and the lowest below 0."""
    hints: list[Literal["message", "tool_error", "feedback", "critique"]] = Field(
        ["message", "tool_error", "feedback", "critique"], min_length=1, max_length=4
    )
    """What is a hint. `message`: what the user wrote next. `tool_error`: an error of a tool that the answer called.
    `feedback`: a person's comment. `critique`: what the judge or a reward function said of the trajectory, for its last
    answer; with rewards of kind `turns` a line for each answer."""
    hint_chars: int = Field(4000, ge=1, le=20_000)
    """Most characters of one hint; the rest of each text in it is cut off."""


class DistillSettings(BaseModel):
    """The objective `distill`: sampled answers are scored by a stronger model with the same tokenizer."""

    model_config = ConfigDict(extra="forbid")

    url: str | None = None
    """The address of its server, which is vLLM, as http://gpu-2:8000. It must serve no adapters: vLLM may end if two
    such requests come at once there."""
    model: str | None = None
    """The name of the model there."""
    api_key_env: str | None = None
    """The environment variable that holds the server's key. A key is sent to https or to this machine alone."""
    timeout_s: float = Field(300.0, gt=0, le=3600)
    """How long the server may take for all answers of a step. After that the step is made without `distill`."""
    clip: float = Field(10.0, gt=0, allow_inf_nan=False)
    """The largest advantage of a token, in nats, and the lowest below 0: a token that is impossible for the stronger
    model would otherwise outweigh all others."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("give an address that begins with http:// or https://")
        return url if url is None else url.rstrip("/").removesuffix("/v1")

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.api_key_env is not None and self.url is not None and not is_safe_address(self.url):
            raise ValueError("a key is sent to url: give an https address, or http on this machine")
        return self


class TinkerSettings(BaseModel):
    """A training service that speaks the Tinker API, for `trainer.backend = "tinker"` (docs/tinker.md).

    Its key is in the environment variable TINKER_API_KEY and nowhere else.
    """

    model_config = ConfigDict(extra="forbid")

    base_model: str | None = None
    """The service's name of the base. Default: `trainer.base`, if that is a Hugging Face id."""
    url: str | None = None
    """The service's address: https, or http on this machine. Default: TINKER_BASE_URL, or the address in the `tinker`
    package."""
    answer_timeout_s: float = Field(1800.0, gt=0)
    """How long one request to the service may take, its own queue included. Afterwards the step fails and its groups
    are given back."""
    checkpoint_days: float | None = Field(None, ge=1 / 24, le=3650)
    """Days until the service deletes the state of a version. No step begins at a version whose state is deleted.
    Default: never."""

    @field_validator("url")
    @classmethod
    def _check_address(cls, url: str | None) -> str | None:
        if url is not None and not is_safe_address(url):
            raise ValueError("the key is sent there: give an https address, or http on this machine")
        return url


class TrainerSettings(BaseModel):
    """How scored groups become versions."""

    # Other processes of a trainer read the settings as JSON, which has no number for "no cap".
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

    base: str | None = None
    """Folder or hub id of the base model. Default: the engine's base."""
    backend: Literal["local", "tinker"] = "local"
    """Where a step is computed: on this machine, or by a training service that speaks the Tinker API
    (`[trainer.tinker]`, docs/tinker.md)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train. `auto`: a GPU if there is one."""
    gpus: list[int] = Field([], max_length=64)
    """The GPUs of a trainer that `hone up` starts, by number. Each of `processes` uses one, in this order. A GPU of
    `engine.gpus` only with `engine.share`. Default: what torch sees."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the base's weights; it must equal the engine's. `auto`: bfloat16 on a GPU, float32 on a CPU."""
    quantize: Literal["nf4"] | None = None
    """Compute on a copy of the base whose linear layers have 4 bits a weight (docs/gpu.md). The engine serves the base
    itself, with the adapters that are trained on the copy. It needs the extra `nf4`."""
    max_model_len: int | None = Field(None, gt=0)
    """Most tokens of prompt and answer together, as the engine has them. Positions of the type longrope and Llama 4's
    scale of late queries depend on it. Default: `engine.max_model_len`, or `--max-model-len` of `engine.args`."""
    threads: int = Field(1, ge=1)
    """CPU threads of the trainer. The default is 1, because two threads beside a busy engine on two cores nearly stall.
    """
    processes: int = Field(1, ge=1, le=64)
    """Processes that train together on this machine, each on a GPU of its own. Under torchrun its environment decides
    (docs/gpu.md)."""
    shard_base: bool = False
    """With several processes: each holds a share of the base's weights, and gathers a layer while it computes it. For a
    base that does not fit on one GPU; slower than a whole base in each process. Not with `quantize`."""
    rank_timeout_s: float = Field(1800.0, gt=0)
    """How long a process waits for another one. It must be longer than the longest pass."""
    seed: int = 42
    """Random seed of the first LoRA weights, and of everything random after them."""

    objectives: list[ObjectiveSettings] = Field([ObjectiveSettings(name="group")], max_length=8)
    """The learning signals of a step, each with its weight (docs/fine-tuning.md)."""
    rehearsal: float = Field(0.0, ge=0, le=0.5)
    """Share of a step's trajectories that are earlier ones, imitated once more: of random groups that the version was
    trained on, the best of each. Against forgetting what other tasks taught (docs/drift.md). 0: none is repeated."""
    sft: SftSettings = SftSettings()
    """Training on demonstrations alone."""
    dpo: DpoSettings = DpoSettings()
    """Training on pairs."""
    hindsight: HindsightSettings = HindsightSettings()
    """Learning from what came next, for the objective `hindsight`."""
    distill: DistillSettings = DistillSettings()
    """Learning from a stronger model, for the objective `distill`."""
    recipe: RecipeName = "hone"
    """A published algorithm: it gives the defaults of `loss`, the clip range, the caps, `normaliser` and `advantage`.
    A value of your own wins."""
    loss: Literal["grpo", "cispo", "reinforce", "gspo"] = "grpo"
    """`grpo`: the token-clipped ratio. `cispo`, `reinforce`: the truncated importance weight, without its gradient.
    `gspo`: one clipped ratio to the parent version for all tokens of a row."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """grpo, gspo: ratios below 1 − this are clipped."""
    clip_high: float = Field(0.28, gt=0)
    """grpo, gspo: ratios above 1 + this are clipped. It is higher than `clip_low`, so that rare tokens can gain
    probability."""
    cispo_cap: float = Field(5.0, ge=1)
    """cispo: the largest importance weight of a token."""
    importance_cap: float = Field(2.0, ge=1)
    """The largest importance weight of a token: for grpo with a negative advantage, which clipping leaves unbounded;
    for reinforce; for gspo of its parent over the engine. `inf`: no limit."""
    ratio_over: Literal["row", "turn"] = "row"
    """gspo: the tokens that share a ratio. `row`: all trained tokens of a sequence. `turn`: those of one answer."""
    normaliser: Literal["trajectory", "token", "constant"] = "trajectory"
    """What the sum of the token losses is divided by. `trajectory`: every trajectory has equal weight, whatever its
    length. `token`: every token has. `constant`: the number of trajectories times `constant_length`."""
    constant_length: int | None = Field(None, ge=1)
    """constant: the length in tokens that each trajectory counts as."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL divergence to the base. 0 also saves the base's forward pass."""
    drift_trajectories: int = Field(32, ge=0, le=512)
    """How many recorded trajectories form the drift set of an alias: they are never trained on, and each version is
    compared on them with the base and with earlier versions (docs/drift.md). It is drawn once four times as many tasks
    wait. 0: none is drawn, and nothing is compared; the default with `backend = "tinker"`, which cannot compare."""
    drift_tokens: int = Field(2048, ge=2)
    """Most tokens of a trajectory of the drift set that are computed, its prompts included; never more than
    `token_budget`."""
    kl_parent_max: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The largest KL divergence of a step's result from its parent version, in nats a token on the drift set. Above it
    the update is halved once. If that is not enough, the step makes no version: its groups are given back, and excluded
    after `max_tries` such steps. Not for `hone sft`. Default: not checked."""
    kl_base_max: float | None = Field(None, gt=0, allow_inf_nan=False)
    """`hone learn`: the largest KL divergence of the live version from the base, in nats a token on the drift set.
    Above it no step begins until a person keeps the version or takes it back. Default: not checked."""
    advantage: Literal["mean", "mean_std", "rloo", "rank"] = "mean"
    """How rewards of one task become advantages. `mean`: the reward minus the group's mean. `mean_std`: that, divided
    by their standard deviation, which favours very easy and very hard tasks. `rloo`: the reward minus the mean of the
    others. `rank`: the rank in the group, from −1 to 1. Against a running baseline, `rloo` and `rank` are `mean`."""
    advantage_std: bool = False
    """The same as `advantage = "mean_std"`."""
    min_spread: float = Field(0.05, ge=0, allow_inf_nan=False)
    """The smallest difference between the highest and the lowest reward of a group that a judge model rated. A group
    with a smaller one is excluded as `too_close`: Adam moves as far for it as for a clear difference. Rewards by
    functions, rules and feedback alone are not concerned, nor those with a running baseline. 0: off."""
    turn_weight: float = Field(0.0, ge=0, allow_inf_nan=False)
    """How much a turn's own value counts: a turn's advantage is that of its trajectory, plus this times the difference
    between the turn's value and the mean over the group's turns of the same number (docs/rewards.md). 0: off."""
    follow_up_share: float = Field(0.2, gt=0, le=1)
    """`hone learn`: the largest share of a step's trajectories whose reward comes from what users wrote next (kind
    `follow_up`) and that one API key made. Groups beyond it wait for a later step. With too few keys for it, each may
    have an equal part, and one key alone is not limited. Nor is traffic without keys. 1: off."""
    baseline: Literal["group", "running"] = "group"
    """What `hone learn` compares a trajectory's reward with, for aliases without a `baseline` of their own.

    `group`: the mean of the trajectories at the same task. `running`: the mean of the alias's last 256 rewards by the
    same judge recipe, so that tasks that never repeat can be learned from. It needs reward functions or feedback, and
    64 earlier rewards. A reward that RULER has a part in is always compared inside its group.
    """

    shadow_weight: float = Field(0.5, gt=0, le=1)
    """Weight in the loss of a single call with shadow answers (`[aliases.NAME.shadow]`), relative to a whole
    trajectory."""

    lr: float = Field(2e-5, gt=0)
    """Learning rate. LoRA needs about ten times the rate of full fine-tuning."""
    substeps: int = Field(1, ge=1)
    """Optimizer steps in one training step. The step's groups are divided among them, and each group is trained on
    once."""
    warmup_steps: int = Field(5, ge=0)
    """Steps over which the learning rate rises from 0: Adam moves as far for the noise of a first step as for a clear
    difference."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate changes after the warm-up. A campaign counts its own steps for warm-up and schedule, and
    live learning counts its own."""
    schedule_steps: int = Field(1000, gt=0)
    """linear, cosine: the number of steps after which the learning rate is `lr_min`."""
    lr_min: float | None = Field(None, ge=0)
    """linear, cosine: the learning rate at the end of the schedule, at which steps go on. Default: a tenth of `lr`.
    With 0 no step begins after the end: a campaign ends with the code `schedule_ended`, and live learning leaves its
    groups scored."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's decoupled weight decay."""
    grad_clip: float = Field(1.0, gt=0)
    """Largest norm of the whole gradient."""
    grad_clip_recent: float = Field(2.0, gt=0)
    """From the sixth update on, the largest norm is at most this times the median of the last 20 updates' norms before
    clipping. A version's checkpoint has these norms. A training service (`backend = "tinker"`) tells no norms, and
    clips at `grad_clip` alone. `inf`: `grad_clip` alone."""

    rank: int = Field(8, ge=1)
    """Rank of the LoRA matrices. The engine's `max_lora_rank` must be as large."""
    alpha: float = Field(16.0, gt=0)
    """LoRA's scale is alpha / rank."""
    target: Literal["all-linear", "attention", "experts"] | list[str] = "all-linear"
    """Which modules get a LoRA. `all-linear`: every linear layer except output head and routers, experts included.
    `attention`: the linear layers of attention. `experts`: the experts of a mixture of experts, gate, up and down
    together. A list: modules by the ends of their names; `experts` in it are the experts, and a router gets a LoRA only
    if it is listed."""

    token_budget: int = Field(16384, ge=1)
    """Most tokens in one forward and backward pass; fewer if those do not fit into memory. A longer row has a pass
    of its own if it fits into memory (docs/gpu.md), and is excluded if not."""
    logprob_chunk: int = Field(1024, ge=1)
    """Positions whose logits are in memory at one time. Each takes the size of the vocabulary in float32."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Recompute activations in the backward pass: a third slower, with much less memory. `auto`: on a GPU. A row longer
    than a pass is always computed so."""
    offload_inputs: bool | Literal["auto"] = "auto"
    """Keep the inputs of recomputed layers in pinned host memory until the backward pass. `auto`: on a GPU, for a row
    longer than a pass."""

    min_groups: int = Field(4, ge=1)
    """`hone learn`: scored groups that must be waiting before a step begins."""
    max_wait_s: float = Field(1800.0, gt=0)
    """`hone learn`: two groups are enough once the first of them has waited this long."""
    max_groups: int = Field(64, ge=1)
    """`hone learn`: most groups in one step."""
    max_age: int = Field(4, ge=0)
    """Most steps between the version that sampled a token and the version being trained. Older tokens are excluded."""
    max_tries: int = Field(3, ge=1)
    """A group is excluded after this many failed steps (a loss that is not finite), or steps above `kl_parent_max`."""
    keep_versions: int = Field(8, ge=1)
    """How many of the newest versions keep their folders (adapter and optimizer state). Versions that are live, were
    live before, are a canary, or are held by a trajectory, an engine or a proxy keep theirs too. So does
    one accepted version of each of the last 7 days and 4 weeks (docs/drift.md), and `dpo.reference`."""
    max_logprob_gap: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The largest mean difference of a logprob between engine and trainer, in nats a token, over the tokens that a
    step's parent version sampled. Above it the step makes no version, and its groups stay scored. Default: by the
    precision of engine and trainer (docs/your-vllm.md)."""
    mask_ratio: float = Field(1.2, gt=1)
    """A turn that the step's parent version sampled is not trained on if the geometric mean of its tokens'
    probabilities in the trainer over those in the engine is above this, or below its inverse. Such turns are counted as
    `engine_mismatch`; more than 5 % of the compared turns are an alarm. It costs a forward pass without gradient. A
    training service (`backend = "tinker"`) does not mask. `inf`: no turn is masked."""
    lease_s: float = Field(60.0, gt=0)
    """How long the trainer's lease on its alias and groups lasts unless it is renewed."""
    tinker: TinkerSettings = Field(default_factory=TinkerSettings)
    """The training service, for `backend = "tinker"`."""

    @model_validator(mode="before")
    @classmethod
    def _take_recipe(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        recipe = next((values for name, values in RECIPES.items() if name == given.get("recipe")), {})
        return {**recipe, **given}

    @model_validator(mode="before")
    @classmethod
    def _suit_backend(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("backend") != "tinker":
            return given
        return {"drift_trajectories": 0, **given}

    @model_validator(mode="after")
    def _check_objective(self) -> Self:
        if self.advantage_std and self.advantage not in ("mean", "mean_std"):
            raise ValueError(f'advantage_std contradicts advantage = "{self.advantage}". Set one of them.')
        if self.advantage_std:
            self.advantage = "mean_std"
        if self.normaliser == "constant" and self.constant_length is None:
            why = f'the recipe "{self.recipe}"' if "normaliser" in RECIPES[self.recipe] else 'normaliser = "constant"'
            raise ValueError(f"{why} needs constant_length: set it to the most tokens that a trajectory samples.")
        names = [one.name for one in self.objectives]
        if not {"group", "hindsight", "distill"} & set(names) or len(set(names)) < len(names):
            raise ValueError(
                'objectives has "group" and each other objective at most once: steps begin with scored groups, and '
                'other objectives join them. "hindsight" and "distill" may stand without "group". `hone sft` trains on '
                "demonstrations alone."
            )
        if "imitate" in names and "group" not in names:
            raise ValueError('objectives has "imitate", which joins groups: add {name = "group"}.')
        if "distill" in names and (self.distill.url is None or self.distill.model is None):
            raise ValueError(
                'the objective "distill" needs a stronger model: set trainer.distill.url and trainer.distill.model.'
            )
        for name in ("kl_parent_max", "kl_base_max"):
            if getattr(self, name) is not None and self.drift_trajectories == 0:
                todo = "Set drift_trajectories, for example to 32."
                if self.backend == "tinker":
                    todo = "A training service has none: remove it."
                raise ValueError(f"{name} is measured on a drift set. {todo}")
        if self.last_rate > self.lr:
            raise ValueError(f"lr_min ({self.last_rate:g}) is above lr ({self.lr:g}): a schedule only lowers the rate.")
        return self

    @model_validator(mode="after")
    def _check_processes(self) -> Self:
        if self.shard_base and self.quantize is not None:
            raise ValueError(
                f'shard_base and quantize = "{self.quantize}" exclude each other: processes share plain weights alone. '
                "Set one of them."
            )
        if self.gpus and self.processes > len(self.gpus):
            raise ValueError(
                f"processes is {self.processes}, and gpus {self.gpus} has {len(self.gpus)}: each process needs a GPU "
                f"of its own. Set processes = {len(self.gpus)}, or name more GPUs."
            )
        return self

    @field_validator("gpus")
    @classmethod
    def _distinct_gpus(cls, gpus: list[int]) -> list[int]:
        return check_gpus(gpus)

    @property
    def named_versions(self) -> frozenset[str]:
        """The versions that these settings name: their folders stay, however many newer ones there are."""
        return frozenset() if self.dpo.reference == "base" else frozenset({self.dpo.reference})

    @property
    def uses_rewards(self) -> bool:
        """Whether steps train on the rewards of scored groups."""
        return any(one.name == "group" for one in self.objectives)

    @property
    def uses_average(self) -> bool:
        """Whether a teacher is the moving average of the versions."""
        return self.hindsight.teacher == "ema" and self.find_objective("hindsight") is not None

    def find_objective(self, name: ObjectiveName) -> ObjectiveSettings | None:
        """Return the objective of this name; None: it is not among them."""
        return next((one for one in self.objectives if one.name == name), None)

    @property
    def last_rate(self) -> float:
        """The learning rate at the end of a schedule."""
        return self.lr / 10 if self.lr_min is None else self.lr_min

    @property
    def schedule_end(self) -> int | None:
        """The number of steps after which the learning rate stays 0; None: it never does."""
        if self.schedule == "constant" or self.last_rate > 0:
            return None
        return max(self.schedule_steps, self.warmup_steps + 1)

    def explain_ended_schedule(self, steps_done: int) -> str | None:
        """Return why no step begins after `steps_done` steps of this schedule, and what to set; None: one may begin."""
        end = self.schedule_end
        if end is None or steps_done < end:
            return None
        return (
            f'trainer.schedule = "{self.schedule}" has ended: after {end} step{"s" * (end != 1)} the learning rate is '
            "0. Set trainer.lr_min above 0, or raise trainer.schedule_steps."
        )
