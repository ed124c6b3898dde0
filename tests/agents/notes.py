"""What to know of some clients beside their rows: what is their own way, what fails today, and what cannot be had.

Owns: these words, by the client's name, and which tests fail today for which reason. Refuses: rows, which are in
`clients`.
"""

from __future__ import annotations

from collections.abc import Mapping

# A client's name → the tests that fail → the reason. A test that passes again fails here, so that the row is mended.
TODAY: Mapping[str, Mapping[str, str]] = {}

WAYS: Mapping[str, str] = {
    "DSPy, ReAct": ("its history is one user message, so every run needs an address. A last call sums up."),
    "Claude Agent SDK": (
        "with `ENABLE_TOOL_SEARCH=false`; else it offers the tools of MCP servers once the model has searched for them."
    ),
    "Copilot CLI": "in chat completions it asks for temperature 0 and top_p 0.95, which leaves nothing to train on.",
    "opencode": ("first it asks for a title, an auxiliary call that is not in the row."),
    "aider": (
        "it puts files before what was said and changes its own earlier words, so every run needs an address. It "
        "has no tools: the model names files, which aider adds. It asks for temperature 0."
    ),
    "browser-use": (
        "it sends a summary of its own in place of a history, so every run needs an address. Its answers are held to a "
        "JSON schema, with a frequency penalty. The Chromium is that of npm's `@sparticuz/chromium`."
    ),
    "OpenHands SDK": "it asks for Python 3.12; where there is none, the row stays as it is.",
}

# What was wanted and cannot be had, with the reason.
MISSING: Mapping[str, str] = {
    "Qwen-Agent with native tools (`use_raw_api`)": (
        "it fails on the first part of a streamed tool call, to which vLLM gives a name and no arguments, with or "
        "without Hone."
    ),
}
