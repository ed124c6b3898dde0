"""Google's ADK over LiteLLM, as it reaches models that are not Gemini. Modes: stream."""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from desk import MAX_TOKENS, SYSTEM, TEMPERATURE, Run, main
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types


async def answer(run: Run) -> str:
    agent = LlmAgent(
        name="helpdesk",
        model=LiteLlm(model=f"openai/{run.model}", api_base=run.base_url, api_key=run.api_key),
        instruction=SYSTEM,
        tools=list(run.tools()),
        generate_content_config=types.GenerateContentConfig(temperature=TEMPERATURE, max_output_tokens=MAX_TOKENS),
    )
    runner = InMemoryRunner(agent=agent, app_name="desk")
    session = await runner.session_service.create_session(app_name="desk", user_id="customer")
    said = ""
    async for event in runner.run_async(
        user_id="customer",
        session_id=session.id,
        new_message=types.Content(role="user", parts=[types.Part(text=run.question)]),
        run_config=RunConfig(streaming_mode=StreamingMode.SSE if "stream" in run.modes else StreamingMode.NONE),
    ):
        if event.is_final_response() and event.content:
            said = "".join(part.text or "" for part in event.content.parts or ())
    return said


main(answer)
