"""What a layer attends to, read from the mask that transformers asks for. No mask of a whole pack is ever made.

Owns: the answer to transformers' masking functions for packed rows. Refuses: masks that are neither causal, windows
nor chunks: the model then keeps its own attention, one row a pass.

transformers describes a mask by a function of positions before it makes one. The function is recognised by the code of
transformers' own functions, of which it is composed. It says what the model's own attention would do, also where the
model's layers pass no window on (Llama 4, Phi MoE, Qwen2 MoE).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Final

import torch
from transformers import masking_utils

from trainer.errors import UnsupportedModel
from trainer.policy.attention.reach import Reach

_Function = Callable[..., Any]


def _code(function: Any) -> CodeType:
    return function.__code__  # type: ignore[no-any-return]


_NOTHING: Final = torch.zeros(1, dtype=torch.int64)
_ALL_OF: Final = _code(masking_utils.and_masks())
_CAUSAL: Final = _code(masking_utils.causal_mask_function)
_WINDOW: Final = _code(masking_utils.sliding_window_overlay(1))
_CHUNK: Final = _code(masking_utils.chunked_overlay(1, _NOTHING))
# Added where positions begin again: the segments of a pack say more than it does.
_PACKED: Final = _code(masking_utils.packed_sequence_mask_function(_NOTHING))
# Around the others there, in newer versions: they are asked about positions in a row. The segments say these too.
_remap: Any = getattr(masking_utils, "remap_positions_for_packed_sequence", None)
_REMAPPED: Final = _code(_remap(masking_utils.causal_mask_function, _NOTHING)) if _remap is not None else None


def describe_mask(*, mask_function: _Function, **others: Any) -> Reach | None:
    """Return what a layer attends to, in place of a mask; None: everything before. Transformers' mask interface.

    Raises `UnsupportedModel` for another mask.
    """
    parts = {_code(part): part for part in _conjuncts(mask_function)}
    parts.pop(_PACKED, None)
    if parts.pop(_CAUSAL, None) is None or len(parts) > 1 or parts.keys() - {_WINDOW, _CHUNK}:
        raise UnsupportedModel(f"packed rows do not know the attention mask {mask_function!r}")
    if window := parts.get(_WINDOW):
        return Reach(_size(window, "sliding_window"))
    if chunk := parts.get(_CHUNK):
        return Reach(_size(chunk, "chunk_size"), is_chunk=True)
    return None


def _conjuncts(function: _Function) -> Iterator[_Function]:
    """The functions of which a mask is the intersection."""
    if _code(function) is _REMAPPED:
        yield from _conjuncts(inspect.getclosurevars(function).nonlocals["mask_function"])
    elif _code(function) is _ALL_OF:
        for one in inspect.getclosurevars(function).nonlocals["mask_functions"]:
            yield from _conjuncts(one)
    else:
        yield function


def _size(function: _Function, name: str) -> int:
    return int(inspect.getclosurevars(function).nonlocals[name])
