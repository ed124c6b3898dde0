"""What is shown: JSON lines, plain lines, a terminal."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from recorder.views.campaigns.events import Alarm, CampaignEnded, SettingChanged, StepDone, Validation
from trainer.progress import (
    CompositeProgress,
    Event,
    JsonProgress,
    LineProgress,
    Notice,
    PhaseStatus,
    TerminalProgress,
    choose_progress,
    event_text,
)

STEP = StepDone(
    step=3, version="helpdesk@3", sampled_by="helpdesk@2", success=0.5, reward=0.25, kl=8e-8, kl_base=None,
    tokens_per_s=4321.0, attempts=64, errored=2, trained=40, left_out={"zero_variance": 3},
    seconds={"sampling": 2.04, "judging": 0.3, "training": 1.0, "swapping": 0.1}, note="a note",
)  # fmt: skip
EVENTS: list[Event] = [
    Notice("hello"),
    PhaseStatus(1, "sampling", 3, 64),
    STEP,
    Validation(4, "helpdesk@4", None, 0.5, 200, 1, 5.0),
    CampaignEnded("helpdesk", "target", "0.95 reached the target 0.95", 4, "helpdesk@4", 60.0, 0.4, 0.98, 200, 199,
          {"helpdesk@0": 0.4}, 100, {"zero_variance": 3}),
    Validation(4, "gpt-5", 0.75, 0.5, 8, 0, 5.0, part="test", baseline=True, adversarial=0.5, adversarial_attempts=2),
    Validation(4, "helpdesk@4", None, None, 20, 0, 5.0, win_rate=0.625),
    Alarm(4, "length_drift", "pause", "answers grew", {"length": 2.0},
          [{"trajectory": "traj-1", "reward": 1.0, "part": "ruler"}]),
    SettingChanged(4, "judge.recipe", "a", "b"),
]  # fmt: skip


def test_json_lines_name_their_event_and_leave_out_the_status() -> None:
    out = io.StringIO()
    for event in EVENTS:
        JsonProgress(out).tell(event)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    named = ["notice", "step", "validation", "campaign_ended", "validation", "validation", "alarm", "setting_changed"]
    assert [line["event"] for line in lines] == named
    assert lines[1]["seconds"]["sampling"] == 2.04
    assert lines[3]["versions"] == {"helpdesk@0": 0.4}


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (STEP, "   3  helpdesk@3        50.0 %   0.250  8.0e-08        –    4321      40    2.0s   0.3s   1.0s   0.1s  "
               "success 37.9 % to 62.1 % of 62 attempts; 2 of 64 attempts errored; a note"),
        (EVENTS[1], "step 1 · sampling 3/64"),
        (EVENTS[3], "validation of helpdesk@4: reward 0.500 over 200 attempts, 1 errored (5.0 s)"),
        (EVENTS[4], "helpdesk target: 0.95 reached the target 0.95 (4 steps, 60 s)\n"
                    "success 40.0 % of 200 → 98.0 % of 199 attempts\nin service: helpdesk@4\n"
                    "trained on 100 trajectories; excluded: zero_variance 3"),
        (EVENTS[5], "test of gpt-5: success 75.0 % (40.9 % to 92.9 %) over 8 attempts, "
                    "50.0 % of 2 adversarial ones (5.0 s)"),
        (EVENTS[6], "validation of helpdesk@4: wins 62.5 % against version 0 (40.9 % to 80.0 %) "
                    "over 20 attempts (5.0 s)"),
        (EVENTS[7], "length_drift after step 4: answers grew\n  traj-1: reward 1.000, paid by ruler"),
        (EVENTS[8], "changed after step 4: judge.recipe a → b"),
    ],
)  # fmt: skip
def test_each_event_reads_in_one_glance(event: Event, text: str) -> None:
    assert event_text(event).plain == text


def test_plain_lines_head_the_steps_once_and_skip_counts() -> None:
    out = io.StringIO()
    lines = LineProgress(Console(file=out, soft_wrap=True))
    for event in (
        STEP,
        STEP,
        PhaseStatus(4, "sampling", 1, 64),
        PhaseStatus(4, "training", detail="3 groups"),
        Notice("end"),
    ):
        lines.tell(event)
    text = out.getvalue().splitlines()
    assert [line.split()[0] for line in text] == ["step", "3", "3", "step", "end"]
    assert text[3] == "step 4 · training: 3 groups"


def test_the_form_suits_where_it_is_shown() -> None:
    with choose_progress(as_json=True, out=io.StringIO()) as shown_as:
        assert isinstance(shown_as, JsonProgress)
    with choose_progress(as_json=False, out=io.StringIO()) as shown_as:
        assert isinstance(shown_as, LineProgress)


def test_a_terminal_shows_the_status_below_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    with choose_progress(as_json=False, out=out) as terminal:
        assert isinstance(terminal, TerminalProgress)
        for event in EVENTS:
            terminal.tell(event)
    assert "helpdesk@3" in out.getvalue()


def test_text_of_others_is_no_markup() -> None:
    out = io.StringIO()
    LineProgress(Console(file=out, soft_wrap=True)).tell(Notice("[bold]not markup[/] [/nor this]"))
    assert out.getvalue() == "[bold]not markup[/] [/nor this]\n"


def test_several_are_told_alike() -> None:
    first, second = io.StringIO(), io.StringIO()
    CompositeProgress(JsonProgress(first), JsonProgress(second)).tell(Notice("x"))
    assert first.getvalue() == second.getvalue() == '{"event": "notice", "text": "x", "warning": false}\n'
