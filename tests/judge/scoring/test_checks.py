"""What the judge says of its settings: nobody judges, no key, functions that cannot be imported or give no number."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from judge.scoring.checks import check_judge
from judge.settings import JudgeSettings
from proxy.cli import cli
from recorder.base.findings import Finding, FindingLevel, parse_finding
from tests.judge.judge_server import Behaviour, JudgeServer, fails, page, says

pytestmark = pytest.mark.slow

CODE = "def half(t): return len(t.messages) / 4\ndef strict(t): return t.scenario['reference'] == 1\n"


async def found(folder: Path, **more: object) -> dict[str, Finding]:
    return {one.check: one for one in await check_judge(JudgeSettings.model_validate({"folder": folder, **more}))}


def by(*functions: str) -> list[dict[str, str]]:
    return [{"kind": "function", "function": name} for name in functions]


async def test_nobody_judges(tmp_path: Path) -> None:
    assert (await found(tmp_path))["judge"].verdict is FindingLevel.WRONG


async def test_a_rubric_without_a_judge_model_is_noted(tmp_path: Path) -> None:
    one = (await found(tmp_path, rewards=[{"kind": "rubric"}]))["judge"]
    assert one.verdict is FindingLevel.NOTE
    assert "only criteria with a `check` can be judged" in one.found


async def test_functions_are_called_with_a_made_up_run(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(CODE)
    one = (await found(tmp_path, rewards=by("checks:half")))["reward functions"]
    assert (one.verdict, one.found) == (FindingLevel.FINE, "checks:half returns 0.5 for a made-up trajectory.")
    one = (await found(tmp_path, rewards=by("checks:strict")))["reward functions"]
    assert one.verdict is FindingLevel.NOTE
    assert "TypeError" in one.found
    assert "checks.py:2" in one.found


async def test_a_made_up_run_outside_the_range_is_told(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("def stars(t): return 5\n")
    one = (await found(tmp_path, rewards=by("checks:stars")))["reward functions"]
    assert (one.verdict, "5.0 is outside 0 to 1" in one.found) == (FindingLevel.NOTE, True)


async def test_functions_that_cannot_be_imported_are_wrong(tmp_path: Path) -> None:
    one = (await found(tmp_path, rewards=by("no_such_file:f")))["reward functions"]
    assert one.verdict is FindingLevel.WRONG
    assert "no_such_file" in one.found


async def test_a_missing_key_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    one = (await found(tmp_path, model="openai/gpt-5-mini"))["judge key"]
    assert one.verdict is FindingLevel.WRONG
    assert "OPENAI_API_KEY" in one.found
    assert (await found(tmp_path, model="openai/gpt-5-mini", api_key="k"))["judge key"].verdict is FindingLevel.FINE


def test_the_command_tells_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HONE_JUDGE__MODEL", raising=False)
    result = CliRunner().invoke(cli, ["judge", "--check", "--json", "--data", str(tmp_path)])
    assert result.exit_code == 1
    [one] = map(parse_finding, json.loads(result.output))
    assert (one.check, one.verdict) == ("judge", FindingLevel.WRONG)


async def test_every_recipe_is_told_and_its_functions_are_called(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(CODE)
    recipes = {"loose": {"rewards": by("checks:half")}, "odd": {"rewards": by("checks:nowhere")}}
    told = await check_judge(JudgeSettings.model_validate({"folder": tmp_path, "recipes": recipes}))
    assert [(one.check, one.verdict) for one in told] == [
        ("judge", FindingLevel.NOTE),
        ("judge", FindingLevel.FINE),
        ("judge", FindingLevel.FINE),
        ("reward functions", FindingLevel.FINE),
        ("reward functions", FindingLevel.WRONG),
    ]
    assert "only trajectories whose alias or campaign names a recipe" in told[0].found
    assert told[1].found == "rewards by the recipe 'loose' are half x 1."


async def test_the_base_needs_a_proxy_and_a_strong_judge_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    made = JudgeSettings.model_validate({"folder": tmp_path, "model": "base", "strong": {"model": "openai/strong"}})
    base, strong = [one for one in await check_judge(made) if one.check == "judge key"]
    assert (base.verdict, "`hone up` or `hone serve`" in base.found) == (FindingLevel.FINE, True)
    assert (strong.verdict, strong.found) == (
        FindingLevel.WRONG,
        "openai/strong needs OPENAI_API_KEY, which is not set.",
    )


# --- one request to each judge model


async def asked(folder: Path, **more: object) -> list[Finding]:
    found = await check_judge(JudgeSettings.model_validate({"folder": folder, **more}), ask=True)
    return [one for one in found if one.check == "judge model"]


async def test_a_judge_that_answers_gets_one_short_request(tmp_path: Path, server: JudgeServer) -> None:
    server.behave(says("OK"))
    [found] = await asked(tmp_path, model="openai/j", api_base=server.url, max_tokens=4096)
    assert found.verdict is FindingLevel.FINE
    [body] = server.requests
    assert body["max_tokens"] == 16


@pytest.mark.parametrize("behaviour", [fails(404, "no such model"), fails(401), fails(503), page("a page")])
async def test_a_judge_that_cannot_answer_is_wrong(behaviour: Behaviour, tmp_path: Path, server: JudgeServer) -> None:
    server.behave(behaviour)
    [found] = await asked(tmp_path, model="openai/j", api_base=server.url)
    assert found.verdict is FindingLevel.WRONG
    assert len(server.requests) == 1


async def test_a_judge_on_a_dead_port_is_wrong_and_every_judge_is_asked(tmp_path: Path) -> None:
    dead = "http://127.0.0.1:9/v1"
    strong = {"model": "openai/strong", "api_base": dead}
    found = await asked(tmp_path, model="openai/j", api_base=dead, strong=strong)
    assert [one.verdict for one in found] == [FindingLevel.WRONG] * 2
    assert "openai/strong" in found[1].found


async def test_a_thinking_judge_that_reaches_the_limit_answers(tmp_path: Path, server: JudgeServer) -> None:
    server.behave(fails(400, "max_tokens or model output limit was reached"))
    [found] = await asked(tmp_path, model="openai/j", api_base=server.url)
    assert found.verdict is FindingLevel.FINE


async def test_without_a_key_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert await asked(tmp_path, model="openai/gpt-5-mini") == []
    assert await asked(tmp_path, model="base") == []
