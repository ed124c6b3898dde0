"""The LiteLLM SDK, with a loop of its own. Modes: chat, responses, anthropic; stream."""

from __future__ import annotations

import json
import os
from typing import Any

from desk import MAX_TOKENS, MAX_TURNS, PARAMETERS, SYSTEM, TEMPERATURE, Run, main, schema

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no network but the model's

import litellm

TOOLS = [
    {"type": "function", "function": {"name": name, "description": says, "parameters": schema(argument)}}
    for name, (says, argument) in PARAMETERS.items()
]


async def ask(run: Run, messages: list[Any]) -> Any:
    anthropic = "anthropic" in run.modes
    body = {
        "model": f"anthropic/{run.model}" if anthropic else f"openai/{run.model}",
        "api_base": run.root_url() if anthropic else run.base_url,
        "api_key": run.api_key,
        "messages": messages,
        "tools": TOOLS,
        "temperature": TEMPERATURE,
        "max_tokens": MAX_TOKENS,
    }
    if "stream" not in run.modes:
        return (await litellm.acompletion(**body)).choices[0].message
    chunks = [chunk async for chunk in await litellm.acompletion(**body, stream=True)]
    return litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message


async def answer(run: Run) -> str:
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": run.question}]
    for _ in range(MAX_TURNS):
        message = await ask(run, messages)
        # an empty string, which streaming leaves, LiteLLM would send to Anthropic's API as a sentence of its own
        messages.append(message.model_dump() | {"content": message.content or None})
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            result = run.call(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise RuntimeError("the model went on calling tools")


main(answer)
