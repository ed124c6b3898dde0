"""The scenarios of each part of a campaign, as its settings name them, and what there is of each.

Owns: reading them from one file or from one for each part, and counting what a file holds. Refuses: what a part is
(`trainer.tasks.splitting`), running anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from trainer.campaign_settings import CampaignSettings
from trainer.tasks import scenarios, splitting
from trainer.tasks.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class Part:
    """What there is of a part."""

    name: str
    scenarios: int
    adversarial: int
    references: int
    rubrics: int


@dataclass(frozen=True, slots=True)
class Alike:
    """Scenarios of one part that ask the same, as far as `splitting.alike` sees: ids, and where each was read."""

    part: str
    ids: Sequence[str]
    places: Sequence[str]


def read(settings: CampaignSettings, file: Path) -> dict[str, list[Scenario]]:
    """The scenarios of each part that there is; `file` is that of those to learn from, or of all.

    Raises `ScenariosInvalid` where a file is not usable, a part is empty or a scenario is in two.
    """
    found = scenarios.read(file)
    if settings.split is not None:
        parts = splitting.split(found, settings.split, settings.seed)
    else:
        others = {"val": settings.val_scenarios, "test": settings.test_scenarios}
        parts = {"train": found} | {part: scenarios.read(path) for part, path in others.items() if path is not None}
    splitting.require_apart(parts)
    return parts


def counted(parts: Mapping[str, Sequence[Scenario]]) -> list[Part]:
    """What there is of each part."""
    return [
        Part(
            name,
            len(found),
            sum(one.adversarial for one in found),
            sum(one.reference is not None for one in found),
            sum(one.rubric is not None for one in found),
        )
        for name, found in parts.items()
    ]


def repeated(parts: Mapping[str, Sequence[Scenario]]) -> list[Alike]:
    """The scenarios that ask the same as another one of their part."""
    return list(chain.from_iterable(_repeated(name, found) for name, found in parts.items()))


def _repeated(part: str, found: Sequence[Scenario]) -> list[Alike]:
    by_input: dict[str, list[Scenario]] = {}
    for one in found:
        by_input.setdefault(splitting.alike(one.input), []).append(one)
    return [
        Alike(part, [one.id for one in same], [one.place for one in same])
        for same in by_input.values()
        if len(same) > 1
    ]
