"""Whether engines compute the logprobs that the trainer computes: named tokens after a fixed text (`hone doctor`).

Owns: computing them on the CPU, and what a difference means. Refuses: asking the engines (`proxy.doctor.logprobs`), and
the bound of a training step (`trainer.step.engine_gap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoConfig, PreTrainedModel

from recorder.base.findings import Finding, FindingLevel
from recorder.queue.training.refusals import HOW_TO_MEND
from trainer.errors import TrainerError
from trainer.policy.base_model import choose_dtype, dtype_name, read_config
from trainer.policy.text_model import load_text_model
from trainer.quantization.copy_gap import logprobs_after
from trainer.quantization.layers import quantize_layers, require_plain_weights
from trainer.settings import TrainerSettings
from trainer.step.engine_gap import gap_bound, quantized_precision, text_gap

CHECK: Final = "trainer logprobs"
MOST_BYTES: Final = 8 * 2**30  # of weights: more are not loaded for a check
MOST_QUANTIZED: Final = 2 * 2**30  # the same, where they are quantised: a CPU core takes 40 s for so many (measured)


@dataclass(frozen=True, slots=True)
class EngineLogprobs:
    """An engine's logprobs at temperature 1 of named tokens, each as the next one after a prompt."""

    url: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


def parse_answers(given: Sequence[Mapping[str, Any]]) -> list[EngineLogprobs]:
    """Read what `hone doctor` sends."""
    return [
        EngineLogprobs(one["url"], tuple(one["prompt_ids"]), tuple(one["token_ids"]), tuple(one["logprobs"]))
        for one in given
    ]


def check_engine_logprobs(
    settings: TrainerSettings, engine_args: Sequence[str], answers: Sequence[EngineLogprobs]
) -> list[Finding]:
    """One finding for each engine; none if the base is not a folder on this machine.

    `engine_args`: vLLM's arguments, which tell whether it quantises.
    """
    base = Path(settings.base or "")
    if settings.base is None or not base.is_dir():
        return []
    size = sum(path.stat().st_size for path in base.glob("*.safetensors"))
    if size > (MOST_QUANTIZED if settings.quantize else MOST_BYTES):
        text = f"the base has {size / 2**30:.0f} GiB of weights: the first step compares them, not this check."
        return [Finding(CHECK, FindingLevel.SKIPPED, text)]
    try:
        model = _load(base, settings)
    except TrainerError as e:
        return [Finding(CHECK, FindingLevel.WRONG, str(e))]
    precision = quantized_precision(engine_args, read_config(base))
    bound = gap_bound(dtype_name(settings), precision, settings.max_logprob_gap, settings.quantize)
    return [compare_logprobs(one, logprobs_after(model, one.prompt_ids, one.token_ids), bound) for one in answers]


def _load(base: Path, settings: TrainerSettings) -> PreTrainedModel:
    require_plain_weights(str(base), read_config(base), settings.quantize)
    config = AutoConfig.from_pretrained(base, local_files_only=True)
    model = load_text_model(base, config, choose_dtype(settings)).eval()
    if settings.quantize:
        quantize_layers(model, torch.device("cpu"))
    return model


def compare_logprobs(engine: EngineLogprobs, own: Sequence[float], bound: float) -> Finding:
    """The finding for an engine's logprobs beside the trainer's `own`. `bound`: of a step, in nats a token."""
    gap, allowed = text_gap(engine.logprobs, own, bound)
    if gap <= allowed:
        return Finding(CHECK, FindingLevel.FINE, f"{engine.url} computes the trainer's logprobs, {gap:.2g} nats apart.")
    text = (
        f"{engine.url} and the trainer differ by {gap:.2g} nats a token after a fixed text. At most {allowed:.2g} is "
        "accepted: no step would make a version."
    )
    return Finding(CHECK, FindingLevel.WRONG, text, f"{HOW_TO_MEND}.")
