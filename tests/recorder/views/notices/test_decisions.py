"""Which rows of the ledger are told, in which words, and how far they are read."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.queue import notifications
from recorder.queue.notifications import NoticeCursor, NoticeKind
from recorder.registry import alias_moves
from recorder.registry.aliases import AliasView
from recorder.registry.learning_health import LearningHealth, RuleSignal, write_health
from recorder.registry.versions import allocate_version, mark_version, pass_gate, reject_version
from recorder.states import VersionState
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow, write_rows
from recorder.views.notices import ledger_events
from recorder.views.notices.decisions import LedgerEvent, code_of, notice_of, numbers_of
from recorder.views.notices.ledger_events import SETTLE_S, settle
from tests.recorder.rows import PROJECT, Rows

SECRET_TEXT = "what a user wrote: my address is 5 Elm Street"


@pytest.fixture
def project(store: Store) -> Project:
    return Project(store, PROJECT)


async def loaded(store: Store, alias: AliasView) -> str:
    assert alias.live_version_id is not None
    version = await allocate_version(store, alias.id, alias.live_version_id)
    for state in (VersionState.WRITTEN, VersionState.LOADED):
        await mark_version(store, version.id, state, path="/adapters/x", manifest_sha256="0" * 64)
    return version.id


async def test_decisions_about_versions_are_told_without_free_text(project: Project, rows: Rows) -> None:
    store, alias = project.store, await rows.alias()
    cursor = await notifications.load_cursor(project)
    first, second = await loaded(store, alias), await loaded(store, alias)
    await pass_gate(store, first, SECRET_TEXT, who="controller")
    figures = {"win_rate": 0.61, "quote": SECRET_TEXT, "inf": float("inf")}
    await alias_moves.set_live(store, alias.id, first, why="promote", who="key_1", reason=SECRET_TEXT, figures=figures)
    await reject_version(store, second, f"broken: {SECRET_TEXT}", lessons="again", who="controller")
    await alias_moves.rollback(store, alias.id, reason=SECRET_TEXT)
    notices, after = await ledger_events.read_decisions(project, cursor, {"helpdesk"})
    assert [(one.kind, one.what, one.link) for one in notices] == [
        (
            NoticeKind.REVIEW_WAITING,
            "helpdesk@1 passed its checks and waits for a person: `hone promote helpdesk@1` makes it live.",
            "/hone/versions/helpdesk@1",
        ),
        (NoticeKind.VERSION_LIVE, "helpdesk@1 is live: a person or a key decided.", "/hone/versions/helpdesk@1"),
        (NoticeKind.VERSION_REJECTED, "helpdesk@2 was rejected (broken).", "/hone/versions/helpdesk@2"),
        (
            NoticeKind.VERSION_ROLLED_BACK,
            "helpdesk@0 is live again: a person or a key rolled back.",
            "/hone/versions/helpdesk@0",
        ),
    ]
    assert notices[1].figures == {"win_rate": 0.61}
    assert "Elm" not in repr(notices)
    # the same rows are the same events, until they settle
    assert [one.event for one in (await ledger_events.read_decisions(project, after, set()))[0]] == [
        one.event for one in notices[1:]
    ]


async def test_health_rules_are_told_when_they_signal_and_not_when_they_end(project: Project, rows: Rows) -> None:
    alias = await rows.alias()
    cursor = await notifications.load_cursor(project)
    signal = RuleSignal("entropy", "note", SECRET_TEXT, {"entropy": 0.01})
    await write_health(project.store, alias, LearningHealth(alias.name, 3, [signal]))
    await write_health(project.store, alias, LearningHealth(alias.name, 4, []))
    notices, _ = await ledger_events.read_decisions(project, cursor, set())
    assert [(one.kind, one.what) for one in notices] == [
        (NoticeKind.ALARM, "entropy: a health rule signals in learning of helpdesk, at step 3.")
    ]


@pytest.mark.parametrize(
    ("kind", "code", "detail", "expected", "words"),
    [
        ("campaign", "alarm", {"rule": "kl", "then": "pause", "step": 2}, "learner_paused", "The campaign is paused."),
        ("campaign", "alarm", {"rule": "kl", "then": "stop", "step": 2}, "alarm", "The campaign ended."),
        ("campaign", "alarm", {"rule": "kl", "then": "note", "step": 2}, "alarm", "after step 2."),
        ("version", "reward_fall", {"who": "learner"}, "learner_paused", "Learning of name is paused: reward_fall"),
        ("version", "canary_ended", {"who": "controller"}, "version_rolled_back", "it was shown to be worse"),
        ("version", "gated", {}, None, ""),
        ("version", "gate", {"who": "controller"}, "version_live", "name@3 is live: the gate decided."),
    ],
)
def test_what_each_row_becomes(kind: str, code: str, detail: dict[str, Any], expected: str | None, words: str) -> None:
    name = "name@3" if kind == "version" else "name"
    one = notice_of(LedgerEvent(1, kind, code, detail, 5.0, name), ())
    assert (one and one.kind) == expected
    assert one is None or words in one.what


async def test_more_rows_than_one_look_reads(project: Project, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    alias = await rows.alias()
    cursor = await notifications.load_cursor(project)
    for step in range(5):
        signal = RuleSignal("entropy", "note", "", {})
        await write_health(project.store, alias, LearningHealth(alias.name, step, [signal]))
    monkeypatch.setattr(ledger_events, "_MOST_ROWS", 2)
    events = []
    for _ in range(4):
        notices, cursor = await ledger_events.read_decisions(project, cursor, set())
        events += [one.event for one in notices]
    assert len(set(events)) == 5


async def test_other_rows_and_the_past_are_not_told(project: Project, rows: Rows) -> None:
    alias = await rows.alias()
    signal = RuleSignal("entropy", "note", "", {})
    await write_health(project.store, alias, LearningHealth(alias.name, 1, [signal]))
    cursor = await notifications.load_cursor(project)
    async with project.store.write() as conn:
        await write_rows(
            conn, [LedgerRow(PROJECT, "trajectory", "traj_1", "gate"), LedgerRow(PROJECT, "alias", "x", "y")]
        )
    assert (await ledger_events.read_decisions(project, cursor, set()))[0] == []


def test_a_row_that_is_committed_late_is_still_read() -> None:
    """Its id was taken before the mark; it is committed after that, within `SETTLE_S`."""
    cursor = NoticeCursor(0, 10, 100.0)
    assert settle(cursor, 20, 100.0 + SETTLE_S / 2) == cursor
    after = settle(cursor, 20, 100.0 + SETTLE_S)
    assert (after.settled_id, after.mark_id) == (10, 20)
    # a restored store continues with lower numbers
    assert settle(after, 5, after.marked_at + SETTLE_S).settled_id == 5


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("broken: why", "broken"),
        ("parent_left", "parent_left"),
        (SECRET_TEXT, "unknown"),
        (None, "unknown"),
        ("", "unknown"),
    ],
)
def test_only_a_code_is_told_of_a_reason(text: str | None, code: str) -> None:
    assert code_of(text) == code


def test_only_numbers_are_told_of_figures() -> None:
    assert numbers_of({"a": 1, "b": "text", "c": float("nan"), "d": None, "é": 2, "e" * 65: 3}) == {"a": 1}
    assert numbers_of(None) == numbers_of([1]) == {}
    assert len(numbers_of({f"n{n}": n for n in range(100)})) == 20
