"""The clients that are tested: which program, in which environment and mode, says what in which format.

Owns: the list, one row a client, format and way of streaming. Refuses: expectations, which are the same for all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import orjson

from tests.agents.environments import NODE_FILES, PINS

Format = Literal["chat", "responses", "messages"]

ENDPOINTS: dict[Format, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}


@dataclass(frozen=True, slots=True)
class Client:
    """One row of the table. `package` is the one whose version is shown; `tools` is where its tools are."""

    name: str
    package: str
    environment: str
    program: str
    format: Format
    modes: tuple[str, ...] = ()
    stream: bool = False
    tools: Literal["local", "mcp"] = "local"

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the program is told."""
        return (*self.modes, *(("stream",) if self.stream else ()))

    @property
    def id(self) -> str:
        """Names the row in tests."""
        return "-".join((self.environment, self.program.partition(".")[0], *self.arguments))

    @property
    def version(self) -> str:
        """The package's version, as pinned."""
        if self.environment == NODE_FILES.name:
            return str(orjson.loads((NODE_FILES / "package.json").read_bytes())["dependencies"][self.package])
        pins = (PINS / f"{self.environment}.txt").read_text()
        found = re.search(rf"^{re.escape(self.package)}==(\S+)", pins, re.MULTILINE)
        assert found is not None, f"{self.package} is not pinned in {self.environment}.txt"
        return found[1]


def _both(
    name: str,
    package: str,
    environment: str,
    program: str,
    format_: Format,
    *modes: str,
    tools: Literal["local", "mcp"] = "local",
) -> list[Client]:
    """The row without streaming and the row with it."""
    return [Client(name, package, environment, program, format_, modes, stream, tools) for stream in (False, True)]


CLIENTS: tuple[Client, ...] = (
    *_both("openai, sync", "openai", "openai2", "openai_chat.py", "chat", "sync"),
    *_both("openai, async", "openai", "openai2", "openai_chat.py", "chat", "async"),
    *_both("openai, async", "openai", "openai2", "openai_responses.py", "responses", "async"),
    *_both("openai, sync", "openai", "openai3", "openai_chat.py", "chat", "sync"),
    *_both("openai, async", "openai", "openai3", "openai_chat.py", "chat", "async"),
    *_both("openai, sync", "openai", "openai3", "openai_responses.py", "responses", "sync"),
    *_both("openai, async", "openai", "openai3", "openai_responses.py", "responses", "async"),
    *_both(
        "openai, previous_response_id", "openai", "openai3", "openai_responses.py", "responses", "async", "previous"
    ),
    *_both("Anthropic SDK, sync", "anthropic", "openai3", "anthropic_messages.py", "messages", "sync"),
    *_both("Anthropic SDK, async", "anthropic", "openai3", "anthropic_messages.py", "messages", "async"),
    *_both("LangGraph, ChatOpenAI", "langgraph", "langgraph", "langgraph_agent.py", "chat", "chat"),
    *_both("LangGraph, ChatOpenAI", "langgraph", "langgraph", "langgraph_agent.py", "responses", "responses"),
    *_both("LangGraph, ChatAnthropic", "langgraph", "langgraph", "langgraph_agent.py", "messages", "anthropic"),
    *_both(
        "LangGraph, langchain-mcp-adapters", "langgraph", "langgraph", "langgraph_mcp.py", "chat", "chat", tools="mcp"
    ),
    Client("openai, mcp", "mcp", "openai3", "mcp_chat.py", "chat", tools="mcp"),
    *_both("OpenAI Agents SDK", "openai-agents", "openai3", "openai_agents.py", "responses", "responses"),
    *_both("OpenAI Agents SDK", "openai-agents", "openai3", "openai_agents.py", "chat", "chat"),
    *_both("pydantic-ai", "pydantic-ai-slim", "openai3", "pydantic_ai_agent.py", "responses", "responses"),
    *_both("pydantic-ai", "pydantic-ai-slim", "openai3", "pydantic_ai_agent.py", "chat", "chat"),
    *_both("pydantic-ai", "pydantic-ai-slim", "openai3", "pydantic_ai_agent.py", "messages", "anthropic"),
    *_both("LiteLLM", "litellm", "openai2", "litellm_completion.py", "chat", "chat"),
    *_both("LiteLLM", "litellm", "openai2", "litellm_completion.py", "messages", "anthropic"),
    *_both("Vercel AI SDK", "ai", "node", "vercel_ai.mjs", "responses", "responses"),
    *_both("Vercel AI SDK", "ai", "node", "vercel_ai.mjs", "chat", "chat"),
    *_both("Vercel AI SDK, openai-compatible", "ai", "node", "vercel_ai.mjs", "chat", "compatible"),
    *_both("Vercel AI SDK", "ai", "node", "vercel_ai.mjs", "messages", "anthropic"),
    *_both("OpenAI Agents SDK, Node", "@openai/agents", "node", "openai_agents.mjs", "responses", "responses"),
    *_both("OpenAI Agents SDK, Node", "@openai/agents", "node", "openai_agents.mjs", "chat", "chat"),
    *_both("Agent Framework", "agent-framework-core", "openai3", "agent_framework_agent.py", "responses", "responses"),
    *_both("Agent Framework", "agent-framework-core", "openai3", "agent_framework_agent.py", "chat", "chat"),
    *_both("AutoGen", "autogen-agentchat", "openai3", "autogen_agent.py", "chat"),
    *_both("Haystack", "haystack-ai", "openai3", "haystack_agent.py", "chat", "chat"),
    *_both("Haystack", "haystack-ai", "openai3", "haystack_agent.py", "responses", "responses"),
    *_both("LlamaIndex", "llama-index-core", "openai2", "llama_index_agent.py", "chat"),
    Client("Strands Agents", "strands-agents", "openai2", "strands_agent.py", "chat", stream=True),
)
