"""The whole ring on real parts: agents with tools, a judge over HTTP, training, hot swaps under load, exact tokens.

`make test` runs the campaign before the engine of `stack`; `make long` lets `hone train` start an engine of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import async_playwright
from sqlalchemy import exists, func, select

from examples.helpdesk.surroundings import surroundings
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.schema import ledger, step_groups, trajectories
from scripts import chromium, pictures
from tests.browser.looking import sound
from tests.browser.pages import whole
from tests.browser.visiting import LOOKS, visiting
from tests.e2e.conftest import MODEL, ROOT, wait_for
from tests.stores import Stores, stored_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SHARED, OWN = "a shared engine", "an engine of its own"
STEPS = {SHARED: 2, OWN: 3}  # the second goes on from a version that was trained
MEAN_DIFFERENCE = 1e-6  # |logprob(engine) − logprob(trainer)| in float32
MAX_DIFFERENCE = 1e-4


@dataclass
class Ring:
    """A campaign that ran, and the requests that others made meanwhile."""

    data: Path
    recording: RecorderSettings
    steps: int
    events: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    load_statuses: list[int] = field(default_factory=list)
    load_versions: list[tuple[str, str]] = field(default_factory=list)  # call id, version as the answer's header says


class Load(threading.Thread):
    """Streams one answer after another through the proxy until told to stop."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.statuses, self.versions = url, list[int](), list[tuple[str, str]]()
        self.ended = threading.Event()

    def run(self) -> None:
        body = {
            "model": "helpdesk",
            "messages": [{"role": "user", "content": "Where is my order 1111?"}],
            "max_tokens": 24,
            "stream": True,
        }
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.ended.is_set():
                headers = {"x-hone-purpose": "none"}
                with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
                    text = answer.read().decode()
                self.statuses.append(answer.status_code if "[DONE]" in text and '"error"' not in text else -1)
                self.versions.append((answer.headers["x-hone-call"], answer.headers["x-hone-version"]))


