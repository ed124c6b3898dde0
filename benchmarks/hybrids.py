"""A training step of a model with recurrent layers on a CPU: one row a pass, rows padded together, prefixes shared.

    python -m benchmarks.hybrids [--rounds 3] [--save]

Bases have random weights in the shapes of Qwen3.5 (gated delta nets) and of Granite 4 (Mamba 2), with 4 layers, and
LoRAs of rank 8 on all linear layers. A step has one group of 8 rows of 10 turns. In `branches` each row continues an
earlier one from one of its last turns, as where trajectories are forked; in `prompt` rows share the prompt alone. Each
round runs the trainer's own step in every layout that the base has, one after the other, on one thread; reported are
medians over the rounds. `gradient_off` is the distance to the gradient of one row a pass, relative to its norm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.load import machine
from trainer.batch.layouts import Layout
from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.policy import update
from trainer.policy.attention.interface import NAME
from trainer.policy.base_model import load_policy
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.packs.plan import plan_update
from trainer.policy.startup_check import random_state
from trainer.settings import TrainerSettings

RESULTS: Final = Path(__file__).parent / "results" / "hybrids.json"
SETTINGS: Final = TrainerSettings(device="cpu", threads=1, token_budget=8192)
ROWS, TURNS, VOCABULARY = 8, 10, 2048
PROMPT: Final = 600  # tokens of the system prompt, the tools and the task
ANSWER, TOOL = (20, 80), (20, 120)  # tokens of a turn
_SHAPE: Final[Mapping[str, Any]] = {
    "hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 512, "vocab_size": VOCABULARY, "max_position_embeddings": 8192, "tie_word_embeddings": True,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
BASES: Final[Mapping[str, Mapping[str, Any]]] = {
    "Qwen3.5": {
        "model_type": "qwen3_5_text", **_SHAPE, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
        "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    },
    "Granite hybrid": {
        "model_type": "granitemoehybrid", **_SHAPE, "mamba_n_heads": 12, "mamba_d_head": 32, "mamba_d_state": 32,
        "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 64, "num_local_experts": 0,
        "num_experts_per_tok": 0, "shared_intermediate_size": 512, "layer_types": ["mamba"] * 3 + ["attention"],
    },
}  # fmt: skip


def group_rows(kind: str, seed: int = 0) -> list[WeightedRow]:
    """Return the rows of a group: `branches` or `prompt`."""
    random = np.random.default_rng(seed)
    prompt = _tokens(random, PROMPT, PROMPT + 1)
    rows = [_turns(random, TURNS)]
    while len(rows) < ROWS:
        kept = int(random.integers(TURNS // 2, TURNS)) if kind == "branches" else 0
        parent = rows[int(random.integers(len(rows)))]
        rows.append([*parent[:kept], *_turns(random, TURNS - kept)])
    return [_row(str(number), prompt, turns, number - (ROWS - 1) / 2) for number, turns in enumerate(rows)]


Turn = tuple[np.ndarray, np.ndarray]  # the model's tokens, and its tool's


def _turns(random: np.random.Generator, count: int) -> list[Turn]:
    return [(_tokens(random, *ANSWER), _tokens(random, *TOOL)) for _ in range(count)]


def _tokens(random: np.random.Generator, least: int, below: int) -> np.ndarray:
    return random.integers(3, VOCABULARY, int(random.integers(least, below))).astype(np.int32)


def _row(name: str, prompt: np.ndarray, turns: Sequence[Turn], advantage: float) -> WeightedRow:
    parts = [prompt, *(part for turn in turns for part in turn)]
    masks = [np.full(len(part), number % 2 == 1) for number, part in enumerate(parts)]
    ids, trained = np.concatenate(parts), np.concatenate(masks)
    behaviour = np.where(trained, np.float32(-np.log(VOCABULARY)), np.float32(np.nan))
    temperature = np.where(trained, np.float32(1), np.float32(np.nan))
    ages = np.where(trained, 0, -1).astype(np.int32)
    row = Row(name, ids, trained, behaviour, temperature, ages, (("call", 0),))
    return WeightedRow(row, advantage, 1 / (ROWS * row.trained_tokens))


def load_base(name: str, folder: Path) -> Policy:
    """Write a base with random weights and load it; its LoRA is random and not zero."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**BASES[name]))
    model.save_pretrained(folder / name)
    policy = load_policy(folder / name, SETTINGS)
    policy.load_state(random_state(policy))
    return policy


def layouts_of(policy: Policy) -> list[tuple[str, Layout]]:
    """The attention and the layout of each way to compute the base's rows, the slowest first."""
    packed = [(NAME, Layout.PACKED)] if policy.layout is Layout.PACKED else []
    return [("sdpa", Layout.ALONE), ("sdpa", Layout.PADDED), *packed]


class GradientOptimizer(Optimizer):
    """The trainer's optimizer, which keeps a step's gradient."""

    gradient: Tensor

    def step(self) -> dict[str, float]:
        """As the optimizer's."""
        self.gradient = torch.cat([p.grad.flatten() for p in self._parameters.values() if p.grad is not None])
        return super().step()


def timed_step(policy: Policy, rows: Sequence[WeightedRow]) -> tuple[dict[str, float], Tensor]:
    """Run one step, and return its cost and its gradient."""
    optimizer, state = GradientOptimizer(policy.parameters, SETTINGS), policy.state()
    wall, cpu = time.perf_counter(), time.process_time()
    planned = plan_update(policy, rows, SETTINGS)
    metrics = update.train_step(policy, optimizer, planned, SETTINGS, lambda: False)
    spent = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    policy.load_state(state)
    cost = {**spent, "forward_tokens": metrics["forward_tokens"], "passes": len(planned.packs)}
    return cost, optimizer.gradient


def compare(policy: Policy, kind: str, rounds: int) -> dict[str, Any]:
    """Measure all layouts of a base on one group."""
    rows, ways = group_rows(kind), layouts_of(policy)
    gradients, costs = {}, {layout: list[dict[str, float]]() for _, layout in ways}
    for _ in range(rounds):
        for implementation, layout in ways:
            policy.set_attention(implementation, layout)
            cost, gradients[layout] = timed_step(policy, rows)
            costs[layout].append(cost)
            print(kind, layout, cost, flush=True)
    expected = gradients[Layout.ALONE]
    found = {}
    for layout, costs_of_layout in costs.items():
        medians = {name: statistics.median(one[name] for one in costs_of_layout) for name in costs_of_layout[0]}
        off = float((gradients[layout] - expected).norm() / expected.norm())
        found[str(layout)] = {
            "forward_tokens": int(medians["forward_tokens"]), "passes": int(medians["passes"]),
            "wall_s": round(medians["wall_s"], 2), "cpu_s": round(medians["cpu_s"], 2), "gradient_off": off,
        }  # fmt: skip
    return {"tokens_of_rows": [len(one.row) for one in rows], **found}


def main() -> None:
    """Measure and print; with `--save`, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS}")
    parser.add_argument("--shared", action="store_true", help="other programs ran on the machine: say so in the result")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    found: dict[str, Any] = {"machine": {**machine(), "shared": asked.shared}, **versions, "rounds": asked.rounds}
    with tempfile.TemporaryDirectory() as folder:
        for name in BASES:
            policy = load_base(name, Path(folder))
            kinds = ("branches", "prompt") if policy.layout is Layout.PACKED else ("prompt",)
            found[name] = {kind: compare(policy, kind, asked.rounds) for kind in kinds}
            print(json.dumps({name: found[name]}, indent=1), flush=True)
    if asked.save:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
