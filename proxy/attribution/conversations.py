"""Prompts without messages that go on from an earlier answer: recognised, and recorded as the conversation they are.

Owns: a short memory of what was prompted and answered at an address, and cutting a prompt that begins with exactly
that (the same ids, or the same text) into what was recorded and what is new. So a call of an agent that renders its
own prompts has its parent, and its history is stored once. Refuses: guessing: where it remembers nothing (another
process, a restart, a prompt that differs in one token) the prompt stays one message, and the call has no parent.
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

RUNS = 2_000  # addresses remembered: at 20 KB of prompt each, 40 MB
ENDS = 16  # answers remembered of each: the last ones

_Key = tuple[str | None, str, type]  # group, trajectory, and whether ids or text


@dataclass(frozen=True, slots=True)
class _AnswerEnd:
    """Where an answer ended: as many bytes of prompt and answer, what they hash to, and the messages they are."""

    length: int
    digest: bytes
    messages: tuple[Message, ...]


class ConversationMatcher:
    """One a route. Touches no reading but those of completions, and no call without an address."""

    def __init__(self) -> None:
        self._ends: Lru[_Key, tuple[_AnswerEnd, ...]] = Lru(RUNS)

    def recognise(self, address: Address, reading: CallReader) -> None:
        """Cut the prompt of `reading` where it goes on from an answer at this address."""
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
        """Remember the answers to a prompt, by text and by ids: an agent may go on in either."""
        if not isinstance(reading, CompletionsReader) or address.trajectory is None:
            return
        said = reading.prompt if isinstance(reading.prompt, str) else None
        for choice in sampled.choices:
            if choice.message is None or choice.finish_reason is None:
                continue
            messages = (*reading.request.messages, choice.message)
            if sampled.prompt_token_ids is not None and choice.token_ids is not None:
                ids = pack_heard_ids([*sampled.prompt_token_ids, *choice.token_ids])
                if ids is not None:
                    self._add((address.group, address.trajectory, list), ids, messages)
            if said is not None:
                whole = said + (choice.message.get("content") or "")
                self._add((address.group, address.trajectory, str), whole.encode(), messages)

    def _add(self, key: _Key, whole: bytes, messages: Sequence[Message]) -> None:
        end = _AnswerEnd(len(whole), _digest(whole), tuple(messages))
        self._ends.put(key, (*(self._ends.get(key) or ()), end)[-ENDS:])


def _bytes(prompt: Prompt) -> bytes:
    return prompt.encode() if isinstance(prompt, str) else pack_ids(prompt)


def _digest(of: bytes) -> bytes:
    return blake2b(of, digest_size=16).digest()


def _rest(prompt: Prompt, packed: bytes, length: int) -> list[Message]:
    """What is new, as a message; none where nothing is."""
    rest = packed[length:].decode() if isinstance(prompt, str) else prompt[length // ID_BYTES :]
    return [prompt_message(rest)] if rest else []
