"""What the trainer does with one family: loads it, computes rows, makes one step, and publishes the adapter.

Owns: the comparison with the plain forward pass of transformers and PEFT, row by row, and the figures of the trainer's
half. Refuses: engines (`benchmarks.families.engine_half`). It calls what a step of `hone learn` calls: `load_policy`,
`plan_update`, `train_step`, `publish_adapter`.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForImageTextToText

from benchmarks.families.catalog import CONTEXT, WINDOW
from benchmarks.families.plain_text import text_logits
from recorder.base.errors import HoneError
from recorder.models.weights import quantization_method
from trainer.artifacts import probe
from trainer.artifacts.adapters import AdapterOrigin, LoraShape, publish_adapter, unservable_modules
from trainer.batch.layouts import Layout
from trainer.batch.packing import Ids
from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.lora.file_layout import ExpertLayout
from trainer.lora.targets import EXPERT_PARAMETERS, EXPERTS
from trainer.policy import startup_check
from trainer.policy.base_model import (
    add_plain_lora,
    exact_targets,
    first_architecture,
    fix_engine_choices,
    load_policy,
    read_config,
    resolve_base,
)
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.packs.plan import plan_update
from trainer.policy.packs.tokens import gather_tokens
from trainer.policy.text_model import load_text_model
from trainer.policy.update import pack_logprobs, train_step
from trainer.settings import TrainerSettings

SETTINGS: Final = TrainerSettings(
    device="cpu", rank=8, alpha=16.0, token_budget=512, max_model_len=CONTEXT, lr=1e-2, logprob_chunk=64
)
_SHARED: Final = 8  # tokens beyond a window, of the rows' common beginning
_LENGTHS: Final = (40, 58, 28)  # tokens of the rows beyond a window; the third begins as no other
_TRAINED: Final = 12  # at the end of a row
_PEFT_NAME: Final = ".default."
_PEFT_CLASSES: Final = "base_model.model."
_MEDIA: Final = ("vision", "visual", "audio")  # in the names of a base's other parts


@dataclass(frozen=True, slots=True)
class TrainerFigures:
    """The trainer's half. Figures are None where a refusal came before them.

    `refusal`: why it does not load. `logprob_gap`: the largest |Δ| to the plain forward pass (nats); `gradient_gap`:
    the largest |Δ| of a gradient, relative to the largest gradient. `frozen_share`: of the layers' weights, those that
    no LoRA changes. `unpublished`: why no adapter was published.
    """

    refusal: str | None = None
    rows: str | None = None
    reason: str | None = None
    logprob_gap: float | None = None
    gradient_gap: float | None = None
    modules: tuple[str, ...] = ()
    frozen_share: float | None = None
    unpublished: str | None = None


@dataclass(frozen=True, slots=True)
class TrainedFamily:
    """The figures, and what an engine needs: the adapter of one step, and the same model with the adapter merged."""

    figures: TrainerFigures
    policy: Policy | None = None
    adapter: Path | None = None
    probe: Mapping[str, Any] | None = None


def run_trainer_half(base: Path, adapters: Path) -> TrainedFamily:
    """Do everything with the base in a folder. Publishes into `adapters`. Nothing that a base causes is raised."""
    try:
        policy = load_policy(resolve_base(str(base)), SETTINGS)
    except Exception as e:  # noqa: BLE001 - a measuring program reports what fails, whatever it is
        return TrainedFamily(TrainerFigures(refusal=sentence(e, base)))
    try:
        return _measure(policy, base, adapters)
    except Exception as e:  # noqa: BLE001
        return TrainedFamily(TrainerFigures(refusal=f"after loading: {sentence(e, base)}"))


def sentence(error: Exception, base: Path) -> str:
    """An error in one line. Errors that are not Hone's own keep their type: no user should meet one."""
    text = str(error).replace(str(base), "BASE").strip().split("\n")[0][:600]
    return text if isinstance(error, HoneError) else f"{type(error).__name__}: {text}"


