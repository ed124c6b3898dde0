"""By what lists are narrowed, as data.

Owns: the two filters. Refuses: reading them from words (`recorder.listing.words`), and SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from recorder.states import GroupState, Origin, Purpose, TrajectoryState


@dataclass(frozen=True, slots=True)
class RunFilter:
    """What a run must be to be listed; what is None or empty narrows nothing. Times are unix seconds."""

    alias: str | None = None
    version: str | None = None  # its name, `helpdesk@3`: the run's pin
    states: tuple[TrajectoryState, ...] = ()  # one of them
    purpose: Purpose | None = None
    origins: tuple[Origin, ...] = ()  # one of them
    source: str | None = None  # by what one of its calls was attributed
    session: str | None = None
    tags: tuple[tuple[str, str | None], ...] = ()  # name and value, all of them; None: any value
    reward_from: float | None = None
    reward_to: float | None = None
    since: float | None = None  # it began then or later
    until: float | None = None  # it began before
    tool_error: bool | None = None  # whether one of its tool calls failed
    reason: str | None = None  # a ledger code: of the run, or of its group
    group: str | None = None  # an internal or external id
    said: str | None = None  # words that were said in it


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """What a group must be to be listed; what is None or empty narrows nothing. Times are unix seconds."""

    alias: str | None = None
    version: str | None = None
    states: tuple[GroupState, ...] = ()
    reason: str | None = None  # why it is left out or unscored
    campaign: str | None = None  # its id, or its name
    spread_from: float | None = None  # between the best and the worst reward of its current score
    spread_to: float | None = None
    since: float | None = None  # it was opened then or later
    until: float | None = None  # it was opened before


ALL_RUNS: Final = RunFilter()
ALL_GROUPS: Final = GroupFilter()
