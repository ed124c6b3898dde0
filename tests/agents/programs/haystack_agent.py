"""Haystack's Agent. Modes: chat, responses; stream."""

from __future__ import annotations

from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret


async def answer(run: Run) -> str:
    to = {"model": run.model, "api_base_url": run.base_url, "api_key": Secret.from_token(run.api_key)}
    if "responses" in run.modes:
        sampling = {"temperature": TEMPERATURE, "max_output_tokens": MAX_TOKENS}
        generator = OpenAIResponsesChatGenerator(**to, generation_kwargs=sampling)
    else:
        sampling = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS}
        generator = OpenAIChatGenerator(**to, generation_kwargs=sampling)
    agent = Agent(
        chat_generator=generator,
        system_prompt=SYSTEM,
        tools=[create_tool_from_function(tool) for tool in run.tools()],
        streaming_callback=_ignore if "stream" in run.modes else None,
    )
    result = await agent.run_async(messages=[ChatMessage.from_user(run.question)])
    return str(result["last_message"].text)


async def _ignore(chunk: object) -> None:
    """Haystack streams when somebody listens."""


main(answer)
