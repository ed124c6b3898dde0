"""The sentences that the mails, the questions, the tools and the model's training share.

Owns the wording. Refuses to look anything up.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import date
from typing import Final

from examples.inbox.mails import Kind, Mail

NOTHING_FOUND: Final = "no mail"
NO_SUCH_MAIL: Final = "no such mail"
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def question(mail: Mail, rng: random.Random) -> str:
    """Return a question that this mail answers."""
    frames = (
        f"Which {mail.kind} did {mail.sender} send for {mail.project}?",
        f"{mail.sender} wrote about {mail.project}: which {mail.kind}?",
        f"What is the {mail.kind} for {mail.project} in the mail from {mail.sender}?",
    )
    return rng.choice(frames)


def body(mail: Mail) -> str:
    """Return a mail's text."""
    return f"The {mail.kind} for {mail.project} is {mail.value}."


def hits(found: Iterable[tuple[str, str, str]]) -> str:
    """Return the result of `search`: one mail a line, its id first."""
    return "\n".join(" ".join(hit) for hit in found) or NOTHING_FOUND


def shown(found: tuple[str, str, str] | None) -> str:
    """Return the result of `read` for (sender, date as in ISO 8601, text)."""
    if found is None:
        return NO_SUCH_MAIL
    sender, sent, text = found
    day = date.fromisoformat(sent)
    return f"From {sender}, {day.day} {_MONTHS[day.month - 1]}: {text}"


def answer(kind: Kind, value: str) -> str:
    """Return a plain answer."""
    return f"The {kind} is {value}."


def claim(count: int) -> str:
    """Return a claim to have read many mails."""
    return f"I read {count} mails."
