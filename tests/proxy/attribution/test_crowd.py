"""Random interleaved conversations of many agents through the real attribution: no call lands in another's run."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from proxy.attribution.attributor import Attributor
from proxy.settings.sections import ProxySettings
from proxy.versions.routing import ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.registry.aliases import ensure_alias
from recorder.registry.replicas import report_replica
from recorder.settings import RecorderSettings
from recorder.store.database import Project, Store, sqlite_url
from tests.proxy.crowd import PROJECT, Crowd, Tally

pytestmark = pytest.mark.slow


async def play(migrated_file: Path, seed: int, conversations: int, proxies: int, keys: Sequence[str] = ("",)) -> Tally:
    """A crowd before several proxies over one store."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(migrated_file, Path(folder) / "hone.db")
        store = Store(sqlite_url(Path(folder)))
        alias = await ensure_alias(Project(store, PROJECT), "helpdesk", "base", "fingerprint")
        await report_replica(
            Project(store, PROJECT), "http://engine", base_model="base", base_fingerprint="fingerprint", state="up",
            detail=None, loaded=["base"],
        )  # fmt: skip
        async with AsyncExitStack() as stack:
            stack.push_async_callback(store.close)
            doors = []
            for _ in range(proxies):
                recorder, versions = (
                    Recorder(store, RecorderSettings()),
                    ServiceRouter(Project(store, PROJECT), ProxySettings()),
                )
                await recorder.start()
                stack.push_async_callback(recorder.stop)
                await versions.refresh()
                doors.append((Attributor(PROJECT, recorder, versions), recorder))
            target = versions.resolve(alias.name)
            assert target is not None
            return await Crowd(seed, doors, target, keys).play(conversations)


@pytest.mark.parametrize(("seed", "proxies"), [(1, 1), (2, 2), (3, 3)])
async def test_no_call_lands_in_anothers_run(migrated_file: Path, seed: int, proxies: int) -> None:
    tally = await play(migrated_file, seed, 40, proxies)
    assert tally.wrong == []
    assert tally.missed == []
    assert tally.decidable > tally.undecidable


@pytest.mark.parametrize(("seed", "proxies"), [(11, 1), (12, 2), (13, 3)])
async def test_no_call_lands_in_a_run_of_another_key(migrated_file: Path, seed: int, proxies: int) -> None:
    tally = await play(migrated_file, seed, 40, proxies, keys=("key_a", "key_b", "key_c"))
    assert tally.crossed == []
    assert tally.wrong == []
    assert tally.missed == []
    assert tally.stolen > 10


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_keys_stay_apart_in_thousands_of_conversations(migrated_file: Path) -> None:
    refused = 0
    for seed in range(200, 215):
        tally = await play(migrated_file, seed, 100, 1 + seed % 3, keys=("key_a", "key_b", "key_c"))
        assert tally.crossed == []
        assert tally.wrong == []
        assert tally.missed == []
        refused += tally.refused
    assert refused > 10


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_thousands_of_conversations_stay_apart(migrated_file: Path) -> None:
    whole = Tally()
    for seed in range(100, 140):
        tally = await play(migrated_file, seed, 100, 1 + seed % 3)
        assert tally.wrong == []
        assert tally.missed == []
        whole.calls += tally.calls
        whole.decidable += tally.decidable
        whole.undecidable += tally.undecidable
        whole.split += tally.split
        whole.ways += tally.ways
    ways = {f"{source}/{confidence}": n for (source, confidence), n in whole.ways.most_common()}
    print(json.dumps({"calls": whole.calls, "decidable": whole.decidable, "undecidable": whole.undecidable,
                      "split": whole.split, "ways": ways}, indent=1))  # fmt: skip
    assert whole.decidable > 2 * whole.undecidable  # retries and sessions of several count as undecidable
