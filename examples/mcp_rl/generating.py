"""The scripted generator: it replaces a model that writes tasks, and writes scenario lines from its prompt alone.

It reads what a model would read: the requested difficulty and number, the tools and their descriptions. It knows only
the tools of `tools_server`, and refuses others. Owns: the tasks. Refuses: every other source; the items are those of a
tool's description. Pure: the same prompt gives the same reply.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from examples.mcp_rl.names import IMAGINED, served
from examples.mcp_rl.wording import Fact, Question, question

Json = Mapping[str, Any]
_DATA: Final = re.compile(r"^<<<HONE-DATA ([0-9a-f]+)>>>\n(.*?)\n<<<END-HONE-DATA \1>>>$", re.DOTALL | re.MULTILINE)
_NUMBER: Final = re.compile(r"Write (\d+) tasks? of this kind: (.*)")
_ITEMS: Final = re.compile(r"Items: ([a-z ,]+)\.")
# The beginning of each kind's description in the prompt (`trainer.scenario_generation.prompts`), and its facts.
_KINDS: Final = (
    ("One call", "one_tool"), ("It takes at least two", "several_steps"), ("Something in it goes wrong", "error"),
    ("Nothing is to be done", "nothing_to_do"),
)  # fmt: skip
_KNOWN_BY: Final = {Fact.SHELF: ("find_item",), Fact.LEFT: ("find_item", "stock"), Fact.PRICE: ("find_item", "price")}
_MOST_DRAWS: Final = 1000


class PromptError(ValueError):
    """The scripted generator cannot answer the prompt."""


def reply(messages: Sequence[Json], seed: int = 0) -> str:
    """Return as many scenario lines as the prompt requests, or fewer if there are no more.

    Raises:
        PromptError: the prompt has no fenced data, or the script does not know its tools.
    """
    asked = str(messages[-1]["content"])
    data, wanted = _DATA.search(asked), _NUMBER.search(asked)
    if data is None or wanted is None:
        raise PromptError(
            "scripted generator: the last message has no <<<HONE-DATA …>>> section, or no number of tasks"
        )
    documents = [json.loads(line) for line in data[2].splitlines()]
    kind = next((kind for words, kind in _KINDS if wanted[2].startswith(words)), None)
    lines = _draws(kind, documents, random.Random(f"{seed}:{wanted[0]}:{data[2]}"))
    return "\n".join(json.dumps(line) for line in islice(lines, int(wanted[1])))


def _draws(kind: str | None, documents: Sequence[Json], rng: random.Random) -> list[Json]:
    """Return the tasks of a kind that are not written yet, each once."""
    tools = {one["name"]: one for one in documents if one.get("kind") == "tool"}
    written = {one["input"] for one in documents if one.get("kind") == "written"}
    items = _ITEMS.search(tools.get("find_item", {}).get("description", ""))
    if items is None or kind is None:
        raise PromptError(
            "scripted generator: it knows the tools of examples.mcp_rl.tools_server and no others. For another server "
            "name a model: HONE_JUDGE__MODEL, as LiteLLM calls it"
        )
    drawn = (_task(kind, items[1].split(", "), tools, rng) for _ in range(_MOST_DRAWS))
    return list({one["input"]: one for one in drawn if one["input"] not in written}.values())


def _task(kind: str, items: Sequence[str], tools: Mapping[str, Json], rng: random.Random) -> Json:
    """Return one task in the format that `hone scenarios generate` reads."""
    able = [fact for fact, names in _KNOWN_BY.items() if tools.keys() >= set(names)]
    choose: dict[str, Callable[[], tuple[Question, Sequence[str], str]]] = {
        "one_tool": lambda: _known(Fact.SHELF, items, rng),
        "several_steps": lambda: _known(rng.choice([f for f in able if f is not Fact.SHELF]), items, rng),
        "error": lambda: _unknown(rng.choice(able), rng),
        "nothing_to_do": lambda: (Question(Fact.NOTHING, rng.choice(items)), (), "Answers without any tool."),
    }
    asked, calls, expected = choose[kind]()
    return {"input": question(asked, rng), "tools": list(calls), "expected": expected}


def _known(fact: Fact, items: Sequence[str], rng: random.Random) -> tuple[Question, Sequence[str], str]:
    asked = Question(fact, rng.choice(items))
    return asked, _KNOWN_BY[fact], f"Looks up the {asked.name} and says what the tools said."


def _unknown(fact: Fact, rng: random.Random) -> tuple[Question, Sequence[str], str]:
    asked = Question(fact, rng.choice(served(IMAGINED)))
    return asked, ("find_item",), f"Finds out that there is no {asked.name}, and says so."