@pytest.fixture(scope="module", params=[SHARED, pytest.param(OWN, marks=pytest.mark.long)])
def ring(request: pytest.FixtureRequest, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    data = tmp_path_factory.mktemp("ring")
    engine = {} if request.param == OWN else request.getfixturevalue("stack").engine_settings
    with stores.unmade(data) as recording:
        yield played(data, recording, STEPS[request.param], engine)


def played(data: Path, recording: RecorderSettings, steps: int, engine: dict[str, str]) -> Ring:
    """A whole campaign, under load. `engine`: what names a running engine; without it one is started."""
    with surroundings(data) as (files, found):
        heldout = files.heldout.read_text().splitlines()[:8]
        files.heldout.write_text("\n".join(heldout) + "\n")
        environment = os.environ | found | stored_in(recording) | dict(engine)
        environment |= {
            "HONE_CAMPAIGN__STEPS": str(steps),
            "HONE_CAMPAIGN__GROUP_SIZE": "6",
            "HONE_CAMPAIGN__SCENARIOS_PER_STEP": "4",
        }
        config = ROOT / "examples" / "helpdesk" / "hone.toml"
        common = ["--config", str(config), "--data", str(data)]
        training = subprocess.Popen(
            [sys.executable, "-m", "proxy.cli", "train", *common, "--json"],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            load = Load(f"http://127.0.0.1:{found['HONE_PROXY__PORT']}")

            def first_step_is_sampled() -> bool:
                assert training.poll() is None, training.communicate()
                return any('"validation"' in p.read_text() for p in data.glob("campaigns/*/events.jsonl"))

            wait_for("the campaign's first validation", first_step_is_sampled)
            load.start()
            # the load must end before the campaign takes the services down: after the last step's swap
            wait_for("the last step", lambda: _steps(data) == steps)
            load.ended.set()
            load.join(60)
            output, errors = training.communicate(timeout=300)
        finally:
            training.kill()
            training.wait()
        assert training.returncode == 0, errors
        exported = subprocess.run(
            [sys.executable, "-m", "proxy.cli", "export", "--format", "raw", *common],
            env=environment,
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    events = [json.loads(line) for line in output.splitlines()]
    calls = [json.loads(line) for line in exported.splitlines()]
    return Ring(data, recording, steps, events, calls, load.statuses, load.versions)


def _steps(data: Path) -> int:
    return sum(p.read_text().count('"event": "step"') for p in data.glob("campaigns/*/events.jsonl"))


def test_every_step_puts_a_version_into_service_that_the_next_step_samples(ring: Ring) -> None:
    steps = [e for e in ring.events if e["event"] == "step"]
    assert [s["version"] for s in steps] == [f"helpdesk@{n}" for n in range(1, ring.steps + 1)]
    assert [s["sampled_by"] for s in steps] == [f"helpdesk@{n}" for n in range(ring.steps)]
    assert all(s["trained"] > 0 and s["errored"] == 0 for s in steps)
    assert all(s["reward"] is not None and s["success"] is not None for s in steps)


def test_every_call_of_an_attempt_is_recorded_exactly_under_its_trajectory(ring: Ring) -> None:
    attempts = [c for c in ring.calls if c["origin"] == "campaign"]
    assert len({c["trajectory_id"] for c in attempts}) == ring.steps * 4 * 6 + 2 * 8
    for call in attempts:
        assert call["status"] == "complete"
        assert call["attribution"] == {"source": "path", "confidence": "stated"}
        [choice] = call["choices"]
        assert len(choice["token_ids"]) == len(choice["logprobs"]) > 0
    assert {c["purpose"] for c in attempts} == {"train", "val"}


def test_nothing_but_train_attempts_was_trained_on(ring: Ring) -> None:
    trained, unexplained = asyncio.run(trained_and_unexplained(ring))
    assert trained == ["train"]
    assert unexplained == 0  # each was trained on, or the ledger says why not


@pytest.mark.long  # tests/browser/test_every_page.py looks at every page of a prepared store
@pytest.mark.parametrize("ring", [OWN], indirect=True)
@pytest.mark.browser
@pytest.mark.sqlite_only("the pages are served over a copy of its file")
def test_every_page_stands_on_what_the_ring_left(ring: Ring) -> None:
    with pictures.served(ring.data) as (url, store):
        shown = {f"/hone{path}" for path in whole()} | set(pictures.pages(store).values())
        assert asyncio.run(wrong_on(url, sorted(shown))) == {}


async def wrong_on(url: str, paths: list[str]) -> dict[str, list[str]]:
    """What a browser finds wrong on pages, at both widths, by their paths."""
    found: dict[str, list[str]] = {}
    async with async_playwright() as playwright:
        browser = await chromium.start(playwright)
        for size, scheme in LOOKS:
            async with visiting(browser, url, scheme, viewport=size) as visitor:
                for path in paths:
                    await visitor.goto(path)
                    if wrong := await sound(visitor.page):
                        found[f"{path} at {size['width']}"] = wrong
        await browser.close()
    return found


async def trained_and_unexplained(ring: Ring) -> tuple[list[str], int]:
    """The purposes of the steps' runs, and how many of these the ledger does not name."""
    of_steps = trajectories.join(step_groups, step_groups.c.group_id == trajectories.c.group_id)
    told = exists().where(ledger.c.object_kind == "trajectory", ledger.c.object_id == trajectories.c.id)
    store = await open_store(ring.data, ring.recording, migrate=False)
    try:
        async with store.read() as conn:
            purposes = await conn.execute(select(trajectories.c.purpose).select_from(of_steps).distinct())
            untold = await conn.execute(select(func.count()).select_from(of_steps).where(~told))
            return list(purposes.scalars()), untold.scalar_one()
    finally:
        await store.close()


def test_requests_during_the_swaps_neither_fail_nor_mix_versions(ring: Ring) -> None:
    assert len(ring.load_statuses) > 10
    assert set(ring.load_statuses) == {200}
    recorded = {c["call_id"]: c["version"] for c in ring.calls}
    assert all(recorded[call_id] == version for call_id, version in ring.load_versions)
    assert len({version for _, version in ring.load_versions}) > 1


def test_engine_and_trainer_agree_on_every_sampled_token_with_an_adapter_loaded(ring: Ring) -> None:
    torch = pytest.importorskip("torch")
    import peft
    import transformers

    by_version: dict[str, list[dict[str, Any]]] = {}
    for call in ring.calls:  # the load's calls too: a mixed one would show here
        if call["version"] != "helpdesk@0":
            by_version.setdefault(call["version"], []).append(call)
    assert len(by_version) >= 2
    differences: list[float] = []
    for version, calls in by_version.items():
        base = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
        [folder] = (ring.data / "adapters").glob(f"{version}-*")
        model = peft.PeftModel.from_pretrained(base, folder).eval()
        for call in calls:
            [choice] = call["choices"]
            prompt, sampled = call["prompt_token_ids"], choice["token_ids"]
            with torch.no_grad():
                logits = model(torch.tensor([prompt + sampled])).logits[0, len(prompt) - 1 : -1]
            logprobs = logits.float().log_softmax(-1).gather(1, torch.tensor(sampled)[:, None])[:, 0]
            differences += (logprobs - torch.tensor(choice["logprobs"])).abs().tolist()
    mean, largest = sum(differences) / len(differences), max(differences)
    print(f"\n|engine − trainer| over {len(differences)} tokens: mean {mean:.2e}, max {largest:.2e}")
    assert mean <= MEAN_DIFFERENCE
    assert largest <= MAX_DIFFERENCE
