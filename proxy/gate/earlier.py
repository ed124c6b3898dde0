"""The versions of a day and of a week ago, with which a gate also compares, because small losses add up.

Owns: which versions these are, and one comparison with its figures and its verdict's code. Refuses: pairs
(`proxy.gate.behaviour`), the order of the checks (`proxy.gate.examination`), and loading an earlier version: the
controller gives it a slot of the engines that no version in service needs (`proxy.versions.guests`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from proxy.gate.behaviour import BehaviourArms, PairWins
from proxy.settings.sections import Age
from recorder.registry import kept_versions
from recorder.registry.kept_versions import DAY_S, WEEK_S, LineVersion
from recorder.registry.versions import VersionView, get_version
from recorder.store import sql
from recorder.store.database import Store

AGES: Final[Mapping[Age, float]] = {"day": DAY_S, "week": WEEK_S}  # seconds
WORSE: Final = "behaviour"  # code of a version that was shown to be worse than the live one; after it, the age


class HeldVersion(Protocol):
    """An earlier version that engines are to hold for a comparison."""

    @property
    def missing(self) -> str | None:
        """Why engines do not hold it now, in words; None: they do."""


class HoldVersion(Protocol):
    """Has engines hold a version: `async with hold(version) as held: …`."""

    def __call__(self, version: VersionView) -> AbstractAsyncContextManager[HeldVersion]:
        """Enter once it is decided whether engines hold the version, and release it at the end."""


@dataclass
class Comparison:
    """A new version beside another one (`arms.live`). `age`: None for the live version.

    `why`: in words, why pairs are missing; "": none is.
    """

    arms: BehaviourArms
    won: PairWins
    age: Age | None = None
    why: str = ""

    @property
    def code(self) -> str:
        """The code of a version that it shows to be worse."""
        return WORSE if self.age is None else f"{WORSE}_{self.age}"

    @property
    def worse(self) -> str:
        """What shows that the version is worse, in words."""
        won = self.won
        beside = "" if self.age is None else f" beside {self.described}"
        return (
            f"it wins {won.doubt.mean:.0%} of {len(won.values)} pairs{beside}, below {won.at_least:.0%} "
            "(gate.win_at_least)"
        )

    @property
    def described(self) -> str:
        """The other version in words, with its age."""
        name = self.arms.live.name
        return name if self.age is None else f"{name}, which is at least a {self.age} old"

    @property
    def figures(self) -> dict[str, float]:
        """The figures for the version's row. Those beside an earlier version end with its age.

        `version_day` is the number of the version of a day ago; `success_live` is its success, as `success_day`.
        """
        if self.age is None:
            return self.won.figures
        own = {_figure_name(name, self.age): value for name, value in self.won.figures.items()}
        return {f"version_{self.age}": self.arms.live.number, **own}


def _figure_name(name: str, age: Age) -> str:
    """A figure's name beside an earlier version: the other arm's success takes the place of the live version's."""
    return {"success": f"success_beside_{age}", "success_live": f"success_{age}"}.get(name, f"{name}_{age}")


async def find_earlier(store: Store, live: VersionView, ages: Collection[Age]) -> dict[Age, VersionView]:
    """Return the version of each age, the youngest first: the newest accepted one that is at least as old.

    Accepted are the live version and its ancestors, down to the base. An age without such a version is left out, and
    so is the live version, and a version that stands for a lower age already.
    """
    async with store.read() as conn:
        line = await kept_versions.read_line(conn, live.id)
        at = await sql.current_time(conn)
    found: dict[Age, VersionView] = {}
    taken = {live.id}
    for age, age_s in AGES.items():
        one = _version_of_age(line, age_s, at) if age in ages else None
        if one is not None and one.id not in taken:
            taken.add(one.id)
            found[age] = await get_version(store, one.id)
    return found


def _version_of_age(line: Collection[LineVersion], age_s: float, at: float) -> LineVersion | None:
    """The newest version that is old enough and can be served: it has a folder, or it is the base."""
    base = next((one for one in line if one.number == 0 and one.created_at <= at - age_s), None)
    return kept_versions.version_of_age(line, age_s, at) or base
