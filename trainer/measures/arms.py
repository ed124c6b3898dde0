"""The arms of a comparison: the alias, its version 0, or a baseline model. Pure.

Owns: the arms, the model name that each one's attempts use, and the numbers of its attempts, from which a resumed
program knows the arm of an attempt. Refuses: running attempts (`trainer.campaign.sampling`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trainer.campaign_settings import BASE, CampaignSettings
from trainer.errors import CampaignError

MOST: Final = 1000  # attempts of one arm at a scenario in a round


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm. `model` is the model its attempts ask for; their numbers start at `place` × `MOST`."""

    name: str
    model: str
    place: int

    def numbers(self, each: int) -> list[int]:
        """The numbers of `each` attempts at a scenario."""
        return [self.place * MOST + number for number in range(each)]


@dataclass(frozen=True, slots=True)
class Arms:
    """All arms of a campaign: the alias itself, its version 0, and further models by name."""

    live: Arm
    rival: Arm  # version 0, when it attempts a scenario for comparison with one of the others
    base: Arm
    others: Sequence[Arm] = ()

    def of(self, name: str) -> Arm:
        """A baseline by its name."""
        return next(arm for arm in (self.base, *self.others) if arm.name == name)

    def beside(self, arm: Arm) -> int:
        """The number of version 0's attempt at a scenario that this arm attempts."""
        return self.rival.place * MOST + arm.place

    def models(self, each: int) -> Mapping[int, str]:
        """The model of each attempt that does not ask for the alias itself, by number."""
        arms = (self.base, *self.others)
        compared = {self.beside(arm): self.rival.model for arm in (self.live, *arms)}
        return compared | {number: arm.model for arm in arms for number in arm.numbers(each)}


def campaign_arms(settings: CampaignSettings, alias: str) -> Arms:
    """The arms of a campaign."""
    live, version_0 = Arm(alias, alias, 0), f"{alias}@0"
    further = [name for name in baseline_arms(settings) if name != BASE]
    others = [Arm(name, name, place) for place, name in enumerate(further, start=3)]
    return Arms(live, Arm(BASE, version_0, 1), Arm(BASE, version_0, 2), others)


def baseline_arms(settings: CampaignSettings) -> list[str]:
    """The measured baselines, including the one to beat."""
    beaten = [settings.beat.baseline] if settings.beat is not None else []
    return list(dict.fromkeys([*settings.baselines, *beaten]))


def require_known_baseline(settings: CampaignSettings, models: Collection[str]) -> None:
    """Raise `CampaignError` for a baseline that is neither `base` nor in `models`, those of `[[proxy.models]]`."""
    known = [BASE, *sorted(models)]
    if unknown := next((name for name in baseline_arms(settings) if name not in known), None):
        raise CampaignError(
            f"the baseline {unknown!r} (campaign.baselines, campaign.beat) is not a model of [[proxy.models]]; there "
            f"is: {', '.join(known)}"
        )
