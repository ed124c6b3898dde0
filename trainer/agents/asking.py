"""One request of an agent of Hone's own to the model at its attempt's address.

Owns: the request. Refuses: every import but the standard library's: the agent's host runs it.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any


def complete(task: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    """The model's message to a chat completion's body, whose model is the attempt's."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {task.api_key}"}
    url = task.base_url + "/chat/completions"
    sent = json.dumps({**body, "model": task.model}).encode()
    request = urllib.request.Request(url, sent, headers)  # noqa: S310 - the proxy's own address
    with urllib.request.urlopen(request) as response:  # noqa: S310 - as above; the attempt's own limit ends it
        message: dict[str, Any] = json.load(response)["choices"][0]["message"]
    return message
