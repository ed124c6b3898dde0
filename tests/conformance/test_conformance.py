"""The official MCP conformance suite: before the gateway, a server passes all that it passes alone.

Set up by scripts/conformance.sh (Node.js and the suite's two versions, into build/conformance).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from proxy.settings.mcp import McpServerSettings
from proxy.settings.sections import ProxySettings
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parent.parent.parent
BUILD = ROOT / "build" / "conformance"
WHEN = re.compile(r"-\d{4}-\d{2}-\d{2}T.*$")  # results are in folders named for the scenario and the time
CHECKED = {"SUCCESS", "FAILURE", "WARNING"}

Checks = dict[tuple[str, str, int], str]  # (scenario, check, which of that name) → status


@pytest.fixture(scope="session")
def suite() -> Path:
    """The suite's folder, set up."""
    environment = os.environ | {"PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "scripts" / "conformance.sh"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return BUILD


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path / "data", RecorderSettings(), migrate=True)
    yield opened
    await opened.close()


async def checks(suite: Path, revision: str, url: str, results: Path, *options: str) -> Checks:
    """Run the suite against a server: what came of every check."""
    program = suite / "node_modules" / f"conformance-{revision}" / "dist" / "index.js"
    command: list[str | Path] = [
        suite / "node-binary",
        program,
        "server",
        "--url",
        url,
        "--output-dir",
        results,
        *options,
    ]
    running = await asyncio.create_subprocess_exec(
        *command, cwd=suite, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await running.communicate()
    found: Checks = {}
    for file in sorted(results.rglob("checks.json")):
        scenario = WHEN.sub("", file.parent.name)
        for check in json.loads(file.read_text()):
            nth = sum(key[:2] == (scenario, check["id"]) for key in found)
            found[scenario, check["id"], nth] = check["status"]
    assert found, said.decode()
    return found


def everything() -> Everything:
    return Everything()


def of_before() -> Everything:
    """As written for the handshake era, on an SDK that serves both: it asks and tells in that era alone."""
    return Everything(listens=False, asks_today=False)


@pytest.mark.parametrize(
    ("suite_of", "server", "era", "options", "at_least"),
    [
        ("2025-11-25", everything, "both", ["--suite", "all"], 44),
        pytest.param("2025-11-25", everything, "handshake", ["--suite", "all"], 44, marks=pytest.mark.long),
        pytest.param(
            *("2026-07-28", of_before, "both", ["--suite", "all", "--spec-version", "2025-11-25"], 84),
            marks=pytest.mark.long,
        ),
        ("2026-07-28", everything, "both", ["--requirements", "2026-07-28"], 163),
    ],
)
async def test_a_server_passes_behind_the_gateway_what_it_passes_alone(
    suite: Path,
    store: Store,
    tmp_path: Path,
    suite_of: str,
    server: Callable[[], Everything],
    era: str,
    options: list[str],
    at_least: int,
) -> None:
    settings = ProxySettings(port=0, mcp_prefix="none")
    async with served(server(), era=era, polls=server is of_before) as url:
        alone = await checks(suite, suite_of, url, tmp_path / "alone", *options)
        async with (
            FakeEngine() as engine,
            serving(store, engine, settings=settings, mcp={"e": McpServerSettings(url=url)}) as proxy,
        ):
            behind = await checks(suite, suite_of, f"{proxy.url}/mcp", tmp_path / "behind", *options)
    passed = [check for check, status in alone.items() if status == "SUCCESS"]
    print(f"{suite_of}, {era}: {len(passed)} alone, {sum(s == 'SUCCESS' for s in behind.values())} behind the gateway")
    assert len(passed) >= at_least
    assert {check: behind.get(check) for check in passed if behind.get(check) != "SUCCESS"} == {}
    guarded = [status for (scenario, _, _), status in behind.items() if "dns-rebinding" in scenario]
    assert set(guarded) & CHECKED == {"SUCCESS"}
