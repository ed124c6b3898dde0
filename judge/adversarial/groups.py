"""Groups of the adversarial set: an honest success, an honest failure and the trick. Pure.

Owns: their views, built without a store, and the order in which a judge sees them. Refuses: their contents
(`judge.adversarial.tasks`, `judge.adversarial.tricks`) and judging.

In every kind except `position`, the trick stands between the two honest trajectories, so that a position bias of the
judge is not counted as a successful trick. In `position` the success stands between two honest failures.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from judge.adversarial.tasks import Message, TaskAttempt, TrickTask, draw_task, honest_failure, honest_success
from judge.adversarial.tricks import RecipeContext, TrickKind
from judge.llm.group_text import prompt_trajectory
from judge.llm.prompt import SEEDS, build_prompt
from recorder.messages.calls import SamplingParameters
from recorder.states import CallKind, CallState, Confidence, GroupState, Origin, Purpose, TrajectoryState
from recorder.views.trajectories.shapes import CallView, ChoiceView, GroupView, ScenarioView, TrajectoryView

GROUPS: Final = 20  # of a kind, by default
PROJECT: Final = "judge-check"
_CHARS: Final = 1_000_000  # more than any of these groups has


@dataclass(frozen=True, slots=True)
class GroupTrial:
    """One group to judge, and which of its trajectories is which, by id."""

    kind: TrickKind
    name: str
    task: TrickTask
    group: GroupView
    good: str
    failure: str
    trick: str

    @property
    def middle(self) -> str:
        """The trajectory that is shown between the two others."""
        return self.good if self.kind.by_place else self.trick


def kind_trials(kind: TrickKind, count: int, seed: int, recipe: RecipeContext) -> Iterator[GroupTrial]:
    """The groups of a kind. They depend on the arguments only, not on other kinds."""
    rng = random.Random(f"{seed} {kind.name}")
    for number in range(count):
        task = draw_task(number, rng)
        yield task_trial(kind, f"{kind.name}-{number + 1:02}", task, kind.make(task, rng, recipe))


def task_trial(kind: TrickKind, name: str, task: TrickTask, trick: TaskAttempt) -> GroupTrial:
    """One group for a task."""
    scenario = ScenarioView(name, "check", task.ask, task.code, task.criteria)
    attempts = {f"{name}-1": honest_success(task), f"{name}-2": honest_failure(task), f"{name}-3": trick}
    members = [attempt_view(id_, attempt, task.tools, scenario) for id_, attempt in attempts.items()]
    return GroupTrial(kind, name, task, trial_group(name, scenario, members), *attempts)


def order_seed(one: GroupTrial, rng: random.Random) -> int:
    """A seed with which RULER shows a trial's trajectories in the order that its kind needs."""
    runs = [prompt_trajectory(member) for member in one.group.members]
    while True:
        seed = rng.randrange(SEEDS)
        shown = list(build_prompt(runs, rubric="", seed=seed, max_chars=_CHARS).ids.values())
        if len(shown) != 3 or shown[1] == (one.middle,):  # fewer than 3: two are identical and have no order
            return seed


def trial_group(name: str, scenario: ScenarioView, members: Sequence[TrajectoryView]) -> GroupView:
    """A group of ended attempts at one task, none of them trainable."""
    return GroupView(
        id=name, project_id=PROJECT, external_id=name, alias_id=None, state=GroupState.READY, reason=None,
        version_id=None, campaign_id=None, declared_size=len(members), current_score_id=None, scenario=scenario,
        members=list(members),
    )  # fmt: skip


def attempt_view(id_: str, attempt: TaskAttempt, tools: Sequence[Message], scenario: ScenarioView) -> TrajectoryView:
    """An attempt as the record would show it."""
    calls = list(_calls(id_, attempt, tools))
    return TrajectoryView(
        id=id_, project_id=PROJECT, external_id=id_, group_id=None, alias_id=None, state=TrajectoryState.COMPLETED,
        end_reason=None, purpose=Purpose.EVAL, origin=Origin.CAMPAIGN, selection=None, continues=None,
        forked_from_call=None, version_id=None, mixed=False, tags={}, started_at=0.0, last_call_at=0.0, ended_at=0.0,
        tools=list(tools), messages=list(attempt.messages), calls=calls, main_path=[(call.id, 0) for call in calls],
        feedback=(), scenario=scenario, histories=attempt.histories,
    )  # fmt: skip


def _calls(run: str, attempt: TaskAttempt, tools: Sequence[Message]) -> Iterator[CallView]:
    """One call for each message of the agent, including those it dropped later."""
    answers: list[tuple[Message, Sequence[Message]]] = []
    for messages in (*(history.messages for history in attempt.histories), attempt.messages):
        here = [(one, messages[:at]) for at, one in enumerate(messages) if one["role"] == "assistant"]
        answers += [(one, before) for one, before in here if all(one is not known for known, _ in answers)]
    for number, (message, before) in enumerate(answers):
        yield CallView(
            id=f"{run}-{number}", trajectory_id=run, parent_call_id=f"{run}-{number - 1}" if number else None,
            parent_choice=0 if number else None, state=CallState.COMPLETE, superseded_by=None,
            call_kind=CallKind.MAIN, attribution_source="path", attribution_confidence=Confidence.STATED,
            alias_id=None, version_id=None, base_fingerprint=None, model="check", dialect="chat",
            endpoint="/v1/chat/completions", stream=False, sampling=SamplingParameters(),
            usage={"completion_tokens": _tokens(message)}, response_meta=None, messages=list(before), tools=list(tools),
            response_format=None, rest={}, prompt_token_ids=None, choices=[_choice(message)], http_status=200,
            error=None, retry_count=0, started_at=0.0, first_token_at=0.0, finished_at=0.0,
        )  # fmt: skip


def _choice(message: Message) -> ChoiceView:
    return ChoiceView(0, dict(message), None, None, "tool_calls" if "tool_calls" in message else "stop", False, None)


def _tokens(message: Message) -> int:
    """An estimate of the message's tokens: the set was written, not sampled."""
    return 1 + len(str(message.get("content", "")) + str(message.get("tool_calls", ""))) // 4
