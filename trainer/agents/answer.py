"""Hone's own agent `hone:answer`: it sends the scenario's input as one request, and the answer is the attempt.

Owns: the request and its messages. Refuses: tools, further turns, and every import outside the standard library,
because the agent host runs it in the user's Python.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any, Final


def request_answer(task: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    """Send a chat completion request with the attempt's model; return the message of the answer."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {task.api_key}"}
    url = task.base_url + "/chat/completions"
    sent = json.dumps({**body, "model": task.model}).encode()
    request = urllib.request.Request(url, sent, headers)  # noqa: S310 - the proxy's own address
    with urllib.request.urlopen(request) as response:  # noqa: S310 - as above; the attempt's time limit ends it
        message: dict[str, Any] = json.load(response)["choices"][0]["message"]
    return message


NAME: Final = "hone:answer"  # what `campaign.agent` calls it


def first_messages(given: Any) -> list[Any]:
    """The request's messages: a text is a user message, messages are sent as they are, other input as JSON."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if isinstance(given, list) and given and all(isinstance(one, Mapping) and "role" in one for one in given):
        return list(given)
    return [{"role": "user", "content": json.dumps(given, ensure_ascii=False)}]


def run(task: Any) -> Any:
    """Make one attempt; return the model's answer. `task.sampling` holds the request's sampling parameters."""
    return request_answer(task, {**task.sampling, "messages": first_messages(task.input)}).get("content")
