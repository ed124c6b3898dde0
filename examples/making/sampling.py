"""Turns sampled from a tiny model with plain transformers, and parsed as an engine parses them.

Owns: one turn for each of many prompts, and its tool calls as a message. Refuses: tools, and the definition of success.
Needs neither engine nor servers: it is for measuring a model while it is made.
"""

from __future__ import annotations

import json
import re
from typing import Any

import torch

from examples.making.tokenizer import END, TOOL_CALL, TOOL_CALL_END, Message

_CALL = re.compile(f"{TOOL_CALL}(.*?){TOOL_CALL_END}", re.DOTALL)


@torch.inference_mode()
def sample(model: Any, tokenizer: Any, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    """Sample one turn for each prompt at temperature 1; the end mark is part of it, as it is in an engine's ids."""
    width = max(map(len, prompts))
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    written = model.generate(
        input_ids=ids,
        attention_mask=mask,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=max_tokens,
        eos_token_id=end,
        pad_token_id=pad,
    )[:, width:].tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in written]


def heard(tokenizer: Any, sampled: list[int]) -> Message:
    """A sampled turn as the assistant's message; a call that is no JSON stays text, as an engine leaves it."""
    text = tokenizer.decode(sampled).removesuffix(END)
    talk = text.partition(TOOL_CALL)[0]
    try:
        functions = [json.loads(call) for call in _CALL.findall(text)]
        calls = [
            {"id": f"call_{i}", "type": "function", "function": {"name": f["name"], "arguments": f["arguments"]}}
            for i, f in enumerate(functions)
        ]
    except (ValueError, LookupError, TypeError):
        calls = []
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": talk or None, "tool_calls": calls}
