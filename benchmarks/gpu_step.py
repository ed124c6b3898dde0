"""The cost of a training step on a GPU, and whether its result equals the CPU's.

    python -m benchmarks.gpu_step --save        writes benchmarks/results/gpu_step.json

Bases have random weights in the shapes of real models, and LoRAs of rank 32 on all linear layers. A step is 8 groups of
8 trajectories of 2,000 to 8,000 tokens: one system prompt, a task for each group, then turns of the model (trained on)
and of its tools. `step` times the trainer's own step, files included; `ways` compares the same rows packed as the
trainer does it, with all activations kept, one row a pass, and padded to equal lengths; `budgets` varies
`trainer.token_budget`; `long` is one row in one pass; `cpu` is a step of a few short rows on the CPU; `agreement`
compares loss and gradient of a small base with those of the CPU in float32. Without a GPU only `agreement` and `step`
of the small base are measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.load import machine
from trainer.artifacts.adapters import AdapterOrigin
from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.objectives.group import weigh_groups
from trainer.objectives.group_rows import GroupRows
from trainer.policy import update
from trainer.policy.base_model import load_policy
from trainer.policy.logprobs import token_logprobs
from trainer.policy.losses import LOSSES, SampledTokens
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.packs.plan import plan_update
from trainer.policy.packs.tokens import gather_tokens
from trainer.settings import TrainerSettings
from trainer.step.core import TrainerCore
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import PhaseSeconds, StartVersion, WrittenStep

RESULTS = Path(__file__).parent / "results" / "gpu_step.json"
GIB = 1024**3
LONGEST = 65_536
BUDGETS = (8192, 32_768, 65_536)
SETTINGS = TrainerSettings(rank=32, alpha=64.0, mask_ratio=math.inf)  # the logprobs are made up: no engine sampled
_QWEN = {"max_position_embeddings": LONGEST, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}
BASES: dict[str, dict[str, Any]] = {
    "small": {
        "model_type": "qwen3", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "head_dim": 32,
        "num_key_value_heads": 4, "intermediate_size": 768, "vocab_size": 4096, "initializer_range": 0.1,
    },
    "Qwen3-0.6B": {
        "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
        "head_dim": 128, "num_key_value_heads": 8, "intermediate_size": 3072, "vocab_size": 151_936,
    },
    "Qwen2.5-1.5B": {
        "model_type": "qwen2", "hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12,
        "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151_936,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """The sizes in a step, in tokens."""

    groups: int = 8
    members: int = 8
    system: int = 1000
    task: tuple[int, int] = (100, 1000)
    said: tuple[int, int] = (40, 400)
    tool: tuple[int, int] = (40, 900)
    total: tuple[int, int] = (2000, 8000)


SMALL = Sizes(2, 4, 100, (20, 60), (10, 40), (10, 60), (200, 500))
OF_A_CPU = Sizes(1, 2, 200, (50, 100), (40, 100), (40, 200), (600, 1000))


# --- training data


def steps_rows(sizes: Sizes, vocabulary: int, seed: int = 0) -> list[WeightedRow]:
    """Return the rows of one step, weighted as the trainer does it. Their logprobs are not set yet."""
    random = np.random.default_rng(seed)
    system = random.integers(3, vocabulary, sizes.system)
    groups = []
    for number in range(sizes.groups):
        prompt = np.concatenate([system, random.integers(3, vocabulary, random.integers(*sizes.task))])
        rows = [_row(f"{number}.{member}", prompt, sizes, vocabulary, random) for member in range(sizes.members)]
        rewards = {row.trajectory_id: float(random.random()) for row in rows}
        mean = sum(rewards.values()) / len(rewards)
        advantages = {name: reward - mean for name, reward in rewards.items()}
        groups.append(GroupRows(str(number), "default", rows, rewards, advantages, (), ()))
    return weigh_groups(groups, TrainerSettings())


def _row(name: str, prompt: Any, sizes: Sizes, vocabulary: int, random: np.random.Generator) -> Row:
    parts, masks, length = [prompt], [np.zeros(len(prompt), np.bool_)], random.integers(*sizes.total)
    while sum(map(len, parts)) < length:
        for span, trained in ((sizes.said, True), (sizes.tool, False)):
            parts.append(random.integers(3, vocabulary, random.integers(*span)))
            masks.append(np.full(len(parts[-1]), trained))
    return _as_row(name, np.concatenate(parts)[:length], np.concatenate(masks)[:length])


def _as_row(name: str, ids: Any, trained: Any) -> Row:
    nan = np.float32(np.nan)
    behaviour = np.where(trained, np.float32(-1), nan)
    ages = np.where(trained, 0, -1).astype(np.int32)
    return Row(name, ids.astype(np.int32), trained, behaviour, -behaviour, ages, (("call", 0),))


@torch.no_grad()
def sampled_by(
    policy: Policy, rows: Sequence[WeightedRow], settings: TrainerSettings, noise: float
) -> list[WeightedRow]:
    """Return the rows with the policy's own logprobs, so that ratios are near 1 as in a real step."""
    random, said = np.random.default_rng(1), list(rows)
    for one in plan_update(policy, rows, settings).packs:
        found, _ = update.pack_logprobs(policy, one, gather_tokens(one, rows, policy.device), settings.logprob_chunk)
        for index, part in zip(
            one.rows, torch.split(found, [rows[i].row.trained_tokens for i in one.rows]), strict=True
        ):
            row = rows[index].row
            behaviour = row.behaviour.copy()
            behaviour[row.trained] = part.float().cpu().numpy() + random.normal(scale=noise, size=len(part))
            said[index] = replace(rows[index], row=replace(row, behaviour=behaviour))
    return said


