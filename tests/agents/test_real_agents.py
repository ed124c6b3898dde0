"""Real agents, unmodified but for the base URL: all they do is recorded exactly, under the right run."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.agents import table
from tests.agents.clients import CLIENTS, ENDPOINTS, Client
from tests.agents.runs import Outcome

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]

OutcomeOf = Callable[[Client], Outcome]


@pytest.fixture(scope="session", params=CLIENTS, ids=lambda client: client.id)
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found


@pytest.fixture(scope="session")
def outcome(client: Client, outcome_of: OutcomeOf) -> Outcome:
    return outcome_of(client)


def test_every_run_ends_with_the_right_answer_after_both_tools(outcome: Outcome) -> None:
    assert [line["error"] for line in outcome.printed if "error" in line] == []
    printed = Counter(json.dumps([line["answer"], line["calls"]]) for line in outcome.printed)
    assert printed == Counter(json.dumps([run.answer, run.calls]) for run in outcome.runs)


def test_every_call_is_recorded_with_ids_and_logprobs(client: Client, outcome: Outcome) -> None:
    assert len(outcome.calls) == 3 * len(outcome.runs)
    for call in outcome.calls:
        [choice] = call["choices"]
        assert call["status"] == "complete"
        assert call["endpoint"] == ENDPOINTS[client.format]
        assert bool(call["request"].get("stream")) is client.stream
        assert call["prompt_token_ids"]
        assert len(choice["token_ids"]) == len(choice["logprobs"]) > 0
        assert all(math.isfinite(logprob) and logprob <= 0 for logprob in choice["logprobs"])


def test_a_run_is_one_trajectory_and_holds_its_own_order_alone(outcome: Outcome) -> None:
    expected = Counter((run.order.order_id, run.address) for run in outcome.runs)
    orders = {run.order for run in outcome.runs}
    found: Counter[tuple[str, str | None]] = Counter()
    for calls in outcome.trajectories.values():
        said = "\n".join(_text(message) for call in calls for message in (*call["request"]["messages"], _said(call)))
        here = [order for order in orders if order.order_id in said or order.tracking in said]
        assert len(here) == 1, here
        found[here[0].order_id, calls[0]["trajectory_external_id"]] += 1
    assert found == expected


def test_each_call_goes_on_from_the_one_before(outcome: Outcome) -> None:
    for calls in outcome.trajectories.values():
        assert [call["parent_call_id"] for call in calls] == [None, *(call["call_id"] for call in calls[:-1])]
        assert {call["turn_kind"] for call in calls} == {"main"}


def test_no_call_is_placed_by_a_guess(outcome: Outcome) -> None:
    for calls in outcome.trajectories.values():
        how = [(call["attribution"]["source"], call["attribution"]["confidence"]) for call in calls]
        if calls[0]["trajectory_external_id"] is not None:
            assert how == [("path", "stated")] * len(calls)
        else:
            assert how[0] == ("new", "new")
            assert {confidence for _, confidence in how[1:]} == {"exact"}


def test_the_tool_calls_that_were_recorded_are_those_that_the_client_made(outcome: Outcome) -> None:
    made = Counter(json.dumps([call["name"], call["arguments"]]) for line in outcome.printed for call in line["calls"])
    recorded: Counter[str] = Counter()
    for calls in outcome.trajectories.values():
        asked = [call for each in calls for call in _said(each).get("tool_calls") or ()]
        recorded.update(json.dumps([c["function"]["name"], json.loads(c["function"]["arguments"])]) for c in asked)
        answered = [m["tool_call_id"] for m in calls[-1]["request"]["messages"] if m["role"] == "tool"]
        assert answered == [call["id"] for call in asked]
    assert recorded == made


def test_tools_behind_the_gateway_are_joined_to_the_turn_that_asked(client: Client, outcome: Outcome) -> None:
    if client.tools != "mcp":
        assert outcome.tools == []
        return
    assert _named(outcome.tools) == _named([call for run in outcome.runs for call in run.calls])
    # Two runs that wait for the same at once cannot be told apart without an address: then it is under neither.
    runs = Counter(run.order.order_id for run in outcome.runs)
    twins = _named([call for run in outcome.runs if runs[run.order.order_id] > 1 for call in run.calls])
    assert _named([tool for tool in outcome.tools if tool["trajectory_id"] is None]) <= twins
    joined = [tool for tool in outcome.tools if tool["trajectory_id"] is not None]
    assert len({tool["call_id"] for tool in joined}) == len(joined)
    calls = {call["call_id"]: call for call in outcome.calls}
    for tool in joined:
        turn = calls[tool["call_id"]]
        [asked] = _said(turn)["tool_calls"]
        assert tool["status"] == "complete"
        assert tool["trajectory_id"] == turn["trajectory_id"]
        assert (tool["tool"], tool["arguments"]) == (
            asked["function"]["name"],
            json.loads(asked["function"]["arguments"]),
        )


def test_the_committed_table_is_what_was_found(outcome_of: OutcomeOf) -> None:
    found = table.render([(client, outcome_of(client)) for client in CLIENTS])
    if os.environ.get("HONE_WRITE_TABLE"):
        table.FILE.write_text(found, encoding="utf-8")
        readme = table.README.read_text(encoding="utf-8")
        table.README.write_text(table.with_short_table(readme, found), encoding="utf-8")
    assert table.FILE.read_text(encoding="utf-8") == found, "run `make agents-table` and look at what changed"


def _named(tools: list[dict[str, Any]]) -> Counter[str]:
    """Tool calls by name and arguments."""
    return Counter(json.dumps([tool["name"], tool["arguments"]]) for tool in tools)


def _text(message: dict[str, Any]) -> str:
    """What a message says, without ids, in which any number could occur."""
    return json.dumps([message.get("content"), [call["function"] for call in message.get("tool_calls") or ()]])


def _said(call: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = call["response"]["choices"][0]["message"]
    return message
