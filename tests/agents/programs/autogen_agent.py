"""AutoGen's AssistantAgent. Modes: stream."""

from __future__ import annotations

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from desk import MAX_TOKENS, MAX_TURNS, SYSTEM, TEMPERATURE, Run, main


async def answer(run: Run) -> str:
    client = OpenAIChatCompletionClient(
        model=run.model,
        base_url=run.base_url,
        api_key=run.api_key,
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        model_info={
            "vision": False,
            "function_calling": True,
            "json_output": False,
            "family": "unknown",
            "structured_output": False,
        },
    )
    agent = AssistantAgent(
        "helpdesk",
        client,
        tools=[FunctionTool(tool, description=tool.__name__) for tool in run.tools()],
        system_message=SYSTEM,
        max_tool_iterations=MAX_TURNS,
        model_client_stream="stream" in run.modes,
    )
    result = await agent.run(task=run.question)
    return str(result.messages[-1].to_text())


main(answer)
