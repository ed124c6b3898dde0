"""Which runs are the model's own fault: those that it was asked rightly, and in which it said another thing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.agents.clients import CLIENTS
from tests.agents.luck import Luck, erred
from tests.agents.model import BASE
from tests.agents.runs import Run, runs_of

TOKENIZER = Tokenizer.from_file(str(BASE / "tokenizer.json"))
HEAD = "<|im_start|>system\nYou tell customers when their order arrives.<|im_end|>"
BROKEN = '<tool_call>{"name": "find_order", "arguments": {"order_8"}}</tool_call><|im_end|>'


def decode(ids: Any) -> str:
    return str(TOKENIZER.decode(list(ids), skip_special_tokens=False))


def encode(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


@pytest.fixture
def run() -> Run:
    return runs_of(CLIENTS[0])[0]


def sayings(run: Run) -> list[str]:
    calls = [json.dumps({"name": call["name"], "arguments": call["arguments"]}) for call in run.calls]
    return [*(f"<tool_call>{call}</tool_call><|im_end|>" for call in calls), f"{run.answer}<|im_end|>"]


def recorded(run: Run, said: list[str], question: str | None = None) -> list[dict[str, Any]]:
    """The calls of a run in which the model said these things."""
    prompt = f"{HEAD}<|im_start|>user\n{question or run.question}<|im_end|><|im_start|>assistant\n"
    calls = []
    for text, call in zip(said, [*run.calls, {"result": ""}], strict=False):
        calls.append({"prompt_token_ids": encode(prompt), "choices": [{"token_ids": encode(text)}]})
        prompt += f"{text}<|im_start|>tool\n{call['result']}<|im_end|><|im_start|>assistant\n"
    return calls


def test_a_run_that_goes_right_is_nobodys_fault(run: Run) -> None:
    assert not erred(run, recorded(run, sayings(run)), decode)


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_other_tokens_on_the_right_prompt_are_the_models_fault(run: Run, turn: int) -> None:
    said = [*sayings(run)[:turn], BROKEN]
    assert erred(run, recorded(run, said), decode)


@pytest.mark.parametrize("question", ["Where is my order?", "Where is my order 0000?"])
def test_other_tokens_on_a_spoiled_prompt_are_not(run: Run, question: str) -> None:
    assert not erred(run, recorded(run, [BROKEN], question), decode)


def test_a_spoiled_result_between_two_turns_is_not_the_models_fault(run: Run) -> None:
    calls = recorded(run, [*sayings(run)[:1], BROKEN])
    calls[1]["prompt_token_ids"] = encode(decode(calls[1]["prompt_token_ids"]).replace("tracking", "lost"))
    assert not erred(run, calls, decode)


@dataclass
class Came:
    runs: list[Run]
    printed: list[dict[str, Any]]
    trajectories: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def right(run: Run) -> dict[str, Any]:
    return {"answer": run.answer, "calls": run.calls}


def test_runs_are_attempted_again_where_the_model_alone_erred() -> None:
    one, twin, other, *_ = runs_of(CLIENTS[0])
    luck = Luck(decode)
    trajectories = {"a": recorded(one, [BROKEN]), "b": recorded(twin, sayings(twin)), "c": recorded(other, [BROKEN])}
    wrong = {"error": "JSONDecodeError", "calls": []}

    assert luck.model_erred(Came([one, twin, other], [wrong, right(one), wrong], trajectories))
    assert (luck.runs, luck.erred) == (3, 2)


def test_they_are_not_where_one_of_them_went_wrong_without_the_model() -> None:
    one, twin, *_ = runs_of(CLIENTS[0])
    luck = Luck(decode)
    trajectories = {"a": recorded(one, [BROKEN]), "b": recorded(twin, sayings(twin))}

    assert not luck.model_erred(Came([one, twin], [{"error": "cut off", "calls": []}] * 2, trajectories))
    assert (luck.runs, luck.erred) == (2, 0)


def test_runs_that_went_right_are_counted_alone() -> None:
    runs = runs_of(CLIENTS[0])
    luck = Luck(decode)
    assert not luck.model_erred(Came(runs, [right(run) for run in runs]))
    assert (luck.runs, luck.erred) == (len(runs), 0)
