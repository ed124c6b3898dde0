"""An agent with its model and its tools behind one URL: the model at /v1, the tools, over MCP, at /mcp.

Each conversation has its own address, /t/<id>, before both paths. So one trajectory holds the model's turns and the
tools' results. Owns the agent's loop and its questions. It does not check the answers: the tiny model is often wrong.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from typing import Any

from mcp import Client, MCPError
from openai import AsyncOpenAI

from examples.helpdesk.orders import demo_orders

SYSTEM = "You tell customers when their order arrives."
QUESTIONS = 8
MAX_TURNS = 6


async def answer(url: str, question: str) -> str:
    """Answer one question with the model at `url`/v1 and the tools at `url`/mcp."""
    model = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    async with Client(f"{url}/mcp") as mcp:
        tools = [_as_openai(tool) for tool in (await mcp.list_tools()).tools]
        for _ in range(MAX_TURNS):
            asked = {"model": "helpdesk", "messages": messages, "tools": tools}
            reply = await model.chat.completions.create(**asked, temperature=1.0, max_tokens=96)
            message = reply.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                return message.content or ""
            for call in message.tool_calls:
                messages.append({"role": "tool", "tool_call_id": call.id, "content": await _call(mcp, call.function)})
    return "(still calling tools)"


def _as_openai(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


async def _call(mcp: Client, function: Any) -> str:
    try:
        result = await mcp.call_tool(function.name, json.loads(function.arguments))
        return "".join(part.text for part in result.content if part.type == "text")
    except (ValueError, MCPError) as error:  # the model's own mistake: the error is the tool's result
        return json.dumps({"error": str(error)})


async def main() -> None:
    """Answer all questions at once, each as its own trajectory."""
    hone = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
    questions = [f"Where is my order {order.order_id}?" for order in demo_orders().train[:QUESTIONS]]
    urls = [f"{hone}/t/mcp-agent-{secrets.token_hex(4)}" for _ in questions]
    # the tiny model may write invalid tool calls: one such attempt does not end the others
    answers = await asyncio.gather(*map(answer, urls, questions), return_exceptions=True)
    for question, said in zip(questions, answers, strict=True):
        print(f"{question}  {said}")


if __name__ == "__main__":
    asyncio.run(main())
