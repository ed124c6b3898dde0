"""Answers to prompts, right ones and ones with chosen flaws.

Owns: the effect of each flaw on an answer of each form. Refuses: how often one is chosen
(`examples.rlvr.making.mixture`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Set
from typing import Any, Final

from examples.rlvr.forms import Form, Note, Record, Things
from examples.rlvr.forms.record import Range, Several
from examples.rlvr.words import LISTS, MARKS, TEXT_KEYS, WORDS

CHATTER: Final = ("Here is what you want:", "Of course, I can do that:")
REFUSALS: Final = ("I do not know how to do that.", "Please ask me for another thing.")
LARGEST_AMOUNT: Final = 12
OTHERS: Final = LISTS[6] + LISTS[7]  # no note asks for their words
FLAWS: Final[dict[type[Form], tuple[str, ...]]] = {
    Note: ("lines", "words", "begin", "end", "use", "avoid", "mark", "capitals", "chatter"),
    Things: ("lines", "numbering", "order", "trend", "amount", "capitals", "chatter"),
    Record: ("missing", "extra", "order", "text", "number", "truth", "list", "fence", "chatter"),
}


def answer(form: Form, flaws: Set[str], rng: random.Random) -> str:
    """Return an answer with these flaws and no others, unless chance adds one (an avoided word as the first word).

    `refusal` is a flaw that replaces the whole answer.
    """
    if "refusal" in flaws:
        return rng.choice(REFUSALS)
    chatter = [rng.choice(CHATTER)] if "chatter" in flaws else []
    match form:
        case Note():
            return "\n".join([*chatter, *_note(form, flaws, rng)])
        case Things():
            return "\n".join([*chatter, *_things(form, flaws, rng)])
        case Record():
            written = json.dumps(_record(form, flaws, rng))
            return "\n".join([*chatter, "```", written, "```"] if "fence" in flaws else [*chatter, written])
        case _:
            raise TypeError(f"no answers are known to a {type(form).__name__}")


def _note(note: Note, flaws: Set[str], rng: random.Random) -> list[str]:
    lengths = [note.words] * (max(1, note.lines + rng.choice((-1, 1))) if "lines" in flaws else note.lines)
    if "words" in flaws:
        lengths[rng.randrange(len(lengths))] += rng.choice((-1, 1))
    said = iter(_said(note, sum(lengths), flaws, rng))
    lines = [" ".join(next(said) for _ in range(length)) for length in lengths]
    if "capitals" in flaws:
        lines = [line.capitalize() for line in lines]
    mark = rng.choice([other for other in ("", *MARKS) if other != note.mark]) if "mark" in flaws else note.mark
    return [line + mark for line in lines]


def _said(note: Note, count: int, flaws: Set[str], rng: random.Random) -> list[str]:
    """Return the note's words: the first, those to use, as many others as fit, the last.

    The order is fixed, and the other words are from lists that no note asks for: with a free choice, a tiny model does
    not learn to look up words in the prompt.
    """
    used = list(note.use)
    if "use" in flaws:
        used.remove(rng.choice(used))
    used += [rng.choice(note.avoid)] if "avoid" in flaws else []
    inner = used[: max(0, count - 2)]
    inner += [rng.choice(OTHERS) for _ in range(count - 2 - len(inner))]
    first = rng.choice(OTHERS) if "begin" in flaws else note.begin
    last = rng.choice(OTHERS) if "end" in flaws else note.end
    return [first, *inner, last]


def _things(form: Things, flaws: Set[str], rng: random.Random) -> list[str]:
    things = list(form.things)
    if "lines" in flaws:
        things = things[:-1] if rng.random() < 0.5 else [*things, rng.choice(WORDS)]
    if "order" in flaws:
        a, b = rng.sample(range(len(things)), 2)
        things[a], things[b] = things[b], things[a]
    amounts = sorted(rng.sample(range(1, LARGEST_AMOUNT + 1), len(things)), reverse=not form.rising)
    if "trend" in flaws:
        amounts = [rng.randint(1, LARGEST_AMOUNT) for _ in things]
    if "capitals" in flaws:
        things = [thing.capitalize() for thing in things]
    numbers = [f"{number}." for number in range(1, len(things) + 1)]
    marks = ["-"] * len(things) if "numbering" in flaws else numbers
    behind = ["" if "amount" in flaws else f" {amount}" for amount in amounts]
    return [f"{mark} {thing}{end}" for mark, thing, end in zip(marks, things, behind, strict=True)]


def _record(form: Record, flaws: Set[str], rng: random.Random) -> dict[str, Any]:
    pairs = [(field.key, _value(field.wanted, flaws, rng)) for field in form.fields]
    if "missing" in flaws:
        pairs.pop(rng.randrange(len(pairs)))
    if "extra" in flaws:
        taken = [key for key, _ in pairs]
        pairs.append((rng.choice([key for key in TEXT_KEYS if key not in taken]), rng.choice(WORDS)))
    if "order" in flaws:
        pairs = pairs[1:] + pairs[:1]
    return dict(pairs)


def _value(wanted: str | bool | Range | Several, flaws: Set[str], rng: random.Random) -> Any:
    match wanted:
        case bool():
            return wanted != ("truth" in flaws)
        case str():
            return rng.choice(WORDS) if "text" in flaws else wanted
        case Several(count, word):
            return _list(count, word, flaws, rng)
        case Range(low, high):
            number = rng.choice((low, high))  # copying a bound is easier than choosing a number between the bounds
            return rng.choice((str(number), high + rng.randint(1, 3))) if "number" in flaws else number


def _list(count: int, word: str, flaws: Set[str], rng: random.Random) -> list[str]:
    lacks = "list" in flaws and rng.random() < 0.5
    length = count + rng.choice((-1, 1)) if "list" in flaws and not lacks else count
    others = [rng.choice(LISTS[0]) for _ in range(length)]  # a word that no prompt asks for
    return others if lacks else [word, *others[1:]]
