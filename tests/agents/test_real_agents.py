"""Real agents, unmodified but for the base URL: all they do is recorded exactly, under the right run."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.agents import table
from tests.agents.clients import ENDPOINTS, ROWS, Client
from tests.agents.luck import MOST, Luck
from tests.agents.notes import TODAY
from tests.agents.runs import Outcome

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600), pytest.mark.usefixtures("stores")]

OutcomeOf = Callable[[Client], Outcome]


@pytest.fixture(scope="session", params=ROWS)
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found


@pytest.fixture(autouse=True)
def _today(request: pytest.FixtureRequest) -> None:
    """A test that a client is known to fail must fail: once it passes, the client's row says so no longer."""
    if "client" in request.fixturenames:
        client: Client = request.getfixturevalue("client")
        if reason := TODAY.get(client.name, {}).get(request.function.__name__):
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True, raises=AssertionError))


@pytest.fixture(scope="session")
def outcome(client: Client, outcome_of: OutcomeOf) -> Outcome:
    return outcome_of(client)


def test_every_run_ends_with_the_right_answer_after_both_tools(outcome: Outcome) -> None:
    assert [line["error"] for line in outcome.printed if "error" in line] == []
    printed = Counter(json.dumps([line["answer"], line["calls"]]) for line in outcome.printed)
    assert printed == Counter(json.dumps([run.answer, run.calls]) for run in outcome.runs)


def test_every_call_is_recorded_with_ids_and_logprobs(client: Client, outcome: Outcome) -> None:
    assert len(outcome.calls) == client.turns * len(outcome.runs)
    assert len(outcome.errands) == client.errands * len(outcome.runs)
    for call in (*outcome.calls, *outcome.errands):
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
        here = [order for order in orders if f"my order {order.order_id}" in said or order.tracking in said]
        assert len(here) == 1, here
        found[here[0].order_id, calls[0]["trajectory_external_id"]] += 1
    assert found == expected


def test_each_call_goes_on_from_the_one_before(client: Client, outcome: Outcome) -> None:
    for calls in outcome.trajectories.values():
        before = [call["call_id"] if client.memory else None for call in calls[:-1]]
        assert [call["parent_call_id"] for call in calls] == [None, *before]
        assert {call["turn_kind"] for call in calls} == {"main"}


def test_no_call_is_placed_by_a_guess(outcome: Outcome) -> None:
    for calls in outcome.trajectories.values():
        how = [(call["attribution"]["source"], call["attribution"]["confidence"]) for call in calls]
        if calls[0]["trajectory_external_id"] is not None:
            assert how == [("path", "stated")] * len(calls)
        else:
            named = ("session_header", "stated")
            assert how[0] in {("new", "new"), named}
            assert all(
                confidence == "exact" or evidence == named for evidence in how[1:] for _, confidence in [evidence]
            )


def test_the_tool_calls_that_were_recorded_are_those_that_the_client_made(client: Client, outcome: Outcome) -> None:
    made = Counter((call["name"], *call["arguments"].values()) for line in outcome.printed for call in line["calls"])
    recorded = Counter(asked for call in outcome.calls for asked in _asked(client, _said(call)))
    assert recorded == made


def test_every_tool_call_is_answered_in_its_run(client: Client, outcome: Outcome) -> None:
    for calls in outcome.trajectories.values():
        issued = [call["id"] for each in calls[:-1] for call in _said(each).get("tool_calls") or ()]
        answered = [m["tool_call_id"] for m in calls[-1]["request"]["messages"] if m["role"] == "tool"]
        assert answered == (issued if client.results == "messages" else [])


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


def test_the_committed_row_is_what_was_found(client: Client, outcome: Outcome) -> None:
    if os.environ.get("HONE_WRITE_TABLE"):
        table.write({client: outcome})
    committed = table.FILE.read_text(encoding="utf-8")
    assert table.render({client: outcome}, committed) == committed, "run `make agents-table` and look at what changed"


def test_the_model_erred_in_no_more_than_one_run_of_ten(
    selected: list[Client], outcome_of: OutcomeOf, luck: Luck
) -> None:
    for client in selected:
        outcome_of(client)
    print(f"the model erred in {luck.erred} of {luck.runs} runs")
    assert luck.erred <= MOST * luck.runs


def _asked(client: Client, said: dict[str, Any]) -> list[tuple[str, str]]:
    """What a turn asks of the desk's tools, as (tool, argument), in the form in which the client lets a model ask."""
    calls = [call["function"] for call in said.get("tool_calls") or ()]
    if client.asks == "tools":
        named = [(re.search(r"(find_order|track_parcel)$", call["name"]), call) for call in calls]
        return [(name[0], *json.loads(call["arguments"]).values()) for name, call in named if name]
    asked = said.get("content") or "" if client.asks == "text" else json.dumps([call["arguments"] for call in calls])
    asked = asked.replace("orders/", "find_order ").replace("parcels/", "track_parcel ")  # aider names files
    return re.findall(r"(find_order|track_parcel)\b.*?\b(P?\d{4,5})\b", asked, re.DOTALL)


def _named(tools: list[dict[str, Any]]) -> Counter[str]:
    """Tool calls by name and arguments."""
    return Counter(json.dumps([tool["name"], tool["arguments"]]) for tool in tools)


def _text(message: dict[str, Any]) -> str:
    """What a message says, without ids, in which any number could occur."""
    if message["role"] == "system":
        return ""
    return json.dumps([message.get("content"), [call["function"] for call in message.get("tool_calls") or ()]])


def _said(call: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = call["response"]["choices"][0]["message"]
    return message
