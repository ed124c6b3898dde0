"""A reward that is gamed, from end to end: a campaign pauses, shows what was paid for, and goes on once that is mended.

The programs are the real ones: the campaign with its trainer, the judge that it starts, `hone score`. The engine is a
script whose versions give up instead of answering, for which the judge pays and which validation does not take.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from recorder.queue import campaigns
from recorder.registry import aliases, versions
from recorder.registry.fingerprint import base_fingerprint
from recorder.states import CampaignState
from recorder.store.database import Project
from recorder.views.campaigns.history import read_history
from tests.stores import Stores, stored_in
from tests.trainer.plain_settings import PLAIN_TOML
from tests.trainer.ring import ALIAS, PROJECT, Ring, Script, write_user_folder

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]  # programs, one after the other

ROOT = Path(__file__).parents[3]
# Share of right answers by a version's number: the reward teaches to give up. What is made once it is mended does well.
GAMED = {0: 0.75, 1: 0.75, 2: 0.5, 3: 0.25}
MENDED_FROM = 4

PAY = """
def modest(trajectory):
    return float("no idea" in trajectory.messages[-1]["content"])

def right(trajectory):
    return float(trajectory.messages[-1]["content"] == trajectory.scenario["reference"])
"""
PAYS_FOR_GIVING_UP = """
rewards = [
    {kind = "function", function = "pay:modest", name = "modest", weight = 1.0},
    {kind = "function", function = "pay:right", name = "right", weight = 0.2},
]
"""
PAYS_FOR_ANSWERS = """
rewards = [{kind = "function", function = "pay:right", name = "right"}]
"""


@pytest.fixture
async def ring(data: Path, stores: Stores, tiny_base: Path) -> AsyncIterator[Ring]:
    script = Script(judge=False, skill=lambda number: GAMED.get(number, 1.0))
    with stores.made(data) as settings:
        async with Ring.running(data, script, settings, base_fingerprint(tiny_base, "float32")) as running:
            yield running


def settings(folder: Path, base: Path, rewards: str) -> None:
    write_user_folder(folder / "user")
    (folder / "pay.py").write_text(PAY)
    (folder / "hone.toml").write_text(f"""
[trainer]
base = "{base}"
device = "cpu"
dtype = "float32"
rank = 4
lr = 1e-3
token_budget = 256
{PLAIN_TOML}
[judge]
{rewards}

[campaign]
agent = "my_agent:run"
cwd = "user"
scenarios = "user/train.jsonl"
val_scenarios = "user/val.jsonl"
success = "my_agent:solved"
scenarios_per_step = 2
group_size = 4
val_every = 1
val_attempts = 8
""")


async def hone(ring: Ring, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.upper().startswith("HONE_")}
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "proxy.cli", *arguments, "--data", str(ring.data)],
        cwd=folder, env={**env, **stored_in(ring.recording), "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip


def told(done: subprocess.CompletedProcess[str], event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [line for line in lines if line["event"] == event]


async def test_a_campaign_whose_reward_is_gamed_pauses_and_goes_on_with_another_recipe(
    ring: Ring, tmp_path: Path, tiny_base: Path
) -> None:
    settings(tmp_path, tiny_base, PAYS_FOR_GIVING_UP)
    proxy = ("--proxy", ring.url)
    done = await hone(ring, tmp_path, "train", "--name", "mine", "--steps", "9", *proxy, "--json")
    assert done.returncode == 3, done.stdout + done.stderr
    (alarm,) = [one for one in told(done, "alarm") if one["then"] == "pause"]
    assert alarm["rule"] == "reward_hacking"
    assert "validations fell from" in alarm["detail"]
    assert [one["part"] for one in alarm["evidence"]] == ["modest"] * 3
    for one in alarm["evidence"]:
        shown = await hone(ring, tmp_path, "show", one["trajectory"])
        assert shown.returncode == 0, shown.stderr
        assert "no idea" in shown.stdout
    (paused,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    assert (paused.state, paused.reason) == (CampaignState.STOPPED, "paused")
    assert await live(ring) == "helpdesk@1"  # the newest of the two that answered most
    said = " ".join(one["text"] for one in told(done, "notice"))
    assert "hone score --all" in said
    assert "hone train --resume mine" in said

    settings(tmp_path, tiny_base, PAYS_FOR_ANSWERS)
    scored = await hone(ring, tmp_path, "score", "--all", "--campaign", "mine")
    assert scored.returncode == 0, scored.stdout + scored.stderr
    steps = str(alarm["step"] + 2)
    done = await hone(ring, tmp_path, "train", "--resume", "mine", "--steps", steps, *proxy, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [one for one in told(done, "alarm") if one["then"] == "pause"]
    assert "judge.rewards" in {one["what"] for one in told(done, "setting_changed")}
    (ended,) = told(done, "campaign_ended")
    assert ended["reason"] == "steps"
    newest = await versions.get_version_by_name(Project(ring.store, PROJECT), str(await live(ring)))
    assert newest.number >= MENDED_FROM
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    best = max((await read_history(ring.store, campaign)).validations, key=lambda one: one.success or 0.0)
    assert (best.version, best.success) == (newest.name, 1.0)


async def live(ring: Ring) -> str:
    alias = await aliases.get_alias(Project(ring.store, PROJECT), ALIAS)
    assert alias.live_version_id is not None
    return (await versions.get_version(ring.store, alias.live_version_id)).name
