"""Users who write back, against real tools and a small server that plays Hone and its model."""

from __future__ import annotations

import random
import time
from itertools import repeat
from typing import Any

import pytest

from examples.helpdesk.orders import read_database
from examples.helpdesk.scenarios import DemoFiles
from examples.live.follow_ups import user_script, writers
from examples.live.follow_ups.phrasings import FIRST_HALF, SECOND_HALF
from examples.live.follow_ups.user_script import Shares
from examples.live.follow_ups.writers import writing_users
from examples.live.traffic import one_each
from examples.live.users import Run
from tests.examples.test_helpdesk_agent import Model, ideal
from tests.examples.test_live_users import served

pytestmark = pytest.mark.slow

TRUTHFUL = Shares(writes=1.0, lies=0.0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((user_script, "SOONEST_S"), (user_script, "LATEST_S"), (writers, "NO_ANSWER_S")):
        monkeypatch.setattr(module, name, 0.0)


def never_right(_: Any) -> dict[str, Any]:
    return {"content": "Please be patient, good things take time."}


async def lived(
    files: DemoFiles, mcp_url: str, shares: Shares, model: Model = ideal, *, second_half: bool = False
) -> tuple[list[Run], list[tuple[str, dict[str, str], dict[str, Any]]], dict[str, int]]:
    questions, ended = one_each(read_database(files.database).train[:3], random.Random(1)), list[Run]()
    with served(model) as (url, asked):
        async with writing_users(url, mcp_url, 7, shares, ended.append) as (population, writing):
            writing.half_at = 0.0 if second_half else float("inf")
            await population.live(iter(questions), repeat(0.0), time.time() + 60)
    return ended, asked, dict(writing.counts)


@pytest.mark.parametrize("second_half", [False, True])
async def test_a_user_writes_back_in_the_conversation_and_its_reply_is_only_recorded(
    files: DemoFiles, mcp_url: str, second_half: bool
) -> None:
    ended, asked, counts = await lived(files, mcp_url, TRUTHFUL, second_half=second_half)
    assert [(run.right, run.fault) for run in ended] == [(True, None)] * 3
    aside = [body for _, headers, body in asked if headers.get("x-hone-purpose") == "none"]
    assert len(aside) == counts["written"] == 3
    half = SECOND_HALF if second_half else FIRST_HALF
    for body in aside:
        *before, last = body["messages"]
        assert last["role"] == "user"
        assert last["content"] in half.content
        assert [one["role"] for one in before][-1] == "assistant"
        assert any(one["role"] == "tool" for one in before)
    others = [headers for _, headers, _ in asked if headers.get("x-hone-purpose") != "none"]
    assert not [name for headers in others for name in headers if name.startswith("x-hone")]


async def test_a_user_who_lies_praises_a_wrong_answer(files: DemoFiles, mcp_url: str) -> None:
    _, asked, counts = await lived(files, mcp_url, Shares(writes=1.0, lies=1.0), never_right)
    written = [body["messages"][-1]["content"] for _, headers, body in asked if "x-hone-purpose" in headers]
    assert len(written) == counts["lies"] == 3
    assert set(written) <= set(FIRST_HALF.content)


@pytest.mark.parametrize(
    ("model", "sent", "grounded"),
    [(never_right, [("reference", 0.0)], 0), (ideal, [("demonstration", None), ("reference", 1.0)], 3)],
)
async def test_a_stated_answer_is_feedback_and_no_message(
    files: DemoFiles, mcp_url: str, model: Model, sent: list[tuple[str, float | None]], grounded: int
) -> None:
    _, asked, counts = await lived(files, mcp_url, Shares(states=1.0), model)
    feedback = [(path, body) for path, _, body in asked if "messages" not in body]
    assert {path for path, _ in feedback} == {"/hone/v1/trajectories/traj_1/feedback"}
    found = sorted((body["name"], None if body["name"] == "demonstration" else body["value"]) for _, body in feedback)
    assert found == sorted(sent * 3)
    assert all("arrives on" in str(body.get("comment", body["value"])) for _, body in feedback)
    assert counts == {"stated": 3, "grounded": grounded}


async def test_silent_users_send_nothing(files: DemoFiles, mcp_url: str) -> None:
    _, asked, counts = await lived(files, mcp_url, Shares(writes=0.0))
    assert counts == {}
    assert not [headers for _, headers, _ in asked if "x-hone-purpose" in headers]
