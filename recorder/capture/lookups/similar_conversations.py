"""Find the recorded conversations that a call repeats apart from system messages, or in part.

Owns: reading the candidates and comparing them, beside the event loop: each may have as many messages as a request.
Refuses: the comparison itself (`recorder.messages.exchanges`), and choosing among those found
(`recorder.capture.resolver`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from recorder.base.beside_loop import run_beside_loop
from recorder.capture.lookups import recorded_calls
from recorder.messages.calls import KeyAccess, Message
from recorder.messages.exchanges import Fit, PriorTurns, conversation_forms, last_exchange, prior_turns
from recorder.messages.lineage import Match, masked_system, system_messages
from recorder.store.write_backends import WriteBackend


@dataclass(frozen=True, slots=True)
class SimilarConversation:
    """A recorded answer at the end of a conversation that a call repeats, apart from system messages or in part."""

    match: Match
    fit: Fit
    system: Sequence[Message]  # its system messages


@dataclass(frozen=True)
class _CallConversation:
    """A call's conversation; its forms are computed when a candidate is compared with it, in that thread."""

    key: bytes
    messages: Sequence[Message]

    @cached_property
    def turns(self) -> PriorTurns:
        return prior_turns(self.key, self.messages)

    def compare(self, texts: Sequence[str]) -> tuple[Fit, Sequence[Message]] | None:
        """Return how the call's conversation fits a recorded one, and that one's system messages; None: it does not."""
        recorded = [json.loads(text) for text in texts]
        fit = self.turns.fit(conversation_forms(self.key, recorded))
        return (fit, system_messages(recorded)) if fit is not None else None

    def with_same_system(self, alike: Sequence[SimilarConversation]) -> list[SimilarConversation]:
        """Return those whose system messages are the call's, apart from what varies in them."""
        system = masked_system(self.messages)
        return [one for one in alike if masked_system(one.system) == system]


async def find_similar(
    backend: WriteBackend, project_id: str, key: bytes, messages: Sequence[Message], access: KeyAccess
) -> list[SimilarConversation]:
    """Return the caller's recorded conversations that end in a call's last exchange and fit it best.

    The newest come first. Of several open trajectories, those with the call's system messages come alone, if there are
    any. Raises StoreUnavailable.
    """
    exchange = last_exchange(key, messages)
    if exchange is None:
        return []
    found = await backend.read(lambda ex: recorded_calls.find_exchanges(ex, project_id, exchange, access))
    if not found:
        return []
    own = _CallConversation(key, messages)
    fits: dict[bytes, tuple[Fit, Sequence[Message]] | None] = {}
    for node in dict.fromkeys(one.node for one in found):
        texts = await backend.read(partial(recorded_calls.conversation_texts, node=node), large=True)
        fits[node] = await run_beside_loop(partial(own.compare, texts))
    alike = [SimilarConversation(one.match, *fit) for one in found if (fit := fits[one.node]) is not None]
    alike = [one for one in alike if one.fit is Fit.WHOLE] or alike
    if len({one.match.trajectory_id for one in alike if one.match.open}) < 2:
        return alike
    return await run_beside_loop(lambda: own.with_same_system(alike)) or alike
