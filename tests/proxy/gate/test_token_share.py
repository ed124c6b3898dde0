"""A campaign's gates take a bounded share of what is sampled for it; past it they ask less, and say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine.answers import ANSWER_TOKENS, EngineQuestion
from proxy.gate import token_share
from proxy.gate.token_share import ARMS, expected_lengths, limit_questions
from proxy.settings.sections import AliasSettings, GateSettings
from recorder.queue import campaigns
from recorder.queue.training.steps import begin_step, finish_step
from recorder.registry.moves import list_moves
from recorder.registry.versions import allocate_version
from recorder.states import VersionState
from recorder.store.database import Project, Store
from recorder.views.campaigns.tokens import CampaignTokens, GateCost, load_campaign_tokens
from tests.proxy.adapters import make_adapter
from tests.proxy.controlled import World
from tests.proxy.gate.test_examination import recorded


def questions(count: int) -> list[EngineQuestion]:
    return [EngineQuestion([{"role": "user", "content": str(n)}]) for n in range(count)]


def sampled(attempts: int, gates: int = 0) -> CampaignTokens:
    return CampaignTokens(attempts, [GateCost("helpdesk@1", gates, 1, "sane")] if gates else [])


@given(
    st.lists(st.none() | st.integers(0, 900), max_size=16), st.floats(0.01, 0.99), st.integers(0, 20000),
    st.integers(0, 5000),
)  # fmt: skip
def test_what_is_asked_fits_into_the_share_and_one_more_does_not(
    lengths: Sequence[int | None], share: float, attempts: int, gates: int
) -> None:
    asked = questions(len(lengths))
    plan = limit_questions(asked, lengths, share, sampled(attempts, gates))
    expected = expected_lengths(asked, lengths)
    number = len(plan.asked)
    assert plan.asked == asked[:number]

    def taken(count: int) -> float:
        return gates + ARMS * sum(expected[:count])

    def bound(count: int) -> float:
        return share * (attempts + taken(count))

    assert number == 0 or taken(number) <= bound(number) + 1e-6 * (1 + taken(number))
    if number < len(asked):
        assert taken(number + 1) > bound(number + 1) - 1e-6 * (1 + taken(number + 1))
    assert bool(plan.why) == (number < len(asked))


def test_a_length_that_is_unknown_is_the_mean_of_the_others_or_the_most_that_is_possible() -> None:
    capped = [EngineQuestion([], max_tokens=20), *questions(2)]
    assert expected_lengths(capped, [None, 30, 50]) == [20, 30, 50]
    assert expected_lengths(questions(2), [None, 9000]) == [ANSWER_TOKENS, ANSWER_TOKENS]
    assert expected_lengths(questions(1), [None]) == [ANSWER_TOKENS]


def test_the_words_say_how_many_were_asked_and_why() -> None:
    plan = limit_questions(questions(16), [10] * 16, 0.2, sampled(900, 100))
    assert len(plan.asked) == 6
    assert plan.why == (
        "6 of 16 first turns were asked: the campaign's gates have taken 10.0% of its 1,000 sampled tokens, and may "
        "take 20.0% (gate.max_share)"
    )


# --- whole gates


async def campaign_version(world: World) -> tuple[str, Any]:
    """A version of a campaign's step, to be examined; and the campaign's id."""
    alias = await world.alias()
    assert alias.live_version_id is not None
    campaign = await campaigns.create_campaign(Project(world.store, "default"), alias.id, "spring", {})
    step = await begin_step(world.store, alias.id, alias.live_version_id, campaign.id)
    version = await allocate_version(world.store, alias.id, alias.live_version_id, step_id=step.id)
    made = make_adapter(world.folder, version.name)
    await finish_step(
        world.store, step.id, version_id=version.id, path=str(made.path), engine_name=made.engine_name,
        manifest_sha256=made.manifest_sha256, metrics={}, checkpoint_path=None, groups=[],
    )  # fmt: skip
    return campaign.id, version


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attempts", "share", "asked", "why"),
    [
        (10_000, 1.0, 16, "sane"),
        (20_000, 0.5, 16, "sane"),
        (2048, 0.5, 2, "sane: 2 of 16 first turns were asked: the campaign's gates have taken 0.0% of its 2,048"),
        (0, 0.5, 0, "share_spent: 0 of 16 first turns were asked: the campaign's gates have taken 0.0% of its 0"),
    ],
)
async def test_a_campaigns_gate_asks_what_its_share_allows_and_its_row_says_so(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, attempts: int, share: float, asked: int, why: str
) -> None:
    async def load(store: Store, campaign_id: str) -> CampaignTokens:
        return CampaignTokens(attempts)

    monkeypatch.setattr(token_share, "load_campaign_tokens", load)
    # the recorded answers are short, so a length is as long as an answer may be
    monkeypatch.setattr("proxy.gate.examination.sampled_length", lambda call: None)
    async with make_world(AliasSettings(base_model="base", gate=GateSettings(max_share=share))) as world:
        await recorded(world)
        campaign_id, version = await campaign_version(world)
        await world.becomes(version, VersionState.LIVE)
        move = next(m for m in await list_moves(Project(world.store, "default")) if m.move == "gated")
        assert (move.why or "").startswith(why)
        assert sum(what == "chat" for what, _ in world.engine.calls) == 2 * asked
        (cost,) = (await load_campaign_tokens(world.store, campaign_id)).gates if asked else (None,)
        assert cost is None or (cost.questions, cost.tokens, cost.why) == (asked, 2 * asked * 40, move.why)


@pytest.mark.slow
async def test_versions_of_traffic_are_not_bounded(make_world: Callable[..., Any]) -> None:
    async with make_world(AliasSettings(base_model="base", gate=GateSettings(max_share=0.01))) as world:
        await recorded(world)
        await world.live()
        assert sum(what == "chat" for what, _ in world.engine.calls) == 2 * 16
