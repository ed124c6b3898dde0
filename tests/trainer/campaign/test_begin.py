"""A campaign keeps what it was begun with, the recipe that judges its runs among it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli import cli
from recorder.registry.aliases import AliasView, ensure_alias
from recorder.settings import RecorderSettings
from recorder.store.database import Store
from recorder.store.migrate import DEFAULT_PROJECT, open_store
from trainer.campaign.begin import Plan, begin_or_find
from trainer.campaign_settings import CampaignSettings
from trainer.errors import CampaignError
from trainer.progress import Event
from trainer.tasks.scenarios import Scenario


class Nobody:
    """Hears nothing."""

    def tell(self, event: Event) -> None:
        """Forget it."""


def plan(recipe: str | None) -> Plan:
    return Plan("tasks", CampaignSettings(agent="hone:answer", reward_recipe=recipe), [Scenario("1", "?")], [])


async def opened(data: Path) -> tuple[Store, AliasView]:
    store = await open_store(data, RecorderSettings(), migrate=True)
    return store, await ensure_alias(store, DEFAULT_PROJECT, "helpdesk", "base", None)


async def test_an_unfinished_campaign_is_not_gone_on_with_under_another_recipe(tmp_path: Path) -> None:
    store, alias = await opened(tmp_path)
    begun = await begin_or_find(store, alias, plan("strict"), Nobody())
    assert (await begin_or_find(store, alias, plan("strict"), Nobody())).id == begun.id
    with pytest.raises(CampaignError, match="changed: reward_recipe strict → None"):
        await begin_or_find(store, alias, plan(None), Nobody())
    await store.close()


async def begin(data: Path, recipe: str) -> None:
    store, alias = await opened(data)
    await begin_or_find(store, alias, plan(recipe), Nobody())
    await store.close()


def test_a_campaign_whose_recipe_is_gone_is_not_gone_on_with_and_nothing_starts(tmp_path: Path) -> None:
    asyncio.run(begin(tmp_path / "data", "strict"))
    settings = tmp_path / "hone.toml"
    settings.write_text("[judge.recipes.lax]\nmissing = 'hold'\n")
    given = ["train", "--resume", "tasks", "--data", str(tmp_path / "data"), "--config", str(settings)]
    done = CliRunner().invoke(cli, given)
    assert done.exit_code == 2
    assert "begun with the recipe 'strict' (campaign.reward_recipe), which [judge.recipes] does not have" in done.output
    assert "known: default, lax" in done.output
    assert not (tmp_path / "data" / "logs").exists()
