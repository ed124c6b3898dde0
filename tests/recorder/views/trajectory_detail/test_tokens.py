"""The tokens of one call, a page at a time."""

from __future__ import annotations

import pytest

from recorder.errors import NotFound
from recorder.messages.calls import Address
from recorder.store.database import Store
from recorder.views.trajectory_detail.tokens import PAGE, load_tokens
from tests.recorder.talk import Talk, assistant, choice, user

HERE = Address(trajectory="one")


async def test_an_answers_tokens_have_their_logprobs_and_a_prompts_have_none(store: Store, talk: Talk) -> None:
    turn = await talk.call([user("hi")], "hello", HERE)
    run, call = turn.attribution.trajectory.id, turn.call_id
    page = await load_tokens(store, run, call)
    assert [(token.id, token.logprob) for token in page.tokens] == [(7, -0.5), (8, -0.25), (9, -0.125)]
    assert (page.total, page.next, page.trainable) == (3, None, True)
    prompt = await load_tokens(store, run, call, of_prompt=True)
    assert [(token.id, token.logprob) for token in prompt.tokens] == [(1, None), (2, None), (3, None)]


async def test_many_tokens_come_a_page_at_a_time(store: Store, talk: Talk) -> None:
    many = PAGE * 2 + 1
    answer = choice(assistant("long"), token_ids=list(range(many)), logprobs=[-0.5] * many)
    turn = await talk.call([user("hi")], [answer], HERE)
    ids: list[int] = []
    first: int | None = 0
    while first is not None:
        page = await load_tokens(store, turn.attribution.trajectory.id, turn.call_id, first=first)
        ids += [token.id for token in page.tokens]
        first = page.next
    assert ids == list(range(many))


async def test_an_answer_that_is_not_there_is_named(store: Store, talk: Talk) -> None:
    turn = await talk.call([user("hi")], "hello", HERE)
    for call, index in ((turn.call_id, 1), ("call_nothing", 0)):
        with pytest.raises(NotFound, match="has no choice"):
            await load_tokens(store, turn.attribution.trajectory.id, call, index)
