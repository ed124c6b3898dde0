"""The users. Each asks one question over HTTP, as any program would, and gets a right or a wrong answer.

Owns: their conversations, what a user sees of them, and the thumbs of some users. The agent is the helpdesk's, with the
`openai` client and the tools; it sends no header of Hone and knows nothing of it. Refuses: the questions and their
times (`examples.live.traffic`), and what users write back (`examples.live.follow_ups`).

The answer's headers name the version and the trajectory; the users read them only for the summary.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
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
FEEDBACK_S: Final = 30.0  # most time of a request with feedback
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


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question whose answer its user has seen."""

    question: Question
    run: Run
    conversation: Sequence[Json]


# What a user does after the answer; it returns the fault, if there was one. A user who does nothing has none.
Reaction = Callable[[AnsweredQuestion], Awaitable[str | None]]


@dataclass(slots=True)
class _Seen:
    """The headers of the newest answer."""

    run: str | None = None
    version: str | None = None


_seen: ContextVar[_Seen] = ContextVar("seen")


async def note_version(answer: httpx.Response) -> None:
    """Keep the version and the trajectory of an answer, for the task that asked."""
    seen = _seen.get()
    seen.run = answer.headers.get("x-hone-trajectory", seen.run)
    seen.version = answer.headers.get("x-hone-version", seen.version)


async def record_only(request: httpx.Request) -> None:
    """Give a request the purpose `none`: it is recorded, but neither judged nor trained on."""
    request.headers["x-hone-purpose"] = "none"


@dataclass
class Users:
    """The users of one proxy. `next_reaction` gives what the next user does after the answer; `tell` gets each run."""

    desk: Desk
    url: str
    next_reaction: Callable[[], Reaction | None]
    tell: Callable[[Run], None]
    runs: list[Run] = field(default_factory=list)

    async def live(self, questions: Iterator[Question], arrivals: Iterator[float], until: float) -> None:
        """Let users ask until a time (unix seconds); return when all are answered and have reacted.

        Users do not wait for one another, however slow the answers are.
        """
        due = time.time()
        async with asyncio.TaskGroup() as asking:
            for wait_s, question in zip(arrivals, questions, strict=False):
                due += wait_s  # not relative to now: a late loop would reduce the rate
                if due >= until:
                    return
                await asyncio.sleep(due - time.time())
                asking.create_task(self._ask(question, self.next_reaction()))

    async def _ask(self, question: Question, react: Reaction | None) -> None:
        answered = await _asked(self.desk, question, ALIAS, self.url)
        run = answered.run
        if react is not None and run.id is not None and (fault := await react(answered)) is not None:
            run = replace(run, fault=fault)
        self.runs.append(run)
        self.tell(run)


@dataclass
class Thumbs:
    """One in ten users says by a thumb whether the answer was right."""

    http: httpx.AsyncClient
    url: str
    chance: random.Random

    def __call__(self) -> Reaction | None:
        """Return what the next user does."""
        return self._give if self.chance.random() < THUMBS_SHARE else None

    async def _give(self, answered: AnsweredQuestion) -> str | None:
        about = f"{self.url}/hone/v1/trajectories/{answered.run.id}/feedback"
        try:
            (await self.http.post(about, json={"name": "thumbs", "value": answered.run.right})).raise_for_status()
        except httpx.HTTPError as error:
            return f"thumbs: {error!r}"
        return None


async def _asked(desk: Desk, question: Question, model: str, url: str) -> AnsweredQuestion:
    """Ask one question and return its result."""
    seen, began, fault = _Seen(), time.time(), None
    conversation: list[Json] = []
    _seen.set(seen)  # seen by this task only
    try:
        async with asyncio.timeout(PATIENCE_S):
            conversation = await desk.converse(question.text, task_of(question, url, model))
    except (OpenAIError, ConnectionError, TimeoutError) as error:
        fault = f"{type(error).__name__}: {error}"
    right = answers(conversation, question.order)
    return AnsweredQuestion(question, Run(began, time.time(), seen.version, right, seen.run, fault), conversation)


def task_of(question: Question, url: str, model: str = ALIAS) -> Task:
    """Return a question as the agent's task, for a model of the proxy at `url`."""
    return Task(question.order.order_id, question.text, f"{url}/v1", model)


def answers(conversation: Sequence[Json], order: Order) -> bool:
    """Return whether the last message is the right answer, by the orders database."""
    return is_right(last_words(conversation), order.order_id, order.day)


@asynccontextmanager
async def users(url: str, mcp_url: str, chance: random.Random, tell: Callable[[Run], None]) -> AsyncIterator[Users]:
    """Yield the users of the proxy at `url`, with the tools at `mcp_url`. Some of them give thumbs."""
    async with open_desk(mcp_url, {"response": [note_version]}) as desk, httpx.AsyncClient(timeout=FEEDBACK_S) as http:
        yield Users(desk, url, Thumbs(http, url, chance), tell)


async def measure(
    url: str, mcp_url: str, model: str, questions: Sequence[Question], at_once: int = AT_ONCE
) -> list[Run]:
    """Ask a version each question once, with the purpose `none`: Hone learns nothing from it."""
    room = asyncio.Semaphore(at_once)

    async def ask(desk: Desk, question: Question) -> Run:
        async with room:
            return (await _asked(desk, question, model, url)).run

    async with open_desk(mcp_url, {"request": [record_only], "response": [note_version]}) as desk:
        return await asyncio.gather(*(ask(desk, question) for question in questions))
