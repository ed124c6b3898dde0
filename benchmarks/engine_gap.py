"""How far apart the logprobs of two computations of one model are: what a bound on engine and trainer must accept.

    python -m benchmarks.engine_gap --save        writes benchmarks/results/engine_gap.json

Each of the trained models that the project ships samples texts at temperature 1 in float32. Their tokens are then given
logprobs again: in float32 and in bfloat16 by two attention implementations, as engine and trainer have two, and in
bfloat16 with weights rounded to 8 and to 4 bits. Reported is the mean |Δlogprob| of a token to the first computation of
the same dtype (nats). The rounding is simulated: weights are rounded and multiplied in bfloat16. `nf4` is the trainer's
own copy (`trainer.quantize`), in both dtypes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from trainer.quantization.layers import quantize_layers

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = Path(__file__).parent / "results" / "engine_gap.json"
MODELS: Final = ("helpdesk", "inbox", "mcp_rl", "rlvr", "twenty48")
TEXTS, TOKENS = 64, 96
GROUP: Final = 32  # weights that share a scale at 4 bits


def to_fp8(weights: Tensor) -> Tensor:
    """Round to float8 (e4m3) with a scale for each row."""
    scale = weights.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448.0
    return (weights / scale).to(torch.float8_e4m3fn).to(weights.dtype) * scale


def to_int4(weights: Tensor) -> Tensor:
    """Round to 4 bits with a scale for each `GROUP` weights of a row."""
    parts = weights.reshape(weights.shape[0], -1, GROUP)
    scale = parts.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 7.0
    return ((parts / scale).round().clamp(-8, 7) * scale).reshape(weights.shape)


def load(model: str, dtype: torch.dtype, attention: str, rounded: Callable[[Tensor], Tensor] | None = None) -> Any:
    """Load a shipped model; `rounded`: with its linear layers rounded, apart from the output head."""
    folder = ROOT / "examples" / model / "model"
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    if rounded is not None:
        for name, module in loaded.named_modules():
            if isinstance(module, nn.Linear) and not name.endswith("lm_head"):
                module.weight.data = rounded(module.weight.data)
    return loaded.to(dtype).eval()


def load_copy(model: str, dtype: torch.dtype) -> Any:
    """A shipped model as the trainer computes on it with `trainer.quantize`."""
    loaded = load(model, dtype, "sdpa")
    quantize_layers(loaded, torch.device("cpu"))
    return loaded


@torch.no_grad()
def sample(model: Any) -> Tensor:
    """Sample token ids of shape (TEXTS, TOKENS), each text from a drawn token."""
    torch.manual_seed(7)
    ids = torch.randint(1, model.config.vocab_size, (TEXTS, 1))
    while ids.shape[1] < TOKENS:
        probabilities = torch.softmax(model(input_ids=ids).logits[:, -1].float(), -1)
        ids = torch.cat([ids, torch.multinomial(probabilities, 1)], dim=1)
    return ids


@torch.no_grad()
def logprobs(model: Any, ids: Tensor) -> Tensor:
    """The logprobs of all tokens but the first of each text."""
    every = torch.log_softmax(model(input_ids=ids).logits[:, :-1].float(), -1)
    return every.gather(-1, ids[:, 1:, None])[..., 0]


def measure(model: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the figures of one model by the kind of computation."""
    ids = sample(load(model, torch.float32, "eager"))
    full = logprobs(load(model, torch.float32, "eager"), ids)
    half = logprobs(load(model, torch.bfloat16, "eager"), ids)
    others = {
        "float32, another attention": (full, load(model, torch.float32, "sdpa")),
        "bfloat16, another attention": (half, load(model, torch.bfloat16, "sdpa")),
        "8 bits": (half, load(model, torch.bfloat16, "sdpa", to_fp8)),
        "4 bits": (half, load(model, torch.bfloat16, "sdpa", to_int4)),
        "nf4, float32": (full, load_copy(model, torch.float32)),
        "nf4, bfloat16": (half, load_copy(model, torch.bfloat16)),
    }
    for name, (first, other) in others.items():
        gaps = (logprobs(other, ids) - first).abs()
        yield name, {"mean": float(gaps.mean()), "p99": float(gaps.quantile(0.99)), "max": float(gaps.max())}


def main() -> None:
    """Measure all models and print; with `--save`, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS}")
    save = parser.parse_args().save
    logging.disable_progress_bar()
    found = {model: dict(measure(model)) for model in MODELS}
    for model, kinds in found.items():
        for kind, figures in kinds.items():
            print(f"{model:10} {kind:28} " + "  ".join(f"{name} {value:.2g}" for name, value in figures.items()))
    if save:
        RESULTS.write_text(json.dumps({"texts": TEXTS, "tokens": TOKENS, "models": found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
