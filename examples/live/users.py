"""The users. Each asks one question over HTTP, as any program would, and gets a right or a wrong answer.

Owns: their conversations, what a user sees of them, and the thumbs of some users. The agent is the helpdesk's, with the
`openai` client and the tools; it sends no header of Hone and knows nothing of it. Refuses: the questions and their
times (`examples.live.traffic`).

The answer's headers name the version and the trajectory; the users read them only for the summary.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final

import httpx
from openai import OpenAIError

from examples.helpdesk.agent import Desk, Json, open_desk
from examples.helpdesk.checks import is_right, last_words
from examples.helpdesk.orders import Order
from examples.live.traffic import Question

ALIAS: Final = "helpdesk"
THUMBS_SHARE: Final = 0.1  # share of users who give a thumb
THUMBS_TIMEOUT_S: Final = 30.0
PATIENCE_S: Final = 180.0  # then the user gives up: a fault, not a wrong answer
AT_ONCE: Final = 64  # of measurements


@dataclass(frozen=True, slots=True)
class Run:
    """One question and its result. Times are unix seconds; `id` and `version` are None if no model answered."""

    asked_at: float
    answered_at: float
    version: str | None
    right: bool
    id: str | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The question as the agent's task."""

    id: str
    input: str
    base_url: str
    model: str = ALIAS
    api_key: str = "none"


@dataclass(slots=True)
class _Seen:
    """The headers of the newest answer."""

    run: str | None = None
    version: str | None = None


_seen: ContextVar[_Seen] = ContextVar("seen")


async def _note(answer: httpx.Response) -> None:
    seen = _seen.get()
    seen.run = answer.headers.get("x-hone-trajectory", seen.run)
    seen.version = answer.headers.get("x-hone-version", seen.version)


async def _as_measurement(request: httpx.Request) -> None:
    request.headers["x-hone-purpose"] = "none"  # recorded, but neither judged nor trained on


@dataclass
class Users:
    """The users of one proxy: `async with users(…)`. `tell` gets each finished trajectory."""

    desk: Desk
    http: httpx.AsyncClient
    url: str
    chance: random.Random
    tell: Callable[[Run], None]
    runs: list[Run] = field(default_factory=list)

    async def live(self, questions: Iterator[Question], arrivals: Iterator[float], until: float) -> None:
        """Let users ask until a time (unix seconds); return when all are answered.

        Users do not wait for one another, however slow the answers are.
        """
        due = time.time()
        async with asyncio.TaskGroup() as asking:
            for wait_s, question in zip(arrivals, questions, strict=False):
                due += wait_s  # not relative to now: a late loop would reduce the rate
                if due >= until:
                    return
                await asyncio.sleep(due - time.time())
                asking.create_task(self._ask(question, thumbs=self.chance.random() < THUMBS_SHARE))

    async def _ask(self, question: Question, *, thumbs: bool) -> None:
        run = await _asked(self.desk, question, ALIAS, self.url)
        if thumbs and run.id is not None:
            run = await self._give_thumbs(run)
        self.runs.append(run)
        self.tell(run)

    async def _give_thumbs(self, run: Run) -> Run:
        about = f"{self.url}/hone/v1/trajectories/{run.id}/feedback"
        try:
            (await self.http.post(about, json={"name": "thumbs", "value": run.right})).raise_for_status()
        except httpx.HTTPError as error:
            return replace(run, fault=f"thumbs: {error!r}")
        return run


async def _asked(desk: Desk, question: Question, model: str, url: str) -> Run:
    """Ask one question and return its result."""
    seen, began, fault, right = _Seen(), time.time(), None, False
    _seen.set(seen)  # seen by this task only
    try:
        task = Task(question.order.order_id, question.text, f"{url}/v1", model)
        async with asyncio.timeout(PATIENCE_S):
            right = answers(await desk.converse(question.text, task), question.order)
    except (OpenAIError, ConnectionError, TimeoutError) as error:
        fault = f"{type(error).__name__}: {error}"
    return Run(began, time.time(), seen.version, right, seen.run, fault)


def answers(conversation: Sequence[Json], order: Order) -> bool:
    """Return whether the last message is the right answer, by the orders database."""
    return is_right(last_words(conversation), order.order_id, order.day)


@asynccontextmanager
async def users(url: str, mcp_url: str, chance: random.Random, tell: Callable[[Run], None]) -> AsyncIterator[Users]:
    """Yield the users of the proxy at `url`, with the tools at `mcp_url`."""
    async with open_desk(mcp_url, {"response": [_note]}) as desk, httpx.AsyncClient(timeout=THUMBS_TIMEOUT_S) as http:
        yield Users(desk, http, url, chance, tell)


async def measure(url: str, mcp_url: str, model: str, questions: Sequence[Question]) -> list[Run]:
    """Ask a version each question once, with the purpose `none`: Hone learns nothing from it."""
    room = asyncio.Semaphore(AT_ONCE)

    async def ask(desk: Desk, question: Question) -> Run:
        async with room:
            return await _asked(desk, question, model, url)

    async with open_desk(mcp_url, {"request": [_as_measurement], "response": [_note]}) as desk:
        return await asyncio.gather(*(ask(desk, question) for question in questions))
