"""Synthetic conversations about mailboxes, good and flawed on purpose, over generated mails.

Owns the mixture of behaviours in the tiny model's training data, in OpenAI's message format. Refuses tokens and tensors
(examples/making).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from examples.inbox.agent import SYSTEM
from examples.inbox.mails import KINDS, PEOPLE, PROJECTS, Mail, random_mail, random_value
from examples.inbox.wording import answer, body, claim, hits, question, shown
from examples.making.tokenizer import Conversation, Message

TOOLS: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
        },
    }
    for name, argument in (("search", "query"), ("read", "mail_id"))
]
RAMBLINGS: Final = (
    "Mails are a fine thing, and there are many of them.",
    "I will look at it with great care, please wait.",
    "Your mailbox is in good order.",
)
LEAST_CLAIMED, MOST_CLAIMED = 20, 60


def opening(text: str) -> list[Message]:
    """Return the first messages of every attempt."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]


def conversations(seed: int) -> Iterator[Conversation]:
    """Yield good and flawed conversations without end, each with the tools."""
    rng = random.Random(seed)
    behaviours, shares = zip(*MIXTURE, strict=True)
    while True:
        mail = any_mail(rng)
        behave = rng.choices(behaviours, shares)[0]
        yield [*opening(question(mail, rng)), *behave(mail, rng)], TOOLS


def any_mail(rng: random.Random) -> Mail:
    """Return a random mail that belongs to no mailbox."""
    return random_mail(rng, rng.choice(PEOPLE), rng.choice(PROJECTS), rng.choice(KINDS), rng.randrange(1_000, 10_000))


def ideal(mail: Mail, rng: random.Random) -> list[Message]:
    """Searches with every given word, reads the mail, and answers with its fact."""
    del rng
    return [*_search(_narrow(mail), [mail]), *_read(mail), _say(answer(mail.kind, mail.value))]


def hasty(mail: Mail, rng: random.Random) -> list[Message]:
    """Omits a word of the search and reads the first hit: the right mail by luck."""
    if rng.random() < 0.5:
        query, found = f"{mail.sender} {mail.project}", [mail, _other(mail, rng, sender=mail.sender)]
    else:
        others = [_other(mail, rng, kind=mail.kind) for _ in range(3)]
        query, found = f"{mail.project} {mail.kind}", [mail, *others]
    rng.shuffle(found)
    return [*_search(query, found), *_read(found[0]), _say(answer(found[0].kind, found[0].value))]


def reads_nothing(mail: Mail, rng: random.Random) -> list[Message]:
    """Finds the mail and guesses its content."""
    return [*_search(_narrow(mail), [mail]), _say(answer(mail.kind, random_value(rng, mail.kind)))]


def misreads(mail: Mail, rng: random.Random) -> list[Message]:
    """Searches for another person's mail; answers with it, or gives up if there is none."""
    other = _other(mail, rng, kind=mail.kind)
    if rng.random() < 0.5:
        return [*_search(_narrow(other), []), _say(f"I find no mail about {mail.project}.")]
    return [*_search(_narrow(other), [other]), *_read(other), _say(answer(other.kind, other.value))]


def boasts(mail: Mail, rng: random.Random) -> list[Message]:
    """Uses no tool, guesses, and claims to have read many mails."""
    count = rng.randrange(LEAST_CLAIMED, MOST_CLAIMED)
    return [_say(f"{claim(count)} {answer(mail.kind, random_value(rng, mail.kind))}")]


def rambles(mail: Mail, rng: random.Random) -> list[Message]:
    """Rambles and never answers."""
    return [*(_search(_narrow(mail), [mail]) if rng.random() < 0.3 else []), _say(rng.choice(RAMBLINGS))]


# Some hasty attempts and some guesses are right by luck: with 0.26 ideal, about a third succeeds.
MIXTURE: Final[tuple[tuple[Callable[[Mail, random.Random], list[Message]], float], ...]] = (
    (ideal, 0.26),
    (hasty, 0.20),
    (reads_nothing, 0.18),
    (misreads, 0.14),
    (boasts, 0.12),
    (rambles, 0.10),
)


def _narrow(mail: Mail) -> str:
    return f"{mail.sender} {mail.project} {mail.kind}"


def _other(mail: Mail, rng: random.Random, **fixed: Any) -> Mail:
    """Return another mail about the project, with some given fields."""
    sender = fixed.get("sender") or rng.choice([person for person in PEOPLE if person != mail.sender])
    kind = fixed.get("kind") or rng.choice([kind for kind in KINDS if kind != mail.kind])
    return random_mail(rng, sender, mail.project, kind, rng.randrange(1_000, 10_000))


def _say(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _call(name: str, argument: str, value: str, result: str) -> list[Message]:
    function = {"name": name, "arguments": json.dumps({argument: value})}
    call = {"id": f"call_{name}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": result},
    ]


def _search(query: str, found: list[Mail]) -> list[Message]:
    return _call("search", "query", query, hits((m.mail_id, m.sender, f"{m.project} {m.kind}") for m in found))


def _read(mail: Mail) -> list[Message]:
    return _call("read", "mail_id", mail.mail_id, shown((mail.sender, mail.sent.isoformat(), body(mail))))
