"""`hone eval` as people and scripts start it: what goes to which stream, exit statuses, what is refused at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sqlalchemy import select

from recorder.maintenance.integrity.invariants import check_store
from recorder.store.schema import campaigns
from tests.proxy.hone_command import hone
from tests.trainer.ring import Ring, Script, write_user_folder

pytestmark = pytest.mark.slow  # programs

ROOT = Path(__file__).parents[3]
GIVEN = ("--scenarios", "user/val.jsonl", "--cwd", "user", "--agent", "my_agent:run", "--success", "my_agent:solved")


@pytest.fixture
async def script() -> Script:
    return Script(skill=lambda number: 0.75)


@pytest.fixture
async def ring(tmp_path: Path, script: Script) -> AsyncIterator[Ring]:
    write_user_folder(tmp_path / "user")
    async with Ring.running(tmp_path / "data", script) as running:
        yield running


def evaluate(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    env = {name: value for name, value in os.environ.items() if not name.upper().startswith("HONE_")}
    return subprocess.Popen(
        [sys.executable, "-m", "proxy.cli", "eval", *arguments, "--data", str(folder / "data")],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_what_is_told_goes_to_standard_output_and_a_picture(ring: Ring, tmp_path: Path) -> None:
    asked = ("--versions", "base", "--attempts", "4", "--seeds", "2", "--proxy", ring.url + "/v1", *GIVEN)
    process = evaluate(tmp_path, *asked, "--json", "--picture", "versions.svg")
    out, err = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0, out + err
    told = json.loads(out)
    assert (told["alias"], told["against"], told["attempts"], told["seeds"]) == ("helpdesk", "base", 4, 2)
    (base,) = told["versions"]
    assert (base["model"], base["attempts"], base["measures"]["success"]["value"]) == ("helpdesk@0", 24, 0.75)
    assert "the picture is versions.svg" in err
    assert ElementTree.fromstring((tmp_path / "versions.svg").read_text("utf-8")).tag.endswith("svg")
    assert [one.name for one in await check_store(ring.store, tmp_path / "data") if one.violations] == []


async def test_ctrl_c_tells_nothing_and_the_same_command_goes_on(ring: Ring, script: Script, tmp_path: Path) -> None:
    script.hold, script.hold_after = asyncio.Event(), 5
    asked = ("--versions", "base", "--attempts", "4", "--concurrency", "2", "--proxy", ring.url, *GIVEN)
    process = evaluate(tmp_path, *asked)
    await ring.reached_hold.wait()
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(process.communicate)
    assert (process.returncode, out) == (130, ""), err
    assert err.endswith("stopped; repeat the command to continue from here\n")
    script.hold.set()
    process = evaluate(tmp_path, *asked)
    out, err = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0, err
    assert "resuming the evaluation" in err
    assert "75.0 %" in out
    async with ring.store.read() as conn:
        assert list((await conn.execute(select(campaigns.c.state))).scalars()) == ["finished"]


@pytest.mark.parametrize(
    ("arguments", "said", "status"),
    [
        ((), "Missing option '--versions'", 2),
        (("--versions", "live"), "Missing option '--scenarios'", 2),
        (("--versions", "live,gpt-9", *GIVEN), "there is no version 'gpt-9' (--versions)", 2),
        (("--versions", " , ", *GIVEN), "no version is named", 2),
        (("--versions", "live", *GIVEN, "--seeds", "0"), "--seeds", 2),
        (("--versions", "live", *GIVEN, "--picture", "no/such/x.svg"), "its folder does not exist", 2),
        (("--versions", "live", "--scenarios", "user/val.jsonl"), "no agent", 2),
        (("--versions", "live,base", *GIVEN[:-2]), "no judge rewards these attempts", 2),
        (("--versions", "live", *GIVEN[2:], "--scenarios", "nowhere.jsonl"), "nowhere.jsonl cannot be read", 2),
        (("--versions", "live", *GIVEN, "--proxy", "http://127.0.0.1:9"), "no proxy answers at http://127.0.0.1:9", 1),
    ],
)
def test_what_is_wrong_is_told_at_once(here: Path, arguments: tuple[str, ...], said: str, status: int) -> None:
    write_user_folder(here / "user")
    code, out, err = hone("eval", *arguments, "--data", str(here / "data"))
    assert (code, out) == (status, ""), err
    assert said in err
    assert "Traceback" not in err
