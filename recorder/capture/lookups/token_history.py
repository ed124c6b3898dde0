"""Token histories: the exact tokens up to a sampled choice, so that the next call can be sent with the same tokens.

Owns: the content of a history, the bounded cache of recent ones, and loading one from the store. Refuses: deciding
whether a call may be sent with it (the proxy does), and reading more than one chain of calls.
"""

from __future__ import annotations

import json
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recorder.capture.lookups import statements as sql
from recorder.messages import tokens
from recorder.messages.calls import ParentCall, choice_extras
from recorder.store.write_backends import Executor, Row


@dataclass(frozen=True, slots=True)
class TokenHistory:
    """A sampled choice with its prompt. Redacted and unknown values are None."""

    prompt: bytes | None  # packed ids
    sampled: bytes | None  # packed ids
    node: bytes | None  # identifies the conversation up to and including the choice's message
    finish_reason: str | None
    base_fingerprint: str | None
    meta: Mapping[str, Any]  # the call's `response_meta`
    extras: Mapping[str, Any]  # the choice's fields besides its message: reasoning …
    stop_reason: int | str | None  # the caller's stop string or stop token that ended it
    alone: bool  # no other choice of the call has the same message

    def ids(self) -> array[int]:
        """Return prompt and sampled ids as one sequence; empty if either is unknown."""
        if not self.prompt or not self.sampled:
            return array("i")
        return tokens.unpack_ids(self.prompt + self.sampled)

    @property
    def size_bytes(self) -> int:
        """The approximate size in memory."""
        return len(self.prompt or b"") + len(self.sampled or b"") + 1024


class RecentTokenHistories:
    """The histories of the newest choices, at most `max_bytes` in all; 0: none."""

    def __init__(self, max_bytes: int = 0) -> None:
        self.max_bytes = max_bytes
        self._held = 0
        self._pasts: OrderedDict[ParentCall, TokenHistory] = OrderedDict()  # evicts in constant time; a dict does not

    def __len__(self) -> int:
        return len(self._pasts)

    def get(self, choice: ParentCall) -> TokenHistory | None:
        """Return the history of a choice and make it the newest; None if it is not cached."""
        past = self._pasts.get(choice)
        if past is not None:
            self._pasts.move_to_end(choice)
        return past

    def put(self, choice: ParentCall, past: TokenHistory) -> None:
        """Cache a history; drop the oldest if there is no room."""
        self.drop(choice)
        self._pasts[choice] = past
        self._held += past.size_bytes
        while self._held > self.max_bytes:
            _, oldest = self._pasts.popitem(last=False)
            self._held -= oldest.size_bytes

    def forget(self) -> None:
        """Drop all histories, because some may have been deleted."""
        self._pasts.clear()
        self._held = 0

    def drop(self, choice: ParentCall) -> None:
        """Drop the history of a choice that a call continues: a second call rarely does."""
        past = self._pasts.pop(choice, None)
        self._held -= past.size_bytes if past is not None else 0


def load_token_history(ex: Executor, choice: ParentCall) -> TokenHistory | None:
    """Load the history of a choice, or None if the choice does not exist. Raises CorruptRecord."""
    chain = ex.all(sql.PROMPTS_UP, call=choice.call_id)
    if not chain:
        return None
    sampled = {(row[0], row[1]): row for row in ex.all(sql.CHOICE_IDS, ids=[row[0] for row in chain])}
    own = sampled.get((choice.call_id, choice.choice))
    if own is None:
        return None
    _, _, node, ids, finish = own
    base, meta = ex.all(sql.CALL_META, call=choice.call_id)[0]
    nodes = [row[2] for (call_id, _), row in sampled.items() if call_id == choice.call_id]
    prompt = _prompt(chain, {at: row[3] for at, row in sampled.items()})
    return token_history(prompt, ids, node, finish, base, parse_response_meta(meta), choice.choice, nodes)


def token_history(
    prompt: bytes | None,
    ids: bytes | None,
    node: bytes | None,
    finish: str | None,
    base: str | None,
    meta: Mapping[str, Any],
    index: int,
    nodes: Sequence[bytes | None],
) -> TokenHistory:
    """Build the history of choice `index` of a call from the rows' columns; `nodes` are those of all choices."""
    stopped = meta.get("stop_reasons", {}).get(str(index))
    extras = choice_extras(meta, index)
    return TokenHistory(prompt, ids, node, finish, base, meta, extras, stopped, alone=nodes.count(node) == 1)


def parse_response_meta(stored: str | None) -> Mapping[str, Any]:
    """Parse a call's stored `response_meta`."""
    return dict(json.loads(stored)) if stored else {}


def _prompt(chain: Sequence[Row], sampled: Mapping[tuple[str, int], bytes | None]) -> bytes | None:
    """Assemble the packed prompt of the first call of a chain from the calls that it shares ids with."""
    prompt: array[int] | None = None
    for _, parent_id, parent_choice, shared, delta, length in reversed(chain):
        if length is None or delta is None or (shared and prompt is None):
            return None  # it has no ids, or shares ids with a deleted call
        above = prompt + tokens.unpack_ids(sampled.get((parent_id, parent_choice or 0)) or b"") if prompt else None
        prompt = tokens.join_ids(above, shared or 0, delta, length)
    return tokens.pack_ids(prompt) if prompt is not None else None
