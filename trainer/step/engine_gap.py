"""Whether the engine's logprobs in a step are the trainer's: the mean gap of fresh tokens, and its bound. Pure.

Owns: the bound for the precisions of engine and trainer, how many tokens a comparison needs, which groups are at fault,
and the gap of the parent's probe, which stands in where a step has too few tokens. Refuses: computing gaps
(`trainer.policy.packs.sums`), asking an engine (`proxy.versions.controller`), and what becomes of refused groups
(`recorder.queue.training.refusals`).

A fresh token was sampled by the very version that is being trained, so engine and trainer compute the same thing.
docs/your-vllm.md has the source of each bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

MIN_TOKENS: Final = 64  # fresh tokens of a step whose mean is compared; fewer may be off by chance


class Precision(StrEnum):
    """The precision that something is computed in, from the finest."""

    FLOAT32 = "float32"
    SIXTEEN_BITS = "16 bits"
    EIGHT_BITS = "8 bits"
    FOUR_BITS = "4 bits"


# Nats a token, on average. docs/your-vllm.md has their sources, among them `benchmarks/engine_gap.py`.
BOUNDS: Final[Mapping[Precision, float]] = {
    Precision.FLOAT32: 1e-5,
    Precision.SIXTEEN_BITS: 0.05,
    Precision.EIGHT_BITS: 0.1,
    Precision.FOUR_BITS: 0.3,
}

MASKED_ALARM: Final = 0.05  # share of a step's compared turns above which the engine, and not chance, is at fault
MASK_CAUSES: Final = (
    "`hone doctor` compares engine and trainer. Causes are other weights or another precision in the engine, and "
    "faults of its cache (docs/your-vllm.md)"
)

# Of a trainer that computes on a copy in nf4 (`trainer.quantize`). docs/your-vllm.md has what was measured.
NF4_BOUND: Final = 0.05

_FINEST_FIRST: Final = tuple(Precision)
_EIGHT: Final = re.compile(r"8(?!\d)")  # fp8, int8, w8a8, fbgemm_fp8, fp8_e4m3
_QUANTIZATION: Final = ("--quantization", "-q", "--kv-cache-dtype")
_NOT_QUANTIZED: Final = frozenset({"", "none", "null", "auto", "bfloat16", "float16", "half", "float32"})


def gap_bound(
    trainer_dtype: str, engine: Precision | None, max_logprob_gap: float | None, quantize: str | None = None
) -> float:
    """Return the largest mean gap of a step that is accepted, in nats a token.

    `engine`: the engine's precision if it is quantised; else engine and trainer have one dtype. `max_logprob_gap`: the
    setting, which replaces the bound. `quantize`: what the trainer computes on instead of the base.
    """
    if max_logprob_gap is not None:
        return max_logprob_gap
    trainer = Precision.FLOAT32 if trainer_dtype == "float32" else Precision.SIXTEEN_BITS
    bound = BOUNDS[max(trainer, engine or trainer, key=_FINEST_FIRST.index)]
    return max(bound, NF4_BOUND) if quantize else bound


def text_gap(engine: Sequence[float], own: Sequence[float], bound: float) -> tuple[float, float]:
    """The mean difference of named tokens' logprobs after the fixed text, and the largest that is accepted, in nats.

    `bound`: of a step, whose tokens were sampled, and are likely. Rounding moves the logprob of an unlikely token more,
    in proportion.
    """
    gap = sum(abs(a - b) for a, b in zip(engine, own, strict=True)) / len(own)
    return gap, bound * max(1.0, -sum(own) / len(own))


def explain_copy(gap: float, allowed: float) -> str:
    """How far the trainer's quantised copy is from the base after the fixed text, in one sentence."""
    how = f"After a fixed text, the copy's logprobs are {gap:.2g} nats a token from the base's"
    if gap <= allowed:
        return f"{how}; at most {allowed:.2g} is accepted there."
    return f"{how}, more than the {allowed:.2g} that is accepted there: steps may make no version (docs/gpu.md)."


def quantized_precision(engine_args: Sequence[str], base_config: Mapping[str, Any]) -> Precision | None:
    """The precision of a quantised engine, by vLLM's arguments and the base's config.json; None: not quantised."""
    found = [*_by_arguments(engine_args), *_by_config(base_config.get("quantization_config"))]
    return max(found, key=_FINEST_FIRST.index, default=None)


