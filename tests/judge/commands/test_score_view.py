"""`hone score --all` at the terminal: what it tells of groups scored again, its exit status, and Ctrl-C."""

import asyncio
import json
import os
import re
import signal
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console

from judge.commands import score_view
from judge.scoring.rescoring import RescoreOutcome, RescoreTally
from recorder.base import terminal
from recorder.queue.judging import scores
from recorder.store.database import Store
from recorder.store.schema import groups
from recorder.views.trajectories.transcripts import load_group
from tests.judge.judge_server import Json, JudgeServer, by_worth, fails, verdicts
from tests.judge.recorded import Recorded
from tests.recorder.rows import Rows
from tests.stores import reached

pytestmark = pytest.mark.slow

WORTHS = ["worth 0.2", "worth 0.9"]
UPSIDE_DOWN = verdicts(lambda document: 1 - by_worth(document))


async def test_old_scores_are_held_against_new_ones(
    store: Store, recorded: Recorded, score: Any, server: JudgeServer
) -> None:
    trained, _ = await recorded.group("a", [*WORTHS, "worth 0.5"])
    scored, _ = await recorded.group("b", WORTHS)
    result = await score("--all")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "2 of 2 groups rescored." in result.output
    assert "tau" not in result.output  # there is nothing to compare with yet
    await Rows(store).set(groups, trained, state="trained")
    server.behave(UPSIDE_DOWN, verdicts())
    told = (await score("--all", "--again", concurrency=1)).output
    assert "2 of 2 groups rescored; 1 of them kept the score that was trained on, with the new one beside it." in told
    assert "The judge used 200+40 tokens." in told
    assert "tau -0.5 over 4 pairs of trajectories; 3 reversed, 1 in the same order" in told
    assert [trained, "3", "3", "-1"] in [line.split() for line in told.splitlines()]
    assert scored not in told  # nothing of it was turned over


async def test_json_has_all_of_it(store: Store, recorded: Recorded, score: Any, server: JudgeServer) -> None:
    first, _ = await recorded.group("a", WORTHS)
    held, _ = await recorded.group("b", WORTHS)
    await score("--all")
    await Rows(store).set(groups, held, state="judging")
    server.behave(UPSIDE_DOWN)
    told = json.loads((await score("--all", "--again", as_json=True)).stdout)
    assert (told["groups"], told["current"], told["history"]) == (2, [first], [])
    assert (told["failed"], told["stopped"], told["dry_run"]) == ({}, False, False)
    assert told["passed"] == {held: "a judge is scoring it"}
    pairs = {"tau": -1.0, "pairs": 1, "reversed": 1, "same_order": 0, "tied_before": 0, "tied_now": 0, "tied": 0}
    assert told["agreement"] == {**pairs, "by_group": [{"group_id": first, **pairs}]}
    assert told["spent"]["tokens_in"] == 100


async def test_failures_are_named_by_reason_and_the_exit_status_is_1(
    store: Store, recorded: Recorded, score: Any, server: JudgeServer
) -> None:
    made = [(await recorded.group(name, WORTHS))[0] for name in "abc"]
    server.behave(verdicts(), fails(503))
    result = await score("--all", "--again", concurrency=1, retries=0)
    assert result.exit_code == 1
    assert "1 of 3 groups rescored." in result.output
    assert f"failed: judge_down: 2 groups ({made[1]}, {made[2]}), unchanged: the judge" in result.output
    assert [(await load_group(store, id_)).state for id_ in made] == ["scored", "ready", "ready"]
    told = json.loads((await score("--all", "--again", as_json=True, retries=0)).stdout)
    assert set(told["failed"]["judge_down"]) == set(made)


async def test_a_dry_run_tells_what_it_would_take(
    store: Store, recorded: Recorded, score: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("a", WORTHS)
    result = await score("--all", "--dry-run", max_tokens=1000)
    assert result.exit_code == 0
    assert "1 of 1 group would be scored." in result.output
    assert re.search(
        r"1 request to the judge: about [\d,]+ tokens in \(characters / 4\), at most 1,000 out", result.output
    )
    told = json.loads((await score("--all", "--dry-run", as_json=True)).stdout)
    assert (told["dry_run"], told["requests"], told["current"]) == (True, 1, [group_id])
    assert told["tokens_in"] > 100
    assert server.requests == []
    assert await scores.list_scores(store, group_id) == []


async def test_where_nothing_is_meant_it_says_so(store: Store, recorded: Recorded, score: Any) -> None:
    await recorded.group("a", WORTHS)
    result = await score("--all", "--stale")
    assert (result.exit_code, result.output) == (0, "There is no such group to rescore.\n")


@pytest.mark.parametrize(
    "wrong",
    [
        ["--all", "g"], ["--all", "--open"], ["--all", "--debug"], ["--all", "--save", "--dry-run"],
        ["--all", "--alias", "a", "--campaign", "c"], ["g", "--stale"], ["g", "--dry-run"], ["--alias", "a"],
    ],
    ids=" ".join,
)  # fmt: skip
async def test_options_that_do_not_go_together_are_refused(store: Store, score: Any, wrong: list[str]) -> None:
    assert (await score(*wrong)).exit_code == 2


def test_a_terminal_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    monkeypatch.setattr(terminal, "console", lambda **_: Console(file=screen, force_terminal=True))
    tally = RescoreTally(groups=3)
    with score_view.watch_rescore(tally) as told:
        told(RescoreOutcome("g", "current"))
    assert tally.over == 1
    assert "1 of 3 groups" in screen.getvalue()


@pytest.mark.slow
async def test_ctrl_c_leaves_what_was_saved_and_tells_it(
    store: Store, recorded: Recorded, server: JudgeServer, tmp_path: Path
) -> None:
    saved, _ = await recorded.group("a", ["a worth 0.2", "a worth 0.9"])
    cut, _ = await recorded.group("b", ["b worth 0.2", "b worth 0.9"])
    asked = asyncio.Event()

    async def hang(body: Json) -> web.StreamResponse:
        asked.set()
        return await server.hang(body)

    server.behave(verdicts(), hang)
    judge = {"MODEL": "openai/judge", "API_BASE": server.url, "CONCURRENCY": "1"}
    env = {**os.environ, **reached(store), **{f"HONE_JUDGE__{name}": value for name, value in judge.items()}}
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy.cli", "score", "--data", tmp_path / "data", "--all",
        env=env, cwd=tmp_path, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await asyncio.wait_for(asked.wait(), 120)
    program.send_signal(signal.SIGINT)
    told, _ = await asyncio.wait_for(program.communicate(), 60)
    assert program.returncode == 130
    assert b"1 of 2 groups rescored." in told
    assert b"stopped: 1 group not reached; what was saved stays." in told
    assert [(await load_group(store, id_)).state for id_ in (saved, cut)] == ["scored", "ready"]
