"""The openai package with tools of the mcp package's 2.x client."""

from __future__ import annotations

import json
from typing import Any

from desk import MAX_TOKENS, MAX_TURNS, SYSTEM, TEMPERATURE, Run, main
from mcp import Client
from openai import AsyncOpenAI


async def answer(run: Run) -> str:
    client = AsyncOpenAI(base_url=run.base_url, api_key=run.api_key)
    async with Client(run.mcp_url()) as mcp:
        tools = [
            {"type": "function", "function": {"name": tool.name, "parameters": tool.input_schema}}
            for tool in (await mcp.list_tools()).tools
        ]
        messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": run.question}]
        for _ in range(MAX_TURNS):
            asked = {"model": run.model, "messages": messages, "tools": tools}
            reply = await client.chat.completions.create(**asked, temperature=TEMPERATURE, max_tokens=MAX_TOKENS)
            message = reply.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                return str(message.content)
            for call in message.tool_calls:
                given = json.loads(call.function.arguments)
                result = await mcp.call_tool(call.function.name, given)
                text = "".join(part.text for part in result.content if part.type == "text")
                run.calls.append({"name": call.function.name, "arguments": given, "result": text})
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
    raise RuntimeError("the model went on calling tools")


main(answer)
