"""Engines whose ids contradict their usage are named, with how many calls."""

from __future__ import annotations

from recorder.messages.calls import ENGINE
from recorder.store.database import Project, Store
from recorder.views.status.engine_problems import find_disagreeing_engines
from tests.recorder.rows import PROJECT
from tests.recorder.talk import Talk, user


async def test_an_engine_is_named_with_its_calls_and_an_honest_one_is_not(store: Store, talk: Talk) -> None:
    wrong = {"prompt_tokens": 3, "completion_tokens": 4}
    for url, usage in (("http://a", wrong), ("http://a", wrong), ("http://b", None), (None, wrong)):
        meta = {ENGINE: url} if url else None
        await talk.call([user(f"{url} {usage}")], "done", usage=usage, response_meta=meta)
    found = {one.url: one.calls for one in await find_disagreeing_engines(Project(store, PROJECT))}
    assert found == {None: 1, "http://a": 2}
    (named,) = [one for one in await find_disagreeing_engines(Project(store, PROJECT)) if one.url]
    assert named.sentence().startswith("engine http://a returned token ids that contradict its own usage in 2 calls")
