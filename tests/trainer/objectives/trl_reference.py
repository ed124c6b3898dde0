"""Write what TRL computes on the toy batch: `python -m tests.trainer.objectives.trl_reference`, into trl.json.

TRL is no dependency of Hone; install the version that trl.json names to run this. It calls the loss of TRL's trainer
on given logprobs, and writes the loss and its gradient by the logprobs. Of `sdpo` it calls the two functions of
`trl.experimental.sdpo.loss_utils` by which a sampled token's loss is made (their text of commit 0ec29ae19690).
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from tests.trainer.objectives import toy_batch

FILE = Path(__file__).with_name("trl.json")
DPO_BETA = 0.5
SDPO_CAP = 2.0  # of an importance weight
_KEYS = ("loss_type", "importance_sampling_level", "epsilon_low", "epsilon_high", "divides_by_std")
# What TRL's documentation says of each algorithm, in the words of its own arguments.
RECIPES: dict[str, tuple[str, str, float, float, bool]] = {
    "grpo": ("grpo", "token", 0.2, 0.2, True),
    "dapo": ("dapo", "token", 0.2, 0.28, True),
    "dr_grpo": ("dr_grpo", "token", 0.2, 0.2, False),
    "gspo": ("grpo", "sequence", 3e-4, 4e-4, True),
    "cispo": ("cispo", "token", 0.2, 5.0, True),
}


def main() -> None:
    """Compute and write."""
    import trl
    from trl import DPOTrainer, GRPOTrainer
    from trl.experimental.sdpo import loss_utils

    found = {name: _compute(GRPOTrainer, dict(zip(_KEYS, how, strict=True))) for name, how in RECIPES.items()}
    found["dpo"] = _compute_dpo(DPOTrainer)
    found["sdpo"] = compute_sdpo(loss_utils)
    FILE.write_text(json.dumps({"trl": trl.__version__, **found}, indent=1) + "\n", "utf-8")


def _compute(trainer: Any, how: dict[str, Any]) -> dict[str, Any]:
    rewards = torch.tensor(toy_batch.REWARDS, dtype=torch.float64)
    advantages = rewards - rewards.mean()
    if how["divides_by_std"]:
        advantages = advantages / (rewards.std() + 1e-4)
    logprobs, old = (_padded(one) for one in (toy_batch.policy_logprobs(), toy_batch.behaviour()))
    mask = _padded([np.ones(sum(turns)) for turns in toy_batch.TURNS])
    logprobs.requires_grad_()
    prompt = torch.zeros(len(rewards), 1, dtype=torch.int64)
    inputs = {
        "prompt_ids": prompt,
        "prompt_mask": prompt + 1,
        "completion_ids": mask.long(),
        "completion_mask": mask,
        "advantages": advantages,
        "old_per_token_logps": old,
        "num_items_in_batch": mask.sum(),
    }
    loss = trainer._compute_loss(_stand_in(how, logprobs), None, inputs)
    (gradient,) = torch.autograd.grad(loss, logprobs)
    sizes = [sum(turns) for turns in toy_batch.TURNS]
    return {"loss": float(loss), "gradient": [row[:size].tolist() for row, size in zip(gradient, sizes, strict=True)]}


def _compute_dpo(trainer: Any) -> dict[str, Any]:
    """The first half of the trajectories chosen over the second half."""
    logprobs, reference = (_padded(one) for one in (toy_batch.policy_logprobs(), toy_batch.behaviour()))
    mask = _padded([np.ones(sum(turns)) for turns in toy_batch.TURNS])
    logprobs.requires_grad_()
    whole = torch.cat([torch.zeros(len(mask), 1), mask], dim=1).bool()  # a prompt of one token
    chosen, rejected = (reference * mask).sum(1).chunk(2)
    inputs = {
        "input_ids": whole.long(),
        "attention_mask": whole.long(),
        "completion_mask": whole.long(),
        "ref_chosen_logps": chosen,
        "ref_rejected_logps": rejected,
    }
    outputs = SimpleNamespace(
        log_probs=logprobs * mask,
        entropy=torch.zeros_like(mask),
        mean_logits=torch.zeros_like(mask),
        is_top1=torch.zeros_like(mask).bool(),
    )
    model = _Model(outputs)
    stand_in = SimpleNamespace(
        model=model, aux_loss_enabled=False, ld_alpha=None, precompute_ref_logps=True, f_divergence_type="reverse_kl",
        loss_types=["sigmoid"], loss_weights=[1.0], beta=DPO_BETA, use_weighting=False, label_smoothing=0.0,
        accelerator=SimpleNamespace(device="cpu", num_processes=1, gather_for_metrics=_own, gather=_own),
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)}, _total_train_tokens=0, _tp_size=1,
    )  # fmt: skip
    loss = trainer._compute_loss(stand_in, model, inputs, return_outputs=False)
    (gradient,) = torch.autograd.grad(loss, logprobs)
    sizes = [sum(turns) for turns in toy_batch.TURNS]
    return {"loss": float(loss), "gradient": [row[:size].tolist() for row, size in zip(gradient, sizes, strict=True)]}


def compute_sdpo(loss_utils: Any) -> dict[str, Any]:
    """The sampled-token loss towards a teacher, its mean over trajectories of the mean over their tokens."""
    given = (toy_batch.policy_logprobs(), toy_batch.behaviour(), toy_batch.teacher_logprobs())
    logprobs, old, teacher = (_padded(one) for one in given)
    mask = _padded([np.ones(sum(turns)) for turns in toy_batch.TURNS])
    logprobs.requires_grad_()
    ids = torch.zeros_like(mask).long()
    losses = loss_utils.compute_sampled_token_self_distillation_loss(
        _two_tokens(logprobs), _two_tokens(teacher), ids, distillation_alpha=1.0
    )
    losses = loss_utils.apply_importance_sampling_clipping(losses, logprobs, old, SDPO_CAP)
    loss = ((losses * mask).sum(-1) / mask.sum(-1)).mean()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    sizes = [sum(turns) for turns in toy_batch.TURNS]
    return {"loss": float(loss), "gradient": [row[:size].tolist() for row, size in zip(gradient, sizes, strict=True)]}


def _two_tokens(logprobs: torch.Tensor) -> torch.Tensor:
    """Logits of a vocabulary of two, whose first token has these logprobs; padding gets a half."""
    padded = torch.where(logprobs == 0, -0.7, logprobs)
    return torch.stack([padded, torch.log1p(-padded.exp())], dim=-1)


class _Model:
    """A model whose forward pass has given results."""

    training = True

    def __init__(self, outputs: Any) -> None:
        self._outputs = outputs

    def __call__(self, **_: Any) -> Any:
        return self._outputs


def _padded(values: list[Any]) -> torch.Tensor:
    return pad_sequence([torch.from_numpy(np.asarray(one, np.float64)) for one in values], batch_first=True)


def _own(value: Any, **_: Any) -> Any:
    """What one process gathers from all."""
    return value


def _stand_in(how: dict[str, Any], logprobs: torch.Tensor) -> SimpleNamespace:
    """The trainer's attributes that its loss reads: one process, no accumulation, no KL, no entropy bonus."""
    return SimpleNamespace(
        **{key: value for key, value in how.items() if key != "divides_by_std"},
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs, torch.zeros_like(logprobs.detach()), None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        beta=0.0,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        max_completion_length=toy_batch.MAX_LENGTH,
        current_gradient_accumulation_steps=1,
        _entropy_bonus_enabled=False,
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        accelerator=SimpleNamespace(num_processes=1, gather=_own, gather_for_metrics=_own, reduce=_own),
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
    )


if __name__ == "__main__":
    main()
