"""Microsoft's Agent Framework. Modes: responses (its default), chat; stream."""

from __future__ import annotations

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main


async def answer(run: Run) -> str:
    kind = OpenAIChatCompletionClient if "chat" in run.modes else OpenAIChatClient
    client = kind(model=run.model, base_url=run.base_url, api_key=run.api_key)
    options = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS}
    agent = Agent(client, SYSTEM, tools=list(run.tools()), default_options=options)
    if "stream" not in run.modes:
        return str((await agent.run(run.question)).text)
    streamed = agent.run(run.question, stream=True)
    async for _ in streamed:
        pass
    return str((await streamed.get_final_response()).text)


main(answer)