def base_folder(name: str, folder: Path) -> Path:
    """Write a base of this shape with random weights; large ones in bfloat16, as on the hub."""
    values = _QWEN | BASES[name]
    config = AutoConfig.for_model(**values)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32 if name == "small" else torch.bfloat16)
    model.save_pretrained(folder / name)
    return folder / name


# --- measuring


def measured(run: Callable[[], object], device: torch.device) -> dict[str, float]:
    """Return the seconds of a run, and torch's peak memory in it."""
    if device.type != "cuda":
        began = time.perf_counter()
        run()
        return {"s": round(time.perf_counter() - began, 3)}
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    torch.cuda.synchronize()
    spent = time.perf_counter() - began
    return {
        "s": round(spent, 3),
        "peak_gib": round(torch.cuda.max_memory_allocated() / GIB, 2),
        "reserved_gib": round(torch.cuda.max_memory_reserved() / GIB, 2),
    }


def tokens_of(rows: Iterable[WeightedRow]) -> int:
    return sum(len(one.row) for one in rows)


def agreement(folder: Path) -> list[dict[str, Any]]:
    """Compare loss, logprobs and gradient of one small step, by device and dtype, with the CPU in float32."""
    base, sizes = base_folder("small", folder), SMALL
    rows = steps_rows(sizes, BASES["small"]["vocab_size"])
    found: list[dict[str, Any]] = []
    expected: tuple[float, Tensor, Tensor] | None = None
    for device, dtype in (("cpu", "float32"), ("cuda", "float32"), ("cpu", "bfloat16"), ("cuda", "bfloat16")):
        if device == "cuda" and not torch.cuda.is_available():
            continue
        settings = SETTINGS.model_copy(update={"device": device, "dtype": dtype})
        policy = load_policy(base, settings)
        _disturb(policy)
        if expected is None:
            rows = sampled_by(policy, rows, settings, noise=0.05)
        this = _loss_and_gradient(policy, rows, settings)
        expected = expected or this
        found.append({"device": device, "dtype": dtype, **_differences(this, expected)})
    return found


def _disturb(policy: Policy) -> None:
    """Set the LoRA to random values, as if it were trained: initially half of its gradients are 0."""
    generator = torch.Generator().manual_seed(5)
    drawn = {name: torch.randn(p.shape, generator=generator) * 0.02 for name, p in policy.parameters.items()}
    policy.load_state(drawn)


def _loss_and_gradient(
    policy: Policy, rows: Sequence[WeightedRow], settings: TrainerSettings
) -> tuple[float, Tensor, Tensor]:
    total, logprobs = 0.0, []
    for one in plan_update(policy, rows, settings).packs:
        tokens = gather_tokens(one, rows, policy.device)
        found, _ = update.pack_logprobs(policy, one, tokens, settings.logprob_chunk)
        loss = update.weighted_losses(tokens, found, None, settings)[1].sum()
        torch.autograd.backward(loss)
        total += float(loss.detach())
        logprobs.append(found.detach().cpu())
    gradients = [p.grad.flatten().cpu() for p in policy.parameters.values() if p.grad is not None]
    return total, torch.cat(logprobs), torch.cat(gradients).double()


def _differences(this: tuple[float, Tensor, Tensor], expected: tuple[float, Tensor, Tensor]) -> dict[str, float]:
    gaps = (this[1] - expected[1]).abs()
    return {
        "loss": this[0],
        "loss_off": abs(this[0] - expected[0]),
        "logprob_gap": float(gaps.mean()),
        "logprob_gap_max": float(gaps.max()),
        "gradient_off": float((this[2] - expected[2]).norm() / expected[2].norm()),  # relative, over the whole gradient
    }


