"""Groups of attempts with real turns, tool calls and scores, as they are compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update

from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address
from recorder.queue import claims
from recorder.queue.groups.closure import close_group
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.settings import RecorderSettings
from recorder.states import TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import trajectories
from tests.recorder.score_rows import new_score
from tests.recorder.talk import PROJECT, Talk, tool_result, user

TASK = "Where is order 4821, and may it still be sent elsewhere?"
Step = tuple[str, dict[str, Any], str] | str  # (tool, arguments, result), or what is said


def called(id_: str, name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    call = {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **more}


async def attempt(talk: Talk, group: str, size: int, name: str, steps: Sequence[Step], **more: Any) -> None:
    """One run: a call a step, in a conversation that grows."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You help with orders."}, user(TASK)]
    for at, step in enumerate(steps):
        address = Address(trajectory=name, group=group, group_size=size)
        if isinstance(step, str):
            said = {"role": "assistant", "content": step}
            await talk.call(messages, said, address, **more)
            messages.append(said)
            continue
        tool, arguments, result = step
        asked = called(f"{name}-{at}", tool, arguments)
        await talk.call(messages, asked, address, **more)
        messages += [asked, tool_result(f"{name}-{at}", result)]


async def group_of(
    store: Store, attempts: Sequence[Sequence[Step]], *, name: str = "orders", ended: bool = True
) -> tuple[str, list[str]]:
    """A closed group; its id and its runs' ids, in order."""
    recorder = Recorder(store, RecorderSettings())
    await recorder.start()
    try:
        talk = Talk(recorder)
        for number, steps in enumerate(attempts):
            await attempt(talk, name, len(attempts), f"run-{number}", steps)
        ids = await runs_of(store, name)
        for id_ in ids if ended else ():
            await recorder.close(PROJECT, id_, TrajectoryState.COMPLETED, "closed")
    finally:
        await recorder.stop()
    if ended:
        group = await close_group(Project(store, PROJECT), name)
        return group.id, ids
    async with store.read() as conn:
        query = select(trajectories.c.group_id).where(trajectories.c.id == ids[0])
        return str((await conn.execute(query)).scalar_one()), ids


async def runs_of(store: Store, name: str) -> list[str]:
    query = select(trajectories.c.id).where(trajectories.c.address_group == name)
    async with store.read() as conn:
        return list((await conn.execute(query.order_by(trajectories.c.external_id))).scalars())


async def scored(store: Store, group_id: str, rewards: dict[str, float | None], **more: Any) -> str:
    """Give a group a score: a reward a run, and one part `ruler` with a reason."""
    claim = await claims.claim_one_for_judging(store, group_id, "judge", 60)
    assert claim is not None
    parts = [NewPart(id_, "reward", value, explanation=f"worth {value}") for id_, value in rewards.items()]
    parts += [NewPart(id_, "ruler", value, 1.0, f"because of {value}") for id_, value in rewards.items()]
    row: dict[str, Any] = {"recipe_hash": "recipe", "prompt_hash": "hash", "judge_model": "judge-model"}
    row["prompt"] = [{"role": "user", "content": "which is best?"}]
    return await scores.record_score(store, claim, new_score(**{**row, "parts": parts, **more}))


async def tagged(store: Store, trajectory_id: str, **values: Any) -> None:
    """Set columns of a run's row."""
    async with store.write() as conn:
        await conn.execute(update(trajectories).where(trajectories.c.id == trajectory_id).values(**values))