def _by_arguments(arguments: Sequence[str]) -> Iterator[Precision]:
    for index, argument in enumerate(arguments):
        name, given, value = argument.partition("=")
        if name in _QUANTIZATION:
            following = arguments[index + 1] if index + 1 < len(arguments) else ""
            word = (value if given else following).lower()
            if word not in _NOT_QUANTIZED:
                yield Precision.EIGHT_BITS if _EIGHT.search(word) else Precision.FOUR_BITS


def _by_config(config: Any) -> Iterator[Precision]:
    if not isinstance(config, Mapping):
        return
    bits = [*_numbers_of_bits(config)]
    by_name = _EIGHT.search(str(config.get("quant_method", ""))) is not None or config.get("load_in_8bit") is True
    eight = min(bits) >= 8 if bits else by_name
    yield Precision.EIGHT_BITS if eight else Precision.FOUR_BITS


def _numbers_of_bits(config: Mapping[str, Any]) -> Iterator[int]:
    for name, value in config.items():
        if name in ("bits", "num_bits", "weight_bits", "w_bit") and isinstance(value, int):
            yield value
        elif isinstance(value, Mapping):
            yield from _numbers_of_bits(value)


@dataclass(frozen=True, slots=True)
class TokenGaps:
    """Fresh tokens and the sum of their |Δlogprob| (nats)."""

    tokens: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """Nats a token; 0 without tokens."""
        return self.total / self.tokens if self.tokens else 0.0

    def __add__(self, other: TokenGaps) -> TokenGaps:
        return TokenGaps(self.tokens + other.tokens, self.total + other.total)


def find_refused(gaps: Mapping[str, TokenGaps], bound: float) -> dict[str, TokenGaps]:
    """Return the groups that are at fault, if the mean gap of a whole step is above the bound; else none.

    `gaps`: by group. Fewer than `MIN_TOKENS` fresh tokens in the step are not compared.
    """
    whole = sum(gaps.values(), TokenGaps())
    if whole.tokens < MIN_TOKENS or whole.mean <= bound:
        return {}
    return {group_id: one for group_id, one in gaps.items() if one.mean > bound}


PROBE_TO_NEW: Final = "probe_to_new"  # a version's figure: how far the engine that loaded it is from its probe, in nats


@dataclass(frozen=True, slots=True)
class ProbeGap:
    """How far the engine is from the trainer over the `tokens` of a version's probe; `bound`: at most (nats)."""

    gap: float
    bound: float
    tokens: int


def probe_gap(figures: Mapping[str, float], probe: Mapping[str, Any] | None, bound: float) -> ProbeGap | None:
    """The gap over a version's probe, from the figures that its controller measured; None: it was not asked.

    `probe`: its probe.json. `bound`: of a step; a probe also names unlikely tokens, as `text_gap` has it.
    """
    own = [value for one in (probe or {}).get("contexts", ()) for value in one["new"]]
    gap = figures.get(PROBE_TO_NEW)
    if gap is None or not own:
        return None
    return ProbeGap(gap, bound * max(1.0, -sum(own) / len(own)), len(own))


def explain_all_masked(turns: int, limit: float) -> str:
    """Why a step has nothing to train on: each of its turns is masked."""
    return f"the engine's probabilities of all {turns} turns are off: {_outside(limit)}. {MASK_CAUSES}"


def explain_masked(masked: int, compared: int, limit: float) -> str | None:
    """The alarm about a step with too many masked turns; None: there are few."""
    if not compared or masked / compared <= MASKED_ALARM:
        return None
    share = f"{masked} of {compared} turns ({100 * masked / compared:.0f} %)"
    return (
        f"engine_mismatch: the step was made without {share} that its parent sampled: {_outside(limit)}. {MASK_CAUSES}"
    )


def _outside(limit: float) -> str:
    return f"the trainer's are on average above {limit:g} times theirs, or below 1/{limit:g} (trainer.mask_ratio)"


def explain_unchecked(fresh_tokens: int, *, by_probe: bool = False) -> str | None:
    """Why a step was not compared with the engine; None: it was. `by_probe`: its parent's probe was."""
    if fresh_tokens >= MIN_TOKENS or by_probe:
        return None
    return f"not compared with the engine: its parent sampled {fresh_tokens} of its tokens, and {MIN_TOKENS} are needed"
