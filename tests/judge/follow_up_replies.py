"""What a scripted judge says about follow-ups, for `tests.judge.judge_server`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.judge.judge_server import Behaviour, Json, completion, documents


def answers(body: Json) -> list[Json]:
    """The documents of answers in a request: the answer's message, then what came next."""
    return [one for one in documents(body) if one["kind"] == "answer"]


def next_text(document: Json) -> str:
    """What came next after an answer, as one text."""
    return "\n".join(str(one["content"]) for one in document["messages"][1:])


def verdict_of_text(document: Json) -> str:
    """What stands before the colon: users of these tests write the verdict before their message."""
    return next_text(document).partition(":")[0].lower()


def follow_ups_judged(
    verdict: Callable[[Json], str] = verdict_of_text, change: Callable[[list[Json]], Any] = lambda entries: entries
) -> Behaviour:
    """Give a verdict on every answer; `change` may spoil the entries."""

    async def behave(body: Json) -> web.StreamResponse:
        entries = [
            {"id": one["id"], "reason": f"on {next_text(one)}", "verdict": verdict(one)} for one in answers(body)
        ]
        return completion(json.dumps({"answers": change(entries)}))

    return behave


def parrot(body: Json) -> str:
    """What came next, word for word: a judge that does what its input tells it."""
    return next_text(answers(body)[0])


def repeats_text() -> Behaviour:
    """Reply with what came next."""

    async def behave(body: Json) -> web.StreamResponse:
        return completion(parrot(body))

    return behave
