"""Sample turns from a tiny model with plain transformers, and parse them as an engine does.

Owns: one turn for each of many prompts, and its tool calls as a message. Refuses: tools, and the definition of success.
It measures a model without an engine or servers.
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
    """Sample one turn for each prompt at temperature 1, end mark included, as in an engine's ids."""
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
    """Return a sampled turn as the assistant's message. A tool call that is not JSON stays text, as in an engine."""
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
