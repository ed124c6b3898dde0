"""The OpenHands SDK with its terminal, over LiteLLM."""

from __future__ import annotations

import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["OPENHANDS_SUPPRESS_BANNER"] = "1"

from desk import Run, main
from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.sdk.conversation.response_utils import get_agent_final_response
from openhands.tools.terminal import TerminalTool
from pydantic import SecretStr
from workplace import HINT, Workplace, workplace


def ask(run: Run, place: Workplace) -> str:
    llm = LLM(model=f"openai/{run.model}", base_url=run.base_url, api_key=SecretStr(run.api_key), usage_id="agent")
    # its other kind, tmux, loses the output of a first command on a busy machine
    terminal = Tool(name=TerminalTool.name, params={"terminal_type": "subprocess"})
    agent = Agent(llm=llm, tools=[terminal])
    conversation = Conversation(agent=agent, workspace=str(place.work), visualizer=None)
    conversation.send_message(f"{run.question} {HINT}")
    conversation.run()
    said = get_agent_final_response(conversation.state.events)
    conversation.close()
    return said


async def answer(run: Run) -> str:
    async with workplace(run) as place:
        return await asyncio.to_thread(ask, run, place)


main(answer)
