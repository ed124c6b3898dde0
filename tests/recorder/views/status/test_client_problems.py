"""Agents of which nothing can be trained on: named with the reason and the setting, and only while that is so."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.messages.calls import Address, SamplingParameters
from recorder.states import CallKind, Purpose
from recorder.store.database import Project, Store
from recorder.views.status.client_problems import JUDGED_BY, UNKNOWN, UntrainableClient, find_untrainable_clients
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import Talk, user

GREEDY = SamplingParameters(temperature=0.0, top_p=0.95)


async def told(
    store: Store, talk: Talk, *samplings: SamplingParameters, client: str | None = "aider", **more: Any
) -> Any:
    alias = await Rows(store).alias()
    for sampling in samplings:
        meta = {"client": client} if client is not None else None
        await talk.call([user("?")], "done", alias_id=alias.id, sampling=sampling, response_meta=meta, **more)
    return await find_untrainable_clients(Project(store, PROJECT))


async def test_a_greedy_agent_is_named_with_the_setting_that_frees_it(store: Store, talk: Talk) -> None:
    [found] = await told(store, talk, GREEDY, GREEDY)
    assert isinstance(found, UntrainableClient)
    assert (found.client, found.alias, found.calls) == ("aider", "helpdesk", 2)
    assert found.why() == "temperature_below_0.1, top_p"
    assert found.settings == ("[aliases.helpdesk.sampling] override = { temperature = 0.7, top_p = 1 }",)
    assert found.no_setting == ()
    assert found.advice().startswith("set [aliases.helpdesk.sampling]")


@pytest.mark.parametrize(
    ("distorting", "settings", "no_setting"),
    [
        (("tool_choice",), ('proxy.forced_tools = "plain"',), ()),
        (("strict_tools",), ('proxy.strict_tools = "plain"',), ()),
        (("engine_defaults",), ('proxy.defaults = "neutral"',), ()),
        (("frequency_penalty",), ("[aliases.helpdesk.sampling] override = { frequency_penalty = 0 }",), ()),
        (("logit_bias",), (), ("logit_bias",)),
    ],
)
async def test_what_bends_is_named_with_what_would_change_it(
    store: Store, talk: Talk, distorting: tuple[str, ...], settings: tuple[str, ...], no_setting: tuple[str, ...]
) -> None:
    [found] = await told(store, talk, SamplingParameters(distorting=distorting))
    assert found.why() == f"distorted_sampling ({distorting[0]})"
    assert (found.settings, found.no_setting) == (settings, no_setting)


async def test_an_answer_in_a_given_form_is_told_as_such(store: Store, talk: Talk) -> None:
    form = {"type": "json_object"}
    [found] = await told(store, talk, SamplingParameters(distorting=("response_format",)), response_format=form)
    assert found.why() == "structured_output"
    assert found.no_setting == ("response_format",)


async def test_one_call_that_can_be_trained_on_is_enough(store: Store, talk: Talk) -> None:
    assert await told(store, talk, GREEDY, SamplingParameters(), GREEDY) == []
    assert [f.client for f in await told(store, talk, GREEDY, client="codex")] == ["codex"]


async def test_what_was_long_ago_is_forgotten(store: Store, talk: Talk) -> None:
    assert await told(store, talk, SamplingParameters()) == []
    [found] = await told(store, talk, *[GREEDY] * JUDGED_BY)
    assert found.calls == JUDGED_BY
    assert await told(store, talk, SamplingParameters()) == []


async def test_calls_that_were_never_meant_to_be_trained_on_say_nothing(store: Store, talk: Talk) -> None:
    assert await told(store, talk, GREEDY, address=Address(call_kind=CallKind.AUX)) == []
    assert await told(store, talk, GREEDY, address=Address(trajectory="v", purpose=Purpose.VAL)) == []


async def test_a_client_without_a_name_is_told_too(store: Store, talk: Talk) -> None:
    assert [f.client for f in await told(store, talk, GREEDY, client=None)] == [UNKNOWN]
