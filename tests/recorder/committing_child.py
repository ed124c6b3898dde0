"""A proxy's writer as a process to be killed: commits turns for ever, naming each on stdout once it is acknowledged."""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address
from recorder.settings import RecorderSettings
from recorder.store.database import Store
from tests.recorder.talk import Talk, assistant, choice, user

AT_ONCE = 4


async def run(talk: Talk, name: str) -> None:
    """One agent after another, each with a conversation of three turns at an address of its own."""
    for number in count():
        history = [user(f"{name} asks {number}")]
        for step in range(3):
            address = Address(trajectory=f"{name}-{number}", done=step == 2)
            said = choice(assistant(f"answer {step}"), token_ids=[step] * 40, logprobs=[-0.5] * 40)
            made = await talk.call(history, [said], address, prompt_token_ids=list(range(200 + step)))
            # one write a line: a kill can cut the stream between lines only
            sys.stdout.write(made.call_id + "\n")
            sys.stdout.flush()
            history = [*history, assistant(f"answer {step}"), user("more")]


async def main(url: str, name: str) -> None:
    """Commit until killed."""
    recorder = Recorder(Store(url), RecorderSettings())
    await recorder.start()
    await asyncio.gather(*(run(Talk(recorder), f"{name}-{n}") for n in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
