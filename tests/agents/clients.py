"""The clients that are tested: which program, in which environment and mode, says what in which format.

Owns: the list, one row a client, format and way of streaming. Refuses: expectations, which are the same for all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict, Unpack

import orjson

from tests.agents.environments import PINS, has_npm

Format = Literal["chat", "responses", "messages"]
Engine = Literal["vLLM", "scripted"]
Asking = Literal["tools", "commands", "text"]

# Rows that take long are left to `make agents-table`.
ALL = bool(os.environ.get("HONE_ALL_AGENTS"))
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
    its tool calls look to the engine: calls of the desk's tools, commands for a shell, or text. `turns` are the calls
    of a run, `errands` those beside it that offer no tools, `addressed` the runs with a base URL of their own. `today`
    names tests that fail today, each with the reason; `note` is a sentence for readers of the table.
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
    turns: int = 3
    errands: int = 0
    addressed: int = 2
    slow: bool = False
    note: str = ""
    today: Mapping[str, str] = field(default_factory=dict, hash=False)

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
            return str((wanted["dependencies"] | wanted.get("optionalDependencies", {}))[self.package])
        pins = (PINS / f"{self.environment}.txt").read_text()
        found = re.search(rf"^{re.escape(self.package)}==(\S+)", pins, re.MULTILINE)
        assert found is not None, f"{self.package} is not pinned in {self.environment}.txt"
        return found[1]


class More(TypedDict, total=False):
    """What both rows of a client share beside its format."""

    tools: Literal["local", "mcp"]
    engine: Engine
    asks: Asking
    note: str


def _both(
    name: str,
    package: str,
    environment: str,
    program: str,
    format_: Format,
    *modes: str,
    **more: Unpack[More],
) -> list[Client]:
    """The row without streaming and the row with it."""
    return [Client(name, package, environment, program, format_, modes, stream, **more) for stream in (False, True)]


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
    *_both("LangGraph.js", "@langchain/langgraph", "node_agents", "langgraph_js.mjs", "chat", "chat"),
    *_both("LangGraph.js", "@langchain/langgraph", "node_agents", "langgraph_js.mjs", "responses", "responses"),
    *_both("Mastra", "@mastra/core", "node_agents", "mastra_agent.mjs", "chat"),
    *_both("Google ADK, LiteLLM", "google-adk", "litellm2", "google_adk_agent.py", "chat"),
    *_both("Semantic Kernel", "semantic-kernel", "frameworks3", "semantic_kernel_agent.py", "chat"),
    Client("Qwen-Agent, native tools", "qwen-agent", "frameworks3", "qwen_assistant.py", "chat", ("native",), True),
    *_both("CrewAI", "crewai", "crewai", "crewai_agent.py", "chat"),
    Client(
        "Qwen-Agent",
        "qwen-agent",
        "frameworks3",
        "qwen_assistant.py",
        "chat",
        ("prompt",),
        True,
        engine="scripted",
        asks="text",
    ),
    *_both("deepagents", "deepagents", "langgraph", "deepagents_agent.py", "chat", "chat", engine="scripted"),
    *_both("deepagents", "deepagents", "langgraph", "deepagents_agent.py", "responses", "responses", engine="scripted"),
    Client(
        "smolagents, ToolCallingAgent",
        "smolagents",
        "frameworks3",
        "smolagents_agent.py",
        "chat",
        ("tools",),
        engine="scripted",
    ),
    Client(
        "smolagents, CodeAgent",
        "smolagents",
        "frameworks3",
        "smolagents_agent.py",
        "chat",
        ("code",),
        engine="scripted",
        asks="text",
    ),
    Client(
        "DSPy, ReAct",
        "dspy",
        "litellm2",
        "dspy_agent.py",
        "chat",
        engine="scripted",
        asks="text",
        turns=4,
        addressed=RUNS,
    ),
    Client(
        "aider",
        "aider-chat",
        "aider",
        "aider_chat.py",
        "chat",
        (),
        True,
        engine="scripted",
        asks="text",
        addressed=RUNS,
    ),
    Client(
        "browser-use",
        "browser-use",
        "browser_use",
        "browser_use_agent.py",
        "chat",
        engine="scripted",
        asks="text",
        addressed=RUNS,
        slow=True,
    ),
    Client(
        "mini-swe-agent",
        "mini-swe-agent",
        "litellm2",
        "mini_swe_agent.py",
        "chat",
        engine="scripted",
        asks="commands",
    ),
    Client(
        "Claude Agent SDK",
        "claude-agent-sdk",
        "frameworks3",
        "claude_sdk_agent.py",
        "messages",
        (),
        True,
        engine="scripted",
    ),
    Client(
        "Claude Code",
        "@anthropic-ai/claude-code",
        "cli",
        "claude_code.py",
        "messages",
        (),
        True,
        engine="scripted",
        asks="commands",
    ),
    Client(
        "Codex CLI",
        "@openai/codex",
        "cli",
        "codex_cli.py",
        "responses",
        (),
        True,
        engine="scripted",
        asks="commands",
    ),
    Client(
        "opencode",
        "opencode-linux-x64",
        "cli",
        "opencode_cli.py",
        "chat",
        (),
        True,
        engine="scripted",
        asks="commands",
        errands=1,
    ),
    Client(
        "Copilot CLI",
        "@github/copilot",
        "cli",
        "copilot_cli.py",
        "chat",
        ("chat",),
        True,
        engine="scripted",
        asks="commands",
    ),
    Client(
        "Copilot CLI",
        "@github/copilot",
        "cli",
        "copilot_cli.py",
        "responses",
        ("responses",),
        True,
        engine="scripted",
        asks="commands",
    ),
)

RUN = tuple(client for client in CLIENTS if ALL or not client.slow)

# What cannot be had here, with the reason.
NOT_TRIED: tuple[str, ...] = ()
