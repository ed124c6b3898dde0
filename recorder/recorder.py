"""The recorder as the proxy process uses it: attribution look-ups, and turns committed in groups.

Owns: what a process remembers between calls (bounded caches) and the one writer task. Refuses: wire formats, routing,
and deciding what to do when a commit fails: the caller does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recorder.settings import RecorderSettings
from recorder.states import Confidence, TrajectoryState
from recorder.store import Store
from recorder.turns import Address, Message, Parent, Request, TrajectoryRef, Turn


@dataclass(frozen=True, slots=True)
class Found:
    """Which run a conversation belongs to, by what it holds. `confidence` is NEW where `source` is "none"."""

    source: str  # "tool_call_id", "lineage", "retry", "none"
    confidence: Confidence
    parent: Parent | None
    trajectory: TrajectoryRef | None


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """Counts since the start, and what waits now."""

    queued_turns: int
    queued_bytes: int
    commits: int
    committed_turns: int
    failed_commits: int
    unrecorded_turns: int  # turns whose commit raised


class Recorder:
    """One a proxy process. `start()` before the first call, `stop()` drains."""

    def __init__(self, store: Store, settings: RecorderSettings) -> None:
        self._store = store
        self._settings = settings

    async def start(self) -> None:
        """Start the writer."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Commit what is queued, then stop."""
        raise NotImplementedError

    def stats(self) -> RecorderStats:
        """For /metrics."""
        raise NotImplementedError

    async def trajectory_at(
        self,
        project_id: str,
        alias_id: str | None,
        address: Address,
        request: Request,
        offered_version: str | None,
    ) -> TrajectoryRef:
        """Find or create the trajectory that `address` names: by trajectory id, or a new member of a named group.

        A sealed one is continued by a new one. The ref's `version_id` is the pin in force: a declared group's, else
        the trajectory's own; `offered_version` becomes the pin where there is none yet. Raises StoreUnavailable.
        """
        raise NotImplementedError

    async def find_parent(
        self, project_id: str, alias_id: str | None, messages: Sequence[Message], request: Request | None = None
    ) -> Found:
        """Which run a call without an address belongs to: issued tool-call ids, else exact lineage.

        With `request`, an SDK's retry is found too (source "retry"): it belongs where the earlier attempt does. Does
        no I/O when there is no assistant message.
        """
        raise NotImplementedError

    async def parent_in(self, trajectory: TrajectoryRef, messages: Sequence[Message]) -> Parent | None:
        """The sampled choice of `trajectory` that a conversation goes on from. No I/O where this process wrote it."""
        raise NotImplementedError

    def new_trajectory(self, address: Address, offered_version: str | None) -> TrajectoryRef:
        """A new trajectory without an external id, pinned to `offered_version`. Its row is written with its turn."""
        raise NotImplementedError

    def begin(self, turn: Turn) -> None:
        """Note a call (state OPEN) that runs now. It is written where it still runs after `open_row_after_s`."""
        raise NotImplementedError

    async def commit(self, turn: Turn) -> None:
        """Write an ended call; returns when it is durable, raises StoreUnavailable where it is not.

        How long to wait is the caller's policy (`asyncio.timeout`): the writer goes on and may still commit.
        `address.done` closes the trajectory in the same transaction.
        """
        raise NotImplementedError

    async def close(
        self,
        project_id: str,
        trajectory_id: str,
        state: TrajectoryState = TrajectoryState.COMPLETED,
        reason: str = "closed",
    ) -> None:
        """Close a trajectory behind its queued turns. Closing a closed one does nothing. Raises NotFound."""
        raise NotImplementedError
