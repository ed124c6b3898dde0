"""The exact tokens of a sampled choice and of all before it, so that a proxy can send the next call with the same
tokens.

Owns: the content of such a history, the bounded cache of recent ones, and loading one from the store. Refuses: deciding
whether a call may be sent with it (the proxy does), and reading more than one chain of calls.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recorder.capture.lookups import statements as sql
from recorder.messages import tokens
from recorder.messages.calls import ParentCall, choice_extras
from recorder.store.write_backends import Executor, Row


@dataclass(frozen=True, slots=True)
class TokenHistory:
    """A sampled choice with its prompt. What is redacted or was never known is None."""

    prompt: bytes | None  # packed ids
    sampled: bytes | None  # packed ids
    node: bytes | None  # identifies the conversation up to and including the choice's message
    finish_reason: str | None
    base_fingerprint: str | None
    meta: Mapping[str, Any]  # the call's `response_meta`
    extras: Mapping[str, Any]  # what the choice holds besides its message: reasoning …
    stop_reason: int | str | None  # a stop string or stop token of the caller's that ended it
    alone: bool  # no other choice of the call says the same

    def ids(self) -> array[int]:
        """Prompt and sampled ids as one sequence; empty where either is not known."""
        if not self.prompt or not self.sampled:
            return array("i")
        return tokens.unpack_ids(self.prompt + self.sampled)

    @property
    def size_bytes(self) -> int:
        """What keeping it costs, roughly."""
        return len(self.prompt or b"") + len(self.sampled or b"") + 1024


class RecentTokenHistories:
    """The pasts of the newest choices, at most `max_bytes` of them; with 0 it keeps none."""

    def __init__(self, max_bytes: int = 0) -> None:
        self.max_bytes = max_bytes
        self._held = 0
        self._pasts: dict[ParentCall, TokenHistory] = {}

    def __len__(self) -> int:
        return len(self._pasts)

    def get(self, choice: ParentCall) -> TokenHistory | None:
        """The past of a choice, which is now the newest; None where it is not kept."""
        past = self._pasts.pop(choice, None)
        if past is not None:
            self._pasts[choice] = past
        return past

    def put(self, choice: ParentCall, past: TokenHistory) -> None:
        """Keep a past; the oldest go where there is no room."""
        self.drop(choice)
        self._pasts[choice] = past
        self._held += past.size_bytes
        while self._held > self.max_bytes:
            self.drop(next(iter(self._pasts)))

    def forget(self) -> None:
        """Keep none of those that are kept: some may have been deleted."""
        self._pasts.clear()
        self._held = 0

    def drop(self, choice: ParentCall) -> None:
        """Remove an entry: a call continues it, and a second one rarely does."""
        past = self._pasts.pop(choice, None)
        self._held -= past.size_bytes if past is not None else 0


def load_token_history(ex: Executor, choice: ParentCall) -> TokenHistory | None:
    """The past of a choice from the store; None where there is no such choice. Raises CorruptRecord."""
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
    """The past of choice `index` of a call, from columns of its row and of the choice's; `nodes` are all choices'."""
    stopped = meta.get("stop_reasons", {}).get(str(index))
    extras = choice_extras(meta, index)
    return TokenHistory(prompt, ids, node, finish, base, meta, extras, stopped, alone=nodes.count(node) == 1)


def parse_response_meta(stored: str | None) -> Mapping[str, Any]:
    """A call's `response_meta`, from the text that is stored."""
    return dict(json.loads(stored)) if stored else {}


def _prompt(chain: Sequence[Row], sampled: Mapping[tuple[str, int], bytes | None]) -> bytes | None:
    """The packed prompt of the first call of a chain, assembled from those that it shares ids with."""
    prompt: array[int] | None = None
    for _, parent_id, parent_choice, shared, delta, length in reversed(chain):
        if length is None or delta is None or (shared and prompt is None):
            return None  # it has no ids, or shares some with a call that is gone
        above = prompt + tokens.unpack_ids(sampled.get((parent_id, parent_choice or 0)) or b"") if prompt else None
        prompt = tokens.join_ids(above, shared or 0, delta, length)
    return tokens.pack_ids(prompt) if prompt is not None else None
