"""Qwen-Agent, which always streams, and writes its tools into the prompt."""

from __future__ import annotations

import asyncio
import json

from desk import MAX_TOKENS, PARAMETERS, SYSTEM, TEMPERATURE, Run, main, schema
from qwen_agent.agents import Assistant
from qwen_agent.tools.base import BaseTool


def tool(run: Run, called: str) -> BaseTool:
    says, argument = PARAMETERS[called]

    class Tool(BaseTool):
        name = called
        description = says
        parameters = schema(argument)

        def call(self, params: str | dict, **_: object) -> str:
            return run.call(called, json.loads(params) if isinstance(params, str) else params)

    return Tool()


def ask(run: Run) -> str:
    bot = Assistant(
        llm={
            "model": run.model,
            "model_type": "oai",
            "model_server": run.base_url,
            "api_key": run.api_key,
            "generate_cfg": {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS},
        },
        system_message=SYSTEM,
        function_list=[tool(run, name) for name in PARAMETERS],
    )
    *_, last = bot.run([{"role": "user", "content": run.question}])
    return str(last[-1]["content"])


async def answer(run: Run) -> str:
    return await asyncio.to_thread(ask, run)


main(answer)
