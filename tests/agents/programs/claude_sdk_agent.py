"""The Claude Agent SDK, with the desk's tools on an MCP server of its own kind, inside the program."""

from __future__ import annotations

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool
from desk import PARAMETERS, SYSTEM, Run, main
from workplace import workplace


def desk(run: Run):
    def made(name: str):
        says, argument = PARAMETERS[name]

        @tool(name, says, {argument: str})
        async def call(given: dict) -> dict:
            return {"content": [{"type": "text", "text": run.call(name, given)}]}

        return call

    return create_sdk_mcp_server("desk", tools=[made(name) for name in PARAMETERS])


async def answer(run: Run) -> str:
    async with workplace(run) as place:
        options = ClaudeAgentOptions(
            system_prompt=SYSTEM,
            model=run.model,
            mcp_servers={"desk": desk(run)},
            allowed_tools=["mcp__desk__find_order", "mcp__desk__track_parcel"],
            cwd=place.work,
            env=place.environment()
            | {
                "ANTHROPIC_BASE_URL": run.root_url(),
                "ANTHROPIC_API_KEY": run.api_key,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "ENABLE_TOOL_SEARCH": "false",  # else the tools of an MCP server are there once they were searched for
            },
        )
        said = ""
        async for message in query(prompt=run.question, options=options):
            if isinstance(message, ResultMessage):
                said = str(message.result)
        return said


main(answer)
