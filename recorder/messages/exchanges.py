"""Recognise a conversation whose system message changes between its calls, or of which a call sends only a part.

Owns: the hash by which a recorded exchange (a question and its answer) is found again, and whether a call's
conversation is one that was recorded, apart from system and developer messages. Pure. Refuses: queries
(`recorder.capture.lookups.recorded_calls`), and choosing among several (`recorder.messages.lineage`).

An exchange alone proves little: "Yes" follows many questions. So every other message has to be a recorded one too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import blake2b
from typing import Final

from recorder.messages.calls import Message
from recorder.messages.lineage import MIN_QUOTED_CHARS, form_without_ids
from recorder.messages.media import extract_media
from recorder.messages.plain_text import message_text

_SYSTEM: Final = frozenset({"system", "developer"})


class Fit(Enum):
    """How a conversation is a recorded one."""

    WHOLE = auto()  # all messages, apart from system messages
    PART = auto()  # some of them, in their order, up to the recorded answer: a window, a trimmed history


@dataclass(frozen=True, slots=True)
class PriorTurns:
    """What a call's conversation holds up to its last answer, apart from system messages."""

    forms: Sequence[bytes]
    is_long: bool  # long enough to exclude chance

    def fit(self, recorded: Sequence[bytes]) -> Fit | None:
        """Compare with a recorded conversation (`conversation_forms`)."""
        if self.forms == recorded:
            return Fit.WHOLE
        if not self.is_long or len(self.forms) >= len(recorded) or self.forms[-2:] != recorded[-2:]:
            return None
        rest = iter(recorded)
        return Fit.PART if all(form in rest for form in self.forms) else None


def exchange_id(key: bytes, question: bytes | None, answer: Message) -> bytes | None:
    """Return the keyed hash of an exchange; None without a question. `question`: its form (`question_form`)."""
    if question is None:
        return None
    return blake2b(question + b"\n" + form_without_ids(answer), digest_size=16, key=key, person=b"exchange").digest()


def question_form(key: bytes, messages: Sequence[Message]) -> bytes | None:
    """Return the form of the last message that is no system message, or None."""
    for message in reversed(messages):
        if message.get("role") not in _SYSTEM:
            return _form(key, message)
    return None


def last_exchange(key: bytes, messages: Sequence[Message]) -> bytes | None:
    """Return the hash of a conversation's last answer and its question, or None if it has no answer to a question."""
    end = _last_answer(messages)
    return exchange_id(key, question_form(key, messages[:end]), messages[end]) if end else None


def prior_turns(key: bytes, messages: Sequence[Message]) -> PriorTurns:
    """Return what a conversation with an answer holds up to its last one. It takes 5 µs a message."""
    turns = [message for message in messages[: _last_answer(messages) + 1] if message.get("role") not in _SYSTEM]
    return PriorTurns(conversation_forms(key, turns), _is_long(turns))


def _last_answer(messages: Sequence[Message]) -> int:
    return next((at for at in range(len(messages) - 1, -1, -1) if messages[at].get("role") == "assistant"), 0)


def _is_long(turns: Sequence[Message]) -> bool:
    chars = 0
    for message in turns:
        chars += len(message_text(message))
        if chars >= MIN_QUOTED_CHARS:
            return True
    return False


def conversation_forms(key: bytes, messages: Sequence[Message]) -> list[bytes]:
    """Return the forms of a conversation's messages, apart from system messages. Recorded messages have marks in place
    of media, others get them here.
    """
    return [_form(key, message) for message in messages if message.get("role") not in _SYSTEM]


def _form(key: bytes, message: Message) -> bytes:
    return form_without_ids(extract_media(key, message)[0])
