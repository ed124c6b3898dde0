"""The report's page: one file that asks for nothing, small, reproducible, in which hostile transcripts are text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from recorder.base.terminal import clean, show
from recorder.queue.training.budgets import CampaignJudgingCost
from recorder.report import contents, page
from recorder.report.contents import excluded_trajectories, phase_seconds
from recorder.report.shapes import (
    AlarmEvidence,
    CampaignDraws,
    CampaignReport,
    CampaignStatus,
    DrawnGroups,
    DrawnScenario,
    ExcludedTrajectories,
    GoalResult,
    ReportConversation,
    ReportMessage,
    ScenarioPair,
    WithheldTools,
)
from recorder.report.terminal import report_text
from recorder.states import CampaignState
from recorder.views.campaigns.events import Alarm, CampaignMeasure, SettingChanged
from recorder.views.campaigns.tokens import CampaignTokens, GateCost
from tests.proxy.dashboard.xss import CORPUS
from tests.recorder.report.played import step, validated

pytestmark = pytest.mark.slow  # draws

_LEADS = {"href", "src", "action", "formaction", "data", "poster", "srcset", "xlink:href", "background"}
_OURS = {
    "html", "head", "meta", "title", "style", "body", "main", "p", "h1", "h2", "h3", "h4", "span", "code", "dl", "div",
    "dt", "dd", "small", "table", "thead", "tbody", "tr", "th", "td", "svg", "g", "defs", "path", "use", "clippath",
    "rect", "pattern", "line", "circle", "ul", "ol", "li", "section", "details", "summary", "footer",
}  # fmt: skip


def report(
    count: int = 4, text: str = "Where is it?", said: Sequence[str] = ("hello",) * 16, **changes: object
) -> CampaignReport:
    """A report in which everything is there, `text` wherever somebody else's words are."""
    done = [step(number, note=text, left_out={text: 2}, metrics={"health.length": number, f"part.{text}": 1.0})
            for number in range(1, count + 1)]  # fmt: skip
    points = [
        contents.validation_point(validated(number, 0.5, version=text), CampaignMeasure.SUCCESS)
        for number in range(count + 1)
    ]
    talk = ReportConversation("traj_1", text, 0.5, [ReportMessage(text, each, 9) for each in said], 5, 4)
    alarm = Alarm(1, text, "pause", text, evidence=[{"trajectory": text, "reward": text, "part": text}])
    groups = DrawnGroups(text, 2, 1, 16, 8, 0.5)
    drawn = [DrawnScenario(text, 0.5, 0.9, 3, 1, number) for number in range(20)]
    made = CampaignReport(
        id="camp_1", name=text, alias=text, state=CampaignState.STOPPED, made_at=2.0, began_at=1.0, ended_at=2.0,
        status=CampaignStatus("paused", text, text), steps_done=count, most_steps=count, failed_steps=0,
        kind=CampaignMeasure.SUCCESS, target=0.5, beat=text,
        own=[contents.validation_point(one, CampaignMeasure.SUCCESS) for one in done], validations=points,
        baselines=points[:1], tests=points[:1], first=text, before=points[0], best=points[0], served=text, live="other",
        goals=[GoalResult(text, 1.0, True)], alarms=[AlarmEvidence(alarm, [talk])],
        changes=[SettingChanged(1, text, text, text)],
        judged=CampaignJudgingCost(1, 1, 2, 0, 3, 0.5, 0, 0), attempts=1, errored=0, trained=1,
        excluded=[*excluded_trajectories(done), ExcludedTrajectories(text, 1, text)],
        withheld=WithheldTools([text], 2), seconds=phase_seconds(done),
        health=contents.health_figures(done),
        steps=done, pairs=[ScenarioPair(text, text, talk, talk, 0.5)], notes=[text],
        draws=CampaignDraws(text, 0.1, 0.5, groups, groups, [groups], drawn),
        sampled=CampaignTokens(100, [GateCost(text, 20, 2, f"{text} gate.max_share")]),
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]  # a test names fields as it needs them


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.foreign: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _OURS:
            self.foreign.append(tag)
        for name, value in attrs:
            if (
                name.startswith("on")
                or name in ("style", "srcdoc")
                or (name in _LEADS and not f"{value}".startswith("#"))
            ):
                self.foreign.append(f"{tag} {name}={value}")
            if name == "id":
                self.ids.append(f"{value}")

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader


def test_whatever_was_said_is_text() -> None:
    found = read(page.render_page(report(2, said=CORPUS)))
    assert found.foreign == []
    shown = _bare(found.text)
    assert [text for text in CORPUS if _bare(clean(text)) not in shown] == []


def _bare(text: str) -> str:
    """Without blanks, which a page lays out."""
    return "".join(text.split())


@pytest.mark.parametrize("text", CORPUS[::60])
def test_names_labels_and_titles_are_text_too(text: str) -> None:
    assert read(page.render_page(report(2, text))).foreign == []


def test_what_the_trainer_computed_on_is_shown_where_it_was_not_the_base(capsys: pytest.CaptureFixture[str]) -> None:
    shown = "omputed on a copy of the base in nf4"
    for copy in (None, "nf4"):
        given = report(computed_on=copy)
        show(report_text(given))
        told = " ".join(capsys.readouterr().out.split())
        assert (shown in page.render_page(given)) is (copy is not None)
        assert ("nf4" in told) is (copy is not None)


def test_the_page_names_nothing_outside_of_it_and_allows_only_its_own_style_sheet() -> None:
    html = page.render_page(report())
    outside = set(re.findall(r"[a-z]+://[^\"' <]+", html))
    assert outside <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, which nobody asks for
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    (sheet,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    assert page.security_policy(sheet) in html.replace("&#39;", "'")
    assert "script-src" not in page.security_policy(sheet)


def test_the_same_report_is_the_same_file_and_no_id_is_there_twice() -> None:
    html = page.render_page(report())
    assert page.render_page(report()) == html
    ids = read(html).ids
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', html)) <= set(ids)


def test_two_hundred_steps_with_long_conversations_stay_a_small_file() -> None:
    html = page.render_page(report(200, said=["x" * 1500] * 16))
    assert len(html) < 3_000_000
    assert "140 more between" in html


def test_a_report_of_nothing_is_a_page_that_says_so() -> None:
    empty = report(
        0, own=(), validations=(), baselines=(), tests=(), before=None, best=None, kind=CampaignMeasure.NOTHING,
        goals=(), alarms=(), changes=(), pairs=(), excluded=(), seconds={}, health={}, steps=(), target=None, beat=None,
    )  # fmt: skip
    said = read(page.render_page(empty))
    assert said.foreign == []
    assert "Nothing was measured yet." in said.text
