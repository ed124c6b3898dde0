"""The engine that acts, as a program: `python -m tests.agents.acting.engine --port 8000`.

Owns: a move said in vLLM's shapes, cut at a stop string as vLLM cuts. Refuses: what is said.
"""

from __future__ import annotations

import argparse
import asyncio
import uuid
from typing import Any

from tests.agents.acting.play import move
from tests.agents.acting.tongues import Call, say
from tests.proxy.fake_engine import FakeEngine, Said, Script, Step, tool_call, words

MODEL = "base-model"
CONTEXT_LENGTH = 200_000


def script(body: dict[str, Any]) -> Script:
    """What the engine answers."""
    if "messages" not in body:
        return Script()
    said = say(body, move(body["messages"]))
    if isinstance(said, Call):
        choice = tool_call(said.name, said.arguments, said.id)
    else:
        choice = _cut(words(said), body.get("stop") or [])
    return Script([choice], chat_id=f"chatcmpl-{uuid.uuid4().hex}")


def _cut(said: Said, stop: str | list[str]) -> Said:
    """Without the first stop string and what follows it; its tokens were sampled all the same."""
    text: str = said.message["content"]
    ends = [at for end in ([stop] if isinstance(stop, str) else stop) if (at := text.find(end)) >= 0]
    if not ends:
        return said
    left, steps = min(ends), []
    for step in said.steps:
        shown = step.delta.get("content", "")[:left]
        left -= len(shown)
        steps.append(Step({"content": shown} if shown else {}, step.ids))
    return Said(steps, {"role": "assistant", "content": text[: min(ends)]}, "stop")


async def serve(port: int) -> None:
    """Answer until cancelled."""
    engine = FakeEngine(CONTEXT_LENGTH)
    engine.port = port
    engine.default = script
    async with engine:
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(serve(parser.parse_args().port))
