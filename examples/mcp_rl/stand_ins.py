"""Two scripted stand-ins for models behind one OpenAI-compatible server: a task writer and a judge.

    python -m examples.mcp_rl.stand_ins --port 8200

For users without a key for a real model; their names show what they are. Owns: choosing between them by the request.
Refuses: their rules (`generating`, `judging`).
"""

from __future__ import annotations

import argparse
import json
import time
from http import HTTPStatus
from typing import Final

from examples.helpdesk.scripted_judge import NAME as JUDGE
from examples.helpdesk.scripted_judge import Handler, Json, completion, make_server
from examples.mcp_rl import generating, judging

GENERATOR: Final = "scripted-generator"


def answered(request: Json, seed: int = 0) -> Json:
    """Return the OpenAI chat completion that answers a request.

    Raises:
        ValueError: the requested stand-in cannot read the prompt.
    """
    if request.get("model") != GENERATOR:
        return completion(request, JUDGE, judging.score)
    said = {"role": "assistant", "content": generating.reply(request["messages"], seed)}
    return {
        "id": f"chatcmpl-{time.time_ns():x}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": GENERATOR,
        "choices": [{"index": 0, "message": said, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},  # a script uses no tokens
    }


class StandIns(Handler):
    """The judge's server, with the generator beside it."""

    seed = 0

    def do_POST(self) -> None:  # noqa: N802 - the base class names it so
        """Judge one group, or write tasks."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            self._send(HTTPStatus.OK, answered(json.loads(body), self.seed))
        except (ValueError, LookupError, TypeError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A scripted judge and a scripted generator: rules, no models.")
    parser.add_argument("--port", type=int, default=8200, help="loopback port (8200)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated tasks (0)")
    given = parser.parse_args()
    StandIns.seed = given.seed
    with make_server(given.port, StandIns) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
