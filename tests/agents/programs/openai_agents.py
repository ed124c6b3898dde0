"""The OpenAI Agents SDK. Modes: responses (its default), chat; stream."""

from __future__ import annotations

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main
from openai import AsyncOpenAI

set_tracing_disabled(True)  # traces would go to a service of OpenAI's


async def answer(run: Run) -> str:
    client = AsyncOpenAI(base_url=run.base_url, api_key=run.api_key)
    kind = OpenAIChatCompletionsModel if "chat" in run.modes else OpenAIResponsesModel
    agent = Agent(
        name="helpdesk",
        instructions=SYSTEM,
        model=kind(model=run.model, openai_client=client),
        model_settings=ModelSettings(temperature=TEMPERATURE, max_tokens=MAX_TOKENS),
        tools=[function_tool(tool) for tool in run.tools()],
    )
    if "stream" not in run.modes:
        return str((await Runner.run(agent, run.question)).final_output)
    streamed = Runner.run_streamed(agent, run.question)
    async for _ in streamed.stream_events():
        pass
    return str(streamed.final_output)


main(answer)
