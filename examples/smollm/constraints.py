"""What an instruction can ask for: each constraint's sentence, and the rule of Hone that decides it (docs/rlvr.md).

Owns: the table of constraints, and the criterion of substance, which every instruction has: without it, the shortest
answers earn the most. Refuses: prompts, topics and which constraints go together (`examples.smollm.tasks`), and
checking an answer (`judge.rewards.rules` does).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

DIFFERENT_WORDS: Final = 6
MARKS: Final = ("|", "/", "*")
BEGINNINGS: Final = ("Today", "Most", "Some", "People", "Every", "When")
ENDINGS: Final = ("world", "people", "time", "life", "day", "home")
WORDS: Final = ("people", "often", "because", "world", "small", "water", "good", "many")
COMMON: Final = ("the", "and", "is", "a", "of")
_LETTER: Final = r"[\p{L}'’]"
LETTERS: Final = tuple("ABFHMST")


@dataclass(frozen=True, slots=True)
class Demand:
    """One constraint with its arguments: the sentence in the prompt, which is also the criterion, and the check."""

    sentence: str
    check: Mapping[str, Any]


Draw = Callable[[random.Random, str], Demand]


def matches(sentence: str, expression: str) -> Demand:
    """A demand that an answer meets if the expression is found in it."""
    return Demand(sentence, {"rule": "regex", "value": expression})


def substance(topic: str) -> Demand:
    """Return the criterion of every instruction: at least six different words, and the topic is named."""
    # Each atomic group takes the next word that is none of those before it: linear, whatever the answer.
    new = "".join(
        rf"(?>.*?(?<!{_LETTER}){_none_of(number)}({_LETTER}{{2,}}+))" for number in range(1, DIFFERENT_WORDS + 1)
    )
    return matches(
        f"The answer names {topic} and has at least {DIFFERENT_WORDS} different words.",
        rf"(?is)\A(?=.*?\b{re.escape(topic)}(?:e?s|['’]s)?\b){new}",
    )


def _none_of(number: int) -> str:
    """Return that here begins no word of an earlier group."""
    earlier = "|".join(rf"\{one}" for one in range(1, number))
    return rf"(?!(?:{earlier})(?!{_LETTER}))" if earlier else ""


def _words(low: int, high: int) -> str:
    """Return the expression of an answer with so many words, as white space divides it."""
    return rf"\A\s*+(?:\S++\s*+){{{low},{high}}}\Z"


def _items(first: Callable[[int], str], count: int) -> str:
    """Return the expression of so many lines that are not empty, each with its own beginning."""
    return r"\A\s*+" + r"\n\s*+".join(rf"{first(one)}[^\n]*\S[^\n]*" for one in range(1, count + 1)) + r"\s*\Z"


def _at_most(rng: random.Random, _: str) -> Demand:
    count = rng.choice((10, 12, 15, 18))
    return matches(f"Use at most {count} words.", _words(1, count))


def _at_least(rng: random.Random, _: str) -> Demand:
    count = rng.choice((20, 25, 30))
    return matches(f"Use at least {count} words.", _words(count, 9999))


def _between(rng: random.Random, _: str) -> Demand:
    low = rng.choice((8, 10, 12, 15))
    return matches(f"Use between {low} and {low + 10} words.", _words(low, low + 10))


def _sentences(rng: random.Random, _: str) -> Demand:
    count = rng.choice((1, 2, 3))
    number = "one sentence" if count == 1 else f"{('two', 'three')[count - 2]} sentences"
    return matches(f"Write exactly {number}.", rf"\A\s*+(?:[^.!?]++[.!?]++[\"')”’]*+(?:\s++|\Z)){{{count}}}\Z")


def _lines(rng: random.Random, _: str) -> Demand:
    count = rng.choice((2, 3))
    return matches(f"Write exactly {count} lines.", _items(lambda one: "", count))


def _dashes(rng: random.Random, _: str) -> Demand:
    count = rng.choice((2, 3))
    return matches(f"Write exactly {count} lines, and begin each line with a dash.", _items(lambda one: "-", count))


def _numbered(rng: random.Random, _: str) -> Demand:
    count = rng.choice((2, 3))
    return matches(f"Write a numbered list with exactly {count} points.", _items(lambda one: rf"{one}[.)]", count))


def _separated(rng: random.Random, _: str) -> Demand:
    mark = rng.choice(MARKS)
    part = rf"[^{re.escape(mark)}]*[\p{{L}}][^{re.escape(mark)}]*"
    return matches(f'Write two short sentences with "{mark}" between them.', rf"\A{part}{re.escape(mark)}{part}\Z")


def _begins(rng: random.Random, _: str) -> Demand:
    word = rng.choice(BEGINNINGS)
    return matches(f'Begin with the word "{word}".', rf"(?i)\A\W*{word}\b")


def _ends(rng: random.Random, _: str) -> Demand:
    word = rng.choice(ENDINGS)
    return matches(f'End with the word "{word}".', rf"(?i)\b{word}\W*\Z")


def _includes(rng: random.Random, _: str) -> Demand:
    word = rng.choice(WORDS)
    return matches(f'Use the word "{word}".', rf"(?i)\b{word}\b")


def _twice(rng: random.Random, _: str) -> Demand:
    word = rng.choice(WORDS)
    return matches(f'Use the word "{word}" twice.', rf"(?is)\b{word}\b.*\b{word}\b")


def _avoids(rng: random.Random, _: str) -> Demand:
    word = rng.choice(COMMON)
    return matches(f'Do not use the word "{word}".', rf"(?is)\A(?!.*\b{word}\b)")


def _letter(rng: random.Random, _: str) -> Demand:
    letter = rng.choice(LETTERS)
    return matches(f"Begin with the letter {letter}.", rf"(?i)\A\W*{letter}")


def _heading(_: random.Random, topic: str) -> Demand:
    heading = topic.capitalize() + ":"
    return matches(f'Begin with "{heading}".', rf"\A\s*{heading}\s*\S")


def _json(_: random.Random, topic: str) -> Demand:
    text = {"type": "string", "minLength": 1}
    schema = {
        "type": "object",
        "properties": {"topic": text, "fact": text},
        "required": ["topic", "fact"],
        "additionalProperties": False,
    }
    sentence = 'Answer with a JSON object and nothing else. It has the keys "topic" and "fact".'
    return Demand(sentence, {"rule": "answer_schema", "value": schema})


def _always(sentence: str, expression: str) -> Draw:
    demand = matches(sentence, expression)
    return lambda rng, topic: demand


CONSTRAINTS: Final[Mapping[str, Draw]] = {
    "at_most": _at_most,
    "at_least": _at_least,
    "between": _between,
    "sentences": _sentences,
    "lines": _lines,
    "dashes": _dashes,
    "numbered": _numbered,
    "separated": _separated,
    "begins": _begins,
    "ends": _ends,
    "includes": _includes,
    "twice": _twice,
    "avoids": _avoids,
    "letter": _letter,
    "heading": _heading,
    "json": _json,
    "lower": _always("Use lower case letters only.", r"\A[^\p{Lu}]*\Z"),
    "capitals": _always("Use capital letters only.", r"\A[^\p{Ll}]*\Z"),
    "title": _always("Begin every word with a capital letter.", r"(?s)\A(?!.*(?<![\p{L}\p{N}'’])\p{Ll})"),
    "no_commas": _always("Do not use commas.", r"\A[^,]*\Z"),
    "no_stops": _always("Do not use full stops.", r"\A[^.]*\Z"),
    "no_digits": _always("Do not use digits.", r"\A\P{Nd}*\Z"),
    "digits": _always("Use a number, written in digits.", r"\p{Nd}"),
    "quotes": _always("Put the whole answer in double quotes.", r"\A\s*[\"“][^\"“”]+[\"”]\s*\Z"),
    "brackets": _always("Put the whole answer in round brackets.", r"\A\s*\([^()]+\)\s*\Z"),
    "question": _always("End with a question mark.", r"\?\W*\Z"),
    "exclaims": _always("End with an exclamation mark.", r"!\W*\Z"),
    "asks": _always('Begin with "Did you know".', r"(?i)\A\W*did you know\b"),
    "hashtag": _always("End with a hashtag.", r"#[\p{L}\p{N}_]+\s*\Z"),
    "semicolon": _always("Use a semicolon.", ";"),
    "bold": _always(
        "Put one word between two asterisks on each side, like **this**.", r"\*\*[^*\n]*[\p{L}\p{N}][^*\n]*\*\*"
    ),
    "closing": _always('End with the sentence "That is all."', r"(?i)\bthat is all\W*\Z"),
}
