"""Bounded caches of what a proxy process wrote, so that a call of a known trajectory needs no query.

Owns: the caches. They hold only facts of committed transactions, and an uncached object may still exist (there is no
negative caching). Entries of different keys have their owner in the value or in the key of the cache. Refuses: queries,
and deciding who may see what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields

from recorder.base.lru import Lru
from recorder.messages import content_hashes
from recorder.messages.calls import Message, ParentCall, TrajectoryRef
from recorder.states import Confidence


@dataclass(frozen=True, slots=True)
class RetryCandidate:
    """A request that an SDK's retry may repeat."""

    call_id: str
    trajectory: TrajectoryRef
    parent: ParentCall | None
    retry_count: int
    complete: bool
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class UnwrittenTrajectory:
    """A trajectory without a row yet. `continues` is the sealed one that it continues."""

    continues: str | None = None


Address = tuple[str, str, str]  # project, group part, trajectory part

# Sizes in entries: all caches together stay under 120 MB.
_NODES, _BLOBS, _TRAJECTORIES, _LEAVES, _ISSUED, _ATTEMPTS = 200_000, 10_000, 50_000, 50_000, 50_000, 20_000
_TRACES = 40_000  # a call brings a span and a trace


_NOT_OF_THE_STORE = frozenset({"unwritten", "_chains", "deletions", "_content_ids"})
_CONTENTS = 64  # of which the ids are cached, so at most 8 MB
_CONTENT_BYTES = range(2_048, 131_072)  # of such a content: a smaller one is hashed as fast as it is looked up


@dataclass(slots=True)
class CaptureCache:
    """The caches of one process; `process` is its name."""

    process: str | None = None
    nodes: Lru[bytes, bool] = field(default_factory=lambda: Lru(_NODES))  # written, and so are all their ancestors
    blobs: Lru[bytes, bool] = field(default_factory=lambda: Lru(_BLOBS))  # written
    addresses: Lru[Address, TrajectoryRef] = field(default_factory=lambda: Lru(_TRAJECTORIES))
    refs: Lru[str, tuple[str, TrajectoryRef]] = field(default_factory=lambda: Lru(_TRAJECTORIES))  # id → project, ref
    unwritten: Lru[str, UnwrittenTrajectory] = field(default_factory=lambda: Lru(_TRAJECTORIES))  # by trajectory id
    moved: Lru[str, TrajectoryRef] = field(default_factory=lambda: Lru(_TRAJECTORIES))  # sealed → its continuation
    leaves: Lru[tuple[str, bytes], ParentCall] = field(default_factory=lambda: Lru(_LEAVES))  # (trajectory, node)
    hashes: Lru[ParentCall, bytes] = field(default_factory=lambda: Lru(_LEAVES))  # blocks of prompt + sampled ids
    # (project, id) → choice, its trajectory and the trajectory's owner
    issued: Lru[tuple[str, str], tuple[ParentCall, str, str]] = field(default_factory=lambda: Lru(_ISSUED))
    # (project, key family, trace or span) → the trajectory of its calls; "" if there are several
    traces: Lru[tuple[str, str, str], str] = field(default_factory=lambda: Lru(_TRACES))
    # (project, key family, hash of the body) → requests with that body; requests of other keys take no place
    attempts: Lru[tuple[str, str, bytes], tuple[RetryCandidate, ...]] = field(default_factory=lambda: Lru(_ATTEMPTS))
    retried: Lru[tuple[str, bytes], bool] = field(default_factory=lambda: Lru(_ATTEMPTS))  # (trajectory, body)
    superseded: Lru[str, tuple[str, bytes]] = field(default_factory=lambda: Lru(_ATTEMPTS))  # call → its request
    claimed: Lru[ParentCall, bool] = field(default_factory=lambda: Lru(_ATTEMPTS))  # assigned to a running call
    # requests for a tool (call, choice, position) that a tool call answered
    tools: Lru[tuple[str, int, int], bool] = field(default_factory=lambda: Lru(_ATTEMPTS))
    touched: Lru[str, float] = field(default_factory=lambda: Lru(_TRAJECTORIES))  # group → last_call_at as written
    _chains: Lru[int, tuple[bytes, Sequence[Message], list[bytes]]] = field(default_factory=lambda: Lru(64))
    # (key, content) → its id. A plain dict: threads that prepare large calls write it too
    _content_ids: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict)
    deletions: dict[str, int] = field(default_factory=dict)  # by project, the number of deletions that the entries know

    def forget(self, deletions: Mapping[str, int]) -> None:
        """Forget all facts about the store, because something was deleted. Entries without a row stay."""
        for cache in fields(self):
            if cache.name not in _NOT_OF_THE_STORE and cache.default_factory is not MISSING:
                setattr(self, cache.name, cache.default_factory())
        self.deletions |= deletions

    def content_id(self, key: bytes, content: bytes) -> bytes:
        """Return `content_hashes.content_id`, cached for what agents send with every call.

        For 51 kB of tools 14 µs, by Python's own hash and a comparison, and not 56 µs.
        """
        if len(content) not in _CONTENT_BYTES:
            return content_hashes.content_id(key, content)
        known = self._content_ids.get((key, content))
        if known is None:
            if len(self._content_ids) >= _CONTENTS:
                self._content_ids.clear()
            known = self._content_ids[key, content] = content_hashes.content_id(key, content)
        return known

    def chain(self, key: bytes, messages: Sequence[Message]) -> list[bytes]:
        """Return `content_hashes.chain_node_ids` of these messages, cached for the writer, which uses the same list."""
        chain = self.known_chain(key, messages)
        self.keep_chain(key, messages, chain)
        return chain

    def keep_chain(self, key: bytes, messages: Sequence[Message], chain: list[bytes]) -> None:
        """Keep a chain that was computed elsewhere."""
        self._chains.put(id(messages), (key, messages, chain))

    def take_chain(self, key: bytes, messages: Sequence[Message]) -> list[bytes]:
        """Return the result of `chain` for this list object, and drop it from the cache: it holds a whole request."""
        return self._chain_of(self._chains.take(id(messages)), key, messages)

    def known_chain(self, key: bytes, messages: Sequence[Message]) -> list[bytes]:
        """Return the result of `chain` for this list object, and keep it in the cache."""
        return self._chain_of(self._chains.get(id(messages)), key, messages)

    def _chain_of(
        self, known: tuple[bytes, Sequence[Message], list[bytes]] | None, key: bytes, messages: Sequence[Message]
    ) -> list[bytes]:
        # the entry keeps the list alive, so its id is not reused
        if known is not None and known[1] is messages and known[0] == key and len(known[2]) == len(messages):
            return known[2]
        return content_hashes.chain_node_ids(key, messages)

    def forget_address(self, project_id: str, ref: TrajectoryRef) -> None:
        """Forget the address of a closed trajectory: the next call at it gets a continuation."""
        if ref.external_id is not None:
            self.addresses.drop((project_id, ref.group_external_id or "", ref.external_id))
        self.refs.drop(ref.id)
