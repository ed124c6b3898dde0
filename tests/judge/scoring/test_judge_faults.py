"""A judge that cannot be read or reached: what it is told, what was paid, and that nobody gets a reward of it."""

import json
import re
from typing import Any

import pytest
from aiohttp import web

from judge.errors import (
    JudgeDown,
    JudgeFailed,
    JudgeUnanswered,
)
from recorder.store.database import Store
from tests.judge.judge_server import (
    Behaviour,
    JudgeServer,
    by_worth,
    completion,
    declines,
    entries,
    fails,
    says,
    verdicts,
)
from tests.judge.recorded import Recorded
from tests.judge.scoring.judging import judged, rewards

pytestmark = pytest.mark.slow


def unlike(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**entries[0], "score": 7}, *({**one, "score": 0.5} for one in entries[1:])]


# What is wrong with a reply, and what the judge is told about it.
FAULTS: dict[str, tuple[Behaviour, str]] = {
    "garbage": (says("I would rather not."), "no JSON object"),
    "nothing": (says(None), "empty"),
    "half the ids": (verdicts(change=lambda e: e[: len(e) // 2]), "no score for: t-"),
    "an id twice": (verdicts(change=lambda e: [*e, e[0]]), "is there twice"),
    "unknown ids": (
        verdicts(change=lambda e: [{**one, "id": "t-" + str(i)} for i, one in enumerate(e)]),
        "unknown ids: 't-0', 't-1'",
    ),
    "out of scale": (verdicts(lambda d: 1.5), "is 1.5, outside 0"),
    "mixed scales": (verdicts(change=unlike), "different scales"),
    "negative": (verdicts(lambda d: -3), "is -3, outside 0"),
    "booleans": (verdicts(lambda d: True), "is true, not a number"),
    "nan": (verdicts(lambda d: float("nan")), "not finite"),
    "ranks": (verdicts(lambda d: 1 if d["messages"][-1]["content"] == "worth 0.9" else 2), "may be ranks"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_reply_that_cannot_be_read_is_repaired_once(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer, fault: str
) -> None:
    server.behave(FAULTS[fault][0], verdicts())
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    scored = await judged(store, judging, group_id)
    assert rewards(scored) == [0.2, 0.9]
    assert (scored.new.tokens_in, scored.new.tokens_out) == (200, 40)
    first, second = server.requests
    assert second["messages"][:2] == first["messages"]
    assert [m["role"] for m in second["messages"][2:]] == ["assistant", "user"]
    told = second["messages"][3]["content"]
    assert re.search(rf"cannot be used: [^.]*{FAULTS[fault][1]}", told), told


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_judge_that_cannot_be_understood_gives_no_reward(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer, fault: str
) -> None:
    server.behave(FAULTS[fault][0])
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    with pytest.raises(JudgeUnanswered) as caught:
        await judged(store, judging, group_id)
    assert caught.value.code == "judge_unreadable"
    assert caught.value.spent.tokens_in == 200
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (declines("I cannot help with that."), "judge_declined"),
        (says('{"trajectories": [', "content_filter"), "judge_filtered"),
    ],
)
async def test_a_judge_that_declines_or_is_filtered_is_told_as_such_and_asked_for_no_repair(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer, behaviour: Behaviour, code: str
) -> None:
    server.behave(behaviour)
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    with pytest.raises(JudgeUnanswered) as caught:
        await judged(store, judging, group_id)
    assert (caught.value.code, caught.value.spent.tokens_in) == (code, 100)
    assert len(server.requests) == 1


async def test_a_reply_that_reached_its_limit_is_not_read_even_where_it_could_be(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    async def cut(body: dict[str, Any]) -> web.StreamResponse:
        return completion(json.dumps({"trajectories": entries(body, by_worth)}) + " But", "length")

    server.behave(cut, verdicts())
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    assert rewards(await judged(store, judging, group_id)) == [0.2, 0.9]
    assert "judge.max_tokens" in server.requests[1]["messages"][3]["content"]


async def test_what_was_paid_before_the_judge_went_down_is_not_forgotten(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(says("hm"), fails(503))
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    with pytest.raises(JudgeDown) as caught:
        await judged(store, judging, group_id, retries=0)
    assert caught.value.spent.tokens_out == 20


async def test_every_failure_has_a_code(store: Store, recorded: Recorded, judging: Any, server: JudgeServer) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    cases = ((fails(500), 60.0, "judge_down"), (fails(403), 60.0, "judge_refused"), (server.hang, 0.3, "judge_timeout"))
    for behaviour, timeout_s, code in cases:
        server.behave(behaviour)
        with pytest.raises(JudgeFailed) as caught:
            await judged(store, judging, group_id, retries=0, timeout_s=timeout_s)
        assert caught.value.code == code
