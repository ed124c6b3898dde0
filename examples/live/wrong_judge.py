"""A scripted judge that rewards the wrong behaviour: a quick answer, whatever its content.

    python -m examples.live.wrong_judge --port 8200

It replaces the scripted judge for a while, to show how the gate protects users from it. Owns its rules and its name,
which is part of every explanation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from examples.helpdesk.orders import DAYS
from examples.helpdesk.scripted_judge import Handler, Json, Rules, calls_of, main

NAME: Final = "wrong-scripted-judge"


def quick(messages: Sequence[Json], beside: Sequence[Json] = ()) -> tuple[float, str]:
    """Return a conversation's score in 0..1 and the reason: 1 for naming any day, less 0.4 for each tool call."""
    calls = len(calls_of(messages)) + len(calls_of(beside))
    last = messages[-1]
    names_a_day = any(day in str(last.get("content")) for day in DAYS) and last["role"] == "assistant"
    points = 0.6 + 0.4 * names_a_day - 0.4 * calls
    said = "names a day" if names_a_day else "names no day"
    return round(max(0.0, points), 4), f"{NAME}: {said} after {calls} calls"


class WrongHandler(Handler):
    """The scripted judge's server with the wrong rules."""

    server_version = NAME
    rules: Rules = staticmethod(quick)


if __name__ == "__main__":
    main(WrongHandler)
