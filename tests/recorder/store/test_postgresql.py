"""The store on a real PostgreSQL: migrated up from nothing, and a conversation through the recorder and back;
verdicts, which are kept by a statement of several rows.

These run whatever `--store` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recorder.capture.recorder import Recorder
from recorder.content.turns import Parent
from recorder.reading import transcripts
from recorder.settings import RecorderSettings
from recorder.states import Confidence
from recorder.store import migrate
from recorder.store.migrate import HEAD, open_store
from recorder.work import verdicts
from recorder.work.verdicts import KeptVerdicts, NewVerdicts
from tests.postgres import Postgres
from tests.recorder.talk import PROJECT, Talk, assistant, tool_result, tool_turn, user


@pytest.fixture
def url(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """Of an empty database."""
    postgres.create(request.node.name)
    yield postgres.url(request.node.name)
    postgres.drop(request.node.name)


async def test_a_conversation_is_recorded_attributed_and_read_back(url: str, tmp_path: Path) -> None:
    settings = RecorderSettings(url=url)
    store = await open_store(tmp_path, settings, migrate=True)
    assert await migrate.revision(store) == HEAD
    recorder = Recorder(store, settings)
    await recorder.start()
    try:
        talk = Talk(recorder)
        first = await talk.call([user("Where?")], "On Monday\n")
        asked = [user("Where?"), assistant("On Monday"), user("Really?")]  # as a client retells it
        second = await talk.call(asked, tool_turn("id-1"))
        third = await talk.call([*asked, tool_turn("id-1"), tool_result("id-1")], "Yes")
        view = await transcripts.load_trajectory(store, first.attribution.trajectory.id)
    finally:
        await recorder.stop()
        await store.close()
    assert [call.id for call in view.calls] == [first.call_id, second.call_id, third.call_id]
    assert [call.attribution_source for call in view.calls] == ["new", "lineage", "tool_call_id"]
    assert second.attribution.parent == Parent(first.call_id, 0)
    assert third.attribution.parent == Parent(second.call_id, 0)
    assert {turn.attribution.confidence for turn in (second, third)} == {Confidence.EXACT}
    assert view.calls[1].choices[0].message == tool_turn("id-1")


async def test_verdicts_are_kept_together_and_what_was_said_first_stays(url: str, tmp_path: Path) -> None:
    settings = RecorderSettings(url=url)
    store = await open_store(tmp_path, settings, migrate=True)
    recorder = Recorder(store, settings)
    await recorder.start()
    try:
        run = (await Talk(recorder).call([user("What?")], "That")).attribution.trajectory.id
        first = [
            NewVerdicts("b", run, "[1]", None),
            NewVerdicts("a", run, "[2]", "judge 1"),
            NewVerdicts("c", "", "", ""),
        ]
        await verdicts.keep(store, PROJECT, [*first, NewVerdicts("b", run, "[3]", None)])
        found = await verdicts.find(store, PROJECT, ["a", "b", "c"])
    finally:
        await recorder.stop()
        await store.close()
    assert found == {"a": KeptVerdicts("[2]", "judge 1"), "b": KeptVerdicts("[1]", None)}
