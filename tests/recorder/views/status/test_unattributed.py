"""Calls that go on from each other and are found in no run: told by their client, and only where that is plain."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.store.database import Project, Store
from recorder.views.status.client_problems import find_unattributed_clients
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import Talk, assistant, user

SYSTEM = {"role": "system", "content": "You help."}
THOUGHTS = [f"[[ thought ]]\nI shall look at shelf number {n} of the warehouse." for n in range(4)]


async def told(
    store: Store, talk: Talk, said: list[tuple[list[Any], str]], clients: tuple[str, ...] = ("dspy",)
) -> Any:
    alias = await Rows(store).alias()
    for at, (messages, answer) in enumerate(said):
        await talk.call(messages, answer, alias_id=alias.id, response_meta={"client": clients[at % len(clients)]})
    return await find_unattributed_clients(Project(store, PROJECT))


def in_one_message(count: int, task: str = "Find the parcel.") -> list[tuple[list[Any], str]]:
    """An agent that writes its history into one user message."""
    return [
        ([SYSTEM, user("\n".join([task, *(text.split("\n")[1] for text in THOUGHTS[:n])]))], THOUGHTS[n])
        for n in range(count)
    ]


async def test_a_history_in_one_message_is_told(store: Store, talk: Talk) -> None:
    assert await told(store, talk, in_one_message(2)) == []  # a plan and its work look the same
    [found] = await told(store, talk, in_one_message(4)[2:])
    assert (found.client, found.alias, found.calls) == ("dspy", "helpdesk", 4)


async def test_turns_that_come_back_as_others_are_told(store: Store, talk: Talk) -> None:
    history = [SYSTEM, user("?")]
    said = []
    for n in range(3):
        said.append((list(history), f"answer {n}"))
        history += [assistant(f"rewritten {n}"), user("more")]
    [found] = await told(store, talk, said)
    assert found.calls == 3


@pytest.mark.parametrize(
    "said",
    [
        [([SYSTEM, user(f"Task {n}")], f"This is a long and complete answer to task number {n}.") for n in range(6)],
        [([SYSTEM, user("the same")], "This is a long and complete answer to the task.") for _ in range(6)],
    ],
)
async def test_single_calls_are_no_agent(store: Store, talk: Talk, said: Any) -> None:
    assert await told(store, talk, said) == []


async def test_runs_that_are_found_are_not_told(store: Store, talk: Talk) -> None:
    history = [SYSTEM, user("?")]
    said = []
    for n in range(4):
        said.append((list(history), THOUGHTS[n]))
        history += [assistant(THOUGHTS[n]), user("more")]
    assert await told(store, talk, said) == []


async def test_several_clients_are_told_apart(store: Store, talk: Talk) -> None:
    assert await told(store, talk, in_one_message(4), clients=("one", "two")) == []
