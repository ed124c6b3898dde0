"""Hone's own routes, fuzzed by their own OpenAPI schema: no 5xx, no hang, and every answer as it is declared."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from recorder.registry import keys
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import PROJECT, Proxy, serving

# How many a route and phase. The coverage phase, which asks each limit that the schema has, is the same with both.
EXAMPLES = pytest.mark.parametrize(
    "examples", [pytest.param(8, id="8"), pytest.param(60, id="60", marks=pytest.mark.long)]
)
REQUEST_TIMEOUT_S = 20  # an answer that takes longer is a hang
# The rules that a schema cannot say (one name of two, a text for a comment) reject what fits it: no failure.
NOT_CHECKED = "positive_data_acceptance"


async def seeded(proxy: Proxy) -> list[str]:
    """Runs of all kinds; the names by which routes may find them."""
    names = []
    for number in range(6):
        answer = await proxy.chat("Where?", path=f"/g/orders/t/{number}")
        names.append(answer.headers["x-hone-trajectory"])
    for number in range(6):
        await proxy.chat("Where?", "On its way", "When?", path=f"/t/run-{number}", n=2)
        await proxy.http.post(f"/t/run-{number}/hone/v1/feedback", json={"name": "solved", "value": number % 2 == 0})
    for number in range(3):
        await proxy.http.post(f"/t/run-{number}/hone/v1/done", json={})
    return [*names, *(f"run-{n}" for n in range(6)), "orders", "helpdesk"]


async def fuzz(
    proxy: Proxy, names: list[str], folder: Path, examples: int, *options: str, unchecked: str = NOT_CHECKED
) -> tuple[int, str]:
    """Run the fuzzer as a process of its own; its exit status and what it said."""
    program = Path(sys.executable).with_name("st")
    here = Path(__file__).parents[3]
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "tests.proxy.fuzz_hooks",
        "FUZZED_NAMES": ",".join(names),
        "PYTHONPATH": str(here),
    }
    process = await asyncio.create_subprocess_exec(
        str(program), "run", f"{proxy.url}/schema/openapi.json", "--max-examples", str(examples), "--request-timeout",
        str(REQUEST_TIMEOUT_S), "--phases", "examples,coverage,fuzzing", "--exclude-checks", unchecked, "--seed", "1",
        "--generation-database", "none", "--suppress-health-check", "all", "--continue-on-failure", *options,
        cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode(errors="replace")


@pytest.mark.slow
@pytest.mark.timeout(600)
@EXAMPLES
async def test_whatever_is_asked_of_the_own_routes_is_answered_as_declared(
    store: Store, tmp_path: Path, examples: int
) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        engine.default = Script([words("It arrives on Monday")])
        status, said = await fuzz(proxy, await seeded(proxy), tmp_path, examples)
        assert status == 0, said
        assert (await proxy.http.get("/healthz")).status_code == 200


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
@EXAMPLES
async def test_nothing_gets_past_a_key_that_may_only_read(store: Store, tmp_path: Path, examples: int) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        engine.default = Script([words("It arrives on Monday")])
        names = await seeded(proxy)
        before = [(await proxy.http.get(f"/hone/v1/trajectories/{n}?tokens=true")).json() for n in names[:12]]
        _, secret = await keys.create_key(Project(store, PROJECT), "reader", ["read"])
        async with asyncio.timeout(10):
            while (await proxy.http.get("/v1/models")).status_code != 401:
                pass  # the proxy asks once a second whether there are keys
        bearer = {"authorization": f"Bearer {secret}"}
        header = f"Authorization: {bearer['authorization']}"
        # who may not use a route is not told its methods: 403 comes before 405
        status, said = await fuzz(
            proxy, names, tmp_path, examples, "--header", header, unchecked=f"{NOT_CHECKED},unsupported_method"
        )
        assert status == 0, said
        after = [
            (await proxy.http.get(f"/hone/v1/trajectories/{n}?tokens=true", headers=bearer)).json() for n in names[:12]
        ]
        assert after == before
