"""Agno with an OpenAI-like model. Modes: stream."""

from __future__ import annotations

from agno.agent import Agent
from agno.models.openai.like import OpenAILike
from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main


async def answer(run: Run) -> str:
    model = OpenAILike(
        id=run.model, base_url=run.base_url, api_key=run.api_key, temperature=TEMPERATURE, max_tokens=MAX_TOKENS
    )
    agent = Agent(model=model, system_message=SYSTEM, tools=list(run.tools()), telemetry=False)
    if "stream" not in run.modes:
        return str((await agent.arun(run.question)).content)
    said = [event.content async for event in agent.arun(run.question, stream=True) if event.content]
    return "".join(map(str, said))


main(answer)
