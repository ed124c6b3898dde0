"""The openai package, chat completions, with a loop of its own. Modes: sync, async; stream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from desk import MAX_TOKENS, MAX_TURNS, PARAMETERS, SYSTEM, TEMPERATURE, Run, main, schema
from openai import AsyncOpenAI, OpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState

TOOLS = [
    {"type": "function", "function": {"name": name, "description": says, "parameters": schema(argument)}}
    for name, (says, argument) in PARAMETERS.items()
]


def asked(run: Run, messages: list[Any]) -> dict[str, Any]:
    return {
        "model": run.model,
        "messages": messages,
        "tools": TOOLS,
        "temperature": TEMPERATURE,
        "max_tokens": MAX_TOKENS,
    }


async def ask_async(client: AsyncOpenAI, run: Run, messages: list[Any]) -> Any:
    if "stream" not in run.modes:
        return (await client.chat.completions.create(**asked(run, messages))).choices[0].message
    state = ChatCompletionStreamState()
    async for chunk in await client.chat.completions.create(**asked(run, messages), stream=True):
        state.handle_chunk(chunk)
    return state.get_final_completion().choices[0].message


def ask_sync(client: OpenAI, run: Run, messages: list[Any]) -> Any:
    if "stream" not in run.modes:
        return client.chat.completions.create(**asked(run, messages)).choices[0].message
    state = ChatCompletionStreamState()
    for chunk in client.chat.completions.create(**asked(run, messages), stream=True):
        state.handle_chunk(chunk)
    return state.get_final_completion().choices[0].message


async def answer(run: Run) -> str:
    to = {"base_url": run.base_url, "api_key": run.api_key}
    client: Any = OpenAI(**to) if "sync" in run.modes else AsyncOpenAI(**to)
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": run.question}]
    for _ in range(MAX_TURNS):
        if "sync" in run.modes:
            message = await asyncio.to_thread(ask_sync, client, run, messages)
        else:
            message = await ask_async(client, run, messages)
        messages.append(message)
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            result = run.call(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise RuntimeError("the model went on calling tools")


main(answer)
