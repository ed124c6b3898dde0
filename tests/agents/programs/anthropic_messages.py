"""The Anthropic SDK, with a loop of its own. Modes: sync, async; stream."""

from __future__ import annotations

import asyncio
from typing import Any

from anthropic import Anthropic, AsyncAnthropic
from desk import MAX_TOKENS, MAX_TURNS, PARAMETERS, SYSTEM, TEMPERATURE, Run, main, schema

TOOLS = [
    {"name": name, "description": says, "input_schema": schema(argument)}
    for name, (says, argument) in PARAMETERS.items()
]


def asked(run: Run, messages: list[Any]) -> dict[str, Any]:
    return {
        "model": run.model,
        "system": SYSTEM,
        "messages": messages,
        "tools": TOOLS,
        "extra_body": {"temperature": TEMPERATURE},  # 2.x has no argument for it any more
        "max_tokens": MAX_TOKENS,
    }


async def ask_async(client: AsyncAnthropic, run: Run, messages: list[Any]) -> Any:
    if "stream" not in run.modes:
        return await client.messages.create(**asked(run, messages))
    async with client.messages.stream(**asked(run, messages)) as stream:
        return await stream.get_final_message()


def ask_sync(client: Anthropic, run: Run, messages: list[Any]) -> Any:
    if "stream" not in run.modes:
        return client.messages.create(**asked(run, messages))
    with client.messages.stream(**asked(run, messages)) as stream:
        return stream.get_final_message()


async def answer(run: Run) -> str:
    to = {"base_url": run.root_url(), "api_key": run.api_key}
    client: Any = Anthropic(**to) if "sync" in run.modes else AsyncAnthropic(**to)
    messages: list[Any] = [{"role": "user", "content": run.question}]
    for _ in range(MAX_TURNS):
        if "sync" in run.modes:
            message = await asyncio.to_thread(ask_sync, client, run, messages)
        else:
            message = await ask_async(client, run, messages)
        messages.append({"role": "assistant", "content": message.content})
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in message.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": run.call(call.name, call.input)}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})
    raise RuntimeError("the model went on calling tools")


main(answer)
