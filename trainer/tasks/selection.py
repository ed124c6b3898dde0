"""Select scenarios: those that each step attempts, and those of each part (training, validation, test).

Owns: the order in which steps draw scenarios, which depends on the seed only, with the share of adversarial ones; how
many of each kind a step draws, and how many groups it may replace; the part of a scenario, reading the parts from one
file or from one file each, counting them, and rejecting a scenario that is in two parts. Refuses: the form of a
scenario file (`trainer.tasks.scenarios`), drawing by chances (`trainer.tasks.chances`), and running anything.

A scenario's part depends on its id and the seed only: adding or removing one moves no other.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from trainer.campaign_settings import CampaignSettings
from trainer.errors import ScenariosInvalid
from trainer.tasks import scenarios
from trainer.tasks.scenarios import Scenario


class DrawableScenario(Protocol):
    """A scenario that may be drawn."""

    @property
    def adversarial(self) -> bool:
        """Whether it tempts the agent to cheat."""


T = TypeVar("T")
M = TypeVar("M", bound=DrawableScenario)


def draw_scenarios(scenarios: Sequence[M], per_step: int, step: int, seed: int, adversarial_share: float) -> list[M]:
    """The scenarios of a step (counted from 1), all different, the adversarial ones last.

    Over the steps the adversarial ones are `adversarial_share` of all drawn, to less than one scenario: with few a
    step, only some steps have one. If there are fewer of a kind than a step needs, it takes them all.
    """
    kinds = step_ranges(scenarios, per_step, step, adversarial_share)
    if len(kinds) < 2:
        return [one for kind in kinds for one in draw_in_passes(kind.scenarios, per_step, step, seed)]
    ordinary, adversarial = kinds
    drawn = _from_ring(ordinary.scenarios, ordinary.start, ordinary.end, f"{seed}:ordinary")
    return [*drawn, *_from_ring(adversarial.scenarios, adversarial.start, adversarial.end, f"{seed}:adversarial")]


@dataclass(frozen=True, slots=True)
class StepRange(Generic[M]):
    """The scenarios of one kind, and a step's positions among all that a campaign draws of it: `start` to `end` - 1."""

    scenarios: Sequence[M]
    start: int
    end: int


def step_ranges(scenarios: Sequence[M], per_step: int, step: int, adversarial_share: float) -> list[StepRange[M]]:
    """What a step (counted from 1) draws of each kind, the adversarial ones last; of one kind, if there is one only."""
    ordinary, adversarial = _kinds(scenarios, adversarial_share)
    before, after = step - 1, step
    if not (ordinary and adversarial):
        only = ordinary or adversarial
        size = min(per_step, len(only))
        return [StepRange(only, before * size, after * size)] if size else []
    plain, adversarial_count = _of_a_step(len(ordinary), len(adversarial), per_step, adversarial_share)
    # rounded in opposite ways, so that both together fill a step
    return [
        StepRange(ordinary, math.ceil(before * plain), math.ceil(after * plain)),
        StepRange(adversarial, math.floor(before * adversarial_count), math.floor(after * adversarial_count)),
    ]


def share_of_range(share: float, start: int, end: int) -> int:
    """How many of the positions from `start` to `end` of an endless sequence belong to a share of it.

    Over all positions they are the share, to less than one. Exact: the written decimal, not the float nearest to it.
    """
    exact = Fraction(str(share))
    return math.floor(end * exact) - math.floor(start * exact)


def most_refills(
    scenarios: Sequence[DrawableScenario], per_step: int, step: int, adversarial_share: float, refill: float
) -> int:
    """How many groups a step may replace, if over all steps it is a share of those that begin them."""
    ranges = step_ranges(scenarios, per_step, step, adversarial_share)
    return share_of_range(refill, sum(kind.start for kind in ranges), sum(kind.end for kind in ranges))


def draw_in_passes(items: Sequence[T], per_step: int, step: int, seed: int) -> list[T]:
    """The items of a step, if all are of one kind.

    Each pass over the list is shuffled anew and cut into whole steps; the remainder waits for another pass.
    """
    size = min(per_step, len(items))
    if not size:
        return []
    steps_per_pass = len(items) // size
    number, position = divmod(step - 1, steps_per_pass)
    order = list(range(len(items)))
    random.Random(f"{seed}:{number}").shuffle(order)
    return [items[i] for i in order[position * size : (position + 1) * size]]


def steps_of_a_pass(scenarios: Sequence[DrawableScenario], per_step: int, adversarial_share: float) -> int:
    """The steps of one pass over the scenarios; where there are both kinds, over the ordinary ones."""
    ordinary, adversarial = _kinds(scenarios, adversarial_share)
    if ordinary and adversarial:
        plain, _ = _of_a_step(len(ordinary), len(adversarial), per_step, adversarial_share)
        return math.ceil(len(ordinary) / plain)
    count = len(ordinary or adversarial)
    return count // max(1, min(per_step, count))


def _kinds(scenarios: Sequence[M], adversarial_share: float) -> tuple[list[M], list[M]]:
    """The ordinary ones, and the adversarial ones if any are drawn."""
    ordinary = [one for one in scenarios if not one.adversarial]
    return ordinary, [one for one in scenarios if one.adversarial] if adversarial_share else []


def _of_a_step(ordinary: int, adversarial: int, per_step: int, share: float) -> tuple[Fraction, Fraction]:
    """The mean number of each kind in a step. Exact: the written decimal, not the float nearest to it."""
    adversarial_count = min(per_step * Fraction(str(share)), Fraction(adversarial))
    return min(per_step - adversarial_count, Fraction(ordinary)), adversarial_count


