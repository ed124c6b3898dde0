"""docs/judge-prompt.md: what a judge model is sent and may reply, from the code that writes and reads both.

Owns: the page's text and its examples. Refuses: the prompts (`judge.llm.prompt`, `judge.llm.rubric_prompt`,
`judge.llm.turn_critique`).
"""

from __future__ import annotations

import json
import random
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from judge.llm import prompt, rubric_prompt, turn_critique
from judge.llm.group_text import PromptTrajectory
from judge.panel_settings import SubscoreSettings
from judge.settings import RUBRIC

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "judge-prompt.md"
_NONCE: Final = "0f3a9c51d2e84b76"
_ROOM: Final = 100_000  # characters: the examples are not shortened
_ASKED: Final = [{"role": "user", "content": "Where is my order 4821?"}]
_TOOLS: Final = [{"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}]
_FIND: Final = {"function": {"name": "find_order", "arguments": '{"id": 4821}'}, "id": "call_1", "type": "function"}
_LOOKED: Final[list[dict[str, object]]] = [
    {"role": "assistant", "content": None, "tool_calls": [_FIND]},
    {"role": "tool", "tool_call_id": "call_1", "content": "on its way, arrives Monday"},
    {"role": "assistant", "content": "It arrives on Monday."},
]
_GUESSED: Final = [{"role": "assistant", "content": "It has surely arrived."}]
_RUNS: Final = (
    PromptTrajectory("looked", [*_ASKED, *_LOOKED], _TOOLS),
    PromptTrajectory("guessed", [*_ASKED, *_GUESSED], _TOOLS),
)
_SUBSCORES: Final = (
    SubscoreSettings(name="correctness"),
    SubscoreSettings(name="tone", about="whether it is friendly, and no longer than it need be"),
)
_HEAD: Final = """\
# The judge's prompt

**For:** engineers who write rubrics, criteria or a judge. **You will have:** what Hone sends to a judge and accepts.

Each prompt is a system message and a user message. Hone writes them; your settings fill the places that this page
names. `hone score GROUP --debug` shows the prompt and reply of a group, and `hone judge check` tries a recipe on known
tricks ([measure your judge](judging.md)).

| what you set | where it stands |
|---|---|
| `judge.rubric`, or `rubric` of a judge recipe | RULER's system message, under "What makes a trajectory good" |
| `[[judge.subscores]]` | RULER's system message, in place of the one score, with `about` of each |
| `rubric` of a scenario, with [RULER](rewards.md#parts) | the first line of its user message; of a list, the texts |
| `rubric` of a scenario, a list, with kind `rubric` | the criteria of its user message, without weights and ids |
| `evidence` | the rubric's system message: each met criterion needs a quote |
| `rubric` of a scenario, with kind `turns` | the first line of its user message; of a list, the texts |

The request also has a JSON schema as `response_format`, `judge.temperature` and `judge.max_tokens`. A judge that
ignores the schema is read all the same. The data is escaped: no text of a trajectory can end the fence, hide
characters or be taken for an id.
"""
_SHOWN: Final = """\
Each message has its role and its text; tool calls are numbered, and results name the number. "shared" is sent once: the
messages with which all trajectories begin, and the tools. Identical trajectories are sent once. Ids and order differ in
each request. If a group holds similar tasks, not equal ones, or single steps, a sentence of the system message says so.
"""
_READ: Final = """\
How Hone reads the reply:

| what the judge writes | how it is read |
|---|---|
| text, code fences or reasoning around the JSON | skipped |
| numbers from 0 to 1 | the scores |
| all numbers from 0 to 10, or from 0 to 100; `8/10`; `40 %` | the same, divided, if the whole reply uses that scale |
| 1, 2, 3 … without a stated scale, or `rank` without `score` | refused: ranks, of which 1 may be best or worst |
| an id that is missing, unknown or twice; no finite number; a broken second verdict | refused |

After a refused reply Hone asks once more, and shows the judge its reply and what is wrong with it. If the second reply
is refused too, the group is unscored (`judge_unreadable`), and Hone tries again later.
"""
_RUBRIC_READ: Final = """\
Each criterion needs one `met` and a `reason`. With `evidence`, `quote` of a met criterion must occur in the agent's own
messages, apart from white space. Hone refuses any other reply, asks once more, and then leaves the answer without a
reward. The reward is the share of the weights that are met ([criteria](rlvr.md)).
"""
_TURNS_READ: Final = f"""\
Each turn needs one `critique` and one `value` from 0 to 1. Hone refuses any other reply, asks once more, and then
leaves the trajectory without this part. A critique is one line, cut to {turn_critique.MAX_CRITIQUE_CHARS} characters
([turns by the judge](rewards.md#turns-by-the-judge)).
"""


def page() -> str:
    """Return the whole page."""
    group = _ruler()
    with_subscores = _ruler(_SUBSCORES)
    plain, quoting, turns = _rubric(evidence=False), _rubric(evidence=True), _turns()
    verdicts = {"looked": ("It looked the order up and answered.", 0.9), "guessed": ("It guessed.", 0.1)}
    told = [(id_, *verdicts[member]) for id_, (member,) in group.ids.items()]
    reply = {"trajectories": [{"id": id_, "explanation": why, "score": score} for id_, why, score in told]}
    parts = [
        _HEAD,
        "## RULER: a group is ranked\n",
        "The system message, with the default `judge.rubric`:\n",
        _block(group.messages[0]["content"]),
        'The user message, for a scenario with `rubric = "names the day"` and two trajectories:\n',
        _block(group.messages[1]["content"]),
        _SHOWN,
        "A reply:\n",
        _block(json.dumps(reply, indent=2), "json"),
        _READ,
        "### With sub-scores\n",
        "These parts of the system message differ:\n",
        _block(_difference(with_subscores.messages[0]["content"], group.messages[0]["content"])),
        "## A rubric: one trajectory is checked\n",
        "The system message:\n",
        _block(plain.messages[0]["content"]),
        "The user message, for two criteria:\n",
        _block(plain.messages[1]["content"]),
        "With `evidence = true` the system message has in addition:\n",
        _block(_difference(quoting.messages[0]["content"], plain.messages[0]["content"])),
        _RUBRIC_READ,
        "## Turns: each turn is rated\n",
        "The system message:\n",
        _block(turns.messages[0]["content"]),
        "The user message, for a trajectory of two turns:\n",
        _block(turns.messages[1]["content"]),
        _TURNS_READ,
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _ruler(subscores: Sequence[SubscoreSettings] = ()) -> prompt.GroupPrompt:
    return prompt.build_prompt(
        _RUNS, rubric=RUBRIC, seed=0, max_chars=_ROOM, task_rubric="names the day", subscores=subscores, nonce=_NONCE
    )


def _rubric(*, evidence: bool) -> rubric_prompt.RubricPrompt:
    criteria = ["Names the day on which the order arrives", "Claims something that no tool returned"]
    return rubric_prompt.build_rubric_prompt(
        _RUNS[0], criteria, evidence=evidence, max_chars=_ROOM, rng=random.Random(0), nonce=_NONCE
    )


def _turns() -> turn_critique.TurnPrompt:
    conversations: list[list[dict[str, Any]]] = [[*_ASKED, *_LOOKED[:1]], [*_ASKED, *_LOOKED]]
    run = turn_critique.PromptTurns(conversations, _TOOLS)
    return turn_critique.build_turn_prompt(run, max_chars=_ROOM, rng=random.Random(0), nonce=_NONCE)


def _difference(text: str, other: str) -> str:
    """The lines that the other text does not have, with a mark where some are omitted."""
    known = set(other.splitlines())
    return "\n…\n".join(part for part in _runs(text.splitlines(), known))


def _runs(lines: Sequence[str], known: set[str]) -> list[str]:
    """Consecutive lines that are not known, joined."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line and line not in known:
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return ["\n".join(run) for run in found if run]


def _block(text: str, language: str = "text") -> str:
    wrapped = "\n".join(
        "\n".join(textwrap.wrap(line, 110, break_long_words=False, break_on_hyphens=False)) if _is_prose(line) else line
        for line in text.splitlines()
    )
    return f"```{language}\n{wrapped}\n```\n"


def _is_prose(line: str) -> bool:
    return not line.lstrip().startswith(("{", "[", "<<<", '"'))
