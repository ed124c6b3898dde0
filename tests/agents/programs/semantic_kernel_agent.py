"""Semantic Kernel's ChatCompletionAgent. Modes: stream."""

from __future__ import annotations

from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.functions import KernelArguments, kernel_function


async def answer(run: Run) -> str:
    client = AsyncOpenAI(base_url=run.base_url, api_key=run.api_key)
    settings = OpenAIChatPromptExecutionSettings(temperature=TEMPERATURE, max_tokens=MAX_TOKENS)
    find_order, track_parcel = run.tools()

    class Desk:
        @kernel_function(name="find_order", description="Status and tracking number of an order.")
        def find_order(self, order_id: str) -> str:
            return find_order(order_id)

        @kernel_function(name="track_parcel", description="The day on which a parcel arrives.")
        def track_parcel(self, tracking: str) -> str:
            return track_parcel(tracking)

    agent = ChatCompletionAgent(
        service=OpenAIChatCompletion(ai_model_id=run.model, async_client=client),
        name="helpdesk",
        instructions=SYSTEM,
        plugins=[Desk()],
        arguments=KernelArguments(settings=settings),
    )
    if "stream" not in run.modes:
        return str((await agent.get_response(messages=run.question)).content)
    return "".join([str(part.content) async for part in agent.invoke_stream(messages=run.question)])


main(answer)
