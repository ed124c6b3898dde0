"""smolagents. Modes: tools (ToolCallingAgent), code (CodeAgent); stream."""

from __future__ import annotations

import asyncio

from desk import MAX_TOKENS, MAX_TURNS, TEMPERATURE, Run, main
from smolagents import CodeAgent, LogLevel, OpenAIModel, ToolCallingAgent, tool


async def answer(run: Run) -> str:
    model = OpenAIModel(
        model_id=run.model,
        api_base=run.base_url,
        api_key=run.api_key,
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
    )
    kind = CodeAgent if "code" in run.modes else ToolCallingAgent
    agent = kind(
        tools=[tool(each) for each in run.tools()],
        model=model,
        max_steps=MAX_TURNS,
        verbosity_level=LogLevel.OFF,
        stream_outputs="stream" in run.modes,
    )
    return str(await asyncio.to_thread(agent.run, run.question))


main(answer)
