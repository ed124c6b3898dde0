"""The scripted reader: an OpenAI-compatible server that reads what users write next by its words, not by a model.

    python -m examples.live.follow_ups.reader --port 8200 --error-rate 0.1

It takes the place of a judge for rewards of kind `follow_up`; its name shows this wherever it appears. Owns the words
that it knows, and its errors: of so many messages it understands the opposite, by a hash of the conversation. Refuses
every other source: it sees its prompt, never the orders.

A number is not misread: feedback `reference` counts as it is. A demonstration alone is no verdict.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from examples.helpdesk.scripted_judge import (
    Handler,
    Json,
    PromptError,
    chat_completion,
    make_server,
    read_documents,
)
from examples.live.follow_ups.corrections import REFERENCE
from recorder.queue.feedback import DEMONSTRATION

NAME: Final = "scripted-follow-up-reader"
SATISFIED, CORRECTED, NOTHING = "satisfied", "corrected", "nothing"  # of the verdicts that the prompt names
# fmt: off
DISCONTENT: Final = frozenset({
    "no", "not", "nobody", "wrong", "cannot", "mistaken", "mistake", "still", "nonsense", "incorrect", "useless",
    "false", "contradicts", "guessing", "doubt", "disappointed",
})
CONTENT: Final = frozenset({
    "good", "right", "helps", "fine", "great", "thanks", "yes", "lovely", "exactly", "perfect", "excellent", "correct",
    "wonderful", "happy", "matches",
})
# fmt: on
_WORD: Final = re.compile(r"[a-z]+")
_OPPOSITE: Final = {SATISFIED: CORRECTED, CORRECTED: SATISFIED}
_UNIT: Final = 2.0**64


def read_text(text: str) -> str:
    """Return the verdict of a message's words: discontent first, because "cannot be right" is no praise."""
    words = set(_WORD.findall(text.lower()))
    if words & DISCONTENT:
        return CORRECTED
    return SATISFIED if words & CONTENT else NOTHING


def is_misread(content: object, error_rate: float) -> bool:
    """Whether the reader errs on this content: always the same for the same content."""
    digest = blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).digest()
    return int.from_bytes(digest) / _UNIT < error_rate


def read_answer(task: Json, answer: Json, error_rate: float) -> str:
    """Return the verdict on one answer: by its feedback's value, else by the first message."""
    [_, *events] = answer["messages"]
    named = {event.get("name"): event for event in events if event["role"] == "feedback"}
    if REFERENCE in named:
        return SATISFIED if named[REFERENCE]["value"] else CORRECTED
    written = [event["content"] for event in events if event["role"] == "message"]
    if DEMONSTRATION in named or not written:
        return NOTHING
    verdict = read_text(written[0])
    misread = is_misread([task["messages"], answer["messages"]], error_rate)
    return _OPPOSITE.get(verdict, verdict) if misread else verdict


def reply_to(messages: Sequence[Json], error_rate: float) -> Json:
    """Return the reply to a prompt: ``{"answers": [{"id", "reason", "verdict"}]}``.

    Raises:
        PromptError: the last user message has no fenced data, or the data has another format.
    """
    try:
        task, _, *answers = read_documents(messages)
        return {"answers": [_entry(one["id"], read_answer(task, one, error_rate)) for one in answers]}
    except PromptError:
        raise
    except (ValueError, LookupError, TypeError) as error:
        raise PromptError(f"scripted reader: the data in the prompt has another format: {error!r}") from error


def _entry(id_: str, verdict: str) -> Json:
    return {"id": id_, "reason": f"scripted reader: by its words {verdict}", "verdict": verdict}


def handler_of(error_rate: float) -> type[Handler]:
    """Return the request handler of a reader with this share of errors."""

    class ReaderHandler(Handler):
        """The scripted judge's server, with the reader's replies."""

        server_version = NAME

        def answered(self, request: Json) -> Json:
            """Return the chat completion that answers a request."""
            return chat_completion(reply_to(request["messages"], error_rate), NAME)

    return ReaderHandler


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A scripted reader of what users write next.")
    parser.add_argument("--port", type=int, default=8200, help="loopback port (8200)")
    parser.add_argument("--error-rate", type=float, default=0.1, help="share of messages that it misreads (0.1)")
    given = parser.parse_args()
    with make_server(given.port, handler_of(given.error_rate)) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
