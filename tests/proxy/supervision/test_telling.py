"""How the lines of `hone up` look: in a log, on a terminal, as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from proxy.supervision import console as lines
from proxy.supervision.console import ProgramLine, choose_output
from recorder.views.status.stage_facts import GroupForecast
from recorder.views.status.stages import Stage, StageState, StageStatus

DOWN = ProgramLine("judge", "failed", "ended (exit status 2). Its log: judge.log\nno model is set\nset judge.model")
PAUSED = "Learning is paused: [learn] hours allow it from 22:00 to 06:00. It resumes at 22:00."
STAGES = [
    StageStatus(Stage.RECORDING, None, StageState.RUNNING, "recording", None, "Recording is running: 5 open groups."),
    StageStatus(Stage.LEARNING, "helpdesk", StageState.PAUSED, "hours", 3600.0, PAUSED),
]
WAITS = GroupForecast(at=100.0, groups={"open": 5}, due={"open": 558.0}, open_trajectories=2)


def made(**console: Any) -> tuple[lines.ConsoleOutput, io.StringIO]:
    out = io.StringIO()
    as_json = console.pop("as_json", False)
    return choose_output(Console(file=out, width=200, soft_wrap=True, **console), as_json=as_json), out


def test_a_log_has_a_line_a_thing_and_a_childs_last_words_below_its_end() -> None:
    told, out = made()
    told.tell("swap", "helpdesk@1 is live\x1b[2J, in place of [bold]x")
    told.programs([DOWN], DOWN)
    told.programs([DOWN], ProgramLine("engine", "starting", ""))
    swap, failed, *words = out.getvalue().splitlines()
    assert swap[10:] == "swap      helpdesk@1 is live␛[2J, in place of [bold]x"
    assert failed[10:] == "failed    judge ended (exit status 2). Its log: judge.log"
    assert [one.strip() for one in words] == ["no model is set", "set judge.model"]


def test_what_is_waited_for_is_said_when_its_numbers_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "WAITING_EVERY_S", 0.0)
    told, out = made()
    told.waits(WAITS, 100.0)
    told.waits(WAITS, 101.0)
    assert out.getvalue()[10:] == "waiting   5 groups open, the next closes in 07:38\n"
    told.waits(GroupForecast(at=100.0, groups={"scored": 1}, due={}, open_trajectories=0), 102.0)
    assert out.getvalue().splitlines()[1].endswith("1 group scored")


LOADING = ProgramLine("engine", "starting", "for 16 s (loading the weights)")


def test_what_is_still_starting_is_said_every_15_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = ProgramLine("proxy", "up", "proxy.log")
    for as_json in (False, True):
        monkeypatch.setattr(lines, "STARTING_EVERY_S", 15.0)
        told, out = made(as_json=as_json)
        told.starting([LOADING, proxy])
        assert out.getvalue() == ""
        monkeypatch.setattr(lines, "STARTING_EVERY_S", 0.0)
        told.starting([proxy])
        assert out.getvalue() == ""
        told.starting([LOADING, proxy])
        assert "engine for 16 s (loading the weights)" in out.getvalue()
        assert "\x1b" not in out.getvalue()


def test_a_terminal_shows_what_is_still_starting_in_its_table() -> None:
    told, out = made(force_terminal=True)
    told.starting([LOADING])
    told.close()
    assert "for 16 s (loading the weights)" in out.getvalue()


def test_what_the_stages_wait_for_is_said_below_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "WAITING_EVERY_S", 0.0)
    told, out = made()
    told.waits(WAITS, 100.0, STAGES)
    told.waits(WAITS, 101.0, STAGES)
    assert [line[20:] for line in out.getvalue().splitlines()] == ["5 groups open, the next closes in 07:38", PAUSED]
    told.waits(WAITS, 102.0, [*STAGES, replace(STAGES[1], alias="other")])
    assert [line[20:] for line in out.getvalue().splitlines()][3:] == [f"helpdesk: {PAUSED}", f"other: {PAUSED}"]


def test_a_terminal_shows_what_the_stages_wait_for() -> None:
    told, out = made(force_terminal=True)
    told.waits(WAITS, 100.0, STAGES)
    told.close()
    assert PAUSED in out.getvalue()


def test_a_program_reads_the_stages() -> None:
    told, out = made(as_json=True)
    told.waits(WAITS, 100.0, STAGES)
    told.waits(WAITS, 100.0, STAGES[:1])
    first, second = (json.loads(line)["stages"] for line in out.getvalue().splitlines())
    assert [(one["stage"], one["code"], one["text"]) for one in first][1] == ("learning", "hours", PAUSED)
    assert len(second) == 1


def test_a_log_that_just_said_it_waits_with_the_next() -> None:
    told, out = made()
    told.waits(WAITS, 100.0)
    told.waits(GroupForecast(at=100.0, groups={"scored": 1}, due={}, open_trajectories=0), 100.1)
    assert len(out.getvalue().splitlines()) == 1


def test_a_terminal_counts_down_below_the_lines() -> None:
    told, out = made(force_terminal=True)
    told.programs([DOWN], DOWN)
    told.waits(WAITS, 100.0)
    told.waits(WAITS, 101.0)
    told.tell("judged", "3 groups judged")
    told.close()
    shown = out.getvalue()
    assert "07:38" in shown
    assert "07:37" in shown
    assert "set judge.model" in shown
    assert shown.index("3 groups judged") > shown.index("07:38")


def test_a_program_reads_json() -> None:
    told, out = made(as_json=True)
    told.tell("judged", "3 groups\njudged", {"groups": 3})
    told.programs([DOWN], DOWN)
    told.waits(WAITS, 100.0)
    told.waits(WAITS, 101.0)
    judged, failed, waiting = map(json.loads, out.getvalue().splitlines())
    assert (judged["event"], judged["groups"]) == ("judged", 3)
    assert (failed["program"], failed["event"]) == ("judge", "failed")
    assert waiting["due_in_s"] == {"open": 458.0}
    assert waiting["groups"] == {"open": 5}
