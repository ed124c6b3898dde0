"""The scripted judge: an OpenAI-compatible server that ranks helpdesk attempts by written rules, not by a model.

    python -m examples.helpdesk.scripted_judge --port 8200

It replaces a real judge if there is no key for one; its name shows this wherever it appears. Owns the rules and a
minimal server for LiteLLM. Refuses every other source: it sees its prompt, never the orders.

The prompt has, in its last user message, one JSON document a line between ``<<<HONE-DATA nonce>>>`` and
``<<<END-HONE-DATA nonce>>>``: the shared messages, then each trajectory's own.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from examples.helpdesk.orders import DAYS

NAME = "scripted-judge"
_DATA = re.compile(r"^<<<HONE-DATA ([0-9a-f]+)>>>\n(.*?)\n<<<END-HONE-DATA \1>>>$", re.DOTALL | re.MULTILINE)
_DAY = re.compile("|".join(DAYS))
_ORDER = re.compile(r"\b\d{4}\b")

Json = dict[str, Any]
# Returns a conversation's score in 0..1 and the reason. The second argument: the agent's other histories.
Rules = Callable[[Sequence[Json], Sequence[Json]], tuple[float, str]]


class PromptError(ValueError):
    """The scripted judge cannot read the prompt."""


def judge(messages: Sequence[Json], rules: Rules) -> Json:
    """Score every trajectory of a prompt by the rules: ``{"trajectories": [{"id", "explanation", "score"}]}``.

    Raises:
        PromptError: the last user message has no fenced data, or the data has another format.
    """
    try:
        shared, *others = read_documents(messages)
        scored = [(one["id"], *rules([*shared["messages"], *one["messages"]], _beside(one))) for one in others]
    except PromptError:
        raise
    except (ValueError, LookupError, TypeError) as error:
        raise PromptError(f"scripted judge: the data in the prompt has another format: {error!r}") from error
    return {
        "trajectories": [
            {"id": name, "explanation": f"scripted judge: {explanation}", "score": points}
            for name, points, explanation in scored
        ]
    }


def read_documents(messages: Sequence[Json]) -> list[Json]:
    """Return the JSON documents between the fences of a prompt's last user message.

    Raises:
        PromptError: there are none.
    """
    asked = [_text(message["content"]) for message in messages if message["role"] == "user"]
    data = _DATA.search(asked[-1]) if asked else None
    if data is None:
        raise PromptError("scripted judge: the last user message has no <<<HONE-DATA …>>> section")
    return [json.loads(line) for line in data[2].splitlines()]


def score(messages: Sequence[Json], beside: Sequence[Json] = ()) -> tuple[float, str]:
    """Return a conversation's score in 0..1 and the reason. `beside`: the agent's other histories; their calls count.

    0.2: the right order is looked up. 0.3: the parcel that this look-up returned is tracked. 0.5: the answer has the
    day that tracking returned, no other day, and no other order than the requested one. Each call beyond two costs
    0.05. A last call without a result (when a single step is judged) counts as a call with the right result.
    """
    asked = _ORDER.search(" ".join(_text(m["content"]) for m in messages if m["role"] == "user"))
    order_id = asked[0] if asked else None
    calls = calls_of(messages)
    finds = [result for name, given, result in calls if name == "find_order" and given.get("order_id") == order_id]
    parcels = [result["tracking"] for result in finds if "tracking" in result]
    tracks = [result for name, given, result in calls if name == "track_parcel" and given.get("tracking") in parcels]
    days = [result["arrives"] for result in tracks if "arrives" in result]
    last = messages[-1]
    pending = calls_of([last])
    asks_order = any(name == "find_order" and given.get("order_id") == order_id for name, given, _ in pending)
    asks_parcel = any(name == "track_parcel" and given.get("tracking") in parcels for name, given, _ in pending)
    answer = _text(last.get("content")) if last["role"] == "assistant" else ""
    right_day = bool(days) and set(_DAY.findall(answer)) == set(days)
    answered = right_day and set(_ORDER.findall(answer)) <= {order_id}
    hidden = {call["id"] for call in _requests(beside)} - {call["id"] for call in _requests(messages)}
    excess = max(0, len(calls) + len(hidden) - 2)
    found, tracked = bool(parcels) or asks_order, bool(days) or asks_parcel
    points = 0.2 * found + 0.3 * tracked + 0.5 * answered - 0.05 * excess
    remarks = [
        "found the order" if parcels else "asks for the order" if found else "did not find the order",
        "tracked its parcel" if days else "asks for its parcel" if tracked else "did not track its parcel",
        "answered what the tools said" if answered else "did not answer what the tools said",
        *([f"{excess} calls too many"] if excess else []),
    ]
    return round(min(1.0, max(0.0, points)), 4), ", ".join(remarks)


def calls_of(messages: Sequence[Json]) -> list[tuple[str, Json, Json]]:
    """Return every tool call: name, arguments and result; {} for a value that is not a JSON object."""
    results = {m["tool_call_id"]: _object(_text(m.get("content"))) for m in messages if m["role"] == "tool"}
    return [
        (call["function"]["name"], _object(call["function"]["arguments"]), results.get(call["id"], {}))
        for call in _requests(messages)
    ]


def _requests(messages: Sequence[Json]) -> list[Json]:
    """Yield every tool call as the model wrote it."""
    return [call for m in messages if m["role"] == "assistant" for call in m.get("tool_calls") or ()]


def _beside(trajectory: Json) -> list[Json]:
    """Return the messages of a trajectory's other histories."""
    return [message for history in trajectory.get("histories", ()) for message in history["messages"]]


