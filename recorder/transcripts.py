"""Reading back: trajectories and groups with their conversations and, where asked for, their exact tokens.

Owns: the queries that fill `recorder.views`, few for a whole group. Refuses: writing; deciding what is trained.
"""

from __future__ import annotations

from recorder.store import Store
from recorder.views import (
    CallView,
    ChoiceView,
    FeedbackView,
    GroupView,
    ScenarioView,
    TrajectoryView,
)

__all__ = [
    "CallView",
    "ChoiceView",
    "FeedbackView",
    "GroupView",
    "ScenarioView",
    "TrajectoryView",
    "find_trajectory",
    "load_group",
    "load_trajectory",
]


async def load_trajectory(store: Store, trajectory_id: str, *, with_tokens: bool = False) -> TrajectoryView:
    """One trajectory by its internal id. Raises NotFound."""
    raise NotImplementedError


async def load_group(store: Store, group_id: str, *, with_tokens: bool = False) -> GroupView:
    """A group with all its members. Raises NotFound."""
    raise NotImplementedError


async def find_trajectory(store: Store, project_id: str, id_or_external: str, group: str | None = None) -> str:
    """The internal id of a trajectory, given that or its external id (its newest continuation). Raises NotFound."""
    raise NotImplementedError