def _from_ring(items: Sequence[T], start: int, end: int, seed: str) -> list[T]:
    """The items between two positions of an endless sequence: all items, shuffled once, repeated.

    All passes have the same order, so no range as long as one pass has an item twice.
    """
    order = list(items)
    random.Random(seed).shuffle(order)
    return [order[at % len(order)] for at in range(start, end)]


PARTS: Final = ("train", "val", "test")
_MOST_SHOWN: Final = 5
_STEPS: Final = 2**64


def scenario_part(id_: str, shares: Sequence[float], seed: int) -> str:
    """The part of a scenario. With two shares there is no test part."""
    digest = hashlib.sha256(f"{seed}:{id_}".encode()).digest()
    at, end = int.from_bytes(digest[:8], "big") / _STEPS, 0.0
    for part, share in zip(PARTS, shares, strict=False):
        end += share
        if at < end:
            return part
    return PARTS[len(shares) - 1]  # rounding may leave the sum of the shares below 1


def split_scenarios(scenarios: Sequence[Scenario], shares: Sequence[float], seed: int) -> dict[str, list[Scenario]]:
    """The parts of one file's scenarios, in its order. Raises `ScenariosInvalid` if one is empty."""
    parts: dict[str, list[Scenario]] = {part: [] for part in PARTS[: len(shares)]}
    for scenario in scenarios:
        parts[scenario_part(scenario.id, shares, seed)].append(scenario)
    if empty := [part for part, found in parts.items() if not found]:
        raise ScenariosInvalid(
            f"of {len(scenarios)} scenarios none is in the {' and the '.join(empty)} part (campaign.split "
            f"{list(shares)}, campaign.seed {seed}): add scenarios, give the part a larger share, or name files "
            "instead (campaign.val_scenarios, campaign.test_scenarios)"
        )
    return parts


def require_apart(parts: Mapping[str, Sequence[Scenario]]) -> None:
    """Raise `ScenariosInvalid` if two parts share a scenario: the same id, or the same input."""
    by_id: dict[str, tuple[str, Scenario]] = {}
    by_input: dict[str, tuple[str, Scenario]] = {}
    faults: list[str] = []
    for part, own in parts.items():
        for scenario in own:
            same_id = by_id.setdefault(scenario.id, (part, scenario))
            same_input = by_input.setdefault(comparison_form(scenario.input), (part, scenario))
            if same_id[0] != part:
                faults.append(f"{_named(*same_id)} and {_named(part, scenario)} have the same id")
            elif same_input[0] != part:
                faults.append(f"{_named(*same_input)} and {_named(part, scenario)} have the same input")
    if faults:
        more = f"\n… and {len(faults) - _MOST_SHOWN} more" if len(faults) > _MOST_SHOWN else ""
        raise ScenariosInvalid(
            "training scenarios would be measured: a scenario must be in one part only. Remove one of each:\n"
            + "\n".join(faults[:_MOST_SHOWN])
            + more
        )


def comparison_form(value: Any) -> str:
    """A scenario's input as it is compared, ignoring case, white space, Unicode forms and the order of keys."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFKC", value).casefold().split())
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value


def _named(part: str, scenario: Scenario) -> str:
    where = f", {scenario.place}" if scenario.place else ""
    return f"{scenario.id!r} ({part}{where})"


@dataclass(frozen=True, slots=True)
class PartCounts:
    """The counts of a part."""

    name: str
    scenarios: int
    adversarial: int
    references: int
    rubrics: int


@dataclass(frozen=True, slots=True)
class DuplicateScenarios:
    """Scenarios of one part with equal inputs (`comparison_form`): ids, and where each was read."""

    part: str
    ids: Sequence[str]
    places: Sequence[str]


def read_parts(settings: CampaignSettings, file: Path) -> dict[str, list[Scenario]]:
    """The scenarios of each part; `file` is the training file, or the file of all.

    Raises `ScenariosInvalid` if a file is invalid, a part is empty or a scenario is in two.
    """
    found = scenarios.read_scenarios(file)
    if settings.split is not None:
        parts = split_scenarios(found, settings.split, settings.seed)
    else:
        others = {"val": settings.val_scenarios, "test": settings.test_scenarios}
        parts = {"train": found} | {
            part: scenarios.read_scenarios(path) for part, path in others.items() if path is not None
        }
    require_apart(parts)
    return parts


def count_parts(parts: Mapping[str, Sequence[Scenario]]) -> list[PartCounts]:
    """The counts of each part."""
    return [
        PartCounts(
            name,
            len(found),
            sum(one.adversarial for one in found),
            sum(one.reference is not None for one in found),
            sum(one.rubric is not None for one in found),
        )
        for name, found in parts.items()
    ]


def find_duplicates(parts: Mapping[str, Sequence[Scenario]]) -> list[DuplicateScenarios]:
    """The scenarios with the same input as another one of their part."""
    return list(chain.from_iterable(_repeated(name, found) for name, found in parts.items()))


def _repeated(part: str, found: Sequence[Scenario]) -> list[DuplicateScenarios]:
    by_input: dict[str, list[Scenario]] = {}
    for one in found:
        by_input.setdefault(comparison_form(one.input), []).append(one)
    return [
        DuplicateScenarios(part, [one.id for one in same], [one.place for one in same])
        for same in by_input.values()
        if len(same) > 1
    ]
