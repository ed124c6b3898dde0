"""`hone judge` and `hone score` at the terminal."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from judge.errors import JudgeDown, JudgeMisconfigured, JudgeUnanswered
from proxy.cli import cli
from recorder.errors import Conflict, NotFound
from recorder.queue import claims
from recorder.queue.judging import scores
from recorder.registry.ancestry import VERSION_REJECTED
from recorder.store.database import Store
from recorder.store.schema import groups
from recorder.views.trajectories.transcripts import load_group
from tests.judge.judge_server import JudgeServer, by_worth, fails, says, verdicts
from tests.judge.recorded import Recorded
from tests.recorder.rows import Rows

pytestmark = pytest.mark.slow


async def test_score_shows_rewards_and_reasons_and_changes_nothing(
    store: Store, recorded: Recorded, score: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("order-4821", ["worth 0.2", "worth 0.9"])
    before = await load_group(store, group_id)
    result = await score("order-4821")
    assert result.exit_code == 0
    lines = [line.split() for line in result.output.splitlines()]
    assert ["0", "0.2"] in lines
    assert ["ruler", "0.2", "1", "said", "worth", "0.2"] in lines
    assert ["1", "0.9"] in lines
    assert await scores.list_scores(store, group_id) == []
    assert (await load_group(store, group_id)).state == before.state


async def test_score_debug_shows_prompt_and_reply(store: Store, recorded: Recorded, score: Any) -> None:
    group_id, members = await recorded.group("g", ["\x1b[31m[bold] worth 0.2", "worth 0.9"])
    result = await score(group_id, "--debug")
    assert result.exit_code == 0
    for shown in ("You judge attempts", "<<<HONE-DATA", '"trajectories"', *members, "[bold]"):
        assert shown in result.output
    assert "\x1b[31m" not in result.output


async def test_score_debug_shows_what_could_not_be_read(
    store: Store, recorded: Recorded, score: Any, server: JudgeServer
) -> None:
    server.behave(says("Both were \x1b[31mfine."), says("Really."))
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    result = await score(group_id, "--debug")
    assert isinstance(result.exception, JudgeUnanswered)
    for shown in ("<<<HONE-DATA", "Both were ␛[31mfine.", "cannot be used", "Really."):
        assert shown in result.output


async def test_score_json_is_for_programs(store: Store, recorded: Recorded, score: Any) -> None:
    group_id, members = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    result = await score(group_id, "--debug", as_json=True)
    shown = json.loads(result.output)
    assert (shown["group_id"], shown["shortened"]) == (group_id, False)
    assert [(t["id"], t["external_id"], t["reward"]) for t in shown["trajectories"]] == [
        (members[0], "0", 0.2),
        (members[1], "1", 0.9),
    ]
    assert shown["trajectories"][0]["parts"][0]["part"] == "ruler"
    assert [m["role"] for m in shown["prompt"]] == ["system", "user"]
    assert set(sum(shown["prompt_ids"].values(), [])) == set(members)  # noqa: RUF017 - two short lists
    assert json.loads(shown["reply"])["trajectories"]


async def test_a_recipe_is_tried_on_a_group_and_nothing_is_stored(store: Store, recorded: Recorded, score: Any) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    strict = {"recipes": {"strict": {"rubric": "Be strict."}}}
    result = await score(group_id, "--judge-recipe", "strict", "--debug", **strict)
    assert result.exit_code == 0, result.output
    assert "Be strict." in result.output
    assert "by the judge recipe 'strict'" in " ".join(result.output.split())
    assert await scores.list_scores(store, group_id) == []
    result = await score(group_id, "--judge-recipe", "lax", **strict)
    assert (result.exit_code, "known: default, strict" in result.output) == (2, True)
    for flag in ("--save", "--again", "--open"):
        result = await score(group_id, "--judge-recipe", "strict", flag, **strict)
        assert (result.exit_code, "tries a recipe on one GROUP" in " ".join(result.output.split())) == (2, True)


async def test_score_save_scores_a_scored_group_anew(store: Store, recorded: Recorded, score: Any) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    assert (await score(group_id, "--save")).exit_code == 0
    assert (await score(group_id, "--save", rubric="Be brief.")).exit_code == 0
    first, second = await scores.list_scores(store, group_id)
    assert first.recipe_hash != second.recipe_hash
    assert (await load_group(store, group_id)).current_score_id == second.id


async def test_what_an_open_group_waits_for_is_said(store: Store, recorded: Recorded, score: Any) -> None:
    rows = Rows(store)
    running = await rows.group(external_id="g")
    await rows.trajectory(running)
    ended, _ = await recorded.group("h", ["worth 0.2", "worth 0.9"])
    await rows.set(groups, ended, state="open")
    for named, waits in (("g", "1 of its 1 trajectories have not ended"), ("h", "more trajectories may join it")):
        refused = await score(named)
        assert isinstance(refused.exception, Conflict)
        assert f"is still open: {waits}." in str(refused.exception)
    [shown] = json.loads((await score("h", "--open", as_json=True)).stdout)
    assert "more trajectories may join it" in shown["still_open"]


async def test_score_save_does_not_take_a_group_from_a_judge(store: Store, recorded: Recorded, score: Any) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    assert await claims.claim_one_for_judging(store, group_id, "another", 60)
    result = await score(group_id, "--save")
    assert isinstance(result.exception, Conflict)
    assert await scores.list_scores(store, group_id) == []


async def test_score_again_takes_what_was_left_out_for_its_version_and_nothing_else(
    store: Store, recorded: Recorded, score: Any
) -> None:
    rejected, _ = await recorded.group("rejected", ["worth 0.2", "worth 0.9"])
    lone, _ = await recorded.group("lone", ["worth 0.2", "worth 0.9"])
    for group_id, reason in ((rejected, VERSION_REJECTED), (lone, "too_few")):
        claim = await claims.claim_one_for_judging(store, group_id, "judge", 60)
        assert claim is not None
        await scores.exclude_group(store, claim, reason)
    assert isinstance((await score(rejected, "--save")).exception, Conflict)
    assert (await score(rejected, "--again")).exit_code == 0
    assert (await load_group(store, rejected)).state == "scored"
    assert isinstance((await score(lone, "--again")).exception, Conflict)
    assert (await load_group(store, lone)).reason == "too_few"


async def test_again_asks_a_group_anew_in_spite_of_what_is_stored(
    store: Store, recorded: Recorded, score: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    await score("g", "--save")
    await score("g", "--save")
    assert len(server.requests) == 1
    server.behave(verdicts(lambda document: 1 - by_worth(document)))
    await score("g", "--again")
    assert len(server.requests) == 2
    given = [part.value for part in (await scores.list_scores(store, group_id))[-1].parts if part.part == "reward"]
    assert sorted(value for value in given if value is not None) == pytest.approx([0.1, 0.8])


async def test_a_judge_that_is_down_costs_a_scored_group_nothing(
    store: Store, recorded: Recorded, score: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    await score(group_id, "--save")
    server.behave(fails(503))
    result = await score(group_id, "--save", retries=0, rubric="Be brief.")
    assert isinstance(result.exception, JudgeDown)
    assert (await load_group(store, group_id)).state == "scored"


async def test_an_unknown_group_is_named(store: Store, score: Any) -> None:
    result = await score("no-such-group")
    assert isinstance(result.exception, NotFound)
    assert "no-such-group" in str(result.exception)


async def test_an_open_group_is_scored_as_it_is_where_that_is_asked_for(
    store: Store, recorded: Recorded, score: Any
) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"], size=3)
    lone_id, _ = await recorded.group("lone", ["worth 0.5"], size=3)
    refused = await score("g")
    assert isinstance(refused.exception, Conflict)
    assert f"`hone score --open {group_id}`" in str(refused.exception)
    for named in (["g"], []):
        result = await score("--open", *named)
        assert result.exit_code == 0, result.output
        assert f"Group {group_id} is still open: 2 of its 2 trajectories have ended" in result.output
        assert "Nothing is saved" in result.output
        assert ["1", "0.9"] in [line.split() for line in result.output.splitlines()]
    assert f"group {lone_id}: " in result.output
    [shown] = json.loads((await score("--open", as_json=True)).stdout)
    assert (shown["group_id"], len(shown["trajectories"])) == (group_id, 2)
    assert await scores.list_scores(store, group_id) == []
    assert (await load_group(store, group_id)).state == "open"


async def test_open_is_for_open_groups_and_never_saved(store: Store, recorded: Recorded, score: Any) -> None:
    await recorded.group("closed", ["worth 0.2", "worth 0.9"])
    assert "score it without --open" in str((await score("--open", "closed")).exception)
    assert "cannot store a score" in (await score("--open", "--save", "closed")).output
    assert (await score()).exit_code == 2


async def test_without_a_judge_score_says_so(store: Store, score: Any) -> None:
    result = await score("g", model="")
    assert isinstance(result.exception, JudgeMisconfigured)


def test_without_a_judge_hone_judge_refuses_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HONE_JUDGE__MODEL", raising=False)
    result = CliRunner().invoke(cli, ["judge", "--data", str(tmp_path)])
    assert result.exit_code == 2  # set wrongly: `hone up` does not start it again
    assert result.output.startswith("hone: no judge is set: set judge.model")
    assert len(result.output.splitlines()) == 1


async def test_score_says_by_which_recipe(store: Store, recorded: Recorded, score: Any) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    assert json.loads((await score(group_id, as_json=True)).output)["recipe"] == "default"
    assert "by the judge recipe" not in (await score(group_id)).output
    strict = {"recipes": {"strict": {"rubric": "Be strict."}}}
    told = await score(group_id, of_alias={"helpdesk": "strict"}, **strict)
    assert "by the judge recipe 'strict'" in told.output
    assert "Be strict." in (await score(group_id, "--debug", of_alias={"helpdesk": "strict"}, **strict)).output
