"""How runs, groups and calls look on a terminal, and that no part of them reaches it as it is."""

from __future__ import annotations

import re
from array import array
from dataclasses import replace
from typing import Any

import pytest

from recorder.commands import transcript
from recorder.messages.calls import SamplingParameters
from recorder.queue.judging.scores import NewPart, StoredScore
from recorder.states import CallKind, CallState, Confidence, GroupState, Origin, Purpose, TrajectoryState
from recorder.views.follow_ups.events import FollowUp, FollowUpKind
from recorder.views.trajectories.shapes import (
    CallView,
    ChoiceView,
    FeedbackView,
    GroupView,
    ScenarioView,
    TrajectoryView,
)
from tests.recorder.commands.printing import HOSTILE, harmless, printed, uncoloured
from tests.recorder.score_rows import stored_score

SYSTEM = {"role": "system", "content": "You help."}
ASKED = {"role": "user", "content": "Where is order 4821?"}
LOOKED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find_order", "arguments": '{"id": 4821}'}}],
}
FOUND = {"role": "tool", "tool_call_id": "c1", "content": '{"status": "shipped"}'}
ANSWERED = {"role": "assistant", "content": "It arrives on Monday."}


def choice(message: dict[str, Any], **changed: Any) -> ChoiceView:
    made = ChoiceView(0, message, array("i", [1, 2, 3]), array("f", [-1, -1, -1]), "stop", True, None)
    return replace(made, **changed)


def call(number: int, messages: list[dict[str, Any]], sampled: dict[str, Any], **changed: Any) -> CallView:
    made = CallView(
        id=f"call_{number}",
        trajectory_id="traj_1",
        parent_call_id=None if number == 1 else f"call_{number - 1}",
        parent_choice=None if number == 1 else 0,
        state=CallState.COMPLETE,
        superseded_by=None,
        call_kind=CallKind.MAIN,
        attribution_source="path",
        attribution_confidence=Confidence.STATED,
        alias_id="alias",
        version_id="ver_3",
        base_fingerprint=None,
        model="helpdesk",
        dialect="chat",
        endpoint="/v1/chat/completions",
        stream=False,
        sampling=SamplingParameters(temperature=0.7),
        usage=None,
        response_meta=None,
        messages=messages,
        tools=None,
        response_format=None,
        rest={},
        prompt_token_ids=None,
        choices=[choice(sampled)],
        http_status=200,
        error=None,
        retry_count=0,
        started_at=100.0,
        first_token_at=100.1,
        finished_at=100.5,
    )
    return replace(made, **changed)


def trajectory(**changed: Any) -> TrajectoryView:
    first = call(1, [SYSTEM, ASKED], LOOKED)
    second = call(2, [SYSTEM, ASKED, LOOKED, FOUND], ANSWERED)
    made = TrajectoryView(
        id="traj_1",
        project_id="default",
        external_id="run-7",
        group_id="group_1",
        alias_id="alias",
        state=TrajectoryState.COMPLETED,
        end_reason="done",
        purpose=Purpose.TRAIN,
        origin=Origin.LIVE,
        selection=None,
        continues=None,
        forked_from_call=None,
        version_id="ver_3",
        mixed=False,
        tags={"team": "support"},
        started_at=100.0,
        last_call_at=100.0,
        ended_at=102.5,
        tools=None,
        messages=[SYSTEM, ASKED, LOOKED, FOUND, ANSWERED],
        calls=[first, second, call(3, [ASKED], ANSWERED, call_kind=CallKind.AUX, state=CallState.ABORTED)],
        main_path=[("call_1", 0), ("call_2", 0)],
        feedback=[FeedbackView("resolved", True, None, "thanks", {}, 103.0)],
        scenario=None,
    )
    return replace(made, **changed)


def score(*parts: NewPart) -> StoredScore:
    return stored_score(*parts, judge_version="judge-model-1", tokens_in=10, tokens_cached=4, tokens_out=5)


SCORE = score(
    NewPart("traj_1", "reward", 0.75, explanation="right, with one detour"),
    NewPart("traj_1", "ruler", 0.5, weight=0.5),
    NewPart("traj_2", "reward", None, explanation="the check timed out"),
)


