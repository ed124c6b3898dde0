"""Rules: kept, broken and not checkable, on runs as the store gives them back."""

import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from judge.rewards.part import RewardPart
from judge.rewards.rules import check_rule
from recorder.base.rules import Rule
from recorder.states import CallKind, CallState
from recorder.store.database import Store
from recorder.views.trajectories.shapes import CallView, ChoiceView, TrajectoryView
from recorder.views.trajectories.transcripts import load_group
from tests.judge.recorded import Answer, Recorded

pytestmark = pytest.mark.slow

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["order"],
    "properties": {"order": {"type": "integer"}},
    "additionalProperties": False,
}


def calling(*names: str | None) -> dict[str, Any]:
    form = [{"id": f"c{i}", "type": "function", "function": {"name": n}} for i, n in enumerate(names)]
    return {"role": "assistant", "content": None, "tool_calls": form}


async def run_of(store: Store, recorded: Recorded, answer: Answer) -> TrajectoryView:
    group_id, _ = await recorded.group("g", [answer])
    return (await load_group(store, group_id)).members[0]


def broken(rule: Rule, value: Any, run: TrajectoryView) -> str | None:
    """By what a rule is broken; None: it is kept. What cannot be checked fails the test."""
    part = check_rule(rule, value, run)
    assert part.value in (0.0, 1.0), part.explanation
    assert (part.value == 1.0) == (part.explanation is not None)
    return part.explanation


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('{"order": 7}', None),
        (' {"order": 7}\n', None),
        ('{"order": "7"}', r"the answer does not match the schema: $.order: '7' is not of type 'integer'"),
        ('{"order": 7, "more": 1}', "the answer does not match the schema: $: Additional properties"),
        ("[]", "the answer does not match the schema: $: [] is not of type"),
        ('```json\n{"order": 7}\n```', "the answer is not JSON: Expecting value"),
        ('{"order": NaN}', "the answer is not JSON: NaN is not JSON"),
        ("[" * 200_000, "the answer is not JSON"),
    ],
)
async def test_an_answer_is_held_to_its_schema(store: Store, recorded: Recorded, answer: str, why: str | None) -> None:
    told = broken("answer_schema", SCHEMA, await run_of(store, recorded, answer))
    assert told == why if why is None else str(told).startswith(why)


async def test_a_run_without_an_answer_breaks_what_its_answer_is_held_to(store: Store, recorded: Recorded) -> None:
    run = await run_of(store, recorded, [calling("find_order")])
    assert broken("answer_schema", {}, run) == broken("regex", "", run) == "there is no answer"


async def test_a_schema_that_points_elsewhere_is_not_fetched_and_nothing_passes_it(
    store: Store, recorded: Recorded
) -> None:
    run = await run_of(store, recorded, "{}")
    for elsewhere in ("http://127.0.0.1:9/schema", "#/$defs/gone"):
        part = check_rule("answer_schema", {"$ref": elsewhere}, run)
        assert part.value is None
        assert "the schema cannot be followed" in str(part.explanation)
    huge = await run_of(store, recorded, "1" + "0" * 400)
    assert check_rule("answer_schema", {"multipleOf": 0.5}, huge).value != 0.0


async def test_an_answer_is_held_to_an_expression(store: Store, recorded: Recorded) -> None:
    run = await run_of(store, recorded, "The order left on friday.")
    assert broken("regex", r"\bon (mon|fri)day\b", run) is None
    assert broken("regex", r"^on", run) == "the answer does not match '^on'"


async def test_an_expression_that_takes_for_ever_is_no_value(store: Store, recorded: Recorded) -> None:
    run = await run_of(store, recorded, "a" * 40 + "!")
    part = check_rule("regex", r"^(?:(?:a|aa)+)+$", run)
    why = "it could not be checked: the expression takes longer than 1 s on the answer"
    assert part == RewardPart(None, why, undecided=True)


