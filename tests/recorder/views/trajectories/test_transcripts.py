"""The newest first turns of an alias: each conversation once, of runs that ended and are there to be learned from."""

from __future__ import annotations

from typing import Any

from recorder.store.database import Project
from recorder.store.schema import nodes
from recorder.views.trajectories.transcripts import list_first_turns
from tests.recorder.rows import PROJECT, Rows


class Traffic:
    """Runs of one alias, each begun by some words."""

    def __init__(self, rows: Rows, alias_id: str) -> None:
        self._rows = rows
        self._alias_id = alias_id
        self._at = 100.0

    async def run(self, words: str, *, call: dict[str, Any] | None = None, **run: Any) -> str:
        """A run whose first call asks so; the call's id."""
        node = words.encode().ljust(16)
        if node not in {row["id"] for row in await self._rows.all(nodes)}:
            message = {"role": "user", "content": words}
            row = {"id": node, "project_id": PROJECT, "depth": 0, "role": "user", "message": message}
            await self._rows.insert(nodes, row)
        self._at += 1
        ended = {"state": "completed", "alias_id": self._alias_id, "last_call_at": self._at}
        run_id = await self._rows.trajectory(answered=False, **{**ended, **run})
        asked = {"alias_id": self._alias_id, "prompt_node_id": node, "started_at": self._at}
        return await self._rows.call(run_id, **{**asked, **(call or {})})

    async def found(self, limit: int = 10) -> list[str]:
        """What is found, as the words that were asked."""
        calls = await list_first_turns(Project(self._rows.store, PROJECT), self._alias_id, limit)
        return [str(call.messages[-1]["content"]) for call in calls]


async def traffic(rows: Rows) -> Traffic:
    return Traffic(rows, (await rows.alias()).id)


async def test_the_newest_come_first_and_no_conversation_twice(rows: Rows) -> None:
    runs = await traffic(rows)
    for words in ("one", "two", "one", "three"):
        await runs.run(words)
    assert await runs.found() == ["three", "one", "two"]
    assert await runs.found(2) == ["three", "one"]


async def test_only_answered_first_turns_of_runs_that_are_learned_from_count(rows: Rows) -> None:
    runs = await traffic(rows)
    await runs.run("right")
    await runs.run("open", state="open")
    await runs.run("errored", state="errored")
    await runs.run("measured", purpose="eval")
    await runs.run("goes on", continues="traj_0")
    await runs.run("aborted", call={"state": "aborted"})
    await runs.run("a title", call={"turn_kind": "aux"})
    await runs.run("a later turn", call={"parent_call_id": "call_0"})
    await runs.run("another's", alias_id=(await rows.alias("other")).id)
    assert await runs.found() == ["right"]


async def test_an_alias_that_nobody_asked_has_none(rows: Rows) -> None:
    assert await (await traffic(rows)).found() == []