def test_a_run_is_readable() -> None:
    names = {"ver_3": "helpdesk@3"}
    text = printed(transcript.render_trajectory(trajectory(), SCORE, names, task="Where is order 4821?"))
    for part in (
        "Where is order 4821?  completed (done)",
        "traj_1 · named run-7 · group group_1 · helpdesk@3 · train · live · 3 calls",
        "tags team=support",
        "You help.",
        "Where is order 4821?",
        '→ find_order({"id": 4821})',
        '{"status": "shipped"}',
        "It arrives on Monday.",
        "right, with one detour",
        "ruler",
        "× 0.5",
        "judged by judge-model-1",
        "10+5 tokens, 4 of them cached",
        "resolved",
        "thanks",
        "call_2 · helpdesk@3 · path/stated · 0.50 s · T=0.7 · choice 0 · stop · 3 tokens · trainable",
    ):
        assert part in text
    assert re.search(r"reward +0\.75", text)
    assert re.search(r"call_3 +aborted +aux", text)
    assert "the check timed out" not in text  # that is another run's


def test_what_came_next_says_after_which_call_and_which_run_recorded_it() -> None:
    events = [
        FollowUp(FollowUpKind.TOOL_ERROR, "call_1", 0, "Error: none", 5.0, "traj_1", name="find_order"),
        FollowUp(FollowUpKind.FEEDBACK, "call_2", 0, HOSTILE, 6.0, "traj_1", name="thumbs", value=False),
        FollowUp(FollowUpKind.MESSAGE, "call_2", 0, "Thanks", 7.0, "traj_2", source_call_id="call_3"),
    ]
    text = printed(transcript.render_trajectory(trajectory(), None, {}, events))
    assert harmless(text)
    lines = " ".join(text.split())
    for words in (
        "what came next",
        "tool error after call_1 find_order Error: none",
        "in traj_2 Thanks",
        "thumbs false",
    ):
        assert words in lines
    assert "what came next" not in printed(transcript.render_trajectory(trajectory(), None, {}))


def test_a_run_that_was_not_judged_says_so() -> None:
    assert "no reward yet" in printed(transcript.render_trajectory(trajectory(), None, {}))


def test_what_is_context_says_why() -> None:
    masked = choice(ANSWERED, trainable=False, untrainable_reason="top_p")
    only = call(1, [SYSTEM, ASKED, LOOKED, FOUND], ANSWERED, choices=[masked])
    view = trajectory(calls=[only], main_path=[("call_1", 0)])
    assert "context: top_p" in printed(transcript.render_trajectory(view, None, {}))


def test_a_group_shows_its_members_by_reward_with_the_judges_reasons() -> None:
    members = [trajectory(id="traj_2"), trajectory()]
    view = GroupView(
        "group_1", "default", "task", "alias", GroupState.SCORED, None, "ver_3", None, 2, "score_1",
        ScenarioView("order-4821", "train", {}, None, None), members,
    )  # fmt: skip
    text = printed(transcript.render_group(view, SCORE, {"ver_3": "helpdesk@3"}))
    assert "task  scored" in text
    assert "group_1 · named task · helpdesk@3 · scenario order-4821 · 2 members" in text
    assert text.index("right, with one detour") < text.index("the check timed out")
    assert re.search(r"traj_2 .* reward +– ", text)
    assert re.search(r"reward +0\.75 +right, with one detour *\n +ruler +0\.5 +× 0\.5 *\n", text)


def test_a_group_shows_every_part_extra_value_and_rule_with_its_reason() -> None:
    parts = [
        NewPart("traj_1", "reward", 0.0, explanation="vetoed by no_refund: it called refund"),
        NewPart("traj_1", "rubric", 0.5, 2.0, "1 of 2 criteria met; not pear"),
        NewPart("traj_1", "rubric.apple", 1.0, None, "it names one"),
        NewPart("traj_1", "rubric.pear", 0.0, None, "it names none"),
        NewPart("traj_1", "no_refund", 1.0, None, "it called refund"),
    ]
    view = GroupView(
        "group_1", "default", "task", "alias", GroupState.SCORED, None, "ver_3", None, 1, "score_1", None,
        [trajectory()],
    )  # fmt: skip
    text = printed(transcript.render_group(view, score(*parts), {}))
    for part in parts:
        assert re.search(rf"{re.escape(part.part)} +{part.value:g} .*{part.explanation}", text)


def test_a_group_that_was_not_judged_shows_its_members() -> None:
    view = GroupView(
        "group_1", "default", "task", "alias", GroupState.READY, None, "ver_3", None, 1, None, None, [trajectory()]
    )
    text = printed(transcript.render_group(view, None, {}))
    assert "not judged yet" in text
    assert re.search(r"traj_1 +completed +done +3 +reward +–", text)


