"""The check when a base is loaded: the trainer's logprobs are the model's own, on rows of every relevant length.

Owns: the rows, the LoRA of the check, the choice of the attention and of the layout, and the tolerance. Refuses: which
lengths matter (`trainer.policy.positions`), and the forward pass itself (`trainer.policy.model`).

The rows share prefixes, and some are longer than each window, chunk or original length of the model that is below
`trainer.token_budget`. The LoRA is random and not zero, so that a forward pass that leaves it out is found. Afterwards
the policy has its initial weights again.

Rounding may send a token of a mixture to other experts, and its logits then differ by much. Where a mixture's differ,
both sides are computed again with the same experts for all tokens: a row that sees another still has other logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from trainer.batch.layouts import Layout, make_packs
from trainer.batch.packing import Ids, Pack, smaller_budget
from trainer.errors import UnsupportedModel
from trainer.policy import memory, positions, recurrent
from trainer.policy.attention import interface as attention
from trainer.policy.model import Policy
from trainer.policy.row_fit import row_needs

_OWN: Final = "eager"  # the model's own attention: slow, and the one that leaves nothing out
# Largest difference between packed and separate rows, relative to the largest value: rounding is far below, a row that
# sees another, or one whose positions are wrong, is far above.
_TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.1}
_ATTENTION: Final = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
_UNSUPPORTED: Final = (UnsupportedModel, TypeError, ValueError, AttributeError)
_SHORT_PASS: Final = 16  # tokens; the shortest row of the check is longer
_BEYOND: Final = 40  # tokens by which a row exceeds a length
# What a router chooses from, by its size in the configuration: experts, or groups of them.
_CHOICES: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "n_group")
_EAGER_BYTES: Final = 1 << 30  # of attention scores in one layer; above, torch's kernel is the model's own attention


@dataclass(frozen=True, slots=True)
class _ReferenceRow:
    """What the model itself computes for a row: logits of a short row, the last hidden states of a long one."""

    row: Ids
    values: Tensor  # (tokens, vocabulary) or (tokens, hidden), float32
    is_long: bool


class FixedRouting(TorchFunctionMode):
    """Within: all tokens have the same experts, the first ones, with their own scores.

    `choices`: the numbers of experts or groups. A router chooses by `torch.topk` among them, one row a token.
    """

    def __init__(self, choices: Collection[int]) -> None:
        super().__init__()
        self._choices = choices

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Return what torch returns, except for a router's choice."""
        named = kwargs or {}
        if func in {torch.topk, Tensor.topk} and self._is_router(*args, **named):
            return _first_of(*args, **named)
        return func(*args, **named)

    def _is_router(self, input: Tensor, k: int, dim: int = -1, **_: Any) -> bool:  # noqa: A002 - torch's name
        return input.ndim == 2 and dim in {-1, 1} and input.shape[1] in self._choices


def _first_of(input: Tensor, k: int, *_: Any, **__: Any) -> Any:  # noqa: A002 - torch's name
    """The first `k` of each row, as `torch.topk` returns them."""
    indices = torch.arange(k, device=input.device).expand(len(input), k)
    return torch.return_types.topk((input.gather(1, indices), indices.contiguous()))


def router_choices(config: Any) -> set[int]:
    """Among how many experts or groups the model's routers choose; empty for a model that is no mixture."""
    text = config.get_text_config()
    return {count for name in _CHOICES if isinstance(count := getattr(text, name, None), int) and count > 1}


def choose_attention(policy: Policy, token_budget: int) -> None:
    """Choose the fastest attention and layout that compute what the model's own forward pass does.

    The LoRA is not zero then.

    Raises `UnsupportedModel` if none does.
    """
    try:
        policy.load_state(random_state(policy))
        expected = _expected(policy, token_budget)
        policy.unpacked_reason = recurrent.unshared_reason(policy.model_config)
        for implementation, layout in _possible_ways(policy.model_config):
            if implementation == "sdpa" and not policy.supports_sdpa:
                continue
            policy.set_attention(implementation, layout)
            policy.reset_pass()
            if _holds(partial(_reproduces, policy, token_budget), policy, expected, token_budget):
                _require_scores_fit(policy, token_budget)
                policy.has_long_rows = _holds(partial(_has_long_rows, policy), policy, expected, token_budget)
                return
            policy.unpacked_reason = policy.unpacked_reason or "packed rows have other logits than each row has alone"
    finally:
        policy.load_state(None)
        policy.end_pass()
    raise UnsupportedModel(
        f"the base {policy.base} computes its logits in a way that the trainer does not know: its own forward pass "
        "and the trainer's differ. Train another base, or report the model."
    )


