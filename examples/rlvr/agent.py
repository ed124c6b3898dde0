"""A plain agent: one question to a model over the OpenAI protocol. It knows nothing of Hone.

    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 python -m examples.rlvr.agent "Write a numbered list …"

Owns: the model's instructions, and the clients that concurrent attempts share. Refuses: correcting an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
from dataclasses import dataclass
from typing import Any, Protocol

from openai import AsyncOpenAI

MAX_TOKENS = 128


class Task(Protocol):
    """One prompt, and the model that answers it."""

    @property
    def input(self) -> str:
        """The prompt."""

    @property
    def base_url(self) -> str:
        """The model's base URL, with ``/v1``."""

    @property
    def api_key(self) -> str:
        """The API key."""

    @property
    def model(self) -> str:
        """The model's name."""


def messages(prompt: str) -> list[dict[str, Any]]:
    """Return the request's messages."""
    return [{"role": "user", "content": prompt}]


async def run(task: Task) -> str:
    """Answer the task's prompt; return the model's answer.

    Raises:
        openai.OpenAIError: the model could not be reached or refused the request.
    """
    client = _client(asyncio.get_running_loop()).with_options(base_url=task.base_url, api_key=task.api_key)
    completion = await client.chat.completions.create(
        model=task.model,
        messages=messages(task.input),  # type: ignore[arg-type]  # plain dicts
        temperature=1.0,
        max_tokens=MAX_TOKENS,
    )
    return completion.choices[0].message.content or ""


@functools.cache
def _client(loop: asyncio.AbstractEventLoop) -> AsyncOpenAI:
    """Return a loop's shared client: own connections would cost an attempt more than its answer."""
    del loop
    return AsyncOpenAI(base_url="http://unset", api_key="unset")


@dataclass(frozen=True, slots=True)
class _Typed:
    """The prompt from the command line."""

    input: str
    base_url: str
    api_key: str
    model: str


def main() -> None:
    """Answer one prompt from the command line."""
    parser = argparse.ArgumentParser(description="Ask for a short text.")
    parser.add_argument("prompt")
    parser.add_argument("--model", default="rlvr", help="the model's name (rlvr)")
    given = parser.parse_args()
    base_url = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    key = os.environ.get("OPENAI_API_KEY", "none")
    print(asyncio.run(run(_Typed(given.prompt, base_url, key, given.model))))


if __name__ == "__main__":
    main()