def test_a_call_shows_prompt_choices_and_error() -> None:
    view = call(1, [SYSTEM, ASKED], ANSWERED, state=CallState.ERRORED, error="engine died", superseded_by="call_9")
    text = printed(transcript.render_call(view, {}))
    for part in ("call_1  errored (call_9)", "engine died", "Where is order 4821?", "It arrives on Monday."):
        assert part in text


def test_what_the_model_did_not_get_is_told_of_a_call_and_of_its_run() -> None:
    meta = {"left_out_tools": ["web_search"], "left_out_items": ["web_search_call"]}
    view = call(1, [ASKED], ANSWERED, response_meta=meta)
    for shown in (
        transcript.render_call(view, {}),
        transcript.render_trajectory(trajectory(calls=[view, view]), None, {}),
    ):
        text = printed(shown)
        assert "not sent to the model, tools: web_search\n" in text
        assert "not sent to the model, of the conversation: web_search_call" in text


def test_long_messages_are_cut_unless_asked_for_whole() -> None:
    long = {"role": "tool", "content": "x" * 10_000 + "END"}
    view = trajectory(messages=[long], main_path=[])
    assert "[6,003 more characters: --full]" in printed(transcript.render_trajectory(view, None, {}))
    assert "END" in printed(transcript.render_trajectory(view, None, {}, full=True))


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {}}], ("look", "[image_url]")),
        ([7, {"type": "text", "text": 3}], ("[7]", "[text]")),
        (7, ("7",)),
        (None, ()),
    ],
)
def test_every_form_of_content_is_shown(content: Any, shown: tuple[str, ...]) -> None:
    text = printed(transcript.render_trajectory(trajectory(messages=[{"role": "user", "content": content}]), None, {}))
    assert all(part in text for part in shown)


@pytest.mark.parametrize("calls", [[{}], ["text"], [{"function": None}], [{"function": {"arguments": {"a": 1}}}]])
def test_malformed_tool_calls_are_no_obstacle(calls: list[Any]) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    printed(transcript.render_trajectory(trajectory(messages=[message]), None, {}))


def hostile(value: Any) -> Any:
    """Every text inside, made hostile."""
    if isinstance(value, str):
        return value + HOSTILE
    if isinstance(value, dict):
        return {k: hostile(v) if k not in ("role", "type") else v + HOSTILE for k, v in value.items()}
    return [hostile(v) for v in value] if isinstance(value, list) else value


def test_no_part_of_a_run_reaches_the_terminal_as_it_is() -> None:
    messages = [hostile(m) for m in (SYSTEM, ASKED, LOOKED, FOUND, ANSWERED)]
    sampled = choice(messages[-1], finish_reason=HOSTILE, untrainable_reason=HOSTILE, trainable=False)
    nasty = call(
        3, messages, messages[-1], id=f"call{HOSTILE}", error=HOSTILE, model=HOSTILE, version_id=None,
        attribution_source=HOSTILE, choices=[sampled],
    )  # fmt: skip
    view = trajectory(
        external_id=HOSTILE, end_reason=HOSTILE, tags={HOSTILE: HOSTILE}, messages=messages, continues=HOSTILE,
        feedback=[FeedbackView(HOSTILE, HOSTILE, None, HOSTILE, {}, 0.0)], calls=[nasty, replace(nasty, id="x")],
        main_path=[(nasty.id, 0)],
    )  # fmt: skip
    parts = [NewPart("traj_1", name, 1.0, explanation=HOSTILE) for name in (HOSTILE, "reward")]
    judged = replace(score(*parts), judge_version=HOSTILE)
    group = GroupView(
        "group_1", "default", HOSTILE, None, GroupState.LEFT_OUT, HOSTILE, None, None, None, None,
        ScenarioView(HOSTILE, "train", {}, None, None), [view],
    )  # fmt: skip
    for shown in (
        transcript.render_trajectory(view, judged, {"ver_3": HOSTILE}),
        transcript.render_group(group, judged, {}),
        transcript.render_call(nasty, {}),
    ):
        assert harmless(printed(shown))
        assert "[bold red]not markup[/]" in printed(shown)
        assert harmless(uncoloured(shown))  # the only escapes are our own colours
