"""Prompts without messages that continue an earlier answer: recognised, and recorded as the conversation they are.

Owns: a short memory of prompts and answers by address, and splitting a prompt that begins with exactly such a pair into
the recorded part and the new part. The pair must match by ids, or by text. This gives calls of agents that render their
own prompts a parent, and stores their history once. Refuses: guessing: without a memory (another process, a restart,
one different token) the prompt stays one message, and the call has no parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from proxy.dialects.base import CallReader, RecordableAnswer
from proxy.dialects.completions import CompletionsReader, Prompt, prompt_message
from recorder.base.lru import Lru
from recorder.messages.calls import Address, Message
from recorder.messages.tokens import ID_BYTES, pack_heard_ids, pack_ids

RUNS = 2_000  # addresses in memory: 40 MB at 20 KB of prompt each
ENDS = 16  # answers in memory for each: the latest

_Key = tuple[str | None, str, type]  # group, trajectory, and whether ids or text


@dataclass(frozen=True, slots=True)
class _AnswerEnd:
    """The end of an answer: the length of prompt and answer in bytes, their hash, and their messages."""

    length: int
    digest: bytes
    messages: tuple[Message, ...]


class ConversationMatcher:
    """Matches the calls of one route. Ignores readers other than those of completions, and calls without an address."""

    def __init__(self) -> None:
        self._ends: Lru[_Key, tuple[_AnswerEnd, ...]] = Lru(RUNS)

    def recognise(self, address: Address, reading: CallReader) -> None:
        """Split the prompt of `reading` if it continues an answer at this address."""
        if not isinstance(reading, CompletionsReader) or address.trajectory is None:
            return
        ends = self._ends.get((address.group, address.trajectory, type(reading.prompt)))
        prompt = _bytes(reading.prompt)
        for end in sorted(ends or (), key=lambda end: -end.length):
            if end.length <= len(prompt) and _digest(prompt[: end.length]) == end.digest:
                messages = [*end.messages, *_rest(reading.prompt, prompt, end.length)]
                reading.request = replace(reading.request, messages=messages)
                return

    def note(self, address: Address, reading: CallReader, sampled: RecordableAnswer) -> None:
        """Remember the answers to a prompt, by text and by ids: an agent may continue in either form."""
        if not isinstance(reading, CompletionsReader) or address.trajectory is None:
            return
        text = reading.prompt if isinstance(reading.prompt, str) else None
        for choice in sampled.choices:
            if choice.message is None or choice.finish_reason is None:
                continue
            messages = (*reading.request.messages, choice.message)
            if sampled.prompt_token_ids is not None and choice.token_ids is not None:
                ids = pack_heard_ids([*sampled.prompt_token_ids, *choice.token_ids])
                if ids is not None:
                    self._add((address.group, address.trajectory, list), ids, messages)
            if text is not None:
                whole = text + (choice.message.get("content") or "")
                self._add((address.group, address.trajectory, str), whole.encode(), messages)

    def _add(self, key: _Key, whole: bytes, messages: Sequence[Message]) -> None:
        end = _AnswerEnd(len(whole), _digest(whole), tuple(messages))
        self._ends.put(key, (*(self._ends.get(key) or ()), end)[-ENDS:])


def _bytes(prompt: Prompt) -> bytes:
    return prompt.encode() if isinstance(prompt, str) else pack_ids(prompt)


def _digest(of: bytes) -> bytes:
    return blake2b(of, digest_size=16).digest()


def _rest(prompt: Prompt, packed: bytes, length: int) -> list[Message]:
    """The new part as a message; empty if there is none."""
    rest = packed[length:].decode() if isinstance(prompt, str) else prompt[length // ID_BYTES :]
    return [prompt_message(rest)] if rest else []
