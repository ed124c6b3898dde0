"""Conversations whose system message changes with every call, and windows of conversations: one trajectory each."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from recorder.settings import RecorderSettings
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import ALIAS, WITHOUT_PAGES, Proxy, serving

pytestmark = pytest.mark.slow

QUESTION = "Where is order 4821?"
ANSWER = "Order 4821 was handed to the carrier on Tuesday and will be with you by Friday"
clock = itertools.count(1)


def system(text: str = "You help customers.", role: str = "system") -> dict[str, str]:
    """A system message with the time."""
    return {"role": role, "content": f"{text} Now: 2026-11-25 12:00:{next(clock) % 60:02}"}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


class Asker:
    """Sends conversations to a proxy before a fake engine, and looks at what was recorded."""

    def __init__(self, proxy: Proxy, engine: FakeEngine) -> None:
        self.proxy, self.engine = proxy, engine

    async def ask(self, *messages: dict[str, Any], said: str = ANSWER, path: str = "", **headers: str) -> None:
        """Send a conversation; the engine answers `said`."""
        self.engine.next.append(Script([words(said)]))
        body = {"model": ALIAS, "messages": list(messages)}
        answer = await self.proxy.http.post(f"{path}/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200, answer.text

    async def homes(self) -> list[int]:
        """The trajectory of each call, numbered in the order of their first calls."""
        ids = [call["trajectory_id"] for call in await self.proxy.calls()]
        return [list(dict.fromkeys(ids)).index(one) for one in ids]

    async def evidence(self) -> tuple[str, str]:
        """Source and confidence of the last call."""
        call = (await self.proxy.calls())[-1]
        return call["attribution"]["source"], call["attribution"]["confidence"]


@pytest.fixture
async def asker(store: Store) -> AsyncIterator[Asker]:
    async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        yield Asker(proxy, engine)


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("said", [ANSWER, "OK"])
async def test_a_clock_in_the_system_message(asker: Asker, role: str, said: str) -> None:
    await asker.ask(system(role=role), user(QUESTION), said=said)
    await asker.ask(system(role=role), user(QUESTION), assistant(said), user("And when exactly?"), said="At noon")
    assert await asker.evidence() == ("similar", "exact")
    third = (user(QUESTION), assistant(said), user("And when exactly?"), assistant("At noon"), user("Thanks"))
    await asker.ask(system(role=role), *third)
    assert await asker.evidence() == ("similar", "exact")
    assert await asker.homes() == [0, 0, 0]
    calls = await asker.proxy.calls()
    assert [call["parent_call_id"] for call in calls[1:]] == [call["call_id"] for call in calls[:-1]]


async def test_system_messages_may_change_wholly_and_come_anywhere(asker: Asker) -> None:
    await asker.ask({"role": "system", "content": "It is raining in Oslo"}, user(QUESTION))
    later = {"role": "system", "content": "The user likes short answers"}
    await asker.ask(user(QUESTION), assistant(ANSWER), later, user("And when exactly?"))
    assert await asker.evidence() == ("similar", "exact")
    assert await asker.homes() == [0, 0]


@pytest.mark.parametrize(
    "history",
    [
        [user("Where is order 4822?"), assistant(ANSWER)],
        [user(QUESTION), assistant("Order 4821 was lost by the carrier")],
        [user("Hello"), assistant("Hello!"), user(QUESTION), assistant(ANSWER)],
        [user(QUESTION), assistant("Let me see"), user(QUESTION), assistant("I do not know")],
    ],
    ids=["question", "answer", "longer", "other end"],
)
async def test_any_other_difference_is_another_conversation(asker: Asker, history: list[dict[str, str]]) -> None:
    await asker.ask(system(), user(QUESTION))
    await asker.ask(system(), *history, user("And when exactly?"))
    assert await asker.evidence() == ("new", "new")
    assert await asker.homes() == [0, 1]


async def test_two_that_are_alike_are_ambiguous(asker: Asker) -> None:
    await asker.ask(system(), user(QUESTION))
    await asker.ask(system(), user(QUESTION))
    await asker.ask(system(), user(QUESTION), assistant(ANSWER), user("And when exactly?"))
    assert await asker.evidence() == ("similar", "ambiguous")
    call = (await asker.proxy.calls())[-1]
    assert [choice["trainable"] for choice in call["choices"]] == [False]


async def test_agents_with_other_instructions_are_told_apart(asker: Asker) -> None:
    await asker.ask(system("You help customers."), user("Hello"), said="Hello")
    await asker.ask(system("You translate texts."), user("Hello"), said="Hello")
    await asker.ask(system("You help customers."), user("Hello"), assistant("Hello"), user(QUESTION))
    assert await asker.evidence() == ("similar", "exact")
    assert await asker.homes() == [0, 1, 0]


async def test_an_equal_history_is_stronger(asker: Asker) -> None:
    fixed = system()
    await asker.ask(system(), user(QUESTION))
    await asker.ask(fixed, user(QUESTION))
    await asker.ask(fixed, user(QUESTION), assistant(ANSWER), user("And when exactly?"))
    assert await asker.evidence() == ("lineage", "exact")
    assert await asker.homes() == [0, 1, 1]


LONG = [user(QUESTION), assistant(ANSWER), user("Which carrier has the parcel?"), assistant("North Star Freight")]


@pytest.mark.parametrize(
    "window",
    [
        [system("You help."), *LONG[2:]],
        [*LONG[2:]],
        [LONG[0], *LONG[2:]],
        [assistant(ANSWER), *LONG[2:]],
    ],
    ids=["with system", "bare", "first kept", "begins with an answer"],
)
async def test_a_window_of_a_conversation(asker: Asker, window: list[dict[str, str]]) -> None:
    first = system("You help.")
    await asker.ask(first, LONG[0], said=ANSWER)
    await asker.ask(first, *LONG[:3], said="North Star Freight")
    await asker.ask(*window, user("Thanks"))
    assert await asker.evidence() == ("similar", "exact")
    assert await asker.homes() == [0, 0, 0]


async def test_a_short_window_may_be_chance(asker: Asker) -> None:
    await asker.ask(user("Hello"), said="Hi")
    await asker.ask(user("Hello"), assistant("Hi"), user("Thanks"), said="OK")
    await asker.ask(user("Thanks"), assistant("OK"), user(QUESTION))
    assert await asker.evidence() == ("new", "new")


async def test_with_exact_nothing_is_similar(store: Store) -> None:
    settings = RecorderSettings(same_conversation="exact")
    async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES, recording=settings) as proxy:
        asker = Asker(proxy, engine)
        await asker.ask(system(), user(QUESTION))
        await asker.ask(system(), user(QUESTION), assistant(ANSWER), user("And when exactly?"))
        assert await asker.evidence() == ("new", "new")


async def test_named_calls_are_not_looked_for(asker: Asker) -> None:
    await asker.ask(system(), user(QUESTION), path="/t/run-1")
    await asker.ask(system(), user(QUESTION), assistant(ANSWER), user("And when exactly?"))
    assert await asker.homes() == [0, 1]


async def test_a_restarted_proxy_finds_it(store: Store) -> None:
    async with FakeEngine() as engine:
        async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
            await Asker(proxy, engine).ask(system(), user(QUESTION))
        async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
            asker = Asker(proxy, engine)
            await asker.ask(system(), user(QUESTION), assistant(ANSWER), user("And when exactly?"))
            assert await asker.homes() == [0, 0]


async def test_pictures_are_compared_too(asker: Asker) -> None:
    def shown(data: str) -> dict[str, Any]:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return {"role": "user", "content": [{"type": "text", "text": QUESTION}, picture]}

    await asker.ask(system(), shown("A" * 4000))
    await asker.ask(system(), shown("A" * 4000), assistant(ANSWER), user("And when exactly?"))
    assert await asker.evidence() == ("similar", "exact")
    await asker.ask(system(), shown("B" * 4000), assistant(ANSWER), user("And when exactly?"))
    assert await asker.evidence() == ("new", "new")
