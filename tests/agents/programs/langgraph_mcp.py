"""LangGraph with tools from an MCP server, through langchain-mcp-adapters (which needs mcp 1.x)."""

from __future__ import annotations

from typing import Any

from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI


async def answer(run: Run) -> str:
    server = {"transport": "streamable_http", "url": run.mcp_url()}
    tools = await MultiServerMCPClient({"helpdesk": server}).get_tools()
    model = ChatOpenAI(
        model=run.model,
        base_url=run.base_url,
        api_key=run.api_key,
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        streaming="stream" in run.modes,
    )
    agent = create_agent(model, tools=tools, system_prompt=SYSTEM)
    state = await agent.ainvoke({"messages": [{"role": "user", "content": run.question}]})
    run.calls += called(state["messages"])
    return str(state["messages"][-1].text)


def called(messages: list[Any]) -> list[dict[str, Any]]:
    """The tool calls of a conversation with their results, as the program saw them."""
    results = {message.tool_call_id: message.text for message in messages if isinstance(message, ToolMessage)}
    return [
        {"name": call["name"], "arguments": call["args"], "result": results[call["id"]]}
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]


main(answer)
