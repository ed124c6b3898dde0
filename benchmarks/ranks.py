"""A training step in one, two and three processes, with a whole base in each and with shares of it.

    python -m benchmarks.ranks [--rounds 3] [--device cpu] [--save] [--shared]

The base has random weights in the shape of a Qwen3 of 47 million parameters, in float32 on a CPU; the LoRA has rank 8
on all linear layers. A step has 8 groups of 4 rows of 200 to 900 tokens, which share a prompt of 150. Reported are, for
each number of processes: the median seconds of a step's passes, the tokens that were computed, the distance of the
gradient to one process's (relative to its norm; taken from the optimizer's first moment), and what each process holds
after the step: numbers of the base for the first one, and private memory for all.

Each process has one thread. Times say something where there are as many idle cores, or GPUs, as processes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.load import machine
from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.ranks.group import ONE_RANK, Ranks
from trainer.ranks.launch import Launcher
from trainer.settings import TrainerSettings
from trainer.step.core import TrainerCore
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import PhaseSeconds, StartVersion

RESULTS: Final = Path(__file__).parent / "results" / "ranks.json"
SETTINGS: Final = TrainerSettings(
    threads=1,
    token_budget=2048,
    rank=8,
    rank_timeout_s=600.0,
    mask_ratio=math.inf,  # no engine sampled the tokens
)
COUNTS: Final = (1, 2, 3)
VOCABULARY: Final = 8192
PROMPT, ANSWERS, GROUPS, MEMBERS = 150, (50, 750), 8, 4
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One configuration. `moments`: the optimizer's first moments after the first step."""

    figures: Mapping[str, Any]
    moments: Tensor


def write_base(folder: Path) -> Path:
    """A base with random weights."""
    config = Qwen3Config(
        hidden_size=512, num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=4, head_dim=64,
        intermediate_size=1536, vocab_size=VOCABULARY, max_position_embeddings=4096, tie_word_embeddings=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def step_rows() -> list[WeightedRow]:
    """The rows of a step: of each group a shared prompt, and answers of very different lengths."""
    random = np.random.default_rng(0)
    made = []
    for group in range(GROUPS):
        prompt = random.integers(3, VOCABULARY, PROMPT)
        for member in range(MEMBERS):
            answer = random.integers(3, VOCABULARY, int(random.integers(*ANSWERS)))
            ids = np.concatenate([prompt, answer]).astype(np.int32)
            trained = np.arange(len(ids)) >= PROMPT
            behaviour = np.where(trained, np.float32(-9), np.float32(np.nan))
            age = np.where(trained, 0, -1).astype(np.int32)
            temperature = np.where(trained, np.float32(1), np.float32(np.nan))
            row = Row(f"{group}-{member}", ids, trained, behaviour, temperature, age, (("call", 0),))
            made.append(WeightedRow(row, 1.0 if member % 2 else -1.0, 1 / (GROUPS * MEMBERS * len(answer))))
    return made


@contextmanager
def joined(settings: TrainerSettings) -> Any:
    """Within: the ranks of these settings, and the ids of their processes."""
    if settings.processes == 1:
        yield ONE_RANK, [os.getpid()]
        return
    launcher = Launcher(settings)
    try:
        ranks = launcher.join()
        assert launcher.started is not None
        yield ranks, [os.getpid(), *(one.pid for one in launcher.started.processes)]
    finally:
        launcher.leave()


def measure(base: Path, settings: TrainerSettings, rounds: int, folder: Path) -> MeasuredStep:
    """Run `rounds` steps from the base in these processes."""
    with joined(settings) as (ranks, processes):
        core = open_core(base, settings, folder, ranks)
        held = sum(_local(one).numel() for one in core.policy._causal.parameters() if not one.requires_grad)
        seconds, moments, metrics = [], torch.empty(0), {}
        for _ in range(rounds):
            core.go_to(StartVersion("base", None))
            phases = PhaseSeconds()
            metrics = dict(core.step(step_rows(), 1e-4, lambda: False, phases).metrics)
            seconds.append(phases.by_phase["train"])
            state = core._optimizer.state()["adamw"]
            moments = torch.cat([state[number]["exp_avg"].flatten().cpu() for number in sorted(state)])
        private = [round(psutil.Process(pid).memory_full_info().uss / _MIB) for pid in processes]
    return MeasuredStep(
        {
            "train_s": round(statistics.median(seconds), 3),
            "forward_tokens": metrics["forward_tokens"],
            "loss": metrics["loss"],
            "base_numbers_of_the_first": held,
            "private_mib": private,
        },
        moments,
    )


def open_core(base: Path, settings: TrainerSettings, folder: Path, ranks: Ranks) -> TrainerCore:
    """The trainer of one configuration."""
    return TrainerCore(base, settings, TrainerFolders.of(folder), ranks=ranks)


def _local(one: Tensor) -> Tensor:
    return one.to_local() if isinstance(one, DTensor) else one


def main() -> None:
    """Measure and print; with `--save`, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS}")
    parser.add_argument("--shared", action="store_true", help="other programs ran on the machine: say so in the result")
    asked = parser.parse_args()
    found: dict[str, Any] = {
        "machine": {**machine(), "shared": asked.shared}, "torch": torch.__version__, "device": asked.device,
        "rounds": asked.rounds,
    }  # fmt: skip
    alone: Tensor | None = None
    with tempfile.TemporaryDirectory() as folder:
        base = write_base(Path(folder) / "base")
        for count, share in [(count, share) for count in COUNTS for share in (False, True) if count > 1 or not share]:
            changes = {"processes": count, "shard_base": share, "device": asked.device}
            one = measure(base, SETTINGS.model_copy(update=changes), asked.rounds, Path(folder) / "data")
            alone = one.moments if alone is None else alone
            off = float((one.moments - alone).norm() / alone.norm())
            name = f"{count} {'shared' if share else 'whole'}"
            found[name] = {**one.figures, "gradient_off": off}
            print(json.dumps({name: found[name]}), flush=True)
    if asked.save:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
