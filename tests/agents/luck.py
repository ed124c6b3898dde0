"""Tells a run in which the model itself erred, seen in the tokens that it sampled, from one that was spoiled for it.

Owns: what the trained model says in a run that goes right, and how often it did not. Refuses: to excuse a run whose
prompt, up to the turn that went wrong, was not the one that the run asks for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

Json = dict[str, Any]
Decode = Callable[[Sequence[int]], str]

MOST = 0.1  # of all runs
_END = "<|im_end|>"


class Ran(Protocol):
    """A run that a program was given."""

    @property
    def question(self) -> str:
        """What was asked."""

    @property
    def answer(self) -> str:
        """The right answer."""

    @property
    def calls(self) -> list[Json]:
        """The right tool calls with their results."""


class Came(Protocol):
    """What came of a client's runs."""

    @property
    def runs(self) -> Sequence[Ran]:
        """What was asked."""

    @property
    def printed(self) -> list[Json]:
        """What the program said, a line a run."""

    @property
    def trajectories(self) -> dict[str, list[Json]]:
        """What was recorded."""


class Luck:
    """Counts runs, and those in which the model erred."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self.runs = 0
        self.erred = 0

    def model_erred(self, outcome: Came) -> bool:
        """Whether runs went wrong, each of them by the model alone; counts them."""
        self.runs += len(outcome.runs)
        wrong = Counter(_key(run) for run in outcome.runs) - Counter(
            json.dumps([line.get("answer"), line["calls"]]) for line in outcome.printed
        )
        by_model = Counter(
            _key(run)
            for run in {_key(run): run for run in outcome.runs}.values()
            for calls in outcome.trajectories.values()
            if erred(run, calls, self._decode)
        )
        if not wrong or wrong - by_model:
            return False
        self.erred += wrong.total()
        return True


def erred(run: Ran, calls: Sequence[Json], decode: Decode) -> bool:
    """Whether these calls are this run's, and in one of them the model said another thing on the right prompt."""
    past = f"<|im_start|>user\n{run.question}{_END}<|im_start|>assistant\n"
    results = [call["result"] for call in run.calls]
    for call, said, result in zip(calls, _sayings(run), [*results, ""], strict=False):
        if not decode(call["prompt_token_ids"]).endswith(past):
            return False
        if decode(call["choices"][0]["token_ids"]) != said:
            return True
        past += f"{said}<|im_start|>tool\n{result}{_END}<|im_start|>assistant\n"
    return False


def _sayings(run: Ran) -> list[str]:
    asked = [json.dumps({"name": call["name"], "arguments": call["arguments"]}) for call in run.calls]
    return [*(f"<tool_call>{call}</tool_call>{_END}" for call in asked), run.answer + _END]


def _key(run: Ran) -> str:
    return json.dumps([run.answer, run.calls])
