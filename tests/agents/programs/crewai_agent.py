"""CrewAI. Modes: stream."""

from __future__ import annotations

import os

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["OTEL_SDK_DISABLED"] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main


async def answer(run: Run) -> str:
    llm = LLM(
        model=f"openai/{run.model}",
        base_url=run.base_url,
        api_key=run.api_key,
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        stream="stream" in run.modes,
    )
    agent = Agent(
        role="Helpdesk",
        goal=SYSTEM,
        backstory="You know every parcel.",
        llm=llm,
        tools=[tool(each.__name__)(each) for each in run.tools()],
    )
    task = Task(description=run.question, expected_output="The day on which it arrives.", agent=agent)
    crew = Crew(agents=[agent], tasks=[task], verbose=False)
    return str(await crew.kickoff_async())


main(answer)
