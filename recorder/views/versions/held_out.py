"""What a version learned: the held-out tasks at which it beats another version, and those at which it loses.

Owns: which tasks count as won, lost and even, the value of a held-out attempt, and the sentence about all of them.
Pure. Refuses: reading attempts (`recorder.views.versions.held_out_rows`), and testing whether a version is better
(`proxy.gate`): single tasks may be won and lost by chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final, Literal

from recorder.views.versions.before_after import Improvement, TrajectoryAttempt, most_improved_scenarios

TASKS: Final = 10  # of each kind in the result; the others are counted
EVEN: Final = 1e-6  # a difference of means that is smaller is none
TIE: Final = 0.5  # the value of a comparison that nobody won

Source = Literal["validation", "gate scenarios", "gate pairs"]
Unit = Literal["success", "reward", "wins"]


@dataclass(frozen=True, slots=True)
class HeldOutSource:
    """Where attempts are from. `beside`: the other version's name; `campaign`: the name of a validation's campaign.

    `unit`: what the values are: the share of successes, the mean reward, or the share of comparisons won. A validation
    compares with version 0 (`wins`), a gate's judged pairs with the other version.
    """

    source: Source
    beside: str
    unit: Unit
    campaign: str | None = None
    is_complete: bool = True  # whether all attempts were read


@dataclass(frozen=True, slots=True)
class HeldOutTask:
    """One held-out task. `before`, `after`: mean values of the other version's attempts, and of the version's own.

    `trajectory_before`, `trajectory_after`: the trajectory of each that is nearest to its mean. `scenario`: None for
    recorded first turns. `task`: the beginning of its first user message.
    """

    key: str
    scenario: str | None
    task: str | None
    before: float
    after: float
    attempts_before: int
    attempts_after: int
    trajectory_before: str
    trajectory_after: str

    @property
    def rise(self) -> float:
        """The mean value after, less the one before."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class HeldOutComparison:
    """The held-out tasks that both versions attempted: at most `TASKS` won and lost ones, largest differences first.

    `unmeasured`: tasks that both attempted, where no stored value says who did better.
    """

    about: HeldOutSource
    won: tuple[HeldOutTask, ...]
    lost: tuple[HeldOutTask, ...]
    won_count: int
    lost_count: int
    even_count: int
    unmeasured: int

    @property
    def shown(self) -> tuple[HeldOutTask, ...]:
        """The tasks in the result."""
        return (*self.won, *self.lost)

    def with_tasks(self, words: Mapping[str, str]) -> HeldOutComparison:
        """Return the comparison with the tasks' first words, by the id of a task's newer trajectory."""

        def named(tasks: Iterable[HeldOutTask]) -> tuple[HeldOutTask, ...]:
            return tuple(replace(one, task=words.get(one.trajectory_after)) for one in tasks)

        return replace(self, won=named(self.won), lost=named(self.lost))


def compare_held_out(
    about: HeldOutSource, before: Sequence[TrajectoryAttempt], after: Sequence[TrajectoryAttempt]
) -> HeldOutComparison | None:
    """Return the comparison of two versions' held-out attempts; None if they share no task."""
    both = most_improved_scenarios(before, after, len(before) + len(after))
    if not both:
        return None
    has_ids = about.source != "gate pairs"
    measured = [one for task in both if (one := _task(task, has_ids=has_ids)) is not None]
    won = sorted((one for one in measured if one.rise > EVEN), key=lambda one: (-one.rise, one.key))
    lost = sorted((one for one in measured if one.rise < -EVEN), key=lambda one: (one.rise, one.key))
    return HeldOutComparison(
        about=about,
        won=tuple(won[:TASKS]),
        lost=tuple(lost[:TASKS]),
        won_count=len(won),
        lost_count=len(lost),
        even_count=len(measured) - len(won) - len(lost),
        unmeasured=len(both) - len(measured),
    )


def _task(one: Improvement, *, has_ids: bool) -> HeldOutTask | None:
    before, after = one.means
    if one.rise is None or before is None or after is None:
        return None
    scenario = one.scenario if has_ids else None
    runs = one.before.trajectory, one.after.trajectory
    return HeldOutTask(one.scenario, scenario, None, before, after, *one.attempts, *runs)


# --- the values of a validation's attempts


@dataclass(frozen=True, slots=True)
class ValidationAttempt:
    """One attempt of a validation. `version_id`: of its last answer; `success`: 1 or 0 by the success function.

    `reward`: None if no judge or function gave it; `absolute`: it can be compared with rewards of other groups.
    """

    scenario: str
    group: str
    trajectory: str
    version_id: str | None
    success: float | None
    reward: float | None
    absolute: bool


def validation_unit(attempts: Iterable[ValidationAttempt]) -> Unit:
    """Return what a validation's attempts are compared by, the first that they have: success, reward, wins."""
    rewards = []
    for one in attempts:
        if one.success is not None:
            return "success"
        if one.reward is not None:
            rewards.append(one.absolute)
    return "reward" if all(rewards) else "wins"


def value_attempts(attempts: Sequence[ValidationAttempt], unit: Unit, base_id: str | None) -> list[TrajectoryAttempt]:
    """Return attempts with their values in that unit.

    With `wins`, the value is the share of comparisons won with version 0's attempts (`base_id`) of the same group: a
    judge's ranking says nothing beside another group. Version 0's own value is a tie.
    """
    base_rewards: defaultdict[str, list[float]] = defaultdict(list)
    for one in attempts:
        if one.version_id == base_id and one.reward is not None:
            base_rewards[one.group].append(one.reward)

    def wins(one: ValidationAttempt) -> float | None:
        if one.version_id == base_id:
            return TIE
        others = base_rewards.get(one.group)
        return fmean(_won(one.reward, other) for other in others) if others and one.reward is not None else None

    values: Mapping[Unit, Callable[[ValidationAttempt], float | None]] = {
        "success": lambda one: one.success,
        "reward": lambda one: one.reward if one.absolute else None,
        "wins": wins,
    }
    value = values[unit]
    return [
        TrajectoryAttempt(one.scenario, "val", one.version_id, one.group, one.trajectory, value(one), absolute=True)
        for one in attempts
        if one.version_id is not None
    ]


def _won(own: float, other: float) -> float:
    return TIE if abs(own - other) <= EVEN else float(own > other)


# --- words


_TASKS: Final[Mapping[Source, tuple[str, str]]] = {
    "validation": ("scenario", "of the validation of"),
    "gate scenarios": ("held-out scenario", "of its gate"),
    "gate pairs": ("recorded task", "of its gate's judged pairs"),
}


def describe_held_out(one: HeldOutComparison) -> str:
    """Return the comparison in a sentence, with its counts."""
    tasks = one.won_count + one.lost_count + one.even_count
    noun, of = _TASKS[one.about.source]
    where = f"{of} {one.about.campaign or 'its campaign'}" if one.about.source == "validation" else of
    text = f"At {_many(tasks, noun)} {where}, it does better than {one.about.beside} at {one.won_count}, "
    text += f"worse at {one.lost_count}, and equally well at {one.even_count}"
    if one.unmeasured:
        text += f"; at {one.unmeasured} more, nothing stored says which did better"
    return f"{text}." if one.about.is_complete else f"{text}. Only the first attempts were read."


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