def _object(text: Any) -> Json:
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _text(content: Any) -> str:
    """Return the text of a message's content, which is a string, a list of parts, or None."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return content or ""


def completion(request: Json, name: str, rules: Rules) -> Json:
    """Return the OpenAI chat completion that answers a request, with this judge's name as the model."""
    return chat_completion(judge(request["messages"], rules), name)


def chat_completion(reply: Json, name: str) -> Json:
    """Return a judge's reply as an OpenAI chat completion of the model `name`."""
    return {
        "id": f"chatcmpl-{time.time_ns():x}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": name,
        "system_fingerprint": name,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": json.dumps(reply)},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        # The rules use no tokens.
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


class Handler(BaseHTTPRequestHandler):
    """``GET /healthz``, ``GET /v1/models``, ``POST /v1/chat/completions``."""

    protocol_version = "HTTP/1.1"
    server_version = NAME
    rules: Rules = staticmethod(score)

    def do_GET(self) -> None:
        """Answer health checks and the list of models."""
        name = self.server_version
        if self.path in ("/healthz", "/v1/models"):
            self._send(HTTPStatus.OK, {"object": "list", "data": [{"id": name, "object": "model", "owned_by": name}]})
        else:
            self._refuse(HTTPStatus.NOT_FOUND, f"scripted judge: unknown path: {self.path}")

    def do_POST(self) -> None:
        """Judge one group."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != "/v1/chat/completions":
            self._refuse(HTTPStatus.NOT_FOUND, f"scripted judge: unknown path: {self.path}")
            return
        try:
            self._send(HTTPStatus.OK, self.answered(json.loads(body)))
        except (ValueError, LookupError, TypeError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))

    def answered(self, request: Json) -> Json:
        """Return the chat completion that answers a request."""
        return completion(request, self.server_version, self.rules)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Log nothing: a line per request would hide the demo's output."""

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, {"error": {"message": why, "type": "invalid_request_error", "param": None, "code": None}})

    def _send(self, status: HTTPStatus, body: Json) -> None:
        encoded = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)


def make_server(port: int, handler: type[Handler] = Handler) -> ThreadingHTTPServer:
    """Return a server on a loopback port (0: any free port). It does not serve yet."""
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


def main(handler: type[Handler] = Handler) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A scripted judge: it ranks by written rules, not by a model.")
    parser.add_argument("--port", type=int, default=8200, help="loopback port (8200)")
    with make_server(parser.parse_args().port, handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
