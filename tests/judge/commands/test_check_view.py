"""`hone judge check` at the terminal: what it tells, its exit status, its JSON and its picture."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from judge.adversarial.check import CheckRequest, RecipeCheck
from judge.adversarial.tricks import KINDS, KindOutcome, TrialResult
from judge.commands import judge as commands
from judge.commands.check_view import check_chart, check_json, show_check
from judge.errors import JudgeMisconfigured, JudgeUsage
from judge.settings import JudgeSettings
from proxy.settings.hone import HoneSettings
from recorder.stats.charts import draw_svg
from tests.judge.adversarial.scripted import Read, judge, score_by, sound, tasks
from tests.judge.conftest import context_of
from tests.judge.judge_server import JudgeServer, completion, fails

GROUPS = 4
SMALL = ("--groups", str(GROUPS), "--kind", "longer", "--kind", "closes_fence")
EVIL = "\x1b]0;owned\x07\u202e<script>alert(1)</script>[bold]"
slow = pytest.mark.slow  # a server, and a program's start


def behaving(score: Callable[[Read], float]) -> Any:
    """A judge behind HTTP that scores so."""
    ask = judge(score, tasks(GROUPS))

    async def behave(body: dict[str, Any]) -> web.StreamResponse:
        return completion((await ask(body["messages"])).text)

    return behave


@pytest.fixture
def check(settings: Callable[..., JudgeSettings], tmp_path: Path) -> Callable[..., Any]:
    """Run `hone judge check` in a thread of its own, as it starts an event loop."""

    async def run(*args: str, as_json: bool = False, **more: Any) -> Result:
        given = HoneSettings(data=tmp_path / "data", judge=settings(**more))
        context = context_of(given, as_json=as_json)
        return await asyncio.to_thread(CliRunner().invoke, commands.judge, ["check", *args], obj=context)

    return run


def fooled(kind: str = "longer", said: str = EVIL) -> RecipeCheck:
    seen = TrialResult("longer-01", 0.9, 0.1, 0.97, detail=said)
    one = KindOutcome("ruler", kind, 20, 20, {"judge_unreadable": 1}, EVIL, 21, JudgeUsage(2100, 0, 420, 0.5), [seen])
    code = KindOutcome("brief", "empty", 20, 20, examples=[seen])
    none = KindOutcome("ruler", "empty", 0, 0, {EVIL: 20}, EVIL)
    return RecipeCheck(
        CheckRequest(), f"openai/{EVIL}", [one, none], [code], {"thumbs": "it is human feedback"}, stopped=EVIL
    )


@slow
async def test_a_sound_judge_passes_and_nothing_is_stored(check: Any, server: JudgeServer, tmp_path: Path) -> None:
    server.behave(behaving(sound))
    result = await check(*SMALL)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[:2] for line in lines[1:3]] == [["ruler", "closes_fence"], ["ruler", "longer"]]
    assert "No trick fools it in significantly more than 5 % of groups." in result.stdout
    assert f"{2 * GROUPS} replies of the judge, 800+160 tokens" in result.stdout
    assert f"{2 * GROUPS} of {2 * GROUPS} groups" in result.stderr
    assert len(server.requests) == 2 * GROUPS
    assert all(request["response_format"] for request in server.requests)
    assert not (tmp_path / "data").exists()


@slow
async def test_a_judge_that_is_fooled_ends_with_1_and_is_drawn(check: Any, server: JudgeServer, tmp_path: Path) -> None:
    server.behave(behaving(score_by("longer")))
    picture = tmp_path / "judge.svg"
    result = await check(*SMALL, "--picture", str(picture), as_json=True)
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["passed"], told["groups"], told["requests"], told["model"]) == (False, GROUPS, 8, "openai/judge")
    assert {one["kind"]: (one["fooled"], one["over"]) for one in told["by_model"]} == {
        "closes_fence": (0, False),
        "longer": (GROUPS, True),
    }
    assert told["by_model"][1]["examples"][0]["trick"] > told["by_model"][1]["examples"][0]["good"]
    assert ElementTree.fromstring(picture.read_text("utf-8")).tag.endswith("svg")
    allowed = await check(*SMALL, "--at-most", "0.9", as_json=True)
    assert allowed.exit_code == 0
    assert json.loads(allowed.stdout)["by_model"][1]["fooled"] == GROUPS


@slow
async def test_a_dry_run_asks_nobody(check: Any, server: JudgeServer) -> None:
    result = await check("--groups", str(GROUPS), "--dry-run", as_json=True)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["requests"] == told["groups"] == GROUPS * len(KINDS)
    assert server.requests == []


@slow
async def test_a_judge_that_is_down_is_told_and_ends_with_1(check: Any, server: JudgeServer) -> None:
    server.behave(fails(503))
    result = await check(*SMALL, retries=0)
    assert result.exit_code == 1
    assert "Stopped early: the judge openai/judge" in result.stdout
    assert len(server.requests) == GROUPS


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--kind", "no_such"), "there is no trick 'no_such'. Known: claims_success"),
        (("--picture", "no/such/folder/judge.svg"), "its folder does not exist"),
        (("--groups", "0"), "0 is not in the range"),
        (("--alias", "helpdesk"), "--alias selects the base that judges, and no judge is `base`"),
    ],
)
async def test_a_wrong_argument_is_told_before_anybody_is_asked(
    args: tuple[str, ...], why: str, check: Any, server: JudgeServer
) -> None:
    result = await check(*args)
    assert result.exit_code == 2
    assert why in result.stderr
    assert server.requests == []


async def test_a_recipe_that_is_not_there_is_named(check: Any) -> None:
    result = await check("--recipe", "strict")
    assert isinstance(result.exception, JudgeMisconfigured)
    assert "known are default" in str(result.exception)


def test_the_check_of_settings_takes_no_subcommand() -> None:
    result = CliRunner().invoke(commands.judge, ["--check", "check"], obj=context_of(HoneSettings()))
    assert result.exit_code == 2
    assert "takes no subcommand" in result.stderr


def test_what_judges_say_cannot_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_check(fooled(), 0.05)
    said = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in said)
    assert "\u202e" not in said
    for told in ("ruler pays an attempt that pads a failure with many words (longer): significantly in more than 84 %",
                 "brief pays an attempt", "ruler, empty: no group could be judged",
                 "thumbs was not tested: it is human feedback.", "Stopped early", "2,100+420",
                 "0.5000"):  # fmt: skip
        assert told in said
    assert "No trick fools it" not in said
    told_json = json.dumps(check_json(fooled(), 0.05))
    assert told_json.isascii()
    assert json.loads(told_json)["by_model"][0]["interval"]["low"] == pytest.approx(0.8389, abs=1e-4)


@slow  # draws
def test_the_picture_has_a_row_for_each_kind_and_nothing_hostile() -> None:
    made = check_chart(fooled(), 0.05)
    assert made.places == ("longer", "empty")
    assert made.series[0].values == (1.0, None)
    drawn = draw_svg(made)
    assert "script" not in drawn
    assert "owned" not in drawn
    ElementTree.fromstring(drawn)
