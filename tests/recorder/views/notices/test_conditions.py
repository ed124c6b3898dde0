"""A condition is told when it begins, not while it lasts, and again after it has ended."""

from __future__ import annotations

from typing import Any

from recorder.queue.groups.disputes import DisputedGroup
from recorder.queue.notifications import NoticeKind
from recorder.registry.learning_health import LearningHealth, RuleSignal
from recorder.views.notices.conditions import Condition, begun_notices, list_conditions
from recorder.views.status.project import EngineStatus, Status, UnscoredGroups, WorkerStatus, find_alarms, list_alarms
from recorder.views.status.stages import Stage, StageState, StageStatus

SECRET_TEXT = "the function said: 5 Elm Street"

LISTS = (
    "engines", "proxies", "workers", "aliases", "taken_back", "stages", "rewards", "steps", "campaigns", "gate",
    "missing_parts", "judges", "health", "unscored", "shadow_answers", "never_trained", "attribution_missing",
    "ids_disagree",
)  # fmt: skip
MAPPINGS = (
    "groups", "shadow_groups", "other_groups", "groups_due_in_s", "excluded", "excluded_groups", "spent_by_purpose",
)  # fmt: skip


def a_status(**values: Any) -> Status:
    """A status of nothing, with some values."""
    given: dict[str, Any] = {name: [] for name in LISTS} | {name: {} for name in MAPPINGS}
    counts = {"at": 100.0, "calls_per_s": 0.0, "open_trajectories": 0, "trained": 0, "steps_last_hour": 0}
    return Status(**{**given, **counts, "waiting": "", "spent_today": None, **values})


DOWN = EngineStatus("http://e:8000", "down", SECRET_TEXT, [], None, 0.0)


def test_alarms_pauses_and_reviews_are_conditions() -> None:
    paused = StageStatus(Stage.LEARNING, "helpdesk", StageState.PAUSED, "judge_tokens_per_day", None, "It is paused.")
    own_pace = StageStatus(Stage.LEARNING, "other", StageState.PAUSED, "steps_per_hour", None, "It is paused.")
    health = LearningHealth("helpdesk", 3, [RuleSignal("entropy", "note", "low")])  # the ledger tells it
    unscored = UnscoredGroups("function_failed", 2, None, SECRET_TEXT, None)
    status = a_status(engines=[DOWN], stages=[paused, own_pace], health=[health], unscored=[unscored])
    disputed = [DisputedGroup("grp_1", "orders", "helpdesk", None, "s", 0.1, 5.0)]
    found = list(list_conditions(status, disputed))
    assert [(one.kind, one.what) for one in found] == [
        (NoticeKind.ALARM, "Engine http://e:8000 is down."),
        (NoticeKind.ALARM, "2 groups could not be judged (function_failed)."),
        (NoticeKind.LEARNER_PAUSED, "helpdesk: It is paused."),
        (NoticeKind.REVIEW_WAITING, "The judges disagree about the group orders: it waits for a person."),
    ]
    assert "Elm" not in repr(found)


def test_the_sentences_of_the_status_have_the_details() -> None:
    status = a_status(engines=[DOWN], workers=[WorkerStatus("judge:x", "x", False, 5.0)])
    assert list(list_alarms(status)) == [
        f"engine http://e:8000 is down: {SECRET_TEXT}",
        "judge:x is dead; its lease expires in 00:05",
    ]
    assert [one.brief for one in find_alarms(status)] == ["engine http://e:8000 is down", "judge:x is dead"]


def test_a_condition_is_told_when_it_begins_and_again_after_it_ended() -> None:
    one, two = (Condition(NoticeKind.ALARM, key, f"{key}.", "/hone/") for key in ("one", "two"))
    begun, held = begun_notices([one], (), 10.0)
    assert [notice.what for notice in begun] == ["one."]
    later, both = begun_notices([one, two], held, 20.0)
    assert [notice.what for notice in later] == ["two."]
    assert begun_notices([], both, 30.0) == ([], ())
    again, _ = begun_notices([one], (), 40.0)
    assert [notice.what for notice in again] == ["one."]
    assert again[0].event != begun[0].event
