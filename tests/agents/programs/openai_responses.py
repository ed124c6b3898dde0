"""The openai package, Responses, with a loop of its own. Modes: sync, async; stream; previous (response's id)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from desk import MAX_TOKENS, MAX_TURNS, PARAMETERS, SYSTEM, TEMPERATURE, Run, main, schema
from openai import AsyncOpenAI, OpenAI

TOOLS = [
    {"type": "function", "name": name, "description": says, "parameters": schema(argument), "strict": False}
    for name, (says, argument) in PARAMETERS.items()
]


def asked(run: Run, items: list[Any], previous: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {"model": run.model, "instructions": SYSTEM, "input": items, "tools": TOOLS}
    body |= {"temperature": TEMPERATURE, "max_output_tokens": MAX_TOKENS}
    return body | ({"previous_response_id": previous} if previous else {})


async def ask_async(client: AsyncOpenAI, run: Run, body: dict[str, Any]) -> Any:
    if "stream" not in run.modes:
        return await client.responses.create(**body)
    async with client.responses.stream(**body) as stream:
        return await stream.get_final_response()


def ask_sync(client: OpenAI, run: Run, body: dict[str, Any]) -> Any:
    if "stream" not in run.modes:
        return client.responses.create(**body)
    with client.responses.stream(**body) as stream:
        return stream.get_final_response()


async def answer(run: Run) -> str:
    to = {"base_url": run.base_url, "api_key": run.api_key}
    client: Any = OpenAI(**to) if "sync" in run.modes else AsyncOpenAI(**to)
    items: list[Any] = [{"role": "user", "content": run.question}]
    previous = None
    for _ in range(MAX_TURNS):
        body = asked(run, items, previous)
        if "sync" in run.modes:
            response = await asyncio.to_thread(ask_sync, client, run, body)
        else:
            response = await ask_async(client, run, body)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return str(response.output_text)
        if "previous" in run.modes:
            previous, items = response.id, []
        else:
            items = items + [item.model_dump(exclude_none=True) for item in response.output]
        items += [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": run.call(call.name, json.loads(call.arguments)),
            }
            for call in calls
        ]
    raise RuntimeError("the model went on calling tools")


main(answer)
