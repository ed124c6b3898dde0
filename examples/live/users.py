"""The users: each asks one question over HTTP as any program would, and gets a right or a wrong answer.

Owns: their conversations, what a user sees of them, and the thumbs that some give. Their agent is the helpdesk's, with
openai's client and the tools; it sends no header of Hone's and knows nothing of it. Refuses: what is asked, and when
(`examples.live.traffic`).

The answer's headers name the version and the trajectory; they are read here as a log would have them.
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
THUMBS_SHARE: Final = 0.1  # of users say whether they were helped
THUMBS_TIMEOUT_S: Final = 30.0
PATIENCE_S: Final = 180.0  # after which a user gives up: a fault, not an answer that was wrong
AT_ONCE: Final = 64  # of those that measure


@dataclass(frozen=True, slots=True)
class Run:
    """One question as it went. Times are unix seconds; `id` and `version` are None where no model answered."""

    asked_at: float
    answered_at: float
    version: str | None
    right: bool
    id: str | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The question as the agent takes it."""

    id: str
    input: str
    base_url: str
    model: str = ALIAS
    api_key: str = "none"


@dataclass(slots=True)
class _Seen:
    """What the headers of the newest answer said."""

    run: str | None = None
    version: str | None = None


_seen: ContextVar[_Seen] = ContextVar("seen")


async def _note(answer: httpx.Response) -> None:
    seen = _seen.get()
    seen.run = answer.headers.get("x-hone-trajectory", seen.run)
    seen.version = answer.headers.get("x-hone-version", seen.version)


async def _as_measurement(request: httpx.Request) -> None:
    request.headers["x-hone-purpose"] = "none"  # recorded; neither judged nor trained on


@dataclass
class Users:
    """A population before one proxy: `async with users(…)`. `tell` is called with each run that ended."""

    desk: Desk
    http: httpx.AsyncClient
    url: str
    chance: random.Random
    tell: Callable[[Run], None]
    runs: list[Run] = field(default_factory=list)

    async def live(self, questions: Iterator[Question], arrivals: Iterator[float], until: float) -> None:
        """Ask one question after the other as users come, until a time (unix seconds); returns when all are answered.

        A user does not wait for the others, however slow the answers are.
        """
        due = time.time()
        async with asyncio.TaskGroup() as asking:
            for wait_s, question in zip(arrivals, questions, strict=False):
                due += wait_s  # not from now: a loop that is late would make users fewer
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
    """One question, asked and answered."""
    seen, began, fault, right = _Seen(), time.time(), None, False
    _seen.set(seen)  # of this task alone
    try:
        task = Task(question.order.order_id, question.text, f"{url}/v1", model)
        async with asyncio.timeout(PATIENCE_S):
            right = answers(await desk.converse(question.text, task), question.order)
    except (OpenAIError, ConnectionError, TimeoutError) as error:
        fault = f"{type(error).__name__}: {error}"
    return Run(began, time.time(), seen.version, right, seen.run, fault)


def answers(conversation: Sequence[Json], order: Order) -> bool:
    """Whether it ends in the right answer, by the orders database."""
    return is_right(last_words(conversation), order.order_id, order.day)


@asynccontextmanager
async def users(url: str, mcp_url: str, chance: random.Random, tell: Callable[[Run], None]) -> AsyncIterator[Users]:
    """Users before the proxy at `url`, with the tools at `mcp_url`."""
    async with open_desk(mcp_url, {"response": [_note]}) as desk, httpx.AsyncClient(timeout=THUMBS_TIMEOUT_S) as http:
        yield Users(desk, http, url, chance, tell)


async def measure(url: str, mcp_url: str, model: str, questions: Sequence[Question]) -> list[Run]:
    """Each question asked once of a version: by nobody who is a user, and nothing is learned from it."""
    room = asyncio.Semaphore(AT_ONCE)

    async def ask(desk: Desk, question: Question) -> Run:
        async with room:
            return await _asked(desk, question, model, url)

    async with open_desk(mcp_url, {"request": [_as_measurement], "response": [_note]}) as desk:
        return await asyncio.gather(*(ask(desk, question) for question in questions))