def random_state(policy: Policy, seed: int = 0) -> dict[str, Tensor]:
    """Return weights of the LoRA that are not zero and change each module's output by about a third of its input."""
    shapes = {name: tuple(parameter.shape) for name, parameter in policy.parameters.items()}
    return random_lora(shapes, float(policy.config.lora_alpha) / policy.config.r, seed)


def random_lora(shapes: Mapping[str, tuple[int, ...]], scaling: float, seed: int = 0) -> dict[str, Tensor]:
    """The same for a LoRA of these shapes, by name, whose scale is alpha / rank."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes.items():
        spread = 0.6 / math.sqrt(shape[-1])
        values = torch.randn(shape, generator=generator) * spread
        state[name] = values if _is_down(name) else values / scaling
    return state


def _is_down(name: str) -> bool:
    """Whether a tensor is a LoRA's first matrix, from the module's input to the rank."""
    return name.rsplit(".lora_", 1)[-1].removeprefix("embedding_").startswith("A")


def _expected(policy: Policy, token_budget: int) -> list[_ReferenceRow]:
    config = policy.model_config
    vocabulary = config.get_text_config().vocab_size
    policy.set_attention(_OWN)
    found = [_ReferenceRow(row, policy.own_logits(row), is_long=False) for row in _short_rows(vocabulary)]
    for row in _long_rows(config, token_budget):
        policy.set_attention(_own_attention(policy, len(row)))
        found.append(_ReferenceRow(row, policy.own_hidden(row), is_long=True))
    return found


def _holds(
    check: Callable[[Sequence[_ReferenceRow]], bool],
    policy: Policy,
    expected: Sequence[_ReferenceRow],
    token_budget: int,
) -> bool:
    """Whether a check passes with what is expected, or of a mixture with fixed experts on both sides."""
    if check(expected):
        return True
    if not (choices := router_choices(policy.model_config)):
        return False
    used = policy.attention, policy.layout
    with FixedRouting(choices):
        fixed = _expected(policy, token_budget)
        policy.set_attention(*used)
        return check(fixed)


@torch.no_grad()
def _reproduces(policy: Policy, token_budget: int, expected: Sequence[_ReferenceRow]) -> bool:
    """Whether the trainer computes what is expected with the policy's attention and layout."""
    rows = [one.row for one in expected]
    budget = token_budget
    while True:
        packs = make_packs(rows, budget, policy.layout)
        try:
            return policy.ranks.all(_are_reproduced(policy, packs, expected))
        except _UNSUPPORTED as e:  # the model does not support it, or does not pass `segments`
            if policy.attention == _OWN and policy.layout is Layout.ALONE:
                raise
            if policy.attention == attention.NAME:
                policy.unpacked_reason = str(e)
            return False
        except (RuntimeError, MemoryError) as e:
            tokens, rows_of_pass = max((len(one), len(one.rows)) for one in packs)
            if not memory.is_out_of_memory(e) and policy.layout is Layout.PADDED:
                return False  # the model cannot compute a batch
            if rows_of_pass == 1 or not memory.is_out_of_memory(e):
                raise
        budget = smaller_budget(tokens, budget)
        memory.release_memory(policy.device)


@torch.no_grad()
def _has_long_rows(policy: Policy, expected: Sequence[_ReferenceRow]) -> bool:
    """Whether rows longer than a pass are computed as expected: short rows, where a pass is even shorter."""
    if not policy.can_recompute or not policy.has_divisible_mlps:
        return False
    short = [one for one in expected if not one.is_long]
    packs = make_packs([one.row for one in short], _SHORT_PASS, Layout.ALONE)
    budget, policy.pass_budget, policy.has_long_rows = policy.pass_budget, _SHORT_PASS, True
    try:
        return policy.ranks.all(_are_reproduced(policy, packs, short))
    except (UnsupportedModel, TypeError, ValueError):  # for example an MLP that returns more than its output
        return False
    finally:
        policy.pass_budget, policy.has_long_rows = budget, False


