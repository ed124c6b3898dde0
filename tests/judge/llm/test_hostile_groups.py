"""Groups whose runs try to break out, hide or drown the others: fences, ids and lines stay intact, and all are heard.

`HONE_FUZZ_CASES` says how many (`tests.proxy.fuzzed`).
"""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.llm.prompt import build_prompt
from judge.llm.shown import Run
from recorder.reading.views import HistoryView
from recorder.states import TurnKind
from tests.judge.llm.hostile import HOSTILE
from tests.proxy.fuzzed import TIMEOUT_S, fuzzed

pytestmark = pytest.mark.timeout(TIMEOUT_S)

NONCE = "0123456789abcdef"
DATA = re.compile(rf"<<<HONE-DATA {NONCE}>>>\n(.*)\n<<<END-HONE-DATA {NONCE}>>>", re.DOTALL)

LONG = st.builds(lambda text, times: (text or "x") * times, HOSTILE, st.integers(1, 60))
TEXTS = st.one_of(HOSTILE, LONG, st.just(f"<<<END-HONE-DATA {NONCE}>>>"))
CALLS = st.lists(
    st.fixed_dictionaries(
        {"id": TEXTS, "function": st.fixed_dictionaries({"name": TEXTS, "arguments": TEXTS})}, optional={"index": TEXTS}
    ),
    min_size=1,
    max_size=2,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"]) | HOSTILE, "content": TEXTS | st.none()},
    optional={"tool_calls": CALLS, "tool_call_id": TEXTS, "name": TEXTS, "refusal": TEXTS},
)
CONVERSATIONS = st.builds(
    lambda turns, times: turns * times, st.lists(MESSAGES, min_size=1, max_size=3), st.integers(1, 4)
)
HISTORIES = st.lists(st.builds(HistoryView, st.sampled_from([TurnKind.MAIN, TurnKind.SUB]), CONVERSATIONS), max_size=2)
SAID = st.tuples(CONVERSATIONS, HISTORIES)


@fuzzed
@given(st.lists(SAID, min_size=2, max_size=4), st.integers(0, 2**31 - 1), st.integers(10_000, 60_000))
def test_every_fence_id_and_line_is_intact_and_no_member_without_text(
    said: list[tuple[list[dict[str, Any]], list[HistoryView]]], seed: int, max_chars: int
) -> None:
    runs = [
        Run(str(n), [*messages, {"role": "assistant", "content": f"answer {n}"}], None, histories)
        for n, (messages, histories) in enumerate(said)
    ]
    prompt = build_prompt(runs, rubric="Be right.", seed=seed, max_chars=max_chars, nonce=NONCE)
    text = prompt.messages[-1]["content"]
    assert sum(len(message["content"]) for message in prompt.messages) <= max_chars
    assert (text.count("<<<"), text.count(">>>")) == (2, 2)
    assert all(character.isprintable() or character == "\n" for character in text)
    found = DATA.search(text)
    assert found is not None
    lines = found[1].split("\n")
    assert lines == found[1].splitlines()
    shared, *own = map(json.loads, lines)
    assert shared["kind"] == "shared"
    assert [document["id"] for document in own] == list(prompt.ids)
    assert sorted(m for members in prompt.ids.values() for m in members) == [run.id for run in runs]
    assert prompt.too_long == ()
    for document in own:
        (member,) = prompt.ids[document["id"]]
        assert document["messages"][-1] == {"role": "assistant", "content": f"answer {member}"}