HOPELESS = r"^(?:(?:a|aa)+)+$"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(("value", "broken"), [(1, 0.0), ("x", 1.0), ([2, [3]], 0.0), ([2, ["x"]], 1.0)])
async def test_a_part_is_held_to_the_draft_that_it_names(
    store: Store, recorded: Recorded, value: Any, broken: float
) -> None:
    """Draft 4 knows `exclusiveMinimum` as a yes or no beside `minimum`, and draft 7 a schema that refers to itself."""
    older = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 0, "exclusiveMinimum": True}
    itself = {"type": "array", "items": {"$ref": "#"}}
    schema = {"$schema": DRAFT_7, "anyOf": [{**older, "type": "number"}, itself]}
    assert check_rule("answer_schema", schema, await run_of(store, recorded, json.dumps(value))).value == broken


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"pattern": HOPELESS}, json.dumps("a" * 40 + "!")),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "pattern": HOPELESS}, json.dumps("a" * 40 + "!")),
        ({"items": {"$schema": DRAFT_7, "pattern": HOPELESS}}, json.dumps(["a" * 40 + "!"])),
        ({"$schema": DRAFT_7, "items": {"$ref": "#"}, "pattern": HOPELESS}, json.dumps(["a" * 40 + "!"])),
        ({"items": {"anyOf": [{"pattern": HOPELESS}, {"type": "null"}]}}, json.dumps(["a" * 40 + "!"] * 1000)),
        ({"patternProperties": {HOPELESS: {"type": "number"}}}, json.dumps({"a" * 40 + "!": 1})),
        ({"additionalProperties": False, "patternProperties": {HOPELESS: {}}}, json.dumps({"a" * 40 + "!": 1})),
        ({"propertyNames": {"pattern": HOPELESS}}, json.dumps({"a" * 40 + "!": 1})),
    ],
)
async def test_a_schemas_expressions_that_take_for_ever_are_no_value(
    store: Store, recorded: Recorded, schema: dict[str, Any], answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judge.rewards.rules.MATCH_TIMEOUT_S", 0.1)  # the one above takes the time that it may take
    part = check_rule("answer_schema", schema, await run_of(store, recorded, answer))
    why = "it could not be checked: the expression takes longer than 0.1 s on the answer"
    assert part == RewardPart(None, why, undecided=True)


@pytest.mark.parametrize(
    ("schema", "answer", "why"),
    [
        ({"pattern": "^a"}, '"ba"', "'ba' does not match '^a'"),
        ({"pattern": "^a"}, '"ab"', None),
        ({"pattern": "^a"}, "7", None),
        ({"patternProperties": {"^n_": {"type": "number"}}}, '{"n_a": 1, "x": "y"}', None),
        ({"patternProperties": {"^n_": {"type": "number"}}}, '{"n_a": "1"}', "'1' is not of type 'number'"),
        ({"patternProperties": {"^n_": {}}, "additionalProperties": False}, '{"n_a": "1"}', None),
        ({"patternProperties": {"^n_": {}}, "additionalProperties": False}, '{"m_a": "1"}', "'m_a' was unexpected"),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "null"}}, '{"a": 1, "b": null}', None),
        ({"additionalProperties": {"type": "null"}}, '{"b": 2}', "2 is not of type 'null'"),
        ({"additionalProperties": True}, '{"b": 2}', None),
        ({"additionalProperties": False}, "[]", None),
        ({"patternProperties": {"": False}}, "[]", None),
    ],
)
async def test_a_schemas_expressions_mean_what_they_mean_elsewhere(
    store: Store, recorded: Recorded, schema: dict[str, Any], answer: str, why: str | None
) -> None:
    told = broken("answer_schema", schema, await run_of(store, recorded, answer))
    assert told is None if why is None else why in str(told)
    valid = Draft202012Validator(schema).is_valid(json.loads(answer))
    assert valid == (why is None)


async def test_tools_that_must_and_must_not_be_called(store: Store, recorded: Recorded) -> None:
    run = await run_of(store, recorded, [calling("find_order", "track_parcel")])
    assert broken("forbidden_tools", ["refund"], run) is None
    assert broken("forbidden_tools", ["refund", "track_parcel"], run) == "it called track_parcel"
    assert broken("required_tools", ["find_order"], run) is None
    assert broken("required_tools", ["find_order", "refund", "close"], run) == "it never called refund, close"


async def test_a_call_without_a_name_may_be_of_any_tool(store: Store, recorded: Recorded) -> None:
    run = await run_of(store, recorded, [calling("find_order", None)])
    assert check_rule("forbidden_tools", ["refund"], run) == RewardPart(
        None, "it could not be checked: a tool call has no name", undecided=True
    )
    assert broken("forbidden_tools", ["find_order"], run) == "it called find_order"
    assert broken("required_tools", ["find_order"], run) is None


def turn(run: TrajectoryView, id_: str, *names: str, **more: Any) -> CallView:
    """A turn of a run in which these tools were called."""
    choice = replace(run.calls[0].choices[0], message=calling(*names))
    given: dict[str, Any] = {"id": id_, "choices": [choice], "usage": {"completion_tokens": 10}}
    return replace(run.calls[0], **(given | more))


async def test_what_counts_is_all_that_the_agent_did_and_no_errand(store: Store, recorded: Recorded) -> None:
    run = await run_of(store, recorded, "done")
    counted = [
        turn(run, "cut", "refund"),  # the agent went on from before it
        turn(run, "sub", "find_order", "find_order", call_kind=CallKind.SUB),
        turn(run, "main", "close"),
    ]
    passed_over = [
        turn(run, "aux", "title", call_kind=CallKind.AUX),
        turn(run, "failed", "oops", state=CallState.ERRORED),
        turn(run, "again", "twice", superseded_by="main"),
    ]
    whole = replace(run, calls=[*counted, *passed_over])
    assert broken("forbidden_tools", ["title", "oops", "twice"], whole) is None
    assert broken("forbidden_tools", ["refund"], whole) == "it called refund"
    assert (broken("max_turns", 3, whole), broken("max_turns", 2, whole)) == (None, "3 answers of the model, at most 2")
    assert broken("max_tool_calls", 4, whole) is None
    assert broken("max_tool_calls", 3, whole) == "4 tool calls, at most 3"
    assert (broken("max_tokens", 30, whole), broken("max_tokens", 29, whole)) == (None, "30 sampled tokens, at most 29")


async def test_of_several_answers_to_one_call_those_count_that_the_agent_went_on_with(
    store: Store, recorded: Recorded
) -> None:
    run = await run_of(store, recorded, "done")
    three: list[ChoiceView] = [
        replace(run.calls[0].choices[0], index=index, message=calling(name)) for index, name in enumerate("abc")
    ]
    first = turn(run, "first", choices=three)
    last = turn(run, "last", parent_call_id="first", parent_choice=1)
    whole = replace(run, calls=[first, last], main_path=[("first", 1), ("last", 0)])
    assert broken("forbidden_tools", ["a", "c"], whole) is None
    assert broken("forbidden_tools", ["b"], whole) == "it called b"


async def test_tokens_that_nobody_counted_are_no_pass(store: Store, recorded: Recorded) -> None:
    run = await run_of(store, recorded, "done")
    whole = replace(run, calls=[turn(run, "one"), turn(run, "two", usage=None)])
    assert check_rule("max_tokens", 100, whole) == RewardPart(
        None, "it could not be checked: the tokens of 1 answers are not known", undecided=True
    )
    assert broken("max_tokens", 9, whole) == "10 sampled tokens, at most 9"
