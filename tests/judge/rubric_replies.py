"""What a scripted judge says about criteria, for `tests.judge.judge_server`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.judge.judge_server import Behaviour, Json, completion, documents


def criteria(body: Json) -> dict[str, str]:
    """The criteria that a request asks about: id → text."""
    asked = next(m["content"] for m in body["messages"] if m["role"] == "user")
    lines = asked.split("<<<HONE-DATA")[0].splitlines()[1:]
    return {one["id"]: one["criterion"] for one in map(json.loads, lines)}


def response(body: Json) -> str:
    """The last text of the response in a request."""
    return str(documents(body)[1]["messages"][-1]["content"])


def says_word(text: str, criterion: str) -> bool:
    """Whether the response has the criterion's last word."""
    return criterion.split()[-1] in text


def entries(body: Json, met: Callable[[str, str], bool] = says_word, *, quote: bool = False) -> list[Json]:
    """An entry for each criterion of a request; a quote is the criterion's last word."""
    found = []
    for id_, text in criteria(body).items():
        is_met = met(response(body), text)
        entry: Json = {"id": id_, "reason": f"on {text}", "met": is_met}
        found.append(entry | ({"quote": text.split()[-1] if is_met else ""} if quote else {}))
    return found


def checked(
    met: Callable[[str, str], bool] = says_word,
    *,
    quote: bool = False,
    change: Callable[[list[Json]], Any] = lambda entries: entries,
) -> Behaviour:
    """Judge every criterion; `change` may spoil the entries."""

    async def behave(body: Json) -> web.StreamResponse:
        return completion(json.dumps({"criteria": change(entries(body, met, quote=quote))}))

    return behave
