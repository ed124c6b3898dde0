"""The clients that are tested: which program, in which environment and mode, says what in which format.

Owns: the list, one row a client, format and way of streaming. Refuses: expectations, which are the same for all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack

import orjson
import pytest

from tests.agents.environments import PINS, has_npm

Format = Literal["chat", "responses", "messages"]
Engine = Literal["vLLM", "scripted"]
Asking = Literal["tools", "commands", "text"]

RUNS = 6

ENDPOINTS: dict[Format, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}


@dataclass(frozen=True, slots=True)
class Client:
    """One row of the table.

    `package` is the one whose version is shown; `tools` is where its tools are. The engine is a real vLLM, or for
    agents whose own prompts are more than the test model can read, one that acts (`tests.agents.acting`). `asks` is how
    its tool calls look to the engine: calls of the desk's tools, commands for a shell, or text; `results` how what they
    found comes back. `turns` are the calls of a run, `errands` those beside it that offer no tools, `addressed` the
    runs with a base URL of their own. A `representative` stands for its kind of agent stack in `make test`.
    """

    name: str
    package: str
    environment: str
    program: str
    format: Format
    modes: tuple[str, ...] = ()
    stream: bool = False
    tools: Literal["local", "mcp"] = "local"
    engine: Engine = "vLLM"
    asks: Asking = "tools"
    results: Literal["messages", "text"] = "messages"
    turns: int = 3
    errands: int = 0
    addressed: int = 2
    representative: bool = False

    @property
    def memory(self) -> bool:
        """Whether a call brings what was said before; without it every run has an address."""
        return self.addressed < RUNS

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
        if has_npm(self.environment):
            wanted = orjson.loads((PINS / self.environment / "package.json").read_bytes())
            by_npm = wanted["dependencies"] | wanted.get("optionalDependencies", {})
            if self.package in by_npm:
                return str(by_npm[self.package])
        pins = (PINS / f"{self.environment}.txt").read_text()
        found = re.search(rf"^{re.escape(self.package)}==(\S+)", pins, re.MULTILINE)
        assert found is not None, f"{self.package} is not pinned in {self.environment}.txt"
        return found[1]


class More(TypedDict, total=False):
    """What a row may say beside its format."""

    stream: bool
    asks: Asking
    results: Literal["messages", "text"]
    turns: int
    errands: int
    addressed: int
    representative: bool


def _both(
    name: str,
    package: str,
    environment: str,
    program: str,
    format_: Format,
    *modes: str,
    tools: Literal["local", "mcp"] = "local",
    engine: Engine = "vLLM",
    representatives: Sequence[bool] = (),
) -> list[Client]:
    """The row without streaming and the row with it; `representatives` says which of the two stand for their kind."""
    return [
        Client(
            name,
            package,
            environment,
            program,
            format_,
            modes,
            stream,
            tools,
            engine,
            representative=stream in representatives,
        )
        for stream in (False, True)
    ]


def _acted(
    name: str, package: str, environment: str, program: str, format_: Format, *modes: str, **more: Unpack[More]
) -> Client:
    """A row before the engine that acts."""
    return Client(name, package, environment, program, format_, modes, engine="scripted", **more)


CLIENTS: tuple[Client, ...] = (
    *_both("openai, sync", "openai", "openai2", "openai_chat.py", "chat", "sync"),
    *_both("openai, async", "openai", "openai2", "openai_chat.py", "chat", "async"),
    *_both("openai, async", "openai", "openai2", "openai_responses.py", "responses", "async"),
    *_both("openai, sync", "openai", "openai3", "openai_chat.py", "chat", "sync"),
    *_both("openai, async", "openai", "openai3", "openai_chat.py", "chat", "async", representatives=(False, True)),
    *_both("openai, sync", "openai", "openai3", "openai_responses.py", "responses", "sync"),
    *_both("openai, async", "openai", "openai3", "openai_responses.py", "responses", "async"),
    *_both(
        "openai, previous_response_id",
        "openai",
        "openai3",
        "openai_responses.py",
        "responses",
        "async",
        "previous",
        representatives=(True,),
    ),
    *_both("Anthropic SDK, sync", "anthropic", "openai3", "anthropic_messages.py", "messages", "sync"),
    *_both(
        "Anthropic SDK, async",
        "anthropic",
        "openai3",
        "anthropic_messages.py",
        "messages",
        "async",
        representatives=(False, True),
    ),
    *_both(
        "LangGraph, ChatOpenAI",
        "langgraph",
        "langgraph",
        "langgraph_agent.py",
        "chat",
        "chat",
        representatives=(False, True),
    ),
    *_both("LangGraph, ChatOpenAI", "langgraph", "langgraph", "langgraph_agent.py", "responses", "responses"),
    *_both("LangGraph, ChatAnthropic", "langgraph", "langgraph", "langgraph_agent.py", "messages", "anthropic"),
    *_both(
        "LangGraph, langchain-mcp-adapters", "langgraph", "langgraph", "langgraph_mcp.py", "chat", "chat", tools="mcp"
    ),
    Client("openai, mcp", "mcp", "openai3", "mcp_chat.py", "chat", tools="mcp", representative=True),
    *_both(
        "OpenAI Agents SDK",
        "openai-agents",
        "openai3",
        "openai_agents.py",
        "responses",
        "responses",
        representatives=(False, True),
    ),
    *_both("OpenAI Agents SDK", "openai-agents", "openai3", "openai_agents.py", "chat", "chat"),
    *_both("pydantic-ai", "pydantic-ai-slim", "openai3", "pydantic_ai_agent.py", "responses", "responses"),
    *_both("pydantic-ai", "pydantic-ai-slim", "openai3", "pydantic_ai_agent.py", "chat", "chat"),
    *_both("pydantic-ai", "pydantic-ai-slim", "openai3", "pydantic_ai_agent.py", "messages", "anthropic"),
    *_both("LiteLLM", "litellm", "openai2", "litellm_completion.py", "chat", "chat"),
    *_both("LiteLLM", "litellm", "openai2", "litellm_completion.py", "messages", "anthropic"),
    *_both("Vercel AI SDK", "ai", "node", "vercel_ai.mjs", "responses", "responses", representatives=(False, True)),
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
    *_both("LangGraph.js", "@langchain/langgraph", "node_agents", "langgraph_js.mjs", "chat", "chat"),
    *_both("LangGraph.js", "@langchain/langgraph", "node_agents", "langgraph_js.mjs", "responses", "responses"),
    *_both("Mastra", "@mastra/core", "node_agents", "mastra_agent.mjs", "chat"),
    _acted("Qwen-Agent", "qwen-agent", "frameworks3", "qwen_assistant.py", "chat", stream=True, asks="text"),
    *_both("Google ADK, LiteLLM", "google-adk", "litellm2", "google_adk_agent.py", "chat", engine="scripted"),
    *_both("Semantic Kernel", "semantic-kernel", "frameworks3", "semantic_kernel_agent.py", "chat", engine="scripted"),
    *_both("CrewAI", "crewai", "crewai", "crewai_agent.py", "chat", engine="scripted"),
    *_both("deepagents", "deepagents", "langgraph", "deepagents_agent.py", "chat", "chat", engine="scripted"),
    *_both("deepagents", "deepagents", "langgraph", "deepagents_agent.py", "responses", "responses", engine="scripted"),
    _acted(
        "smolagents, ToolCallingAgent",
        "smolagents",
        "frameworks3",
        "smolagents_agent.py",
        "chat",
        "tools",
        results="text",
    ),
    _acted("smolagents, CodeAgent", "smolagents", "frameworks3", "smolagents_agent.py", "chat", "code", asks="text"),
    _acted("DSPy, ReAct", "dspy", "litellm2", "dspy_agent.py", "chat", asks="text", turns=4, addressed=RUNS),
    _acted("mini-swe-agent", "mini-swe-agent", "litellm2", "mini_swe_agent.py", "chat", asks="commands"),
    _acted("Claude Agent SDK", "claude-agent-sdk", "frameworks3", "claude_sdk_agent.py", "messages", stream=True),
    _acted(
        "Claude Code",
        "@anthropic-ai/claude-code",
        "node",
        "claude_code.py",
        "messages",
        stream=True,
        asks="commands",
        representative=True,
    ),
    _acted("Codex CLI", "@openai/codex", "cli", "codex_cli.py", "responses", stream=True, asks="commands"),
    _acted("Copilot CLI", "@github/copilot", "cli", "copilot_cli.py", "chat", "chat", stream=True, asks="commands"),
    _acted(
        "Copilot CLI",
        "@github/copilot",
        "cli",
        "copilot_cli.py",
        "responses",
        "responses",
        stream=True,
        asks="commands",
    ),
    _acted("opencode", "opencode-linux-x64", "cli", "opencode_cli.py", "chat", stream=True, asks="commands", errands=1),
    _acted("aider", "aider-chat", "aider", "aider_chat.py", "chat", stream=True, asks="text", addressed=RUNS),
    _acted(
        "browser-use",
        "browser-use",
        "browser_use",
        "browser_use_agent.py",
        "chat",
        asks="text",
        addressed=RUNS,
    ),
    _acted("OpenHands SDK", "openhands-sdk", "openhands", "openhands_agent.py", "chat", asks="commands"),
)

# The rows as parameters of tests: only representatives are part of `make test`.
ROWS: Any = [
    pytest.param(client, id=client.id, marks=() if client.representative else pytest.mark.long) for client in CLIENTS
]