def _measure(policy: Policy, base: Path, adapters: Path) -> TrainedFamily:
    rows = [WeightedRow(row, 1.0, 1.0) for row in make_rows(policy)]
    policy.load_state(startup_check.random_state(policy, seed=3))
    plain = plain_model(policy, base)
    logprob_gap, gradient_gap = compare(policy, plain, rows)
    policy.load_state(None)
    contexts = _step(policy, rows)
    adapter, unpublished = _publish(policy, base, adapters, contexts)
    figures = TrainerFigures(
        rows=policy.layout.value,
        reason=None if policy.layout is Layout.PACKED else policy.unpacked_reason,
        logprob_gap=logprob_gap,
        gradient_gap=gradient_gap,
        modules=tuple(one for one in policy.modules if one != "base_layer"),
        frozen_share=frozen_share(plain),
        unpublished=unpublished,
    )
    return TrainedFamily(figures, policy, adapter, contexts)


def make_rows(policy: Policy) -> list[Row]:
    """Rows of random ids, longer than the windows; the first two begin alike. The last tokens of each are trained."""
    random = np.random.default_rng(5)
    text = policy.model_config.get_text_config()
    most, window = text.vocab_size, getattr(text, "attention_chunk_size", None) or WINDOW
    shared = random.integers(3, most, window + _SHARED)
    begins = (shared, shared, shared[:0])
    rows = []
    for index, (begin, beyond) in enumerate(zip(begins, _LENGTHS, strict=True)):
        ids = np.concatenate([begin, random.integers(3, most, window + beyond - len(begin))]).astype(np.int32)
        rows.append(_row(ids, f"row {index}"))
    return rows


def _row(ids: Ids, name: str) -> Row:
    trained = np.arange(len(ids)) >= len(ids) - _TRAINED
    behaviour = np.where(trained, np.float32(-5.0), np.float32(np.nan))
    temperature = np.where(trained, np.float32(1.0), np.float32(np.nan))
    return Row(name, ids, trained, behaviour, temperature, np.where(trained, 0, -1).astype(np.int32), (("call", 0),))


def plain_model(policy: Policy, base: Path) -> PeftModel:
    """The same model and LoRA by transformers and PEFT alone, with their own eager attention.

    Of a base that reads images, it is the whole model, with the LoRA on the modules that the policy's files name.
    """
    config = AutoConfig.from_pretrained(base)
    lora = policy.config
    if hasattr(config, "vision_config"):
        model = AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
        fix_engine_choices(model, config, base, SETTINGS.max_model_len)
        adapted = _add_by_names(model, lora, policy)
    else:  # which also dequantises
        model = load_text_model(base, config, torch.float32)
        fix_engine_choices(model, config, base, SETTINGS.max_model_len)
        adapted = add_plain_lora(model, base, SETTINGS, first_architecture(read_config(base)))
    copy_weights(policy, adapted)
    adapted.train(False)
    return adapted


def _add_by_names(model: Any, lora: LoraConfig, policy: Policy) -> PeftModel:
    names = {name.removeprefix(_PEFT_CLASSES).split(".lora_")[0] for name in policy.parameters}
    experts = {name for name in names if name.endswith(f".{EXPERTS}")}
    parameters = [f"{name}.{parameter}" for name in sorted(experts) for parameter in EXPERT_PARAMETERS]
    modules = {name for name in names - experts if not name.endswith(".base_layer")}
    with warnings.catch_warnings(), exact_targets():
        warnings.simplefilter("ignore")
        return get_peft_model(model, replace(lora, target_modules=modules, target_parameters=parameters or None))


def write_merged(policy: Policy, base: Path, folder: Path) -> Path:
    """Write the base with the policy's LoRA merged into its weights, and its tokenizer, into a folder."""
    merged = plain_model(policy, base).merge_and_unload()
    # of dequantised weights, transformers does not restore the files' names
    merged.save_pretrained(folder, save_original_format=quantization_method(read_config(base)) is None)
    for file in base.iterdir():
        if not (folder / file.name).exists():
            shutil.copy(file, folder)
    return folder


def copy_weights(policy: Policy, adapted: PeftModel) -> None:
    """Give a plain model the policy's LoRA."""
    own = _lora_parameters(adapted)
    with torch.no_grad():
        for name, tensor in policy.state().items():
            own[name].copy_(tensor)


def compare(policy: Policy, plain: PeftModel, rows: Sequence[WeightedRow]) -> tuple[float, float]:
    """The largest differences of logprobs (nats) and of gradients (relative to the largest) from the plain model."""
    expected, expected_gradients = _plain_results(plain, rows)
    found, gradients = _policy_results(policy, rows)
    gap = max(float((found[index] - expected[index]).abs().max()) for index in found)
    scale = max(float(one.abs().max()) for one in expected_gradients.values())
    worst = max(float((gradients[name] - one).abs().max()) for name, one in expected_gradients.items())
    return gap, worst / scale


