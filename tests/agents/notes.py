"""Notes on single clients for docs/agents.md: special behaviour, known failures, and what is not supported.

Owns: these texts by the client's name, and the tests that fail today, each with its reason. Refuses: the rows
(`tests.agents.clients`).
"""

from __future__ import annotations

from collections.abc import Mapping

# A client's name → the tests that fail → the reason. A test that passes again fails here, so that its entry is removed.
TODAY: Mapping[str, Mapping[str, str]] = {}

WAYS: Mapping[str, str] = {
    "DSPy, ReAct": ("its history is one user message, so every trajectory needs an address. A last call sums up."),
    "Claude Agent SDK": (
        "with `ENABLE_TOOL_SEARCH=false`. Without it, it offers MCP tools only after the model has searched for them."
    ),
    "Copilot CLI": "in chat completions it asks for temperature 0 and top_p 0.95, which leaves nothing to train on.",
    "opencode": ("first it asks for a title, an auxiliary call that is not in the row."),
    "aider": (
        "it inserts files before the conversation and edits its own earlier messages, so every trajectory needs an "
        "address. It has no tools: the model names files, which aider adds. It asks for temperature 0."
    ),
    "browser-use": (
        "it sends its own summary instead of the history, so every trajectory needs an address. Its answers must "
        "follow a JSON schema, with a frequency penalty. Its Chromium is npm's `@sparticuz/chromium`."
    ),
    "OpenHands SDK": "it needs Python 3.12. Without it, the row is not updated.",
}

# What is not supported, with the reason.
MISSING: Mapping[str, str] = {
    "Qwen-Agent with native tools (`use_raw_api`)": (
        "it fails on the first part of a streamed tool call, which in vLLM has a name and no arguments, with or "
        "without Hone."
    ),
}
