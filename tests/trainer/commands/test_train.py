"""`hone train` and `hone learn` as people and scripts start them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import select, update

from proxy.cli import cli
from recorder.commands.context import Context
from recorder.maintenance.sweep import sweep
from recorder.queue import campaigns
from recorder.queue.attempts import list_expired
from recorder.settings import RecorderSettings
from recorder.states import CampaignState
from recorder.store.database import Project
from recorder.store.schema import attempts
from recorder.views.campaigns.events import CampaignEnded
from tests.proxy import hone_command
from tests.trainer.ring import PROJECT, Ring, Script, write_user_folder
from trainer.commands import train as command

pytestmark = pytest.mark.slow  # programs and whole campaigns: left out of `make check`

ROOT = Path(__file__).parents[3]


@pytest.fixture
async def script() -> Script:
    return Script()


@pytest.fixture
async def ring(tmp_path: Path, script: Script) -> AsyncIterator[Ring]:
    async with Ring.running(tmp_path / "data", script) as running:
        yield running


@pytest.fixture
def user(tmp_path: Path) -> dict[str, Any]:
    return write_user_folder(tmp_path / "user")


def hone(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    env = {name: value for name, value in os.environ.items() if not name.upper().startswith("HONE_")}
    return subprocess.Popen(
        [sys.executable, "-m", "proxy.cli", *arguments, "--data", str(folder / "data")],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def train(ring: Ring, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    given = ("--scenarios", "user/train.jsonl", "--val-scenarios", "user/val.jsonl", "--cwd", "user")
    return hone(folder, "train", *given, "--agent", "my_agent:run", "--proxy", ring.url + "/v1", *arguments)


@pytest.mark.slow
async def test_ctrl_c_stops_a_campaign_so_that_it_can_be_gone_on_with(
    ring: Ring, script: Script, user: dict[str, Any], tmp_path: Path, tiny_base: Path
) -> None:
    (tmp_path / "hone.toml").write_text(f'[trainer]\nbase = "{tiny_base}"\n')
    script.hold, script.hold_after = asyncio.Event(), 2
    process = train(ring, tmp_path, "--name", "mine")
    await ring.reached_hold.wait()
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(process.communicate)
    assert process.returncode == 130, out + err
    assert err.endswith("stopped; repeat the command to continue from here\n")
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    assert (campaign.name, campaign.state, campaign.reason) == ("mine", CampaignState.STOPPED, "interrupted")


@pytest.mark.slow
async def test_a_program_that_gets_no_processor_keeps_its_attempts(
    ring: Ring, script: Script, user: dict[str, Any], tmp_path: Path, tiny_base: Path
) -> None:
    (tmp_path / "hone.toml").write_text(f'[trainer]\nbase = "{tiny_base}"\n[campaign]\nlease_s = 1.5\n')
    script.hold, script.hold_after = asyncio.Event(), 2
    process = train(ring, tmp_path, "--name", "mine")
    await ring.reached_hold.wait()
    process.send_signal(signal.SIGSTOP)
    expired = select(attempts.c.id).where(*list_expired(PROJECT))

    async def leases_ran_out() -> bool:
        async with ring.store.read() as conn:
            return len((await conn.execute(expired)).all()) > 0

    async with asyncio.timeout(60):
        while not await leases_ran_out():
            await asyncio.sleep(0.05)
    report = await sweep(Project(ring.store, PROJECT), RecorderSettings())
    assert (report.attempts_abandoned, await leases_ran_out()) == (0, False)
    process.kill()
    await asyncio.to_thread(process.communicate)
    async with ring.store.write() as conn:
        await conn.execute(update(attempts).where(attempts.c.state == "running").values(lease_expires_at=0))
    report = await sweep(Project(ring.store, PROJECT), RecorderSettings())
    assert report.attempts_abandoned > 0


@pytest.mark.slow
async def test_what_goes_wrong_is_one_line_and_the_campaign_remembers_it_and_its_flags(
    ring: Ring, user: dict[str, Any], tmp_path: Path
) -> None:
    flags = ("--steps", "7", "--group-size", "3", "--target", "0.9", "--plateau", "4", "--attempt-timeout", "5")
    process = train(ring, tmp_path, "--json", *flags)
    out, err = await asyncio.to_thread(process.communicate)
    assert process.returncode == 1, out + err
    assert err == "hone: no base model is known: set trainer.base (or engine.base) to its folder or hub id\n"
    events = [json.loads(line)["event"] for line in out.splitlines()]
    assert set(events) <= {"notice", "validation"}  # what needs no trainer may have been done while it was opened
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    assert campaign.state is CampaignState.FAILED
    assert err == f"hone: {campaign.reason}\n"
    expected = {"steps": 7, "group_size": 3, "target": 0.9, "plateau_steps": 4, "attempt_timeout_s": 5.0}
    assert {name: campaign.settings[name] for name in expected} == expected
    assert (campaign.name, campaign.settings["cwd"]) == ("train", str(tmp_path / "user"))


@pytest.mark.parametrize(("reason", "status"), [("paused", 3), ("target", 0)])
def test_a_pause_has_an_exit_status_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, status: int
) -> None:
    async def came_to(context: Context, *_: object, **__: object) -> CampaignEnded:
        settings = context.settings().campaign
        assert (settings.baselines, settings.max_minutes, settings.serve) == (["base"], 5, "best")
        return CampaignEnded("mine", reason, "", 3, "helpdesk@1", 1.0)

    monkeypatch.setattr(command, "_train", came_to)
    arguments = ["train", "--data", str(tmp_path), "--baseline", "base", "--max-minutes", "5"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == status, done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no scenarios: name a JSONL file with --scenarios"),
        (("--scenarios", "nowhere.jsonl", "--agent", "a:b"), "nowhere.jsonl cannot be read: No such file"),
        (("--scenarios", "s.jsonl"), "no agent: give `module:function` or a shell command"),
        (("--scenarios", "s.jsonl", "--agent", "a:b"), 's.jsonl is not usable:\nline 1: "input" is missing'),
        (("--scenarios", "s.jsonl", "--agent", "a:b", "--group-size", "1"), "campaign.group_size"),
        (("--resume", "mine"), "there is no store in"),
    ],
)
def test_what_is_missing_is_told_at_once(here: Path, arguments: tuple[str, ...], said: str) -> None:
    (here / "s.jsonl").write_text('{"id": "a"}\n')
    code, _, err = hone_command.hone("train", *arguments, "--data", str(here / "data"))
    assert code in (1, 2)
    assert said in err
    assert "Traceback" not in err


async def test_the_learner_says_what_it_waits_for_and_stops_well_when_told(ring: Ring, tmp_path: Path) -> None:
    process = hone(tmp_path, "learn", "--alias", "other")
    assert process.stdout is not None
    said = await asyncio.to_thread(process.stdout.readline)
    assert said == "Learning waits for the proxy to declare other.\n"
    process.terminate()
    _, err = await asyncio.to_thread(process.communicate)
    assert (process.returncode, err) == (0, "stopped; repeat the command to continue from here\n")
