"""How vLLM's classes name the LoRA of a mixture's experts, and the sentences about experts that several programs say.

Owns: one row for each class whose sources were read, with the file. Refuses: a guess about any other class (its experts
stay frozen), and tensors (`trainer.lora.file_layout`).

Read in vLLM 0.32.0, `lora/utils.py` (`process_packed_modules_mapping`) and `lora/model_manager.py`: a class without
`is_3d_moe_weight` takes one pair of matrices for each expert and projection, `experts.{i}.{name}`, under the names of
its `get_expert_mapping`; a class with it takes two fused pairs, `experts.base_layer` (gate, up) and `experts` (down).
Adapters of the other form are refused. Every expert must have all its projections, of one rank.

Left out: `GraniteMoeHybridForCausalLM` and `GraniteMoeSharedForCausalLM`, whose `get_expert_mapping` repeats the path
of the module (`block_sparse_moe.experts…`), so that vLLM refuses every name; classes without gated experts
(`NemotronHForCausalLM`); classes without `SupportsLoRA`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from recorder.models.refusals import BaseRefusal

Rename = tuple[str, str]
GATED: Final = ("gate_proj", "up_proj", "down_proj")
NUMBERED: Final = ("w1", "w3", "w2")  # gate, up, down


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """The names of one class. `projections`: gate, up and down of one expert; None: the class takes fused matrices.

    `renames`: parts of transformers' names and what this class has instead. `source`: the file under
    vllm/model_executor/models.
    """

    projections: tuple[str, str, str] | None
    source: str
    renames: tuple[Rename, ...] = ()

    @property
    def is_fused(self) -> bool:
        """Whether one pair of matrices holds all experts."""
        return self.projections is None


EXPERT_NAMES: Final[Mapping[str, ExpertNames]] = {
    "DeepseekV2ForCausalLM": ExpertNames(GATED, "deepseek_v2.py"),
    "DeepseekV3ForCausalLM": ExpertNames(GATED, "deepseek_v2.py"),
    "Glm4MoeForCausalLM": ExpertNames(GATED, "glm4_moe.py"),
    "GptOssForCausalLM": ExpertNames(None, "gpt_oss.py"),
    "GraniteMoeForCausalLM": ExpertNames(
        GATED, "granitemoe.py", ((".block_sparse_moe.router.", ".block_sparse_moe.gate."),)
    ),
    "Llama4ForCausalLM": ExpertNames(GATED, "llama4.py"),
    "MixtralForCausalLM": ExpertNames(NUMBERED, "mixtral.py", ((".mlp.", ".block_sparse_moe."),)),
    "OlmoeForCausalLM": ExpertNames(GATED, "olmoe.py"),
    "Qwen2MoeForCausalLM": ExpertNames(GATED, "qwen2_moe.py"),
    "Qwen3MoeForCausalLM": ExpertNames(GATED, "qwen3_moe.py"),
    "Qwen3NextForCausalLM": ExpertNames(GATED, "qwen3_next.py"),
    "Qwen3_5MoeForCausalLM": ExpertNames(GATED, "qwen3_5.py"),
    "Qwen3_5MoeForConditionalGeneration": ExpertNames(None, "qwen3_5.py"),
}


def expert_names(architecture: str | None) -> ExpertNames | None:
    """How the class of an `architectures` entry names expert LoRAs; None: its experts cannot have a LoRA."""
    return EXPERT_NAMES.get(architecture or "")


def refuse_cpu_engine(base: str) -> BaseRefusal:
    """The refusal of a mixture of experts with LoRA on a CPU engine.

    Read in vLLM 0.32.0, `fused_moe/oracle/unquantized.py`: with LoRA, experts run by Triton on every platform, and
    `punica_cpu.py` has no operation for them.
    """
    return BaseRefusal(
        f"the base {base!r} is a mixture of experts, and vLLM cannot serve one with LoRA on a CPU.",
        "Use an engine on a GPU (engine.device, engine.urls), or a dense base of the same family.",
    )


@dataclass(frozen=True, slots=True)
class WeightShares:
    """Parameters of a base: all of them, those on which a LoRA is put, and the frozen ones that a reader asks about."""

    total: int
    adapted: int
    frozen_experts: int = 0
    frozen_routers: int = 0

    @property
    def frozen(self) -> int:
        """Parameters without a LoRA."""
        return self.total - self.adapted


def explain_shares(shares: WeightShares, target: str) -> str:
    """Which share of a base's weights gets a LoRA, and which share of what stays frozen, in one sentence.

    `target`: trainer.target as the settings write it.
    """
    frozen = [
        f"{kind} {_percent(count, shares.total)}"
        for kind, count in (("experts", shares.frozen_experts), ("routers", shares.frozen_routers))
        if count
    ]
    rest = shares.frozen - shares.frozen_experts - shares.frozen_routers
    frozen += [f"others, such as embeddings, {_percent(rest, shares.total)}"] if frozen and rest else []
    parts = f" ({', '.join(frozen)})" if frozen else ""
    return (
        f"trainer.target {target} puts a LoRA on {_percent(shares.adapted, shares.total)} of the base's weights; "
        f"{_percent(shares.frozen, shares.total)} stay frozen{parts}."
    )


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole if whole else 0.0
    return f"{share:.0f}%" if share >= 1 or share == 0 else "less than 1%"
