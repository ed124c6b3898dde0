"""LangGraph's ready-made tool-calling agent. Modes: chat, responses, anthropic; stream."""

from __future__ import annotations

from typing import Any

from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main
from langchain.agents import create_agent


def model(run: Run) -> Any:
    if "anthropic" in run.modes:
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(
            model_name=run.model,
            base_url=run.root_url(),
            api_key=run.api_key,
            temperature=TEMPERATURE,
            max_tokens_to_sample=MAX_TOKENS,
            streaming="stream" in run.modes,
        )
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        model=run.model,
        base_url=run.base_url,
        api_key=run.api_key,
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        use_responses_api="responses" in run.modes,
        streaming="stream" in run.modes,
    )


async def answer(run: Run) -> str:
    agent = create_agent(model(run), tools=list(run.tools()), system_prompt=SYSTEM)
    state = await agent.ainvoke({"messages": [{"role": "user", "content": run.question}]})
    return str(state["messages"][-1].text)


main(answer)
