"""The sentences that the mails, the questions, the tools and the making of the model share.

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
    """A question that this mail answers."""
    frames = (
        f"Which {mail.kind} did {mail.sender} send for {mail.project}?",
        f"{mail.sender} wrote about {mail.project}: which {mail.kind}?",
        f"What is the {mail.kind} for {mail.project} in the mail from {mail.sender}?",
    )
    return rng.choice(frames)


def body(mail: Mail) -> str:
    """What stands in a mail."""
    return f"The {mail.kind} for {mail.project} is {mail.value}."


def hits(found: Iterable[tuple[str, str, str]]) -> str:
    """What `search` says: a mail a line, its id first."""
    return "\n".join(" ".join(hit) for hit in found) or NOTHING_FOUND


def shown(found: tuple[str, str, str] | None) -> str:
    """What `read` says of (sender, date as in ISO 8601, text)."""
    if found is None:
        return NO_SUCH_MAIL
    sender, sent, text = found
    day = date.fromisoformat(sent)
    return f"From {sender}, {day.day} {_MONTHS[day.month - 1]}: {text}"


def answer(kind: Kind, value: str) -> str:
    """A plain answer."""
    return f"The {kind} is {value}."


def claim(count: int) -> str:
    """What somebody says who wants to look thorough."""
    return f"I read {count} mails."
