"""Users who write back: some seconds after the answer, in the same conversation.

Owns: their requests. A message is one more request of the same conversation with the purpose `none`, because the
demo's model knows nothing but its task: Hone records its reply and learns nothing from it. A right answer that a user
states is feedback (`examples.live.follow_ups.corrections`). Refuses: who writes what
(`examples.live.follow_ups.user_script`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from openai import OpenAIError

from examples.helpdesk.agent import Desk, open_desk
from examples.helpdesk.checks import last_words
from examples.helpdesk.wording import answer
from examples.live.follow_ups.corrections import feedback_on
from examples.live.follow_ups.user_script import NO_ANSWER_S, Shares, UserIntent, user_intent
from examples.live.users import FEEDBACK_S, AnsweredQuestion, Reaction, Run, Users, note_version, record_only, task_of
from recorder.queue.feedback import DEMONSTRATION

PATIENCE_S: Final = 180.0  # for the reply; then it is a fault


@dataclass
class Writers:
    """What the next user does. `half_at`: when the second half of the session begins (unix seconds).

    `counts`: messages (`written`, and of them `lies`) and stated answers (`stated`, and of them `grounded`: they may be
    imitated).
    """

    aside: Desk
    http: httpx.AsyncClient
    url: str
    seed: int
    shares: Shares
    half_at: float = float("inf")
    counts: Counter[str] = field(default_factory=Counter)
    _users: int = 0

    def __call__(self) -> Reaction | None:
        """Return what the next user does."""
        intent = user_intent(self.seed, self._users, self.shares, second_half=time.time() >= self.half_at)
        self._users += 1
        if not (intent.writes or intent.states):
            return None

        async def react(answered: AnsweredQuestion) -> str | None:
            return await self._react(intent, answered)

        return react

    async def _react(self, intent: UserIntent, answered: AnsweredQuestion) -> str | None:
        waits = 0.0 if last_words(answered.conversation) else NO_ANSWER_S
        await asyncio.sleep(intent.after_s + waits)
        try:
            await (self._state(answered) if intent.states else self._write(intent, answered))
        except (OpenAIError, httpx.HTTPError, TimeoutError) as error:
            return f"follow-up: {type(error).__name__}: {error}"
        return None

    async def _write(self, intent: UserIntent, answered: AnsweredQuestion) -> None:
        self.counts["written"] += 1
        self.counts["lies"] += intent.lies
        text = intent.text(right=answered.run.right)
        async with asyncio.timeout(PATIENCE_S):
            await self.aside.reply(answered.conversation, text, task_of(answered.question, self.url))

    async def _state(self, answered: AnsweredQuestion) -> None:
        order = answered.question.order
        about = f"{self.url}/hone/v1/trajectories/{answered.run.id}/feedback"
        self.counts["stated"] += 1
        for one in feedback_on(answer(order.order_id, order.day), answered.conversation):
            self.counts["grounded"] += one["name"] == DEMONSTRATION
            (await self.http.post(about, json=dict(one))).raise_for_status()


@asynccontextmanager
async def writing_users(
    url: str, mcp_url: str, seed: int, shares: Shares, tell: Callable[[Run], None]
) -> AsyncIterator[tuple[Users, Writers]]:
    """Yield the users of the proxy at `url`, with the tools at `mcp_url`, and what they do after an answer."""
    hooks: dict[str, list[Callable[..., Any]]] = {"request": [record_only]}
    async with (
        open_desk(mcp_url, {"response": [note_version]}) as desk,
        open_desk(mcp_url, hooks) as aside,
        httpx.AsyncClient(timeout=FEEDBACK_S) as http,
    ):
        writers = Writers(aside, http, url, seed, shares)
        yield Users(desk, url, writers, tell), writers
