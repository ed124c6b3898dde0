"""A campaign whose program is killed again and again, at any moment, comes to what it comes to without that."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from recorder.registry import descent, versions
from recorder.states import CampaignState
from recorder.store.schema import attempts, groups, scenarios, step_groups
from recorder.work import campaigns
from tests.stores import Stores
from tests.trainer.ring import PROJECT, Ring, Script, Told, ledger_codes, run_campaign
from trainer.campaign.history import History, read_history
from trainer.progress import Ended

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # some twenty programs, one after the other

KILLS = int(os.environ.get("HONE_KILLS", "20"))
FEWEST, MOST = 1, 14  # lines that a program tells before it is killed
STEPS = 4
HILL = {0: 0.25, 1: 0.5, 2: 0.75}  # by steps from version 0; what comes after is worse


@asynccontextmanager
async def hilly(data: Path, stores: Stores) -> AsyncIterator[Ring]:
    script = Script(skill=lambda steps: HILL.get(steps, 0.5), by_steps=True)
    with stores.made(data) as settings:
        async with Ring.running(data, script, settings) as ring:
            yield ring


def settings_of(user: dict[str, Any]) -> dict[str, Any]:
    lines = [{"id": f"test-{i}", "input": f"test {i}", "reference": f"answer test {i}"} for i in range(2)]
    file = user["cwd"] / "test.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    more = {"test_scenarios": file, "success": "my_agent:solved", "val_every": 1, "val_attempts": 4, "steps": STEPS}
    return user | more | {"baselines": ["base"], "lease_s": 2.0}


async def killed_after(lines: int, data: Path, url: str, settings: dict[str, Any]) -> bool:
    """Run `hone train` elsewhere until it has told so many lines, and kill it; False: it came to its end before."""
    given = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
    program = f"""
        import asyncio
        from pathlib import Path
        from tests.trainer.ring import Told, run_campaign

        class Telling(Told):
            def tell(self, event):
                print("told", flush=True)

        asyncio.run(run_campaign(Path({str(data)!r}), {url!r}, {given!r}, Telling()))
    """
    root = Path(__file__).parents[3]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(program), cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(lines):
        if not await process.stdout.readline():
            break
    else:
        process.kill()
    _, said = await process.communicate()
    assert process.returncode in (0, -9), said.decode()
    return process.returncode == -9


async def steps_from_the_base(ring: Ring, ended: Ended) -> int:
    assert ended.version is not None
    version = await versions.by_name(ring.store, PROJECT, ended.version)
    async with ring.store.read() as conn:
        return len(list(await conn.execute(descent.lineage(version.id)))) - 1


async def splits(ring: Ring) -> tuple[set[str], set[tuple[int, str]]]:
    """Of what parts scenarios were trained on, and in which steps, as what, the test part was attempted."""
    trained = (
        select(scenarios.c.split)
        .join(groups, groups.c.scenario_id == scenarios.c.id)
        .join(step_groups, step_groups.c.group_id == groups.c.id)
    )
    tested = select(attempts.c.step_number, attempts.c.purpose).join(
        scenarios, scenarios.c.id == attempts.c.scenario_id
    )
    async with ring.store.read() as conn:
        parts = set((await conn.execute(trained)).scalars())
        rows = await conn.execute(tested.where(scenarios.c.split == "test"))
        return parts, {(row.step_number, row.purpose) for row in rows}


def course(history: History) -> dict[str, list[Any]]:
    """What is compared: which events there are, and what was measured by them."""
    return {
        "steps": [step.step for step in history.steps],
        "validations": [(one.step, one.success, one.attempts) for one in history.validations],
        "baselines": [(one.version, one.success) for one in history.baselines],
        "tests": [(one.baseline, one.success, one.attempts) for one in history.tests],
        "alarms": [(one.step, one.rule, one.then) for one in history.alarms],
    }


async def test_a_campaign_that_is_killed_at_random_moments_comes_to_the_same(
    tmp_path: Path, user: dict[str, Any], stores: Stores
) -> None:
    settings = settings_of(user)
    async with hilly(tmp_path / "calm", stores) as ring:
        calm = await run_campaign(tmp_path / "calm", ring.url, settings, Told())
        (campaign,) = await campaigns.list_campaigns(ring.store, PROJECT)
        expected = course(await read_history(ring.store, campaign))
        best = await steps_from_the_base(ring, calm)
    assert best == 2
    chance = random.Random(13)
    async with hilly(tmp_path / "killed", stores) as ring:
        kills = 0
        for _ in range(KILLS):
            if not await killed_after(chance.randint(FEWEST, MOST), tmp_path / "killed", ring.url, settings):
                break
            kills += 1
        (campaign,) = await campaigns.list_campaigns(ring.store, PROJECT)
        if campaign.state is not CampaignState.FINISHED:
            await run_campaign(tmp_path / "killed", ring.url, settings, Told())
        (campaign,) = await campaigns.list_campaigns(ring.store, PROJECT)
        history = await read_history(ring.store, campaign)
        assert course(history) == expected
        assert await steps_from_the_base(ring, history.ended[-1]) == best
        assert await splits(ring) == ({"train"}, {(STEPS, "eval")})
        codes = Counter(await ledger_codes(ring.store, campaign.id))
        assert codes["begun"] > 1
        assert kills >= min(KILLS, 8)  # it is no test where it is never killed
