"""What the model that writes scenarios is told, and that nothing a server says leaves its line.

How many scenarios of each difficulty are asked for.
"""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.llm.hostile import HOSTILE
from trainer.scenario_generation.prompts import (
    DESCRIPTION_CHARS,
    SHARES,
    Difficulty,
    difficulty_counts,
    writer_messages,
)
from trainer.scenario_generation.tools import ServerTool

NONCE = "0123456789abcdef"
DATA = re.compile(rf"^<<<HONE-DATA {NONCE}>>>\n(.*)\n<<<END-HONE-DATA {NONCE}>>>$", re.DOTALL | re.MULTILINE)


def shown(tool: ServerTool, task: str | None = None, written: tuple[str, ...] = ()) -> list[dict[str, object]]:
    said = writer_messages(Difficulty.ONE_TOOL, 3, [tool], task, written, NONCE)[1]["content"]
    found = DATA.search(said)
    assert found is not None
    assert said.count("<<<") == 2
    return [json.loads(line) for line in found[1].split("\n")]


def test_the_model_is_told_the_kind_the_tools_the_domain_and_what_is_written() -> None:
    tool = ServerTool("find_order", "Status of an order.", {"type": "object"}, True)
    system, user = writer_messages(Difficulty.SEVERAL_STEPS, 4, [tool], "A helpdesk", ["Where is it?"])
    assert "It never speaks to you" in system["content"]
    assert user["content"].startswith("Write 4 tasks of this kind: It takes at least two calls")
    assert shown(tool, "A helpdesk", ("Where is it?",)) == [
        {"kind": "domain", "text": "A helpdesk"},
        {
            "kind": "tool",
            "name": "find_order",
            "description": "Status of an order.",
            "parameters": {"type": "object"},
        },
        {"kind": "written", "input": "Where is it?"},
    ]


@pytest.mark.slow
@given(HOSTILE, HOSTILE)
def test_no_description_leaves_its_line_or_forms_the_fence(description: str, task: str) -> None:
    documents = shown(ServerTool("t", description, {"description": description}, True), task, (description,))
    assert [one["kind"] for one in documents] == ["domain", "tool", "written"]
    assert documents[1]["description"] == description


def test_a_long_description_is_cut() -> None:
    [tool] = shown(ServerTool("t", "x" * 10_000, {"enum": ["y" * 10_000]}, True))
    assert len(str(tool["description"])) == DESCRIPTION_CHARS
    assert str(tool["parameters"]).endswith(" […]")


@given(st.integers(1, 2000), st.floats(0, 1))
def test_the_kinds_add_up_and_none_is_more_than_one_off_its_share(wanted: int, adversarial: float) -> None:
    found = difficulty_counts(wanted, adversarial)
    assert sum(found.values()) == wanted
    for kind, share in SHARES.items():
        assert abs(found.get(kind, 0) - wanted * share * (1 - adversarial)) < 1
    assert abs(found.get(Difficulty.ADVERSARIAL, 0) - wanted * adversarial) < 1


def test_ten_are_of_every_kind_and_none_tempts_unless_asked_for() -> None:
    assert set(difficulty_counts(10)) == set(SHARES)
    assert difficulty_counts(10, 0.2)[Difficulty.ADVERSARIAL] == 2