def whole_steps(base: Path, folder: Path, sizes: Sizes, settings: TrainerSettings) -> dict[str, Any]:
    """Run two whole steps of the trainer, from rows to files; report the second."""
    loading = PhaseSeconds()
    with loading.phase("base"):
        core = TrainerCore(base, settings, TrainerFolders.of(folder / settings.device))
    core.go_to(StartVersion("v0", None))
    rows = sampled_by(core.policy, steps_rows(sizes, vocabulary(core.policy)), settings, noise=0.0)
    first, _ = one_step(core, rows, 1)
    told, written = one_step(core, rows, 2)
    core.became("another")
    with loading.phase("version"):
        core.go_to(StartVersion("v2", written.published.path, written.published.manifest_sha256))
    return {
        "device": settings.device,
        "token_budget": settings.token_budget,
        "tokens": tokens_of(rows),
        "tokens_per_s": round(tokens_of(rows) / told["seconds"]["train"]),
        **told,
        "first_train_s": first["seconds"]["train"],  # with lengths that are new to the kernels
        "load_s": {name: round(spent, 3) for name, spent in loading.by_phase.items()},
        "version_mb": _megabytes(written.published.path),
        "checkpoint_mb": _megabytes(written.checkpoint),
    }


def one_step(core: TrainerCore, rows: Sequence[WeightedRow], number: int) -> tuple[dict[str, Any], WrittenStep]:
    """Run a step from the version in memory; return its cost."""
    seconds = PhaseSeconds()
    made: list[tuple[Mapping[str, float], WrittenStep]] = []
    origin = AdapterOrigin("bench", number, f"bench@{number - 1}", "base", None)

    def whole() -> None:
        trained = core.step(rows, SETTINGS.lr, _never, seconds)
        made.append((trained.metrics, core.write(origin, trained, seconds)))

    cost = measured(whole, core.policy.device)
    core.became(f"v{number}")
    metrics, written = made[0]
    tokens = {name: int(metrics[name]) for name in ("forward_tokens", "trained_tokens")}
    return {**cost, **tokens, "seconds": {name: round(s, 3) for name, s in seconds.by_phase.items()}}, written


def vocabulary(policy: Policy) -> int:
    size: int = policy._causal.config.vocab_size
    return size


def _never() -> bool:
    return False


def _megabytes(folder: Path) -> float:
    return round(sum(path.stat().st_size for path in folder.iterdir()) / 1e6, 1)


def ways(base: Path, sizes: Sizes, settings: TrainerSettings) -> list[dict[str, Any]]:
    """Measure the same rows packed with shared prefixes, with and without recomputation, one row a pass, and padded."""
    kept = settings.model_copy(update={"gradient_checkpointing": False})
    found = [{"way": "packed, activations kept", **_trained(load_policy(base, kept), sizes, kept)}]
    policy = load_policy(base, settings)
    found.append({"way": "packed", **_trained(policy, sizes, settings)})
    policy.set_attention("sdpa")
    found.append({"way": "one row a pass", **_trained(policy, sizes, settings)})
    found.append({"way": "padded", **_trained(policy, sizes, settings, _padded)})
    return found


def budgets(base: Path, sizes: Sizes, settings: TrainerSettings) -> list[dict[str, Any]]:
    """Measure the same rows with other token budgets."""
    policy, found = load_policy(base, settings), []
    for budget in BUDGETS:
        chosen = settings.model_copy(update={"token_budget": budget})
        found.append({"token_budget": budget, **_trained(policy, sizes, chosen)})
    return found


Way = Callable[[Policy, Sequence[WeightedRow], TrainerSettings], object]


def _packed(policy: Policy, rows: Sequence[WeightedRow], settings: TrainerSettings) -> None:
    planned = plan_update(policy, rows, settings)
    update.train_step(policy, Optimizer(policy.parameters, settings), planned, settings, _never)


def _trained(policy: Policy, sizes: Sizes, settings: TrainerSettings, way: Way = _packed) -> dict[str, Any]:
    rows = steps_rows(sizes, vocabulary(policy))
    try:
        once = measured(lambda: way(policy, rows, settings), policy.device)
    except torch.OutOfMemoryError:
        return {"fits": False}
    return {**once, "tokens_per_s": round(tokens_of(rows) / once["s"])}


