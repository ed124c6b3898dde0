"""A scripted stand-in for a frontier model: an OpenAI-compatible server that answers mailbox questions by rules.

    python -m examples.inbox.frontier --port 8300

It replaces the baseline of `gpu.toml` if there is no key for one; its name shows this. Owns the rules: search with
every word, read the first hit, answer with its content. Refuses every other source: it sees the conversation and the
tools' results, never the answers.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from examples.helpdesk.scripted_judge import Handler, make_server
from examples.inbox.judge import asked_for, calls_of, matching
from examples.inbox.mails import KINDS, PEOPLE, PROJECTS

NAME: Final = "scripted-frontier"
SORRY: Final = "I cannot tell."

Json = dict[str, Any]


def turn(messages: Sequence[Json]) -> Json:
    """Return the next message: a call of `search`, then one of `read`, then the mail's own sentence."""
    asked = asked_for(messages)
    calls = calls_of(messages)
    if not calls:
        order = [word for words in (PEOPLE, PROJECTS, KINDS) for word in words if word in asked]
        return _call("search", {"query": " ".join(order)})
    name, _, said = calls[-1]
    if name == "search" and (found := matching(said, asked)):
        return _call("read", {"mail_id": found[0].split()[0]})
    return {"role": "assistant", "content": said.partition(": ")[2] or SORRY if name == "read" else SORRY}


def _call(name: str, arguments: Mapping[str, str]) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call-{time.time_ns():x}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Frontier(Handler):
    """The stand-in as a server."""

    server_version = NAME

    def answered(self, request: Json) -> Json:
        """Return one turn as a chat completion."""
        message = turn(request["messages"])
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        return {
            "id": f"chatcmpl-{time.time_ns():x}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": NAME,
            "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
            # The rules use no tokens.
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A scripted stand-in for a frontier model.")
    parser.add_argument("--port", type=int, default=8300, help="loopback port (8300)")
    with make_server(parser.parse_args().port, Frontier) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
