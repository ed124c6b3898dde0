"""Each constraint's rule, with answers that keep it and answers that break it; and substance, which every one needs."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace

import pytest

from examples.smollm.constraints import CONSTRAINTS, Demand, substance
from judge.rewards.rules import check_rule

SAID = "Ice is cold and hard in winter."


def demanded(name: str, says: str = "") -> Demand:
    """The constraint with the arguments with which its sentence has these words."""
    drawn = (CONSTRAINTS[name](random.Random(seed), "ice") for seed in range(500))
    return next(demand for demand in drawn if says in demand.sentence)


def is_met(demand: Demand, answer: str) -> bool:
    trajectory = SimpleNamespace(messages=[{"role": "assistant", "content": answer}])
    part = check_rule(demand.check["rule"], demand.check["value"], trajectory)  # type: ignore[arg-type]
    assert part.value is not None, part.explanation
    return part.value == 0


CASES = {
    "at_most": ("at most 10", ["Ice is cold.", "a b c d e f g h i j", "- a\n- b"], ["a b c d e f g h i j k"]),
    "at_least": ("at least 20", ["ice " * 20, "ice\n" * 25], ["ice " * 19, "Ice."]),
    "between": ("between 8 and 18", ["ice " * 8, "ice " * 18], ["ice " * 7, "ice " * 19, "Ice."]),
    "sentences": (
        "two sentences",
        ["Ice is cold. It melts!", 'Ice is cold.  He said: "It melts."', "Is it ice?\nYes."],
        ["Ice is cold.", "Ice is cold. It melts. Soon.", "Ice is cold. It melts", "Ice."],
    ),
    "lines": ("exactly 2 lines", ["a\nb", "a\n\nb\n"], ["a", "a\nb\nc", "Ice."]),
    "dashes": ("exactly 2 lines", ["- a\n- b", "-a\n\n- b\n"], ["- a", "- a\nb", "- a\n- b\n- c", "a\n- b", "-\n-"]),
    "numbered": ("exactly 2 points", ["1. a\n2. b", "1) a\n2) b"], ["1. a", "1. a\n1. b", "1. a\n2. b\n3. c", "a\nb"]),
    "separated": ('"|"', ["Ice is cold | it melts"], ["Ice is cold", "Ice | is | cold", "| Ice", "Ice |", "|"]),
    "begins": ('"Today"', ["Today ice melts.", '"today, ice"'], ["Ice melts today.", "Todays ice"]),
    "ends": ('"day"', ["Ice melts one day.", "ice day!"], ["A day of ice.", "Ice melts on Sunday"]),
    "includes": ('"people"', ["Many people like ice.", "PEOPLE"], ["Ice.", "peoples"]),
    "twice": ('"people"', ["People and\npeople."], ["people", "peoples people"]),
    "avoids": ('"the"', ["Ice is cold there.", "other ice"], ["The ice.", "Ice\nand the snow"]),
    "letter": ("letter B", ["Big ice.", '"bold'], ["Ice is big."]),
    "heading": ("Ice:", ["Ice: it is cold."], ["ice: cold", "Ice is cold", "Ice:", "About Ice: cold"]),
    "json": (
        "",
        ['{"topic": "ice", "fact": "It is cold."}', ' {"fact": "Cold.", "topic": "ice"}\n'],
        ['{"topic": "ice"}', '{"topic": "", "fact": "x"}', '{"topic": "ice", "fact": "x", "y": 1}', "[]", "Ice."],
    ),
    "lower": ("", ["ice is cold.", "it's 3 o'clock"], ["Ice is cold.", "ice is COLD", "été Été"]),
    "capitals": ("", ["ICE IS COLD."], ["Ice is cold.", "ICE IS COLd"]),
    "title": ("", ["Ice Is Cold. It's Hard.", "A 3rd Ice"], ["Ice is cold.", "ice"]),
    "no_commas": ("", ["Ice is cold."], ["Ice, cold."]),
    "no_stops": ("", ["Ice is cold!"], ["Ice is cold.", "..."]),
    "no_digits": ("", ["Ice in one day"], ["Ice in 1 day", "\u0663"]),
    "digits": ("", ["Ice at 0 degrees"], ["Ice at zero"]),
    "quotes": ("", ['"Ice is cold."', "“Ice is cold.”"], ["Ice is cold.", '"Ice" is "cold"', '""', '"Ice']),
    "brackets": ("", ["(Ice is cold.)"], ["Ice (cold)", "()", "(Ice) (cold)"]),
    "question": ("", ["Is ice cold?", 'Is ice cold?"'], ["Is ice cold? Yes.", "Ice."]),
    "exclaims": ("", ["Ice is cold!"], ["Ice! It is cold.", "Ice."]),
    "asks": ("", ["Did you know that ice is cold?"], ["Ice. Did you know?", "Did you"]),
    "hashtag": ("", ["Ice is cold #winter"], ["#winter ice", "Ice #", "Ice."]),
    "semicolon": ("", ["Ice is cold; it melts."], ["Ice is cold, it melts."]),
    "bold": ("", ["Ice is **cold**."], ["Ice is *cold*.", "****", "** **\n**"]),
    "closing": ("", ["Ice is cold. That is all."], ["That is all ice.", "Ice."]),
}


def test_every_constraint_has_cases() -> None:
    assert CASES.keys() == CONSTRAINTS.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_rule_takes_what_keeps_its_sentence_and_nothing_else(name: str) -> None:
    says, good, bad = CASES[name]
    demand = demanded(name, says)
    assert [answer for answer in good if not is_met(demand, answer)] == []
    assert [answer for answer in bad if is_met(demand, answer)] == []


@pytest.mark.parametrize("name", CASES)
def test_no_answer_keeps_no_rule(name: str) -> None:
    assert not is_met(demanded(name), "")


@pytest.mark.parametrize(
    "answer", [SAID, SAID.upper(), SAID.lower(), "ICE'S COLD AND HARD IN WINTER", "- Ice\n- is very cold\n- melts soon"]
)
def test_an_answer_with_six_different_words_that_names_its_topic_has_substance(answer: str) -> None:
    assert is_met(substance("ice"), answer)


@pytest.mark.parametrize(
    "answer",
    [
        "Ice.", "deep", "", " ", "ice ice ice ice ice ice ice", "Ice ice ICE is Is IS cold Cold",
        "Ice is cold and hard.", "Rice is good for all people here.", "It is cold and hard in winter.",
        "ice a b c d e f g", "ice 1 2 3 4 5 6 7", "!!!", "ice, " * 60,
    ],
)  # fmt: skip
def test_a_short_or_repeating_answer_or_one_about_something_else_has_none(answer: str) -> None:
    assert not is_met(substance("ice"), answer)


@pytest.mark.parametrize(
    "answer", ["ice " * 20_000, "a" * 100_000, "' " * 50_000, "ice is cold " * 10_000, "\n" * 100_000]
)
def test_no_answer_keeps_a_check_busy(answer: str) -> None:
    began = time.monotonic()
    for demand in (substance("ice"), *(demanded(name) for name in CASES)):
        is_met(demand, answer)  # fails where the rule runs into its time limit
    assert time.monotonic() - began < 30