def _are_reproduced(policy: Policy, packs: Sequence[Pack], expected: Sequence[_ReferenceRow]) -> bool:
    """Whether all packs are computed as expected. Ranks make equally many passes, whatever each one finds."""
    found = [_is_reproduced(policy, one, expected) for one in packs]
    return all(found)


def _is_reproduced(policy: Policy, one: Pack, expected: Sequence[_ReferenceRow]) -> bool:
    """Whether every row of a pack is computed as expected."""
    hidden = policy.hidden(one)
    for index, places in zip(one.rows, one.places, strict=True):
        states = hidden[torch.from_numpy(places).to(policy.device)]
        found = states.float() if expected[index].is_long else policy.head(states).float()
        if not _is_near(found, expected[index].values, _TOLERANCE[policy.dtype]):
            return False
    return True


def _is_near(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    scale = expected.abs().max().clamp(min=1e-6)
    return bool(((found - expected).abs().max() / scale) < tolerance)


def _possible_ways(config: Any) -> Iterator[tuple[str, Layout]]:
    """The attention implementations, each with a layout, the fastest first."""
    for implementation in possible_attentions(config):
        layouts = (Layout.PACKED,) if implementation == attention.NAME else (Layout.PADDED, Layout.ALONE)
        for layout in layouts:
            yield implementation, layout


def possible_attentions(config: Any) -> list[str]:
    """The attention implementations that may work for the model, the fastest first."""
    packed = [attention.NAME] if not recurrent_kinds(config) else []
    return [*packed, *([] if _is_capped(config) else ["sdpa"]), _OWN]


def _own_attention(policy: Policy, length: int) -> str:
    """The reference for a row: the model's own attention, or torch's kernel where that would take too much memory."""
    config = policy.model_config
    heads = getattr(config.get_text_config(), "num_attention_heads", 1)
    is_exact = policy.supports_sdpa and not _is_capped(config)
    return "sdpa" if is_exact and heads * length * length * 4 > _EAGER_BYTES else _OWN


def _require_scores_fit(policy: Policy, token_budget: int) -> None:
    """Raise `UnsupportedModel` where the model's own attention keeps more scores of a row than the memory holds."""
    scores = row_needs(policy).scores
    longest = min(token_budget, positions.longest_row(policy.model_config) or token_budget)
    free = memory.free_bytes(policy.device)
    if policy.attention != _OWN or scores * longest * longest <= free:
        return
    raise UnsupportedModel(
        f"the base {policy.base} can be computed by its own attention alone, which keeps every score: a row of "
        f"{longest} tokens takes {scores * longest * longest / (1 << 30):.1f} GiB in each layer, and there are "
        f"{memory.free_memory(policy.device)}. Lower trainer.token_budget to {math.isqrt(free // scores)}, or train "
        "another base."
    )


def _is_capped(config: Any) -> bool:
    """Whether the model caps its attention scores: torch's kernel silently ignores that."""
    return getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None


def recurrent_kinds(config: Any) -> list[str]:
    """The kinds of layers that do not attend and whose state would leak between packed rows."""
    shared = recurrent.LAYERS if recurrent.shares_prefixes(config) else frozenset()
    return sorted({*(getattr(config.get_text_config(), "layer_types", None) or ())} - _ATTENTION - shared)


def _short_rows(vocabulary: int) -> list[Ids]:
    random = np.random.default_rng(0)
    first = _random_ids(random, vocabulary, 40)
    second = np.concatenate([first[:24], _random_ids(random, vocabulary, 12)])
    return [first, second, _random_ids(random, vocabulary, 20)]


def _long_rows(config: Any, token_budget: int) -> list[Ids]:
    """Two rows with a shared prefix for each critical length below the budget, both longer than it."""
    random = np.random.default_rng(1)
    vocabulary = config.get_text_config().vocab_size
    most = min(token_budget, positions.longest_row(config) or token_budget)
    rows = []
    for length in positions.critical_lengths(config):
        if (tokens := min(length + _BEYOND, most)) > length:
            first = _random_ids(random, vocabulary, tokens)
            rows += [
                first,
                np.concatenate([first[: tokens // 2], _random_ids(random, vocabulary, tokens - tokens // 2)]),
            ]
    return rows


def _random_ids(random: np.random.Generator, vocabulary: int, length: int) -> Ids:
    return random.integers(0, vocabulary, length).astype(np.int32)
