"""What a scripted judge says about turns, for `tests.judge.judge_server`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.judge.judge_server import Behaviour, Json, by_worth, completion, documents, last_text


def turns(body: Json) -> list[Json]:
    """The documents of turns in a request."""
    return [one for one in documents(body) if one["kind"] == "turn"]


def turns_rated(
    value: Callable[[Json], Any] = by_worth, change: Callable[[list[Json]], Any] = lambda entries: entries
) -> Behaviour:
    """Rate every turn, by the number that it ends with; `change` may spoil the entries."""

    async def behave(body: Json) -> web.StreamResponse:
        entries = [{"id": one["id"], "critique": f"on {last_text(one)}", "value": value(one)} for one in turns(body)]
        return completion(json.dumps({"turns": change(entries)}))

    return behave