def _plain_results(plain: PeftModel, rows: Sequence[WeightedRow]) -> tuple[dict[int, Tensor], dict[str, Tensor]]:
    found = {}
    for index, one in enumerate(rows):
        ids = torch.from_numpy(one.row.token_ids.astype(np.int64))
        logits = text_logits(plain, ids[None])[0].float()
        at = torch.from_numpy(np.flatnonzero(one.row.trained))
        logprobs = torch.log_softmax(logits[at - 1], -1)[range(len(at)), ids[at]]
        torch.autograd.backward(-logprobs.sum())
        found[index] = logprobs.detach()
    return found, _take_gradients(_lora_parameters(plain))


def _policy_results(policy: Policy, rows: Sequence[WeightedRow]) -> tuple[dict[int, Tensor], dict[str, Tensor]]:
    found: dict[int, Tensor] = {}
    for one in plan_update(policy, rows, SETTINGS).packs:
        tokens = gather_tokens(one, rows, policy.device)
        logprobs, _ = pack_logprobs(policy, one, tokens, SETTINGS.logprob_chunk)
        torch.autograd.backward(-logprobs.sum())
        found |= dict(zip(one.rows, torch.split(logprobs.detach(), _TRAINED), strict=True))
    return found, _take_gradients(policy.parameters)


def _lora_parameters(adapted: PeftModel) -> dict[str, nn.Parameter]:
    return {
        name.replace(_PEFT_NAME, "."): parameter
        for name, parameter in adapted.named_parameters()
        if parameter.requires_grad
    }


def _take_gradients(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    found = {}
    for name, parameter in parameters.items():
        found[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        parameter.grad = None
    return found


def frozen_share(adapted: PeftModel) -> float:
    """The share of the weights in layers that no LoRA changes: norms, routers, experts, and what else has none."""
    adapted_modules = {
        name.removesuffix(".base_layer")
        for name, module in adapted.named_modules()
        if isinstance(module, BaseTunerLayer)
    }
    whole = changed = 0
    for name, parameter in adapted.named_parameters():
        if ".layers." not in name or ".lora_" in name or any(one in name for one in _MEDIA):
            continue
        module = name.rsplit(".", 1)[0].replace(".base_layer", "")
        whole += parameter.numel()
        changed += parameter.numel() if module in adapted_modules and parameter.ndim > 1 else 0
    return 1 - changed / whole


def _step(policy: Policy, rows: Sequence[WeightedRow]) -> dict[str, Any]:
    """One real step from the untrained LoRA; returns the probe between the two."""
    given = probe.ProbeCandidates([one.row.token_ids[:-1] for one in rows], [_ends(one.row) for one in rows])
    parent = probe.next_token_logprobs(policy, given, SETTINGS.token_budget)
    optimizer = Optimizer(policy.parameters, SETTINGS)
    train_step(policy, optimizer, plan_update(policy, rows, SETTINGS), SETTINGS, lambda: False)
    return probe.choose_contexts(given, probe.next_token_logprobs(policy, given, SETTINGS.token_budget), parent)


def _ends(row: Row) -> list[int]:
    return [int(at) for at in np.flatnonzero(row.trained)]


def _publish(policy: Policy, base: Path, adapters: Path, contexts: Mapping[str, Any]) -> tuple[Path | None, str | None]:
    """Publish the policy's LoRA as a step does; the folder, or why there is none."""
    shapes = {name: tuple(parameter.shape) for name, parameter in policy.parameters.items()}
    layout = ExpertLayout.of(first_architecture(read_config(base)), SETTINGS.rank)
    if refused := unservable_modules(shapes, SETTINGS.rank, layout):
        return None, f"engines load no LoRA on {', '.join(refused)}"
    origin = AdapterOrigin("family", 1, "family@0", policy.base, None)
    lora = LoraShape(SETTINGS.rank, SETTINGS.alpha, policy.modules, layout)
    try:
        return publish_adapter(adapters, origin, lora, policy.state(), shapes, contexts).path, None
    except HoneError as e:
        return None, sentence(e, adapters)