def _padded(policy: Policy, rows: Sequence[WeightedRow], settings: TrainerSettings) -> None:
    """Compute as most trainers do: rows of similar lengths in a batch, the shorter ones padded."""
    waiting = sorted(rows, key=lambda one: len(one.row))
    while waiting:
        count = max(1, settings.token_budget // len(waiting[-1].row))
        taken, waiting = waiting[-count:], waiting[:-count]
        ids = [torch.from_numpy(one.row.token_ids.astype(np.int64)) for one in taken]
        mask = pad_sequence([torch.ones(len(one), dtype=torch.int64) for one in ids], batch_first=True)
        inputs = {"input_ids": pad_sequence(ids, batch_first=True), "attention_mask": mask}
        moved = {name: tensor.to(policy.device) for name, tensor in inputs.items()}
        with torch.autocast(policy.device.type, torch.bfloat16):
            states = policy._decoder(**moved, use_cache=False).last_hidden_state
        loss = torch.zeros((), device=policy.device)
        for one, own in zip(taken, states, strict=True):
            loss = loss + _loss_of(policy, one, own, settings)
        torch.autograd.backward(loss)


def _loss_of(policy: Policy, one: WeightedRow, states: Tensor, settings: TrainerSettings) -> Tensor:
    trained = np.flatnonzero(one.row.trained)
    targets = torch.from_numpy(one.row.token_ids[trained].astype(np.int64)).to(policy.device)
    behaviour = torch.from_numpy(one.row.behaviour[trained]).to(policy.device)
    before = torch.from_numpy(trained - 1).to(policy.device)
    ones = torch.ones_like(behaviour)
    found, _ = token_logprobs(states[before], policy.head, targets, ones, chunk=settings.logprob_chunk)
    advantages = ones * torch.as_tensor(one.advantage, device=policy.device)
    tokens = SampledTokens(found, behaviour, advantages, found.detach(), torch.zeros_like(targets), 1)
    return (LOSSES["grpo"](tokens, settings).loss * torch.as_tensor(one.rl_weight, device=policy.device)).sum()


def long_row(base: Path, settings: TrainerSettings, length: int) -> dict[str, Any]:
    """Measure one row, half of it trained, in one pass."""
    chosen = settings.model_copy(update={"token_budget": length})
    policy = load_policy(base, chosen)
    ids = np.random.default_rng(3).integers(3, vocabulary(policy), length)
    rows = [WeightedRow(_as_row("long", ids, np.arange(length) % 1024 >= 512), 0.5, 1.0)]
    optimizer = Optimizer(policy.parameters, chosen)
    planned = plan_update(policy, rows, chosen)
    told: dict[str, Any] = {"tokens": length, "fits": False}
    with suppress(torch.OutOfMemoryError):
        update.train_step(policy, optimizer, planned, chosen, _never)  # the first pass chooses kernels
        once = measured(lambda: update.train_step(policy, optimizer, planned, chosen, _never), policy.device)
        told |= {"fits": True, **once, "tokens_per_s": round(length / once["s"])}
    return told


def everything(folder: Path, only: str) -> dict[str, Any]:
    """Run all parts whose name contains `only`."""
    gpu = torch.cuda.is_available()
    found: dict[str, Any] = {}
    if only in "agreement":
        found["agreement"] = agreement(folder)
    names = [name for name in BASES if gpu and name != "small"] or ["small"]
    sizes = Sizes() if gpu else SMALL
    for name in names:
        base = base_folder(name, folder)
        part: dict[str, Any] = {}
        settings = SETTINGS.model_copy(update={"device": "cuda" if gpu else "cpu"})
        if only in "step":
            part["step"] = whole_steps(base, folder / name, sizes, settings)
        if gpu and only in "ways":
            part["ways"] = ways(base, sizes, settings)
        if gpu and only in "budgets":
            part["budgets"] = budgets(base, sizes, settings)
        if gpu and only in "long":
            part["long"] = [long_row(base, settings, length) for length in (LONGEST // 2, LONGEST)]
        if gpu and name == names[0] and only in "cpu":  # a step of the larger base takes too long on a CPU
            on_cpu = SETTINGS.model_copy(update={"device": "cpu", "threads": os.cpu_count()})
            part["cpu"] = whole_steps(base, folder / name, OF_A_CPU, on_cpu)
        found[name] = part
        print(json.dumps({name: part}), flush=True)
    return found


def about() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
    return {**machine(), "gpu": gpu, "processor": platform.machine(), **versions}


def main() -> None:
    """Measure and print; with `--save`, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS}")
    parser.add_argument(
        "--only", default="", help="parts whose name contains this: agreement, step, ways, budgets, long, cpu"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {"machine": about(), **everything(Path(folder), asked.only)}
    print(json.dumps(found, indent=1))
    if asked.save:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
