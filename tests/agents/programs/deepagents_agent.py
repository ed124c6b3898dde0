"""deepagents, LangChain's agent with a plan, files and sub-agents. Modes: chat, responses; stream."""

from __future__ import annotations

from deepagents import create_deep_agent
from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main
from langchain_openai import ChatOpenAI


async def answer(run: Run) -> str:
    model = ChatOpenAI(
        model=run.model,
        base_url=run.base_url,
        api_key=run.api_key,
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        use_responses_api="responses" in run.modes,
        streaming="stream" in run.modes,
    )
    agent = create_deep_agent(model=model, tools=list(run.tools()), system_prompt=SYSTEM)
    done = await agent.ainvoke({"messages": [{"role": "user", "content": run.question}]})
    return str(done["messages"][-1].text)


main(answer)
