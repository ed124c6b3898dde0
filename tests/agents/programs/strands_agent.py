"""Strands Agents with its OpenAI model, which always streams."""

from __future__ import annotations

from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main
from strands import Agent, tool
from strands.models.openai import OpenAIModel


async def answer(run: Run) -> str:
    model = OpenAIModel(
        client_args={"base_url": run.base_url, "api_key": run.api_key},
        model_id=run.model,
        params={"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS},
    )
    agent = Agent(model=model, system_prompt=SYSTEM, tools=[tool(each) for each in run.tools()], callback_handler=None)
    return str(await agent.invoke_async(run.question)).strip()


main(answer)
