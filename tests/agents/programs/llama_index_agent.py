"""LlamaIndex's function-calling agent over an OpenAI-like server. Modes: stream (its default)."""

from __future__ import annotations

from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike


async def answer(run: Run) -> str:
    llm = OpenAILike(
        model=run.model,
        api_base=run.base_url,
        api_key=run.api_key,
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=1024,
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
    )
    agent = FunctionAgent(llm=llm, tools=list(run.tools()), system_prompt=SYSTEM, streaming="stream" in run.modes)
    return str(await agent.run(user_msg=run.question))


main(answer)
