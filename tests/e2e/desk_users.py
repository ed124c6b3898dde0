"""Users of the helpdesk who ask all the time, with a desk's tools, and a judge of what they were told: both scripted.

Owns: whole conversations over HTTP as an agent has them, which versions answered, and the worker that scores what is
ready by the demo's written rules. Each conversation has its reward by itself, so that a lone run says something.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from examples.helpdesk.agent import MAX_TOKENS, MAX_TURNS
from examples.helpdesk.making.conversations import TOOLS, Message, opening, training_order
from examples.helpdesk.orders import Order
from examples.helpdesk.scripted_judge import calls_of, score
from examples.helpdesk.wording import found, tracked
from recorder.queue.claims import GroupClaim, claim_for_judging
from recorder.queue.judging.scores import NewPart, record_score
from recorder.queue.leases import JUDGE, keep_presence
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.views.trajectories.transcripts import load_group
from tests.recorder.score_rows import new_score

PROJECT = "default"
USERS = 4
LEASE_S = 60.0


@dataclass
class Users:
    """`answered`: version name → how many answers bore it."""

    http: httpx.AsyncClient
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    answered: Counter[str] = field(default_factory=Counter)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _one_more: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def ask_on(self) -> None:
        """Ask about one order after another until cancelled. Raises httpx.HTTPError where one is not answered."""
        while True:
            await self._converse(training_order(self.rng), f"/t/user-{next(self._numbers)}")

    async def answers(self, count: int) -> Counter[str]:
        """Wait for so many answers more; who gave them."""
        before = self.answered.copy()
        async with self._one_more:
            await self._one_more.wait_for(lambda: self.answered.total() >= before.total() + count)
        return self.answered - before

    async def _converse(self, order: Order, run: str) -> None:
        messages = opening(order.order_id, self.rng)
        for _ in range(MAX_TURNS):
            messages.append(await self._asked(messages, run))
            if not messages[-1].get("tool_calls"):
                break
            messages += _results(messages, order)
        (await self.http.post(f"{run}/hone/v1/done", json={})).raise_for_status()

    async def _asked(self, messages: Sequence[Message], run: str) -> Message:
        body = {"model": "helpdesk", "messages": messages, "tools": TOOLS, "max_tokens": MAX_TOKENS}
        answer = (await self.http.post(f"{run}/v1/chat/completions", json=body)).raise_for_status()
        async with self._one_more:
            self.answered[answer.headers["x-hone-version"]] += 1
            self._one_more.notify_all()
        said = answer.json()["choices"][0]["message"]
        return {name: said[name] for name in ("role", "content", "tool_calls") if said.get(name)}


def _results(messages: Sequence[Message], order: Order) -> list[Message]:
    """What the tools say to the newest turn."""
    ids = [call["id"] for call in messages[-1]["tool_calls"]]
    asked = [(name, given) for name, given, _ in calls_of(messages[-1:])]
    return [
        {"role": "tool", "tool_call_id": id_, "content": _result(name, given, order)}
        for id_, (name, given) in zip(ids, asked, strict=True)
    ]


def _result(name: str, given: dict[str, Any], order: Order) -> str:
    if name == "find_order":
        return found(order if given.get("order_id") == order.order_id else None)
    if name == "track_parcel":
        return tracked(order if given.get("tracking") == order.tracking else None)
    return json.dumps({"error": f"no tool {name}"})


@asynccontextmanager
async def users(url: str) -> AsyncIterator[Users]:
    """Users of the proxy at `url`, asking until the block ends. Where one is not answered, the block is cancelled."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http, asyncio.TaskGroup() as asking:
        them = Users(http)
        tasks = [asking.create_task(them.ask_on()) for _ in range(USERS)]
        yield them
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def judge(store: Store) -> AsyncIterator[None]:
    """A judge that scores whatever is ready, until the block ends."""
    async with keep_presence(Project(store, PROJECT), JUDGE, "judge", LEASE_S), asyncio.TaskGroup() as judging:
        task = judging.create_task(_judge(store))
        yield
        task.cancel()


async def _judge(store: Store) -> None:
    with store.watch.on(Topic.GROUPS) as news:
        while True:
            await news.wait()
            while claim := await claim_for_judging(Project(store, PROJECT), "judge", LEASE_S):
                await _score(store, claim)


async def _score(store: Store, claim: GroupClaim) -> None:
    members = (await load_group(store, claim.group_id)).members
    rewards = {member.id: score([dict(message) for message in member.messages])[0] for member in members}
    parts = [NewPart(member_id, "reward", reward) for member_id, reward in rewards.items()]
    await record_score(store, claim, new_score("written rules", absolute=True, parts=parts))
