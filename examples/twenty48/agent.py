"""A plain agent that plays 2048: it shows the board, reads one word, moves. It knows nothing of Hone.

    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 python -m examples.twenty48.agent 4821

Owns the loop and the connections that concurrent attempts share. Refuses to judge: the agent answers a move without
effect with the reason, and the move costs a turn like any other.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from openai.types.chat import ChatCompletionMessageParam

from examples.twenty48.episode import SYSTEM, Episode, begin

MAX_TOKENS = 48  # a word is one token of the tiny model, its longest chatter 22; Hone never trains on a cut answer
POOLS = 8  # for every request, httpx does work that grows with the square of a pool's connections


class Task(Protocol):
    """One board to play from, and the model that plays."""

    @property
    def input(self) -> Any:
        """The board's seed, under ``seed``."""

    @property
    def base_url(self) -> str:
        """The model's base URL, with ``/v1``."""

    @property
    def api_key(self) -> str:
        """The API key."""

    @property
    def model(self) -> str:
        """The model's name."""


async def run(task: Task) -> str:
    """Play one attempt to its end; return the last board.

    Raises:
        openai.OpenAIError: the model could not be reached or refused the request.
    """
    client = next(_clients(asyncio.get_running_loop())).with_options(base_url=task.base_url, api_key=task.api_key)
    return (await play(client, task.model, int(task.input["seed"]))).shown()


async def play(client: AsyncOpenAI, model: str, seed: int) -> Episode:
    """Return the model's finished attempt from a seed: one conversation of its words and the boards."""
    episode = begin(seed)
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": SYSTEM}]
    while not episode.over:
        messages.append({"role": "user", "content": episode.shown()})
        completion = await client.chat.completions.create(
            model=model, messages=messages, temperature=1.0, max_tokens=MAX_TOKENS
        )
        answer = completion.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": answer})
        episode = episode.hear(answer)
    return episode


@functools.cache
def _clients(loop: asyncio.AbstractEventLoop) -> Iterator[AsyncOpenAI]:
    """Return the clients of a loop, to use in turn: own connections would cost an attempt more than its moves."""
    del loop  # it is the key
    tls = httpx.create_ssl_context()  # the expensive part of a client
    clients = [
        AsyncOpenAI(base_url="http://unset", api_key="unset", http_client=DefaultAsyncHttpxClient(verify=tls))
        for _ in range(POOLS)
    ]
    return itertools.cycle(clients)


@dataclass(frozen=True, slots=True)
class _Typed:
    """The task from the command line."""

    input: dict[str, int]
    base_url: str
    api_key: str
    model: str


def main() -> None:
    """Play one attempt from the command line."""
    parser = argparse.ArgumentParser(description="Have a model play 2048.")
    parser.add_argument("seed", type=int, help="the board's seed, for example 4821")
    parser.add_argument("--model", default="twenty48", help="the model's name (twenty48)")
    given = parser.parse_args()
    base_url = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    key = os.environ.get("OPENAI_API_KEY", "none")
    print(asyncio.run(run(_Typed({"seed": given.seed}, base_url, key, given.model))))


if __name__ == "__main__":
    main()
