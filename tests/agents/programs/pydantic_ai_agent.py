"""pydantic-ai. Modes: chat, responses, anthropic; stream."""

from __future__ import annotations

from typing import Any

from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main
from pydantic_ai import Agent
from pydantic_ai.settings import ModelSettings


def model(run: Run) -> Any:
    if "anthropic" in run.modes:
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(run.model, provider=AnthropicProvider(base_url=run.root_url(), api_key=run.api_key))
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind = OpenAIResponsesModel if "responses" in run.modes else OpenAIChatModel
    return kind(run.model, provider=OpenAIProvider(base_url=run.base_url, api_key=run.api_key))


async def answer(run: Run) -> str:
    agent = Agent(
        model(run),
        system_prompt=SYSTEM,
        tools=list(run.tools()),
        model_settings=ModelSettings(temperature=TEMPERATURE, max_tokens=MAX_TOKENS),
    )
    if "stream" not in run.modes:
        return str((await agent.run(run.question)).output)
    async with agent.run_stream(run.question) as streamed:
        return str(await streamed.get_output())


main(answer)
