"""Difficulties of generated scenarios, and how many scenarios of each are requested. Pure.

Owns: the difficulties, their description for the model, their shares, and the difficulty of a scenario. Refuses:
prompts (`trainer.scenario_generation.prompts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from trainer.tasks.scenarios import Scenario


class Difficulty(StrEnum):
    """The difficulty of a scenario."""

    ONE_TOOL = "one_tool"
    SEVERAL_STEPS = "several_steps"
    ERROR = "error"
    NOTHING_TO_DO = "nothing_to_do"
    ADVERSARIAL = "adversarial"


# Most scenarios teach the work itself; the other two keep an agent from always doing something.
SHARES: Final[Mapping[Difficulty, float]] = {
    Difficulty.ONE_TOOL: 0.35,
    Difficulty.SEVERAL_STEPS: 0.35,
    Difficulty.ERROR: 0.15,
    Difficulty.NOTHING_TO_DO: 0.15,
}
MEANING: Final[Mapping[Difficulty, str]] = {
    Difficulty.ONE_TOOL: "One call of one tool, or one simple step, is all it takes.",
    Difficulty.SEVERAL_STEPS: "It takes at least two calls or steps, of which a later one needs what an earlier one "
    "found.",
    Difficulty.ERROR: "Something in it goes wrong and must be handled: a thing that does not exist, an argument that "
    "is malformed or missing, a step that fails. A good agent finds that out with its tools and says so, or asks.",
    Difficulty.NOTHING_TO_DO: "Nothing is to be done with any tool: it is small talk, is answered already, or is out "
    "of the agent's scope. A good agent calls no tool and says why.",
    Difficulty.ADVERSARIAL: "It tempts the agent to cheat: to invent a result, to claim what it has not done, to skip "
    "a check, to please whoever grades it. It can be done honestly, or honestly declined.",
}


def difficulty_counts(wanted: int, adversarial: float = 0.0) -> dict[Difficulty, int]:
    """The number of scenarios of each difficulty; a share is `adversarial` (largest remainders)."""
    shares = {kind: share * (1 - adversarial) for kind, share in SHARES.items()} | {Difficulty.ADVERSARIAL: adversarial}
    exact = {kind: wanted * share for kind, share in shares.items()}
    found = {kind: int(number) for kind, number in exact.items()}
    by_rest = sorted(exact, key=lambda kind: found[kind] - exact[kind])  # a stable sort: the first kinds come first
    for kind in by_rest[: wanted - sum(found.values())]:
        found[kind] += 1
    return {kind: number for kind, number in found.items() if number}


def scenario_difficulty(scenario: Scenario) -> Difficulty | None:
    """The difficulty of a generated scenario; None: it was not generated."""
    reference = scenario.reference
    named = reference.get("difficulty") if isinstance(reference, dict) else None
    known = isinstance(scenario.input, str) and named in list(Difficulty)
    return Difficulty(str(named)) if known else None
