"""The scripted judge: an OpenAI-compatible server that checks criteria by code, not by a model.

    python -m examples.rlvr.scripted_judge --port 8200

It replaces a real judge if there is no key for one; its name shows this wherever it appears. Owns: reading Hone's
prompt about one answer (`judge/llm/rubric_prompt.py`), and a verdict with a reason for each criterion. Refuses every
other source: it sees criteria, task and response only. An unknown sentence counts as not met, with that reason.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from examples.helpdesk.scripted_judge import Handler as HelpdeskHandler
from examples.helpdesk.scripted_judge import PromptError, main
from examples.rlvr.kinds import Text, read

NAME: Final = "scripted-rubric-judge"
UNKNOWN: Final = "I cannot check this"
_DATA: Final = re.compile(r"^<<<HONE-DATA ([0-9a-f]+)>>>\n(.*?)\n<<<END-HONE-DATA \1>>>$", re.DOTALL | re.MULTILINE)

Json = dict[str, Any]


def judge(messages: Sequence[Json]) -> Json:
    """Return a verdict on every criterion of a prompt: ``{"criteria": [{"id", "reason", "met", "quote"}]}``.

    Raises:
        PromptError: the last user message has no criteria or no fenced data, or they have another format.
    """
    asked = [str(message["content"]) for message in messages if message["role"] == "user"]
    data = _DATA.search(asked[-1]) if asked else None
    if data is None:
        raise PromptError("scripted judge: the last user message has no <<<HONE-DATA …>>> section")
    try:
        criteria = [json.loads(line) for line in asked[-1][: data.start()].splitlines()[1:]]
        documents = [json.loads(line) for line in data[2].splitlines()]
        response = next(one for one in documents if one["kind"] == "response")
        text = Text(answer_of(response))
        return {"criteria": [{"id": one["id"], **verdict(one["criterion"], text)} for one in criteria]}
    except (ValueError, LookupError, TypeError, StopIteration) as error:
        raise PromptError(f"scripted judge: the prompt has another format: {error!r}") from error


def verdict(sentence: str, text: Text) -> Json:
    """Return whether a sentence is true of a text, and the reason; a met criterion quotes the text."""
    criterion = read(sentence)
    if criterion is None:
        return {"reason": f"scripted judge: {UNKNOWN}", "met": False, "quote": ""}
    met = criterion.met_by(text)
    found = "is so" if met else "is not so"
    return {"reason": f"scripted judge: {criterion.kind} {found}", "met": met, "quote": text.whole[:200] if met else ""}


def answer_of(response: Json) -> str:
    """Return the agent's last message in a response."""
    said = [message.get("content") or "" for message in response["messages"] if message["role"] == "assistant"]
    return str(said[-1]) if said else ""


class Handler(HelpdeskHandler):
    """``GET /healthz``, ``GET /v1/models``, ``POST /v1/chat/completions``."""

    server_version = NAME

    def do_POST(self) -> None:  # noqa: N802 - the base class names it so
        """Judge one answer."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            self._send(HTTPStatus.OK, completion(json.loads(body)))
        except (ValueError, LookupError, TypeError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))


def completion(request: Json) -> Json:
    """Return the OpenAI chat completion that answers a request."""
    said = {"role": "assistant", "content": json.dumps(judge(request["messages"]))}
    return {
        "id": f"chatcmpl-{time.time_ns():x}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": NAME,
        "system_fingerprint": NAME,
        "choices": [{"index": 0, "message": said, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},  # a script uses no tokens
    }


if __name__ == "__main__":
    main(Handler)
